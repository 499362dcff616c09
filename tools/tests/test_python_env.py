"""tools/python-env with a fake interpreter that only records its arguments."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

TOOL = Path(__file__).resolve().parents[1] / "python-env"
INTERPRETER = """#!/bin/sh
case "$1 $2" in
    --version*) echo "Python 3.12.0" ;;
    "-m venv")
        echo made >> "$MADE"
        mkdir -p "$3/bin" "$3/lib/python3.12/site-packages"
        cp "$0" "$3/bin/python" ;;
    "-m pip") echo "$@" >> "$ARGUMENTS" ;;
esac
"""


def test_two_that_need_one_environment_at_once_make_it_once(tmp_path: Path) -> None:
    interpreter, lock, made = tmp_path / "python", tmp_path / "requirements.txt", tmp_path / "made"
    interpreter.write_text(INTERPRETER)
    interpreter.chmod(0o755)
    lock.write_text("")
    command = [str(TOOL), str(tmp_path / "env"), "3.11", str(lock)]
    arguments = tmp_path / "arguments"
    environment = os.environ | {"PYTHON": str(interpreter), "MADE": str(made), "ARGUMENTS": str(arguments)}
    several = [subprocess.Popen(command, env=environment) for _ in range(8)]
    assert [each.wait() for each in several] == [0] * 8
    assert made.read_text() == "made\n"
    assert "--require-hashes" in arguments.read_text().split()


def test_every_package_of_every_environment_is_locked_with_hashes() -> None:
    root = TOOL.parents[1]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*requirements*.txt"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split()
    locks = [root / file for file in listed]
    assert len(locks) >= 9
    for lock in locks:
        packages = [line for line in lock.read_text().splitlines() if re.match(r"[A-Za-z0-9]", line)]
        assert packages
        assert all(re.match(r"\S+==\S+( ; [^\\]*)? \\$", line) for line in packages), lock
        assert lock.read_text().count("    --hash=sha256:") >= len(packages), lock
