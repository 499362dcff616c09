"""Why a session ends, and which Close frame its client gets."""

from dataclasses import dataclass
from typing import Final

from python_fastapi import protocol
from python_fastapi.asgi import Message
from python_fastapi.protocol import FRAME_BYTES, MAX_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class End:
    """Why a session ends, and the code and the reason of its Close frame. Without a code no Close frame is sent."""

    reason: str
    code: int | None = None
    text: str = ""
    refused: bool = False
    """Whether a complete message was refused; it is then counted as received and as dropped."""


EOF: Final = End("eof")
SHUTDOWN: Final = End("shutdown", 1001, "the gateway stops")
SLOW_CONSUMER: Final = End("slow_consumer", 1013, "the client does not read")
# Granian reports a broken frame in the same way as a Close frame without a code. This end is right for both: Granian
# has already replied to a real Close frame, and then it doesn't send a second one.
BROKEN: Final = End("client", 1002, "protocol error")


def refusal(message: Message, *, started: bool) -> End | None:
    """Returns why this message ends the session; `None` if it is a valid start message, or a valid frame after it."""
    if message["type"] == "websocket.disconnect":
        code = message.get("code", 1005)
        return BROKEN if code == 1005 else End("client", code)
    text, data = message.get("text"), message.get("bytes")
    size = len(data) if data is not None else len((text or "").encode())
    if size > MAX_MESSAGE_BYTES:
        return End("too_big", 1009, protocol.TOO_BIG, refused=True)
    if not started:
        if text is not None and protocol.is_start(text):
            return None
        return End("protocol", 1002, protocol.FIRST_MUST_BE_START, refused=True)
    if data is None:
        return End("protocol", 1002, protocol.EXPECTED_AUDIO, refused=True)
    return None if size == FRAME_BYTES else End("protocol", 1003, protocol.EXPECTED_640, refused=True)
