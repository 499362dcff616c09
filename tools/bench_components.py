"""Measures the utilities of `wse_server` beside the same in plain Python: microseconds per operation, with intervals.

Several fresh interpreters measure all components one after the other. In each, batches of Rust and Python alternate, so
that both see the same machine. Results are compared before measuring. Prints a table beside the published figures and
writes target/bench/components.json. Times depend on the machine, ratios less so.

Usage: .venv/bin/python tools/bench_components.py [--processes N] [--batches N] [--batch-ms MS]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from component_summary import Measured, markdown, row, wire
from component_tasks import Side, Task, tasks
from this_machine import cpu_model

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "target/bench/components.json"
# Most operations in a batch: the size of the measured queue.
LARGEST_BATCH = 100_000


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 when measured, 1 when results differ or a process failed, 2 on bad usage."""
    parser = argparse.ArgumentParser(description="The utilities in Rust beside the same in Python.")
    parser.add_argument("--processes", type=int, default=7, help="fresh interpreters (default: 7)")
    parser.add_argument("--batches", type=int, default=41, help="batches of each side in each (default: 41)")
    parser.add_argument("--batch-ms", type=float, default=2.0, help="about how long one takes (default: 2)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if min(options.processes, options.batches, options.batch_ms) <= 0:
        parser.error("processes, batches and milliseconds must be above 0")
    if options.worker:
        json.dump([vars(measure(task, options)) for task in tasks()], sys.stdout)
        return 0
    command = [sys.executable, __file__, "--worker", *arguments]
    processes = []
    for number in range(options.processes):
        print(f"process {number + 1} of {options.processes}", file=sys.stderr)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return 1
        processes.append([Measured(**one) for one in json.loads(done.stdout)])
    components = [task.component for task in tasks()]
    rows = [
        row(component, measured) for component, measured in zip(components, zip(*processes, strict=True), strict=True)
    ]
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(wire(rows, environment()), indent=2, ensure_ascii=False) + "\n")
    print(f"{markdown(rows)}\n\n{FILE.relative_to(ROOT)}")
    return 0


def measure(task: Task, options: argparse.Namespace) -> Measured:
    """Measures alternating batches of both sides, after a comparison of their results and a warm-up."""
    task.check()
    sides = (task.ours, task.plain)
    counts = [operations(side, options.batch_ms * 1e6) for side in sides]
    measured: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    for number in range(options.batches):
        # The first side may find a colder cache, so the order alternates.
        for index in (0, 1) if number % 2 else (1, 0):
            measured[index].append(batch(sides[index], counts[index]) / counts[index])
    gc.enable()
    return Measured(*measured)


def batch(side: Side, count: int) -> int:
    """Runs `count` operations and returns the time in nanoseconds."""
    start = perf_counter_ns()
    side.run(count)
    taken = perf_counter_ns() - start
    side.restore()
    return taken


def operations(side: Side, wanted_ns: float) -> int:
    """The number of operations that take about `wanted_ns`, at most `LARGEST_BATCH`. Also warms the side up."""
    count = 1
    while (taken := batch(side, count)) < wanted_ns / 2 and count < LARGEST_BATCH:
        count *= 2
    return max(1, min(LARGEST_BATCH, round(count * wanted_ns / taken)))


def environment() -> dict[str, Any]:
    """The CPU and versions that the figures were measured with, as far as they are known."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "cpu": cpu_model() or platform.processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": commit.stdout.strip() or None,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
