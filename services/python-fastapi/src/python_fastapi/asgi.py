"""The ASGI callables of a connection, as Granian makes them."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

type Message = dict[str, Any]
type Send = Callable[[Message], Awaitable[None]]


class Reception(Protocol):
    """What Granian's `receive()` returns: a message to come. The server works on it without being awaited."""

    def done(self) -> bool: ...
    def result(self) -> Message: ...
    def cancel(self) -> bool: ...
    def __await__(self) -> Any: ...


type Receive = Callable[[], Reception]
