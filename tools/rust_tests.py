"""Runs the Rust tests of the workspace, several programs at a time: cargo runs one after the other, and most wait.

Usage: rust_tests.py [--at-a-time N] [-- CARGO OPTION…]   options of `cargo test` that choose what is built

The output of a program follows as a whole when it has ended. A program that fails beside others runs again alone: a
failure due to a busy machine passes then and is named, a fault fails again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

CARGO = os.environ.get("CARGO", "cargo")
# Takes longest and mostly waits, so that it is started first.
FIRST = "conformance"
# With one of these cargo tests no examples in the documentation.
TARGETS = {
    "--lib",
    "--bins",
    "--bin",
    "--examples",
    "--example",
    "--tests",
    "--test",
    "--benches",
    "--bench",
    "--all-targets",
}


@dataclass(frozen=True)
class Tests:
    """A program of tests, or the examples in the documentation."""

    name: str
    command: tuple[str, ...]
    # cargo runs tests in the folder of their package.
    folder: Path
    # What cargo sets for a program. cargo itself must not see it: build scripts that depend on it would run again, and
    # everything that depends on their crates would be compiled again.
    variables: Mapping[str, str] = field(default_factory=dict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--at-a-time", type=int, default=2, metavar="N", help="programs at a time (default: %(default)s)"
    )
    parser.add_argument("options", nargs="*", metavar="CARGO OPTION")
    chosen = parser.parse_args()
    if chosen.at_a_time < 1:
        parser.error(f"--at-a-time: {chosen.at_a_time} is no number of programs; give 1 or more")
    try:
        tests = build(chosen.options)
    except subprocess.CalledProcessError as error:
        return error.returncode
    if not TARGETS & set(chosen.options):
        tests.append(Tests("examples in the documentation", (CARGO, "test", "--doc", *chosen.options), Path.cwd()))
    with ThreadPoolExecutor(chosen.at_a_time) as pool:
        passed = list(pool.map(run, tests))
    failed = [each for each, its_passed in zip(tests, passed, strict=True) if not its_passed]
    return again(failed, len(tests))


def build(options: list[str]) -> list[Tests]:
    """Builds all programs of tests; their errors are printed as cargo prints them."""
    command = [CARGO, "test", "--no-run", "--message-format=json-render-diagnostics", *options]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return sorted(programs(built.stdout.splitlines()), key=lambda each: not each.name.startswith(f"{FIRST} "))


def programs(messages: Iterable[str]) -> list[Tests]:
    """The programs of tests that cargo's messages name."""
    found = []
    for line in messages:
        message = json.loads(line)
        if message["reason"] != "compiler-artifact" or not message["profile"]["test"] or not message["executable"]:
            continue
        folder = Path(message["manifest_path"]).parent
        target = message["target"]
        name = f"{target['name']} ({'/'.join(target['kind'])} of {folder.name})"
        found.append(Tests(name, (message["executable"],), folder, {"CARGO_MANIFEST_DIR": str(folder)}))
    return found


def run(tests: Tests) -> bool:
    """Runs a program, prints its output as a whole and returns whether it passed."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        environ = {**os.environ, **tests.variables}
        code = subprocess.run(
            tests.command, cwd=tests.folder, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ).returncode
        output.seek(0)
        verdict = "passed" if code == 0 else f"failed with exit code {code}"
        print(f"{tests.name}: {verdict} after {time.monotonic() - started:.1f} s\n{output.read()}", flush=True)
    return code == 0


def again(failed: list[Tests], count: int) -> int:
    """Runs what failed once more, each alone, and returns the exit code."""
    still = []
    for each in failed:
        print(f"{each.name}: failed, so it runs again alone", flush=True)
        if not run(each):
            still.append(each.name)
    if still:
        print(f"failed: {', '.join(still)}", file=sys.stderr)
        return 1
    late = f"; {len(failed)} of them only alone: {', '.join(each.name for each in failed)}" if failed else ""
    print(f"all {count} programs of tests passed{late}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
