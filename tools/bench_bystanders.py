"""What bystanders notice of a flood: the p99 of 1 000 clients that ping once a second, beside one flooder.

Three cases in turns, each in fresh processes: no flood (quiet), a flood with an application that keeps up, and a flood
with an application that stands still for a minute. All processes share two CPUs.

Usage: .venv/bin/python tools/bench_bystanders.py [--repeats N] [--seconds S] [--standstill-seconds S]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_summary import Row, Sides, compared, markdown

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = ROOT / "tools/bystanders.py"
WORKING = ROOT / "services/wse-server/bench_server.py"
STANDING = ROOT / "services/wse-server/bench_standstill_server.py"
COMMAND = "tools/bench_bystanders.py"
CPUS = 2
# How many times the quiet p99 may become.
KEEPS_UP_BAR, STANDS_STILL_BAR = 2, 5

Seen = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """What runs beside the bystanders."""

    name: str
    program: Path
    is_flooded: bool
    bar: int | None = None


QUIET = Case("quiet", WORKING, is_flooded=False)
CASES = (
    QUIET,
    Case("flood, the application keeps up", WORKING, is_flooded=True, bar=KEEPS_UP_BAR),
    Case("flood, the application stands still", STANDING, is_flooded=True, bar=STANDS_STILL_BAR),
)


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 all rows have figures, 1 some are missing, 2 bad usage."""
    parser = argparse.ArgumentParser(description="Bystanders of a flood.")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes of each case (default: 5)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of pings in each (default: 20)")
    parser.add_argument("--standstill-seconds", type=float, default=60.0, help="of a standstill (default: 60)")
    options = parser.parse_args(arguments)
    if min(options.repeats, options.seconds, options.standstill_seconds) <= 0:
        parser.error("repeats and seconds must be above 0")
    rows = measure(options.repeats, options.seconds, options.standstill_seconds)
    print(markdown(rows))
    return 1 if any(row.ours is None for row in rows) else 0


def measure(
    repeats: int = 5, seconds: float = 20.0, standstill_seconds: float = 60.0, file: Path | None = None
) -> list[Row]:
    """Runs the cases in turns and returns their rows; what each process saw goes to `file`."""
    seen: dict[str, list[Seen]] = {case.name: [] for case in CASES}
    for number in range(repeats):
        for case in CASES:
            print(f"bystanders: {case.name}, {number + 1} of {repeats}", file=sys.stderr)
            seen[case.name].append(run(case, standstill_seconds if case.program == STANDING else seconds))
    if file is not None:
        file.write_text(json.dumps(seen, indent=2) + "\n")
    return [row(case, seen) for case in CASES]


def run(case: Case, seconds: float) -> Seen:
    """What the bystanders saw in one case, in fresh processes."""
    server = start([str(case.program), "--port", "0", "--metrics-port", "0"])
    flooder = crowd = None
    try:
        address = json.loads(line(server))["address"]
        if case.is_flooded:
            flooder = start([str(CLIENTS), "flooder", address])
            line(flooder)
        crowd = start([str(CLIENTS), "crowd", address, "--seconds", str(seconds)])
        seen: dict[str, Any] = json.loads(line(crowd))
        if flooder is not None:
            assert flooder.stdin is not None
            flooder.stdin.close()
            seen["flooder"] = json.loads(line(flooder))
        return seen
    finally:
        for process in (crowd, flooder, server):
            if process is not None:
                process.terminate()
                # Waits, and closes the pipes.
                process.__exit__(None, None, None)


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    """Starts a Python program on the CPUs that all of them share."""
    allowed = sorted(os.sched_getaffinity(0))[:CPUS]
    process = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    os.sched_setaffinity(process.pid, allowed)
    return process


def line(process: subprocess.Popen[str]) -> str:
    """The next line of a program; raises if it ends without one."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise RuntimeError(f"a program ended without a result: {process.args!r}")
    return text


def row(case: Case, seen: Mapping[str, Sequence[Seen]]) -> Row:
    """The row of a case: its p99, and how many times the quiet one it is."""
    # The cases take turns, so processes with the same number are a pair.
    sides = Sides({"ours": p99(seen[case.name]), "quiet": p99(seen[QUIET.name])})
    ratio, interval = compared(sides, "ours", "quiet") if case.bar else (None, None)
    faults = [*sides.missing, *complaints(seen[case.name])]
    if case.bar and ratio is not None and ratio > case.bar:
        faults.append(f"beyond the bar of {case.bar} times the quiet case")
    return Row(
        f"1 000 bystanders that ping once a second, {case.name}: p99",
        "us",
        sides.mean("ours"),
        None,
        None,
        ratio,
        interval,
        f"{case.name} / {QUIET.name}" if case.bar else "",
        None,
        COMMAND,
        "; ".join(faults) or None,
    )


def p99(seen: Sequence[Seen]) -> dict[int, list[float]]:
    """The p99 of each process that answered every ping, by number; a latency that leaves pings out says nothing."""
    return {number: [one["p99_us"]] for number, one in enumerate(seen) if one["unanswered"] == 0}


def complaints(seen: Sequence[Seen]) -> list[str]:
    """What no client should see: pings without an answer, and disconnected clients."""
    unanswered = sum(one["unanswered"] for one in seen)
    disconnected = sum(one["disconnected"] + one.get("flooder", {}).get("disconnected", 0) for one in seen)
    counts = {"pings unanswered": unanswered, "clients disconnected": disconnected}
    return [f"{count} {what}" for what, count in counts.items() if count]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
