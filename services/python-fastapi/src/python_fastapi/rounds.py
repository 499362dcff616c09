"""When sessions are visited: a timer wheel with slots of 10 ms and one timer of the event loop for all of them.

A visit has two halves, one round apart. In the first the session asks for what may have come; in the second it takes
what is there. Between them the server's own threads work on the requests of all sessions of the slot in one go.
"""

import asyncio
import time
from collections.abc import Callable
from math import ceil
from typing import Final

ROUND_SECONDS: Final = 0.01


class Rounds:
    """The wheel. Entries are callables; they run once, in the first round that begins at their time or later."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, list[Callable[[], None]]] = {}
        self._entries = 0
        self._next = 0
        self._running = False

    def at(self, when: float, entry: Callable[[], None]) -> None:
        """Runs `entry` at `when`, a time of `time.monotonic`, or up to a round later."""
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
        """Runs `entry` in the next round. It is never this one, even if a stall made several rounds due at once."""
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
        # The loop's own clock has milliseconds only, and stands still within a turn of the loop.
        self._loop.call_later(max(0.0, self._next * ROUND_SECONDS - time.monotonic()), self._run)
