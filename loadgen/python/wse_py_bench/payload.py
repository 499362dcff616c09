"""Messages: the trade update of the published benchmarks in three formats, with the same bytes as `wse-bench`.

Each has a number, so that the application's sum of numbers reveals drops that the service didn't count.
"""

import json
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import msgpack  # type: ignore[import-untyped]
from bench_format.schemas import Message

# First number: all numbers of a connection have the same number of digits, and are a uint 32 in MessagePack.
FIRST_SEQUENCE = 100_000_000
FORMATS = ("json", "msgpack", "compressed")
BASE_BYTES = 175
# `"data":"",` around the padding, and ten bytes by which the published messages are shorter than their nominal size.
PADDING_OVERHEAD = 20
SHORT_BYTES = 64

_PONG = re.compile(r'"t"\s*:\s*"pong"', re.IGNORECASE)
_NUMBER = re.compile(r'"client_timestamp"\s*:\s*(\d+)')


@dataclass(frozen=True)
class Composer:
    """Composes the message for a number."""

    text: bool
    compose: Callable[[int], bytes]


def composer(message: Message) -> Composer:
    """Returns the composer for a format and nominal size."""
    update = _trade_update(message.size_bytes)
    if message.format == "json":
        return Composer(True, _with_number(_json(update), str(FIRST_SEQUENCE).encode(), b"%d"))
    if message.format == "msgpack":
        packed: bytes = b"M:" + msgpack.packb(update)
        head, tail = packed.split(FIRST_SEQUENCE.to_bytes(4, "big"))
        return Composer(False, lambda sequence: head + sequence.to_bytes(4, "big") + tail)
    if message.format == "compressed":
        # Each message is compressed on its own, because of its number; such a flood is bound by the generator.
        plain = _with_number(_json(update), str(FIRST_SEQUENCE).encode(), b"%d")
        return Composer(False, lambda sequence: b"C:" + zlib.compress(plain(sequence)))
    raise ValueError(f"there is no format {message.format!r}; known are {', '.join(FORMATS)}")


def payload_bytes(message: Message) -> int:
    """Size of one message in bytes, without the frame header."""
    return len(composer(message).compose(FIRST_SEQUENCE))


def ping(number: int) -> str:
    """A ping with a number, which the service echoes from `p.timestamp`."""
    return f'{{"p":{{"client_timestamp":{time.time_ns() // 1_000_000},"timestamp":{number}}},"t":"ping"}}'


def pong_number(text: str) -> int | None:
    """The number of the ping that a pong answers; `None` for other messages."""
    found = _NUMBER.search(text) if _PONG.search(text) else None
    return None if found is None else int(found.group(1))


def _trade_update(size_bytes: int) -> dict[str, object]:
    """A trade update of a nominal size; keys are sorted, as the published Rust client sent them."""
    if size_bytes <= SHORT_BYTES:
        return {"p": {"s": "ESZ26", "seq": FIRST_SEQUENCE}, "t": "trade_update"}
    padding = max(0, size_bytes - BASE_BYTES - PADDING_OVERHEAD)
    data = {"data": "x" * padding} if padding else {}
    fields = {
        "account": "acc_01HQ3",
        **data,
        "price": 5234.75,
        "qty": 2,
        "score": 0.87,
        "seq": FIRST_SEQUENCE,
        "side": "buy",
        "symbol": "ES",
        "tags": ["momentum", "breakout"],
        "ts": 1_771_857_000,
    }
    return {"p": fields, "t": "trade_update"}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _with_number(template: bytes, number: bytes, number_format: bytes) -> Callable[[int], bytes]:
    head, tail = template.split(number)
    pattern = head.replace(b"%", b"%%") + number_format + tail.replace(b"%", b"%%")
    return lambda sequence: pattern % sequence
