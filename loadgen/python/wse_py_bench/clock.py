"""Clocks. The monotonic clock is the same for all processes of a machine, so they can agree on a start time."""

import time

NS_PER_SECOND = 1_000_000_000
NS_PER_MS = 1_000_000

monotonic_ns = time.monotonic_ns
unix_ns = time.time_ns


def wait_until(moment_ns: int) -> None:
    """Sleeps until a time of the monotonic clock, in nanoseconds."""
    while (remaining_ns := moment_ns - monotonic_ns()) > 0:
        time.sleep(remaining_ns / NS_PER_SECOND)
