"""A real server for each test, on a port that the kernel chooses."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wse_server import RustWSEServer

# Makes the tests' helpers, the programs of the parent folder, and the tools importable.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "tools")]
from harness import AUTHENTICATION, Running  # noqa: E402


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Starts servers that verify tokens; stops them and their clients after the test."""
    started: list[Running] = []

    def start(*, running: bool = True, **options: Any) -> Running:
        it = Running(RustWSEServer("127.0.0.1", options.pop("port", 0), **(AUTHENTICATION | options)))
        started.append(it)
        if running:
            it.server.start()
        return it

    yield start
    for it in started:
        for connection in it.connections:
            connection.socket.close()
        it.server.stop()


@pytest.fixture
def running(start: Callable[..., Running]) -> Running:
    """A started server with default settings."""
    return start()
