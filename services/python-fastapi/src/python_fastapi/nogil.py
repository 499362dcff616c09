"""What an interpreter without a GIL needs beside the code: threads of Rust that stay known to it, and their garbage.

A thread of Rust that touches Python objects gets a thread state with heaps of its own each time, and leaves the heaps
behind: memory grows, and looking through what was left takes longer than the work. So each such thread is held: it asks
for its state once and never gives it back. That must happen in the thread itself, in code that it happens to call: the
event loop's `call_soon_threadsafe`, and the handler of what Granian's server logs, for which it is sent a bad request.

Objects of such a thread that another one drops last wait for the thread to run Python code, which it never does, or for
a collection. So there are collections by the clock.
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

COLLECT_SECONDS: Final = 0.2
_UPGRADE_WITHOUT_A_VERSION: Final = (
    b"GET /ws/stt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_held: set[int] = set()


def _hold() -> None:
    """Has the calling thread keep its thread state."""
    thread = threading.get_ident()
    if thread not in _held:
        _held.add(thread)
        ctypes.pythonapi.PyGILState_Ensure()


class Loop(uvloop.Loop):
    """An event loop that holds the threads which hand something over to it."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """As the event loop's own."""
        _hold()
        return super().call_soon_threadsafe(callback, *args, context=context)


class Holder(logging.Handler):
    """Holds the threads that log, and logs nothing."""

    def emit(self, _record: logging.LogRecord) -> None:
        """Logs nothing."""
        _hold()


async def hold_server(host: str, port: int) -> None:
    """Has the server's thread log something."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(_UPGRADE_WITHOUT_A_VERSION)
    await reader.read(12)
    writer.close()


def collect_by_the_clock() -> None:
    """Collects garbage for as long as the process lives."""

    def collect() -> None:
        while True:
            time.sleep(COLLECT_SECONDS)
            gc.collect()

    threading.Thread(target=collect, name="garbage", daemon=True).start()
