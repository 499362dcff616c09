"""Writes the plans of the league from all `league.toml`.

There is one plan for each preset, because a plan's `websocket` section speaks one protocol. Figures of different
protocols are not comparable in any case.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from league_servers import ROOT, LeagueError, Server

ECHO = "echo"
# Quick to build, of different toolchains and runtimes: what CI measures.
CI = ("ws", "bun", "gorilla", "websockets", "picows", "aiohttp", "socket.io")
# Figures are those of a quiet machine. A busy one may be late: plans of CI and checks are about counts, not time.
QUIET = "{ busy_share: 0.02, steal_share: 0.01 }"
LENIENT = "{ delay_p99_ms: 1000, worker_cpu_share: 1, start_skew_ms: 1000, send_share: 0.5 }"


@dataclass(frozen=True)
class Climb:
    """A ladder of the league: its workload and variant, and the load in YAML."""

    workload: str
    variant: str
    connections: int
    load: str
    why: str
    # Replaces the plan's warm-up; 0 for a load that ends by itself, whose beginning would else be missing.
    warmup_seconds: float | None = None
    # The lowest and the highest rate of a search; none for a ladder that is climbed as it is.
    search: tuple[int, int] | None = None


# The same for all servers: some runtimes compile while they run.
COMPILES_SECONDS = 5
CLIMBS = (
    Climb(
        "request-reply",
        "open",
        100,
        "{ model: open, rate_per_second: 2000, arrivals: poisson }",
        "What a message costs at a rate that most servers keep up with easily.",
        COMPILES_SECONDS,
    ),
    Climb(
        "request-reply",
        "closed",
        100,
        "{ model: closed }",
        "The most messages per second that one CPU of the service answers.",
        COMPILES_SECONDS,
    ),
    Climb(
        "fanout",
        "standard",
        1000,
        "{ model: open, rate_per_second: 10 }",
        "10 publications per second to 1,000 subscribers: what a delivery costs.",
    ),
    Climb("idle", "standard", 1000, "{ model: closed }", "What a silent connection costs in memory."),
    Climb(
        "connection-storm",
        "standard",
        500,
        "{ model: closed, in_flight: 64 }",
        "The rate at which connections open. Ends when all are open.",
        warmup_seconds=0,
    ),
)


# Beside the others on a bigger machine: hours, because each server needs some thirty trials.
CAPACITY = Climb(
    "request-reply",
    "capacity",
    100,
    "{ model: open, rate_per_second: 1000, arrivals: poisson }",
    "The rate of messages that one CPU of the service answers within 10 ms.",
    COMPILES_SECONDS,
    search=(500, 1_000_000),
)
OBJECTIVES = (
    "  objectives:",
    "    - { figure: { percentile_ms: { histogram: response, percentile: 99 } }, at_most: 10 }",
    "    - { figure: failed_share, at_most: 0 }",
)


@dataclass(frozen=True)
class Length:
    """How long a plan measures, on how many CPUs, and how strictly its trials are judged."""

    repeats: int
    warmup_seconds: float
    window_seconds: float
    drain_seconds: float
    lenient: bool = False
    # Divides numbers of connections and rates, for checks that are not about figures.
    smaller: int = 1
    # Processes of the generator, each with a CPU of its own where there are enough.
    workers: int = 1
    # Whether capacities are searched, too.
    searched: bool = False


# Five processes of each server, which an interval needs; together less than two hours.
FULL = Length(repeats=5, warmup_seconds=2, window_seconds=4, drain_seconds=5)
# For a machine with six CPUs or more: a generator that is never the limit, and narrower intervals.
LARGE = Length(repeats=10, warmup_seconds=5, window_seconds=10, drain_seconds=5, workers=4, searched=True)
SHORT = Length(repeats=1, warmup_seconds=0, window_seconds=1, drain_seconds=3, lenient=True, smaller=10)


def plans(servers: Iterable[Server]) -> dict[Path, str]:
    """The text of each plan of the league by its path."""
    every = list(servers)
    texts = {}
    for preset, speaking in by_preset(every).items():
        suffix = "" if preset == ECHO else f"-{preset}"
        for name, length in ((f"league{suffix}", FULL), (f"league-large{suffix}", LARGE)):
            texts[ROOT / f"plans/{name}.yaml"] = plan(name, preset, speaking, length)
    for preset, speaking in by_preset([server for server in every if server.name in CI]).items():
        suffix = "" if preset == ECHO else f"-{preset}"
        texts[ROOT / f"plans/league-ci{suffix}.yaml"] = plan(f"league-ci{suffix}", preset, speaking, SHORT)
    return texts


def by_preset(servers: Iterable[Server]) -> dict[str, list[Server]]:
    """Servers by the protocol that they speak; the echo first."""
    found: dict[str, list[Server]] = {}
    for server in sorted(servers, key=lambda server: (server.preset != ECHO, server.preset, server.name)):
        found.setdefault(server.preset, []).append(server)
    return found


def plan(name: str, preset: str, servers: list[Server], length: Length) -> str:
    """A plan for servers of one preset, in YAML."""
    strictness = f"validity: {LENIENT if length.lenient else QUIET}\n"
    offered = (*CLIMBS, CAPACITY) if length.searched else CLIMBS
    climbed = [climb for climb in offered if any(climb.workload in server.workloads for server in servers)]
    why = (
        "shows that the servers answer every message"
        if length.lenient
        else "measures servers of other projects in turns"
    )
    if length.searched:
        why += ", on six CPUs or more"
    return f"""# Generated from services/league/*/league.toml; change those, then run: python3 tools/league.py plan
