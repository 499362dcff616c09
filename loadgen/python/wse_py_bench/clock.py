"""The clocks. The monotonic one is the machine's own, so processes of one machine can agree on a moment."""

import time

NS_PER_SECOND = 1_000_000_000
NS_PER_MS = 1_000_000

monotonic_ns = time.monotonic_ns
unix_ns = time.time_ns


def wait_until(moment_ns: int) -> None:
    """Sleeps until a moment of the monotonic clock."""
    while (left := moment_ns - monotonic_ns()) > 0:
        time.sleep(left / NS_PER_SECOND)
