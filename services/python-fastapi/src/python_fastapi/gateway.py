"""The state that all sessions of an event loop share, and how the gateway stops them."""

import asyncio
import time
from typing import Any, Final, Protocol

from python_fastapi.config import Config
from python_fastapi.inference import Inference
from python_fastapi.metrics import Books
from python_fastapi.rounds import ROUND_SECONDS, Rounds

CLOSE_SECONDS: Final = 1.0
"""Time limit for sending a Close frame."""
DRAIN_SECONDS: Final = 2.9
"""How long a session may go on when the gateway stops, before its Close frame is sent."""


class Drainable(Protocol):
    """The part of a session that the gateway uses; a protocol, so that this module doesn't import `session`."""

    def drain(self) -> None: ...


class Gateway:
    """The shared state: settings, books, connections to the inference, timer wheel, and the sets of sessions."""

    def __init__(self, config: Config, books: Books, inference: Inference, rounds: Rounds) -> None:
        self.config = config
        self.books = books
        self.inference = inference
        self.rounds = rounds
        self.sessions: set[Drainable] = set()
        self.opening: set[asyncio.Task[Any]] = set()
        self.accepting = True

    async def drain(self) -> None:
        """Stops accepting sessions and returns when all sessions have ended or the time for it is over."""
        self.accepting = False
        deadline = time.monotonic() + DRAIN_SECONDS + CLOSE_SECONDS
        for task in tuple(self.opening):
            task.cancel()
        for session in tuple(self.sessions):
            session.drain()
        while self.books.open and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(ROUND_SECONDS)