# Why: {why}, with the preset {preset}.
schema: 3
name: {name}
why: {why}, with the preset {preset}
seed: 20
services: [{", ".join(server.name for server in servers)}]
service_process: repeat
{f"workers: {length.workers}{chr(10)}" if length.workers > 1 else ""}repeats: {length.repeats}
cpu:
  service: {{ cpus: 1 }}
  worker: {{ cpus: 1 }}
warmup_seconds: {length.warmup_seconds:g}
window_seconds: {length.window_seconds:g}
drain_seconds: {length.drain_seconds:g}
{strictness}websocket:
  extends: {preset}
  services:
{"".join(service(server) for server in servers)}ladders:
{"".join(ladder(climb, servers, length) for climb in climbed)}"""


def service(server: Server) -> str:
    """The server as an entry of the plan's `websocket.services`."""
    lines = [
        f"{server.name}:",
        f"  url: {quoted(f'ws://127.0.0.1:{{port}}{server.path}')}",
        f"  command: [{', '.join(map(quoted, server.command))}]",
    ]
    if server.env:
        lines.append(f"  env: {{ {', '.join(f'{key}: {quoted(value)}' for key, value in server.env.items())} }}")
    if server.version:
        lines.append(f"  version: {quoted(server.version)}")
    else:
        lines.append(f"  version_command: [{', '.join(map(quoted, server.version_command))}]")
    return "".join(f"    {line}\n" for line in lines)


def ladder(climb: Climb, servers: list[Server], length: Length) -> str:
    """A ladder of the plan; it names the services where not all of them climb it."""
    climbing = [server.name for server in servers if climb.workload in server.workloads]
    lines = [
        f"# {climb.why}",
        f"- workload: {climb.workload}",
        f"  variant: {climb.variant}",
        *([] if climb.search else [f"  tiers: [{climb.connections // length.smaller}]"]),
        f"  load: {load(climb, length)}",
    ]
    if climb.warmup_seconds == 0:
        lines += ["  warmup_seconds: 0", "  window_seconds: 10"]
    elif climb.warmup_seconds and not length.lenient:
        lines.append(f"  warmup_seconds: {climb.warmup_seconds:g}")
    if len(climbing) < len(servers):
        lines.append(f"  services: [{', '.join(climbing)}]")
    if climb.search:
        lines += searched(climb.connections, *climb.search)
    return "".join(f"  {line}\n" for line in lines)


def searched(connections: int, lowest: int, highest: int) -> list[str]:
    """What a ladder has instead of tiers: its objectives, and between which rates they are searched."""
    return [
        *OBJECTIVES,
        "  search:",
        "    over: rate_per_second",
        f"    connections: {connections}",
        f"    from: {lowest}",
        f"    to: {highest}",
        "    final_trial_seconds: 1",
        "    duration_sum_seconds: 5",
        "    width: 0.05",
        "    rounds: { window_seconds: 10 }",
    ]


def load(climb: Climb, length: Length) -> str:
    """The load in YAML. A check sends a tenth of the messages, but for a fan-out, which has few."""
    return climb.load.replace("2000", str(2000 // length.smaller))


def quoted(text: str) -> str:
    """A YAML string; JSON's are a subset of them."""
    return json.dumps(text)


def write(servers: Iterable[Server]) -> list[Path]:
    """Writes all plans, and removes those of presets that are gone."""
    texts = plans(servers)
    for old in (ROOT / "plans").glob("league*.yaml"):
        if old not in texts:
            old.unlink()
    for file, text in texts.items():
        file.write_text(text)
    return list(texts)


def checked(program: Path, files: Iterable[Path]) -> list[tuple[str, int]]:
    """What `ladder plan check` says about each plan, with its most seconds under load. Raises `LeagueError` for a plan
    that is wrong."""
    found = []
    for file in files:
        done = subprocess.run([program, "plan", "check", file], cwd=ROOT, capture_output=True, text=True)
        seconds = re.search(r"at most (\d+) s under load", done.stdout)
        if done.returncode or not seconds:
            raise LeagueError(f"{file.name}: {(done.stderr or done.stdout).strip()}")
        found.append((done.stdout.strip(), int(seconds[1])))
    return found


def is_measured(file: Path) -> bool:
    """Whether a plan is one of those that docs/LEAGUE.md is made from."""
    return not file.stem.startswith(("league-ci", "league-large"))


def is_large(file: Path) -> bool:
    """Whether a plan is one for a bigger machine."""
    return file.stem.startswith("league-large")


def services_of(file: Path) -> list[str]:
    """The names in a plan's list of services."""
    line = next(line for line in file.read_text().splitlines() if line.startswith("services: "))
    return [name.strip() for name in line.removeprefix("services: ").strip("[]").split(",")]
