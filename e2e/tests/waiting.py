"""Waiting for something with a deadline, and saying what was waited for when it doesn't come."""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def until(what: str, look: Callable[[], Seen | None], seconds: float, last: Callable[[], str] = str) -> Seen:
    """What `look` sees as soon as it is something; `last` adds what stands there instead when the time is up."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}, in vain. {last()}"
        time.sleep(0.2)
    return seen
