"""Builds the tests of the Rust workspace and runs their programs side by side.

`cargo test` runs one test program after the other, and most of them wait more than they compute. Output of a program is
printed when it ends; a failure doesn't stop the others, and programs that failed are named again at the end.

Usage: rust_tests.py [OPTION OF cargo test…]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Test programs at a time. Each runs as many of its tests at a time as there are CPUs.
AT_A_TIME = 2


@dataclass(frozen=True)
class Program:
    """A compiled test program."""

    path: Path
    # Folder of its package, which is its working directory as under `cargo test`.
    folder: Path
    name: str


def main(options: list[str]) -> int:
    programs = build(options)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        codes = list(pool.map(run, programs))
    failed = [each.name for each, code in zip(programs, codes, strict=True) if code != 0]
    if subprocess.run(["cargo", "test", "--doc", *options], cwd=ROOT).returncode != 0:
        failed.append("the examples in docstrings")
    print(f"{len(programs)} test programs; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def build(options: list[str]) -> list[Program]:
    """Compiles all test programs of the packages that the options choose."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *options]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(done.returncode)
    return programs_of(done.stdout)


def programs_of(messages: str) -> list[Program]:
    """The test programs that cargo's messages name, one JSON object a line."""
    found = []
    for line in messages.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            folder = Path(message["manifest_path"]).parent
            target = message["target"]
            name = f"{folder.name} {target['kind'][0]} {target['name']}"
            found.append(Program(Path(message["executable"]), folder, name))
    return found


def run(program: Program) -> int:
    """Runs a program, prints its output and returns its exit code."""
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(program.folder)}
    start = time.monotonic()
    done = subprocess.run(
        [program.path],
        cwd=program.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    code = f", exit code {done.returncode}" if done.returncode else ""
    print(f"{program.name} ({time.monotonic() - start:.1f} s{code})\n{done.stdout}", end="", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
