"""Waits for a condition with a deadline; the error names the condition."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

# Between two looks. Most are a process of kubectl on the CPUs that the cluster has: what takes long is looked at less
# often.
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 0.6


def until(condition: str, read: Callable[[], Value | None], seconds: float, describe: Callable[[], str] = str) -> Value:
    """Calls `read` until its value is truthy and returns that; on timeout, `describe` adds details to the error."""
    deadline = time.monotonic() + seconds
    pause = FIRST_PAUSE_SECONDS
    while not (value := read()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {condition}, in vain. {describe()}"
        time.sleep(pause)
        pause = min(1.2 * pause, LONGEST_PAUSE_SECONDS)
    return value
