"""Waits for a condition with a deadline; the error names the condition."""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def until(what: str, look: Callable[[], Seen | None], seconds: float, last: Callable[[], str] = str) -> Seen:
    """Calls `look` until it returns a truthy value and returns that; on timeout, `last` adds details to the error."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}, in vain. {last()}"
        time.sleep(0.2)
    return seen
