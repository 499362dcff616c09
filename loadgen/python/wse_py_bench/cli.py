"""The command lines: the flags of the published clients, and additional ones."""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .machine import cpu_list
from .token import BENCH_SECRET, sign
from .trial import WORKLOADS

# The published benchmarks expect the metrics port 1000 above the service's port.
METRICS_OFFSET = 1000
# The variables that hold the secret which signs the token, and a token. Flags would show them in the process list.
SECRET = "WSE_BENCH_SECRET"
TOKEN = "WSE_BENCH_TOKEN"


@dataclass(frozen=True)
class Options:
    """The validated options. Durations are in seconds."""

    profile: str
    host: str
    port: int
    token: str
    stats_url: str
    service: str | None
    tests: tuple[str, ...]
    duration: float
    warmup: float
    drain: float
    workers: int
    tiers: tuple[int, ...]
    tiers_heavy: tuple[int, ...]
    batch_size: int
    # Processes of a flood; `None`: the profile's number.
    processes: int | None
    cpus: frozenset[int]
    results: Path | None
    json: bool
    # The arguments after the program's name. They hold no secrets.
    words: tuple[str, ...]


def parse(profile: str, description: str, words: Sequence[str]) -> Options:
    """Parses the arguments after the program's name; prints help or the error and exits for bad ones."""
    parser = _common(description)
    if profile == "multiprocess":
        parser.add_argument("--workers", type=_whole, default=16, help="processes, one connection each")
    if profile == "brutal":
        parser.add_argument("--tiers", type=_list, default=(), help="connections of each tier; default: 100,500,1000")
        parser.add_argument("--tiers-heavy", type=_list, default=(), help="the same for floods; default: --tiers")
        parser.add_argument("--connections", type=_whole, help="one tier: the same as --tiers")
        parser.add_argument("--processes", type=_whole, help="processes that flood; default: one per connection")
        parser.add_argument("--batch-size", type=_whole, default=200, help="connection attempts in flight at once")
    found = parser.parse_args(words)
    given = vars(found)
    tiers = (found.connections,) if given.get("connections") else given.get("tiers", ())
    secret = os.environ.get(SECRET) or BENCH_SECRET
    return Options(
        profile=profile,
        host=found.host,
        port=found.port,
        token=os.environ.get(TOKEN) or sign(secret, int(time.time())),
        stats_url=found.stats_url or f"http://{found.host}:{found.port + METRICS_OFFSET}",
        service=found.service,
        tests=found.tests,
        duration=found.duration,
        warmup=found.warmup,
        drain=found.drain,
        workers=given.get("workers", 1),
        tiers=tiers,
        tiers_heavy=given.get("tiers_heavy", ()),
        batch_size=given.get("batch_size", 200),
        processes=given.get("processes"),
        cpus=found.cpus,
        results=found.results,
        json=found.output == "json",
        words=tuple(words),
    )


class _Refused(argparse.Action):
    """A flag that would show a secret in the process list; `const` is the variable that takes its place."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, option_string: str | None = None) -> None:
        parser.error(f"{option_string} shows its value to all users of the machine (ps); set {self.const} instead")


def _common(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description,
        epilog=f"{SECRET} is the secret that signs the token, {TOKEN} a token that is signed already. "
        "Exit code: 0 when every test did what it says, 1 when not, 2 for bad usage.",
    )
    port = int(os.environ.get("WSE_RUST_PORT", "5006"))
    parser.add_argument("--host", default="127.0.0.1", help="host of the service")
    parser.add_argument("--port", type=_whole, default=port, help="its port; default: WSE_RUST_PORT, else 5006")
    for flag, variable in (("--secret", SECRET), ("--token", TOKEN)):
        parser.add_argument(flag, action=_Refused, const=variable, nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--stats-url", help="the service's metrics port; default: the port + 1000")
    parser.add_argument("--service", help="what results call the service; default: what it calls itself")
    parser.add_argument("--tests", type=_tests, default=tuple(WORKLOADS), help=f"some of: {', '.join(WORKLOADS)}")
    parser.add_argument("--duration", type=_positive, default=5.0, help="the measured window, in seconds")
    parser.add_argument("--warmup", type=_not_negative, default=0.5, help="load before the window, in seconds")
    parser.add_argument("--drain", type=_positive, default=10.0, help="longest wait for what is in flight, in seconds")
    parser.add_argument("--cpus", type=_cpus, default=frozenset(), help="CPUs for the workers, such as 1 or 2-63")
    parser.add_argument("--results", type=Path, help="write a bundle into a folder of its own in here")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="how results are printed")
    return parser


def _tests(text: str) -> tuple[str, ...]:
    """Parses test names or the published numbers 1 to 7 (5, the encoders, has its own program)."""
    numbers = {
        "1": "connection-storm",
        "2": "ping-latency",
        "3": "throughput",
        "4": "sustained-hold",
        "6": "size-matrix",
        "7": "format-comparison",
    }
    names = tuple(numbers.get(word, word) for word in text.split(","))
    for name in names:
        if name not in WORKLOADS:
            raise argparse.ArgumentTypeError(f"there is no test {name!r}; known are {', '.join(WORKLOADS)}")
    return names


def _list(text: str) -> tuple[int, ...]:
    return tuple(_whole(part) for part in text.split(","))


def _whole(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _positive(text: str) -> float:
    if 0 < (value := _number(text)) < float("inf"):
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def _not_negative(text: str) -> float:
    if 0 <= (value := _number(text)) < float("inf"):
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is below 0")


def _cpus(text: str) -> frozenset[int]:
    try:
        found = frozenset(cpu_list(text))
    except ValueError:
        found = frozenset()
    allowed = os.sched_getaffinity(0)
    if not found or not found <= allowed:
        may = ",".join(map(str, sorted(allowed)))
        raise argparse.ArgumentTypeError(f"{text!r} is no list of CPUs on which this process may run: {may}")
    return found
