"""How much a flood may publish: what holds it back, in this server and in the instances that hand on.

It knows no server: whoever publishes says how many messages it has published, and asks for room.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

# Messages between two looks at the backlog, at most: a subscriber that comes or goes is seen soon.
BURST_MESSAGES = 256


class Backlog(NamedTuple):
    """How far an instance is that hands on what another one published."""

    handed_on: int
    """Publications that it has handed to its own subscribers' queues, and those that it knows it will never get."""
    waiting_bytes: int
    """Of what it has handed on: not yet written to all of them, each publication once."""


class Receivers:
    """The instances that a publisher must not run ahead of: it looks at them when it seems to be that far.

    Looking costs a request to each of them. So it is done only when, by what was seen last, half of the room is used up
    (the answer takes its time, and meanwhile nobody shall have nothing to do), and then as often as half of the room
    comes back.
    """

    # Between two looks.
    least_seconds = 0.001
    most_seconds = 0.05
    # Publications that haven't come for so long, while nothing else has either, are not waited for.
    patience_seconds = 1.0

    def __init__(self, look: Callable[[], list[Backlog]]) -> None:
        self._look = look
        self._bases: list[int] | None = None
        self._seen: list[Backlog] = []
        self._looked = self._moved = 0.0
        self._pause = self.least_seconds

    def begin(self, published: int) -> None:
        """From now on count from here: what was published before is nobody's business any more."""
        self._seen = self._look()
        self._bases = [published - one.handed_on for one in self._seen]
        self._looked = self._moved = time.monotonic()

    def backlog(self, published: int, message_bytes: int, limit: int) -> int:
        """Bytes of what was published, up to number `published`, that the slowest of them has still before it."""
        before = self._backlog(published, message_bytes)
        now = time.monotonic()
        if before < limit // 2 or now < self._looked + self._pause:
            return before
        seen, self._seen = self._seen, self._look()
        after = self._backlog(published, message_bytes)
        if seen != self._seen:
            self._moved = now
        elif now > self._moved + self.patience_seconds:
            self.begin(published)
        # At this pace half of the room will be there again.
        pause = (now - self._looked) * limit / (2 * max(1, before - after))
        self._pause = min(max(pause, self.least_seconds), self.most_seconds)
        self._looked = now
        return after

    def _backlog(self, published: int, message_bytes: int) -> int:
        if self._bases is None:
            return 0
        return max(
            (
                max(0, published - base - seen.handed_on) * message_bytes + seen.waiting_bytes
                for base, seen in zip(self._bases, self._seen, strict=True)
            ),
            default=0,
        )


class Backpressure:
    """How much a flood may publish: as long as the server's backlog is below a limit, in bytes.

    The backlog is what the server has taken from the publisher and not yet written to all subscribers, each message
    once, as the server itself tells it (`publish_backlog()`). One that doesn't is held back by nothing, and `kind` says
    so. Of other instances it knows what is on the way to them; what they have before them, only `receivers` tell.
    """

    def __init__(self, server: Any, limit_bytes: int, receivers: Receivers | None = None) -> None:
        self._limit = limit_bytes
        self._backlog: Callable[[], int] | None = getattr(server, "publish_backlog", None)
        self._receivers = receivers
        self.kind = "receivers" if receivers else "engine" if self._backlog else "none"

    def begin(self, published: int) -> None:
        """There are subscribers, and so many messages were published before."""
        if self._receivers:
            self._receivers.begin(published)

    def room(self, message_bytes: int, published: int = 0) -> int:
        """How many messages may be published now, up to a burst, after `published` of them."""
        if not self._backlog:
            return BURST_MESSAGES
        backlog = self._backlog()
        if self._receivers and backlog < self._limit:
            backlog = max(backlog, self._receivers.backlog(published, message_bytes, self._limit))
        free = self._limit - backlog
        return max(1, min(BURST_MESSAGES, free // message_bytes)) if free > 0 else 0
