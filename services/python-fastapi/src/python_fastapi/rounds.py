"""Schedules the visits to sessions: a timer wheel with slots of 10 ms and one event-loop timer for all of them.

A visit has two halves, one round apart. In the first half the session calls `receive()` for the messages that may have
arrived; in the second half it takes the results. In between the server's threads process the calls of all sessions of
the slot together.
"""

import asyncio
import time
from collections.abc import Callable
from math import ceil
from typing import Final

ROUND_SECONDS: Final = 0.01


class Rounds:
    """The timer wheel. An entry is a callable; it runs once, in the first round that begins at its time or later."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, list[Callable[[], None]]] = {}
        self._entries = 0
        self._next = 0
        self._running = False

    def at(self, when: float, entry: Callable[[], None]) -> None:
        """Schedules `entry` for `when`, a time of `time.monotonic`. It runs up to a round later."""
        if not self._running:
            self._running = True
            self._next = int(time.monotonic() / ROUND_SECONDS) + 1
            self._sleep()
        number = max(ceil(when / ROUND_SECONDS), self._next)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = []
        slot.append(entry)
        self._entries += 1

    def soon(self, entry: Callable[[], None]) -> None:
        """Schedules `entry` for the next round; never for the current one, even if a stall made several rounds due."""
        self.at(time.monotonic(), entry)

    def _run(self) -> None:
        now = int(time.monotonic() / ROUND_SECONDS)
        # After a stall several rounds are due at once.
        while self._next <= now:
            slot = self._slots.pop(self._next, None)
            self._next += 1
            if slot is not None:
                self._entries -= len(slot)
                for entry in slot:
                    entry()
        if self._entries:
            self._sleep()
        else:
            self._running = False

    def _sleep(self) -> None:
        # The loop's own clock has a resolution of 1 ms and doesn't advance within an iteration of the loop.
        self._loop.call_later(max(0.0, self._next * ROUND_SECONDS - time.monotonic()), self._run)
