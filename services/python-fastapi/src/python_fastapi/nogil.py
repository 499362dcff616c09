"""Workarounds for an interpreter without a GIL: Rust threads keep their thread state, and a thread collects garbage.

Each time a Rust thread touches Python objects, it gets a new thread state with its own heaps, and these heaps remain
afterwards. Memory grows, and searching the abandoned heaps takes longer than the actual work. So each such thread is
held: it acquires its thread state once and never releases it. The thread itself must do this, in Python code that it
runs anyway: the event loop's `call_soon_threadsafe` for pyreqwest's threads, and a log handler for Granian's server
thread, which gets an invalid request so that it logs.

When another thread drops the last reference to an object of such a thread, the object is freed only when its own thread
runs Python code, which a Rust thread doesn't do, or by a garbage collection. So garbage is collected at fixed
intervals.
"""

import asyncio
import ctypes
import gc
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import uvloop

COLLECTION_SECONDS: Final = 0.2
_UPGRADE_WITHOUT_A_VERSION: Final = (
    b"GET /ws/stt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_held_threads: set[int] = set()


def _hold() -> None:
    """Makes the calling thread keep its thread state for as long as it lives."""
    thread = threading.get_ident()
    if thread not in _held_threads:
        _held_threads.add(thread)
        ctypes.pythonapi.PyGILState_Ensure()


class Loop(uvloop.Loop):
    """An event loop that holds each thread which schedules a callback on it."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """Holds the calling thread and then does what uvloop's method does."""
        _hold()
        return super().call_soon_threadsafe(callback, *args, context=context)


class ThreadHolder(logging.Handler):
    """A log handler that holds each thread that logs, and discards the records."""

    def emit(self, _record: logging.LogRecord) -> None:
        """Holds the calling thread and discards the record."""
        _hold()


async def hold_server(host: str, port: int) -> None:
    """Sends the server a handshake without a version, so that its thread logs that and `ThreadHolder` holds it."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(_UPGRADE_WITHOUT_A_VERSION)
    await reader.read(12)
    writer.close()


def collect_periodically() -> None:
    """Starts a thread that collects garbage every `COLLECTION_SECONDS` until the process ends."""

    def collect() -> None:
        while True:
            time.sleep(COLLECTION_SECONDS)
            gc.collect()

    threading.Thread(target=collect, name="garbage", daemon=True).start()
