"""Encoders for the values in seeds: JSON, MessagePack, WebSocket frames."""

from __future__ import annotations

import json
import struct
from typing import Any

Seeds = dict[str, bytes]

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
HELLO = {"t": "client_hello", "p": {"client_version": "1", "protocol_version": 1}}


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def packed(value: Any) -> bytes:
    """Encodes MessagePack as far as the seeds need it: short maps, arrays and texts, booleans, numbers, nil."""
    match value:
        case None | bool():
            return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
        case int():
            return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            text = value.encode()
            return (bytes([0xA0 | len(text)]) if len(text) < 32 else b"\xd9" + bytes([len(text)])) + text
        case list():
            return bytes([0x90 | len(value)]) + b"".join(map(packed, value))
        case dict():
            return bytes([0x80 | len(value)]) + b"".join(packed(key) + packed(item) for key, item in value.items())
    raise TypeError(value)


def websocket(
    opcode: int, payload: bytes = b"", *, last: bool = True, mask: bytes = b"", length: int | None = None
) -> bytes:
    """Encodes a frame (RFC 6455, section 5.2), masked if a mask is given; `length` may differ from the payload's."""
    declared = len(payload) if length is None else length
    masked = 0x80 if mask else 0
    if declared < 126:
        size = bytes([masked | declared])
    elif declared < 1 << 16:
        size = bytes([masked | 126]) + struct.pack(">H", declared)
    else:
        size = bytes([masked | 127]) + struct.pack(">Q", declared)
    body = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if mask else payload
    return bytes([(0x80 if last else 0) | opcode]) + size + mask + body


def client(opcode: int, payload: bytes = b"", *, last: bool = True, length: int | None = None) -> bytes:
    return websocket(opcode, payload, last=last, mask=b"\x37\xfa\x21\x3d", length=length)


def two(first: bytes, second: bytes) -> bytes:
    """Two byte strings as `arbitrary` decodes them: the last byte is the length of the first one."""
    return first + second + bytes([len(first)])
