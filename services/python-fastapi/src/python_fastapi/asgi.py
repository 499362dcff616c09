"""Types of the ASGI callables that Granian passes to the application for each connection."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

type Message = dict[str, Any]
type Send = Callable[[Message], Awaitable[None]]


class PendingMessage(Protocol):
    """The return value of Granian's `receive()`. The server starts to work on it before it is awaited."""

    def done(self) -> bool: ...
    def result(self) -> Message: ...
    def cancel(self) -> bool: ...
    def __await__(self) -> Any: ...


type Receive = Callable[[], PendingMessage]
