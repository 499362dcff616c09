"""Helpers for tests with a real server: connect, send, and wait with a deadline, never for a fixed time."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from websockets.sync.client import ClientConnection, connect
from wse_server import RustWSEServer

from bench_server import AUDIENCE, ISSUER, SECRET, token

DEADLINE_SECONDS = 10.0
AUTHENTICATION = {"jwt_secret": SECRET, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}


class Running:
    """A started server with helpers for tests."""

    def __init__(self, server: RustWSEServer) -> None:
        self.server = server
        self.connections: list[ClientConnection] = []

    def url(self, query: str = "") -> str:
        return f"ws://127.0.0.1:{self.server.port}/wse{query}"

    def connect(self, query: str = "", cookie: str | None = None, **options: Any) -> ClientConnection:
        """Opens a connection with a valid token, or with `cookie`; reads nothing from it."""
        cookie = f"access_token={token(int(time.time()))}" if cookie is None else cookie
        connection: ClientConnection = connect(
            self.url(query), additional_headers={"Cookie": cookie}, compression=None, legacy=True, **options
        )
        self.connections.append(connection)
        return connection

    def drain(self, count: int) -> list[tuple[str, Any, Any]]:
        """Drains the next `count` events."""
        events: list[tuple[str, Any, Any]] = []
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(events) < count:
            assert time.monotonic() < deadline, (
                f"{len(events)} of {count} events after {DEADLINE_SECONDS} s: {events[-5:]}"
            )
            events += self.server.drain_inbound(count - len(events), 100)
        return events

    def wait(self, condition: Callable[[], bool]) -> None:
        """Waits until a condition holds, up to the deadline."""
        wait_until(condition)


class Sender(threading.Thread):
    """Sends numbered messages from its own thread, as fast as the server accepts them."""

    def __init__(self, connection: ClientConnection, count: int, padding_bytes: int = 0) -> None:
        super().__init__(daemon=True)
        self.connection = connection
        self.count = count
        self.padding = "x" * padding_bytes
        self.start()

    def run(self) -> None:
        for number in range(self.count):
            self.connection.send(f'{{"t":"x","p":{{"seq":{number},"pad":"{self.padding}"}}}}')


def wait_until(condition: Callable[[], bool]) -> None:
    """Polls a condition until it holds; fails after the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not after {DEADLINE_SECONDS} s"
        time.sleep(0.005)


def message(connection: ClientConnection) -> dict[str, Any]:
    """Receives and decodes the next text message."""
    text = connection.recv(DEADLINE_SECONDS)
    assert isinstance(text, str)
    value: dict[str, Any] = json.loads(text)
    return value
