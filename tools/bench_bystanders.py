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
WORKING_SERVER = ROOT / "services/wse-server/bench_server.py"
STALLED_SERVER = ROOT / "services/wse-server/bench_standstill_server.py"
COMMAND = "tools/bench_bystanders.py"
CPUS = 2
# How many times the quiet p99 may become.
KEEPS_UP_LIMIT, STALLS_LIMIT = 2, 5

Report = Mapping[str, Any]


class EndedError(Exception):
    """A program ended without its result, because it failed or was stopped."""


@dataclass(frozen=True)
class Case:
    """What runs beside the bystanders."""

    name: str
    program: Path
    is_flooded: bool
    limit: int | None = None


QUIET = Case("quiet", WORKING_SERVER, is_flooded=False)
CASES = (
    QUIET,
    Case("flood, the application keeps up", WORKING_SERVER, is_flooded=True, limit=KEEPS_UP_LIMIT),
    Case("flood, the application stands still", STALLED_SERVER, is_flooded=True, limit=STALLS_LIMIT),
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
    """Runs the cases in turns and returns their rows; what each process saw goes to `file`, and isn't run
    again if it is there already."""
    reports: dict[str, list[Report]] = {case.name: [] for case in CASES}
    if file is not None and file.is_file():
        reports = json.loads(file.read_text())
    for number in range(repeats):
        for case in CASES:
            if number < len(reports[case.name]):
                continue
            print(f"bystanders: {case.name}, {number + 1} of {repeats}", file=sys.stderr)
            reports[case.name].append(run(case, standstill_seconds if case.program == STALLED_SERVER else seconds))
            if file is not None:
                file.write_text(json.dumps(reports, indent=2) + "\n")
    return [row(case, reports) for case in CASES]


def read(file: Path) -> list[Row]:
    """The rows of what `measure` left; none without it."""
    if not file.is_file():
        return []
    reports = json.loads(file.read_text())
    return [row(case, reports) for case in CASES]


def run(case: Case, seconds: float) -> Report:
    """What the bystanders saw in one case, in fresh processes."""
    server = start([str(case.program), "--port", "0", "--metrics-port", "0"])
    flooder = crowd = None
    try:
        address = json.loads(read_line(server))["address"]
        if case.is_flooded:
            flooder = start([str(CLIENTS), "flooder", address])
            read_line(flooder)
        crowd = start([str(CLIENTS), "crowd", address, "--seconds", str(seconds)])
        report: dict[str, Any] = json.loads(read_line(crowd))
        if flooder is not None:
            assert flooder.stdin is not None
            flooder.stdin.close()
            report["flooder"] = json.loads(read_line(flooder))
        return report
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


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line of a program. Raises `EndedError` if it ends without one."""
    assert process.stdout is not None
    text = process.stdout.readline()
    if not text:
        raise EndedError(f"a program ended without a result: {process.args!r}")
    return text


def row(case: Case, reports: Mapping[str, Sequence[Report]]) -> Row:
    """The row of a case: its p99, and how many times the quiet one it is."""
    # The cases take turns, so processes with the same number are a pair.
    sides = Sides({"ours": p99(reports[case.name]), "quiet": p99(reports[QUIET.name])})
    ratio, interval = compared(sides, "ours", "quiet") if case.limit else (None, None)
    faults = [*sides.missing, *complaints(reports[case.name])]
    if case.limit and ratio is not None and ratio > case.limit:
        faults.append(f"beyond the bar of {case.limit} times the quiet case")
    return Row(
        f"1 000 bystanders that ping once a second, {case.name}: p99",
        "us",
        sides.mean("ours"),
        None,
        None,
        ratio,
        interval,
        f"{case.name} / {QUIET.name}" if case.limit else "",
        None,
        COMMAND,
        "; ".join(faults) or None,
    )


def p99(reports: Sequence[Report]) -> dict[int, list[float]]:
    """The p99 of each process that answered every ping, by number; a latency that leaves pings out says nothing."""
    return {number: [report["p99_us"]] for number, report in enumerate(reports) if report["unanswered"] == 0}


def complaints(reports: Sequence[Report]) -> list[str]:
    """What no client should see: pings without an answer, and disconnected clients."""
    unanswered = sum(report["unanswered"] for report in reports)
    disconnected = sum(report["disconnected"] + report.get("flooder", {}).get("disconnected", 0) for report in reports)
    counts = {"pings unanswered": unanswered, "clients disconnected": disconnected}
    return [f"{count} {name}" for name, count in counts.items() if count]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
