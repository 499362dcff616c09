"""Waits for a condition with a deadline; the error names the condition."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def until(condition: str, read: Callable[[], Value | None], seconds: float, describe: Callable[[], str] = str) -> Value:
    """Calls `read` until its value is truthy and returns that; on timeout, `describe` adds details to the error."""
    deadline = time.monotonic() + seconds
    while not (value := read()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {condition}, in vain. {describe()}"
        time.sleep(0.2)
    return value
