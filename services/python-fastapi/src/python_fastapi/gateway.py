"""What all sessions share, and the stop of all of them."""

import asyncio
import time
from typing import Any, Final, Protocol

from python_fastapi.config import Config
from python_fastapi.inference import Inference
from python_fastapi.metrics import Books
from python_fastapi.rounds import ROUND_SECONDS, Rounds

FAREWELL_SECONDS: Final = 1.0
"""How long a close frame may take to leave."""
DRAIN_SECONDS: Final = 2.9
"""How long a session may take to end by itself when the gateway stops, without the farewell."""


class Drainable(Protocol):
    """A session."""

    def drain(self) -> None: ...


class Gateway:
    """What all sessions share."""

    def __init__(self, config: Config, books: Books, inference: Inference, rounds: Rounds) -> None:
        self.config = config
        self.books = books
        self.inference = inference
        self.rounds = rounds
        self.sessions: set[Drainable] = set()
        self.opening: set[asyncio.Task[Any]] = set()
        self.accepting = True

    async def drain(self) -> None:
        """Takes no more connections, and returns when all sessions have ended, or should have."""
        self.accepting = False
        deadline = time.monotonic() + DRAIN_SECONDS + FAREWELL_SECONDS
        for task in tuple(self.opening):
            task.cancel()
        for session in tuple(self.sessions):
            session.drain()
        while self.books.open and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(ROUND_SECONDS)
