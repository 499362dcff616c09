"""Measures our engine and generator beside the reference and the floor (what the kernel alone costs).

Climbs plans/bench.yaml ladder by ladder, runs the floor's program before and after each, then writes
target/bench/summary.json and prints it as a table. The part `bystanders` has no ladder (tools/bench_bystanders.py).

Usage: .venv/bin/python tools/bench.py [--part NAME]... [--bin FOLDER] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import bench_bystanders
from bench_rows import PARTS, ROWS, Part
from bench_summary import Evidence, Row, markdown, summary, wire
from ws_ladder_analysis.load import BundleError, read_bundle

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target/bench"
# Runs of the floor's program on each side of a ladder, each in fresh processes.
FLOOR_REPEATS = 2
# Exit codes of `ladder run` after which there is a bundle: passed, failed, invalid.
MEASURED_EXIT_CODES = (0, 1, 2)
# The part without a ladder.
BYSTANDERS = "bystanders"
BYSTANDERS_FILE = "bystanders.json"


class StoppedError(Exception):
    """A run was interrupted by a signal."""


def main() -> int:
    """Returns the exit code: 0 all rows have figures, 1 some figures are missing, 2 bad usage, 130 interrupted."""
    parser = argparse.ArgumentParser(description="Ours beside the reference and beside the floor.")
    names = [*dict.fromkeys(part.option for part in PARTS), BYSTANDERS]
    parser.add_argument("--part", action="append", choices=names, help="only this part; may be given again")
    parser.add_argument("--bin", type=Path, default=ROOT / "target/release", help="folder of ladder and floor")
    parser.add_argument(
        "--folder", type=Path, help="of the evidence (default: a new one); what it has already is not measured again"
    )
    options = parser.parse_args()
    folder = ROOT / options.folder if options.folder else FOLDER / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder.mkdir(parents=True, exist_ok=True)
    parts = [part for part in PARTS if not options.part or part.option in options.part]
    # Its programs get the signal, too: ladder keeps what it has measured, and its exit code says that it was stopped.
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        measured = {part.name: measure(part, options.bin, folder) for part in parts}
        with_bystanders = not options.part or BYSTANDERS in options.part
        beside = bench_bystanders.measure(file=folder / BYSTANDERS_FILE) if with_bystanders else []
    except (KeyboardInterrupt, StoppedError, bench_bystanders.EndedError):
        print(f"bench: stopped; what was measured is in {folder}", file=sys.stderr)
        return 130
    rows = summary(measured)
    file = FOLDER / "summary.json"
    text = json.dumps(wire([*rows, *beside]), indent=2, ensure_ascii=False) + "\n"
    for path in (folder / "summary.json", file):
        path.write_text(text)
    measured_rows = [row for definition, row in zip(ROWS, rows, strict=True) if definition.part in measured] + beside
    print(f"\n{markdown(measured_rows)}\n{file.relative_to(ROOT)}, evidence in {folder}")
    return 1 if any(row.ours is None for row in measured_rows) else 0


def measure(part: Part, programs: Path, folder: Path) -> Evidence:
    """Climbs a part's ladder and runs the floor's program before and after; what is in the folder is read instead."""
    print(f"bench: {part.name}", file=sys.stderr)
    run_floor(part, programs, folder / f"floor-{part.name}-before.json")
    climb(part, str(programs / "ladder"), folder)
    run_floor(part, programs, folder / f"floor-{part.name}-after.json")
    return read(part, folder)


def evidence(folder: Path) -> dict[str, Evidence]:
    """What was measured of each part, from its folder."""
    return {part.name: read(part, folder) for part in PARTS if (folder / bundle_id(part)).is_dir()}


def bystanders(folder: Path) -> list[Row]:
    """The rows of the part without a ladder, from the same folder."""
    return bench_bystanders.read(folder / BYSTANDERS_FILE)


def read(part: Part, folder: Path) -> Evidence:
    """A part's bundle and the reports of the floor's program; says so where there is no bundle."""
    files = [folder / f"floor-{part.name}-{when}.json" for when in ("before", "after")]
    reports = [json.loads(file.read_text()) for file in files if file.is_file()]
    commands = [f"ladder run {part.plan} --only {part.only}", *dict.fromkeys(report["command"] for report in reports)]
    try:
        bundle = read_bundle(folder / bundle_id(part))
    except BundleError as error:
        print(f"bench: {part.name} left no bundle: {error}", file=sys.stderr)
        bundle = None
    return Evidence(bundle, reports, commands)


def bundle_id(part: Part) -> str:
    """The id of a part's run."""
    return f"bench-{part.name}"


def climb(part: Part, ladder: str, folder: Path) -> None:
    """Climbs a part's ladder, or what is left of it. Raises `StoppedError` when that was interrupted."""
    name = bundle_id(part)
    if is_finished(folder / name):
        return
    # A plan that runs programs of its own is named when it is resumed, too.
    which = ["--resume", name] if (folder / name / "run.json").is_file() else ["--only", part.only, "--run-id", name]
    command = [ladder, "run", part.plan, *which, "--results", str(folder)]
    if subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode not in MEASURED_EXIT_CODES:
        raise StoppedError


def is_finished(bundle: Path) -> bool:
    """Whether all trials of a bundle have ended."""
    file = bundle / "run.json"
    return file.is_file() and json.loads(file.read_text())["state"] == "finished"


def run_floor(part: Part, programs: Path, file: Path) -> None:
    """Writes the floor's report for a part, unless it is there. No file when the part has none or the program fails (it
    prints why). Raises `StoppedError` when that was interrupted."""
    if not part.floor or file.is_file():
        return
    server, client = cpus(sorted(os.sched_getaffinity(0)))
    pinned = ["--server-cpu", str(server), "--client-cpu", str(client), "--repeats", str(FLOOR_REPEATS)]
    command = [str(programs / "floor"), *part.floor, *pinned]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode < 0:
        raise StoppedError
    if run.returncode > 0:
        print(f"bench: {shlex.join(command)} failed", file=sys.stderr)
        return
    file.write_text(run.stdout)


def cpus(allowed: Sequence[int]) -> tuple[int, int]:
    """The CPUs of service and generator, chosen as `ladder` does: the first one is the service's."""
    return allowed[0], allowed[1 % len(allowed)]


if __name__ == "__main__":
    sys.exit(main())
