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
SECRET_VARIABLE = "WSE_BENCH_SECRET"
TOKEN_VARIABLE = "WSE_BENCH_TOKEN"


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
    arguments: tuple[str, ...]


def parse(profile: str, description: str, arguments: Sequence[str]) -> Options:
    """Parses the arguments after the program's name; prints help or the error and exits for bad ones."""
    parser = _common_parser(description)
    if profile == "multiprocess":
        parser.add_argument("--workers", type=_positive_integer, default=16, help="processes, one connection each")
    if profile == "brutal":
        parser.add_argument(
            "--tiers", type=_positive_integers, default=(), help="connections of each tier; default: 100,500,1000"
        )
        parser.add_argument(
            "--tiers-heavy", type=_positive_integers, default=(), help="the same for floods; default: --tiers"
        )
        parser.add_argument("--connections", type=_positive_integer, help="one tier: the same as --tiers")
        parser.add_argument(
            "--processes", type=_positive_integer, help="processes that flood; default: one per connection"
        )
        parser.add_argument(
            "--batch-size", type=_positive_integer, default=200, help="connection attempts in flight at once"
        )
    parsed = parser.parse_args(arguments)
    profile_arguments = vars(parsed)
    tiers = (parsed.connections,) if profile_arguments.get("connections") else profile_arguments.get("tiers", ())
    secret = os.environ.get(SECRET_VARIABLE) or BENCH_SECRET
    return Options(
        profile=profile,
        host=parsed.host,
        port=parsed.port,
        token=os.environ.get(TOKEN_VARIABLE) or sign(secret, int(time.time())),
        stats_url=parsed.stats_url or f"http://{parsed.host}:{parsed.port + METRICS_OFFSET}",
        service=parsed.service,
        tests=parsed.tests,
        duration=parsed.duration,
        warmup=parsed.warmup,
        drain=parsed.drain,
        workers=profile_arguments.get("workers", 1),
        tiers=tiers,
        tiers_heavy=profile_arguments.get("tiers_heavy", ()),
        batch_size=profile_arguments.get("batch_size", 200),
        processes=profile_arguments.get("processes"),
        cpus=parsed.cpus,
        results=parsed.results,
        json=parsed.output == "json",
        arguments=tuple(arguments),
    )


class _RefusedFlag(argparse.Action):
    """A flag that would show a secret in the process list; `const` is the variable that takes its place."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, option_string: str | None = None) -> None:
        parser.error(f"{option_string} shows its value to all users of the machine (ps); set {self.const} instead")


def _common_parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description,
        epilog=f"{SECRET_VARIABLE} is the secret that signs the token, {TOKEN_VARIABLE} a token that is signed "
        "already. Exit code: 0 when every test did what it says, 1 when not, 2 for bad usage.",
    )
    port = int(os.environ.get("WSE_RUST_PORT", "5006"))
    parser.add_argument("--host", default="127.0.0.1", help="host of the service")
    parser.add_argument(
        "--port", type=_positive_integer, default=port, help="its port; default: WSE_RUST_PORT, else 5006"
    )
    for flag, variable in (("--secret", SECRET_VARIABLE), ("--token", TOKEN_VARIABLE)):
        parser.add_argument(flag, action=_RefusedFlag, const=variable, nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--stats-url", help="the service's metrics port; default: the port + 1000")
    parser.add_argument("--service", help="what results call the service; default: what it calls itself")
    parser.add_argument("--tests", type=_test_names, default=tuple(WORKLOADS), help=f"some of: {', '.join(WORKLOADS)}")
    parser.add_argument("--duration", type=_positive_number, default=5.0, help="the measured window, in seconds")
    parser.add_argument("--warmup", type=_non_negative_number, default=0.5, help="load before the window, in seconds")
    parser.add_argument(
        "--drain", type=_positive_number, default=10.0, help="longest wait for what is in flight, in seconds"
    )
    parser.add_argument("--cpus", type=_cpu_set, default=frozenset(), help="CPUs for the workers, such as 1 or 2-63")
    parser.add_argument("--results", type=Path, help="write a bundle into a folder of its own in here")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="how results are printed")
    return parser


def _test_names(text: str) -> tuple[str, ...]:
    """Parses test names or the published numbers 1 to 7 (5, the encoders, has its own program)."""
    numbers = {
        "1": "connection-storm",
        "2": "ping-latency",
        "3": "throughput",
        "4": "sustained-hold",
        "6": "size-matrix",
        "7": "format-comparison",
    }
    names = tuple(numbers.get(name, name) for name in text.split(","))
    for name in names:
        if name not in WORKLOADS:
            raise argparse.ArgumentTypeError(f"there is no test {name!r}; known are {', '.join(WORKLOADS)}")
    return names


def _positive_integers(text: str) -> tuple[int, ...]:
    return tuple(_positive_integer(part) for part in text.split(","))


def _positive_integer(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _positive_number(text: str) -> float:
    if 0 < (value := _number(text)) < float("inf"):
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def _non_negative_number(text: str) -> float:
    if 0 <= (value := _number(text)) < float("inf"):
        return value
    raise argparse.ArgumentTypeError(f"{text!r} is below 0")


def _cpu_set(text: str) -> frozenset[int]:
    try:
        found = frozenset(cpu_list(text))
    except ValueError:
        found = frozenset()
    allowed = os.sched_getaffinity(0)
    if not found or not found <= allowed:
        allowed_list = ",".join(map(str, sorted(allowed)))
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of CPUs that this process may use: {allowed_list}")
    return found
