"""Backpressure for floods: limits the publisher by the backlog of its server and of the instances behind the link.

It is independent of the server: the publisher reports how many messages it has published, and asks for room.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

# Most messages between two readings of the backlog, so that subscribers that come or go are noticed soon.
BURST_MESSAGES = 256
# Shortest pause between two readings of a full backlog, because each takes CPU time from the server.
MIN_PAUSE_SECONDS = 0.004
MAX_PAUSE_SECONDS = 0.05


class Backlog(NamedTuple):
    """The progress of an instance that delivers another instance's publications."""

    forwarded: int
    """Publications that were queued for its subscribers, plus those that it knows to be lost."""
    waiting_bytes: int
    """Bytes of queued publications that are not written to all subscribers yet; each publication counts once."""


def until_half_is_free(limit: int, drained_bytes: int, seconds: float) -> float:
    """Seconds until half of the limit is free, if the backlog keeps falling by `drained_bytes` in `seconds`."""
    return seconds * limit / (2 * max(1, drained_bytes))


class Receivers:
    """The instances that a publisher must not run ahead of; it reads their progress when that seems necessary.

    A reading costs a request to each instance. So it is taken only when at least half of the room is used according to
    the last one (early, because the response takes time in which publishing must go on), and then as often as half of
    the room becomes free.
    """

    # Bounds of the pause between two readings, in seconds.
    min_seconds = 0.001
    max_seconds = 0.05
    # Publications that are missing when nothing has arrived for this many seconds are given up.
    timeout_seconds = 1.0

    def __init__(self, read: Callable[[], list[Backlog]]) -> None:
        self._read = read
        self._bases: list[int] | None = None
        self._backlogs: list[Backlog] = []
        self._read_at = self._progress_at = 0.0
        self._pause = self.min_seconds

    def begin(self, published: int) -> None:
        """Restarts the count: publications before this point are not waited for."""
        self._backlogs = self._read()
        self._bases = [published - one.forwarded for one in self._backlogs]
        self._read_at = self._progress_at = time.monotonic()

    def backlog(self, published: int, message_bytes: int, limit: int) -> int:
        """Bytes of the publications up to number `published` that the slowest instance has not delivered yet."""
        before = self._backlog(published, message_bytes)
        now = time.monotonic()
        if before < limit // 2 or now < self._read_at + self._pause:
            return before
        known, self._backlogs = self._backlogs, self._read()
        after = self._backlog(published, message_bytes)
        if known != self._backlogs:
            self._progress_at = now
        elif now > self._progress_at + self.timeout_seconds:
            self.begin(published)
        pause = until_half_is_free(limit, before - after, now - self._read_at)
        self._pause = min(max(pause, self.min_seconds), self.max_seconds)
        self._read_at = now
        return after

    def seconds_until_next_reading(self) -> float:
        """How long no reading is due; 0 if one is due now."""
        return max(0.0, self._read_at + self._pause - time.monotonic())

    def _backlog(self, published: int, message_bytes: int) -> int:
        if self._bases is None:
            return 0
        return max(
            (
                max(0, published - base - known.forwarded) * message_bytes + known.waiting_bytes
                for base, known in zip(self._bases, self._backlogs, strict=True)
            ),
            default=0,
        )


class Offer:
    """A fixed rate for servers that don't report a backlog: deliveries per second over all subscribers."""

    def __init__(self, deliveries_per_second: float, subscribers: Callable[[], int]) -> None:
        self._per_second = deliveries_per_second
        self._subscribers = subscribers
        self._read_at = 0.0
        self._due = 0.0

    def begin(self) -> None:
        """Starts the schedule now."""
        self._read_at, self._due = time.monotonic(), 0.0

    def burst(self) -> int:
        """The number of messages to publish now: a whole burst when that many are due, else 0."""
        now = time.monotonic()
        self._due += (now - self._read_at) * self._per_second / max(1, self._subscribers())
        self._read_at = now
        if self._due < BURST_MESSAGES:
            return 0
        self._due -= BURST_MESSAGES
        return BURST_MESSAGES


class Backpressure:
    """Lets a flood publish while the server's backlog is below a limit in bytes.

    The backlog is the bytes that the server has accepted from the publisher and not yet written to all subscribers;
    each message counts once. The server reports it (`publish_backlog()`). A server without it can't be limited: it gets
    the rate of `offer`, or as much as it accepts, and `kind` says which. The server's backlog includes what is on the
    way to other instances; the backlog of these instances is read with `receivers`.
    """

    def __init__(
        self, server: Any, limit_bytes: int, receivers: Receivers | None = None, offer: Offer | None = None
    ) -> None:
        self._limit = limit_bytes
        self._backlog: Callable[[], int] | None = getattr(server, "publish_backlog", None)
        self._receivers = receivers
        self._offer = offer
        # Seconds to wait after `room()` returned 0.
        self.pause_seconds = self._server_pause = MIN_PAUSE_SECONDS
        # The server's last full backlog and its time, if nothing was published since.
        self._full: tuple[int, float] | None = None
        self.kind = "receivers" if receivers else "engine" if self._backlog else "offer" if offer else "none"

    def begin(self, published: int) -> None:
        """Starts a flood; `published` messages were published before."""
        if self._receivers:
            self._receivers.begin(published)
        if self._offer:
            self._offer.begin()

    def room(self, message_bytes: int, published: int = 0) -> int:
        """The number of messages that may be published now, at most a burst, after `published` earlier ones."""
        if not self._backlog:
            return self._offer.burst() if self._offer else BURST_MESSAGES
        backlog = self._backlog()
        self._adjust_server_pause(backlog)
        self.pause_seconds = self._server_pause
        if self._receivers and backlog < self._limit:
            backlog = max(backlog, self._receivers.backlog(published, message_bytes, self._limit))
            self.pause_seconds = max(MIN_PAUSE_SECONDS, self._receivers.seconds_until_next_reading())
        free = self._limit - backlog
        return max(1, min(BURST_MESSAGES, free // message_bytes)) if free > 0 else 0

    def _adjust_server_pause(self, backlog: int) -> None:
        """Adjusts the pause to the speed at which the server's backlog has fallen since it was full."""
        now = time.monotonic()
        if self._full:
            before, then = self._full
            pause = until_half_is_free(self._limit, before - backlog, now - then)
            self._server_pause = min(max(pause, MIN_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
        self._full = (backlog, now) if backlog >= self._limit else None
