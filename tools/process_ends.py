"""Waiting, in tests, until a process has ended or anything else holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 30


def wait_until(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def wait_for_end(pid: int) -> None:
    """Waits until a process has ended: it is gone, or its parent has not waited for it yet."""
    wait_until(lambda: _state(pid) in "ZX")


def _state(pid: int) -> str:
    """The letter of a process's state; X if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
