"""How much a flood may publish: what holds it back, in this server and in the instances that hand on.

It knows no server: whoever publishes says how many messages it has published, and asks for room.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

# Messages between two looks at the backlog, at most: a subscriber that comes or goes is seen soon.
BURST_MESSAGES = 256
# Between two looks at a full backlog, each of which takes the CPU away from the server.
LEAST_PAUSE_SECONDS = 0.004
MOST_PAUSE_SECONDS = 0.05


class Backlog(NamedTuple):
    """How far an instance is that hands on what another one published."""

    handed_on: int
    """Publications that it has handed to its own subscribers' queues, and those that it knows it will never get."""
    waiting_bytes: int
    """Of what it has handed on: not yet written to all of them, each publication once."""


def until_half_is_free(limit: int, fell_bytes: int, seconds: float) -> float:
    """How long it takes, in seconds, at the pace at which a backlog fell by so much in `seconds`."""
    return seconds * limit / (2 * max(1, fell_bytes))


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
        pause = until_half_is_free(limit, before - after, now - self._looked)
        self._pause = min(max(pause, self.least_seconds), self.most_seconds)
        self._looked = now
        return after

    def until_next_look(self) -> float:
        """Seconds in which nothing new is learnt."""
        return max(0.0, self._looked + self._pause - time.monotonic())

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


class Offer:
    """What a flood offers a server that tells nothing: deliveries per second, to all of its subscribers together."""

    def __init__(self, deliveries_per_second: float, subscribers: Callable[[], int]) -> None:
        self._per_second = deliveries_per_second
        self._subscribers = subscribers
        self._looked = 0.0
        self._due = 0.0

    def begin(self) -> None:
        """Count from now on."""
        self._looked, self._due = time.monotonic(), 0.0

    def burst(self) -> int:
        """So many messages are to be published now: a whole burst, as soon as that many are due."""
        now = time.monotonic()
        self._due += (now - self._looked) * self._per_second / max(1, self._subscribers())
        self._looked = now
        if self._due < BURST_MESSAGES:
            return 0
        self._due -= BURST_MESSAGES
        return BURST_MESSAGES


class Backpressure:
    """How much a flood may publish: as long as the server's backlog is below a limit, in bytes.

    The backlog is what the server has taken from the publisher and not yet written to all subscribers, each message
    once, as the server itself tells it (`publish_backlog()`). One that doesn't can't be held back: it is given what
    `offer` says, or as much as it takes, and `kind` says so. Of other instances it knows what is on the way to them;
    what they have before them, only `receivers` tell.
    """

    def __init__(
        self, server: Any, limit_bytes: int, receivers: Receivers | None = None, offer: Offer | None = None
    ) -> None:
        self._limit = limit_bytes
        self._backlog: Callable[[], int] | None = getattr(server, "publish_backlog", None)
        self._receivers = receivers
        self._offer = offer
        # After an answer that there is no room: how long to wait before the next question, in seconds.
        self.pause_seconds = self._own_pause = LEAST_PAUSE_SECONDS
        # The server's own backlog when it was last seen to be full, if nothing was published since, and when that was.
        self._full: tuple[int, float] | None = None
        self.kind = "receivers" if receivers else "engine" if self._backlog else "offer" if offer else "none"

    def begin(self, published: int) -> None:
        """There are subscribers, and so many messages were published before."""
        if self._receivers:
            self._receivers.begin(published)
        if self._offer:
            self._offer.begin()

    def room(self, message_bytes: int, published: int = 0) -> int:
        """How many messages may be published now, up to a burst, after `published` of them."""
        if not self._backlog:
            return self._offer.burst() if self._offer else BURST_MESSAGES
        backlog = self._backlog()
        self._learn_own_pause(backlog)
        self.pause_seconds = self._own_pause
        if self._receivers and backlog < self._limit:
            backlog = max(backlog, self._receivers.backlog(published, message_bytes, self._limit))
            self.pause_seconds = max(LEAST_PAUSE_SECONDS, self._receivers.until_next_look())
        free = self._limit - backlog
        return max(1, min(BURST_MESSAGES, free // message_bytes)) if free > 0 else 0

    def _learn_own_pause(self, backlog: int) -> None:
        """From how much less the server's own backlog is than when it was full."""
        now = time.monotonic()
        if self._full:
            before, then = self._full
            pause = until_half_is_free(self._limit, before - backlog, now - then)
            self._own_pause = min(max(pause, LEAST_PAUSE_SECONDS), MOST_PAUSE_SECONDS)
        self._full = (backlog, now) if backlog >= self._limit else None
