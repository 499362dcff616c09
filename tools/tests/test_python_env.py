"""tools/python-env with a fake interpreter that only records its arguments."""

from __future__ import annotations

import os
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
esac
"""


def test_two_that_need_one_environment_at_once_make_it_once(tmp_path: Path) -> None:
    interpreter, lock, made = tmp_path / "python", tmp_path / "requirements.txt", tmp_path / "made"
    interpreter.write_text(INTERPRETER)
    interpreter.chmod(0o755)
    lock.write_text("")
    command = [str(TOOL), str(tmp_path / "env"), "3.11", str(lock)]
    environment = os.environ | {"PYTHON": str(interpreter), "MADE": str(made)}
    several = [subprocess.Popen(command, env=environment) for _ in range(8)]
    assert [each.wait() for each in several] == [0] * 8
    assert made.read_text() == "made\n"
