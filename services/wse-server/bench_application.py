"""The application of the benchmark servers: it reads every message and keeps books of what it read.

It is the witness of deliveries: a message counts when this loop has read its connection, type and data, and the sum of
the sequence numbers shows whether it read the right ones. It is independent of the server: both `bench_server.py` and
the reference's `services/wse-reference/server.py` run it, so that both are counted in the same manner.
"""

import re
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

# A loop that finds fewer messages than this waits briefly for more, because a wake-up and the handover of a few
# messages cost as much as the handover of hundreds. The application sends no replies, so no client waits for it.
FEW_MESSAGES = 256
LINGER_SECONDS = 0.002

Counts = tuple[int, int, int]
"""Number of delivered messages, sum of their sequence numbers modulo 2**64, number of messages without one."""

UINT64 = (1 << 64) - 1
JSON_NUMBER = b'"seq":'
DIGITS = re.compile(rb" ?([0-9]+)")
MESSAGEPACK_NUMBER = b"\xa3seq\xce"
MESSAGEPACK_BYTES = 4
# Size of an end offset in concatenated messages: an unsigned 32-bit integer, "I" in `array` and `memoryview`.
END_BYTES = 4
# Cached end offsets of messages of one size, by size; not used when sizes vary.
EVEN_OFFSETS: dict[int, bytes] = {}
MAX_EVEN_OFFSETS = 64
MIN_EVEN_OFFSETS = 1024
# The most closed connections whose books are kept: twice as many as one shard of the server keeps.
MOST_CLOSED = 1 << 17
# The digits at one decimal place of successive numbers, by place value: from the start of a cycle to beyond its end.
MAX_SUCCESSIVE = 10_000
DIGITS_OF = [str(digit).encode() for digit in range(10)]
CYCLES = {
    scale: b"".join(digit * scale for digit in DIGITS_OF) * (1 + MAX_SUCCESSIVE // scale)
    for scale in (1, 10, 100, 1000)
}


class Books:
    """Counts per connection and in total, stored in columns: 24 bytes per connection beside its key and id."""

    def __init__(self) -> None:
        # Held while a list of messages is counted, so that a reading includes whole lists.
        self.lock = threading.Lock()
        self._index: dict[int | str, int] = {}
        self._keys: list[int | str] = []
        self._ids: list[str] = []
        self._delivered = array("Q")
        self._sums = array("Q")
        self._unnumbered = array("Q")
        self._free: list[int] = []
        self._closed: deque[int] = deque()
        self._total: Counts = (0, 0, 0)

    def open(self, key: int | str, connection_id: str) -> int:
        """Starts the books of a connection and returns its row."""
        if self._free:
            index = self._free.pop()
            self._keys[index], self._ids[index] = key, connection_id
            self._delivered[index] = self._sums[index] = self._unnumbered[index] = 0
        else:
            index = len(self._keys)
            self._keys.append(key)
            self._ids.append(connection_id)
            for column in (self._delivered, self._sums, self._unnumbered):
                column.append(0)
        self._index[key] = index
        return index

    def close(self, key: int | str) -> None:
        """Marks a connection as closed; its books are dropped when `MOST_CLOSED` others have closed after it."""
        index = self._index.get(key)
        if index is None:
            return
        self._closed.append(index)
        if len(self._closed) > MOST_CLOSED:
            oldest = self._closed.popleft()
            del self._index[self._keys[oldest]]
            self._ids[oldest] = ""
            self._free.append(oldest)

    def add(self, key: int | str, delivered: int, total: int, unnumbered: int) -> None:
        """Adds messages to the books of a connection."""
        index = self._index.get(key)
        if index is None:
            # A server that drops entries of a full queue may have dropped the `connect` event.
            index = self.open(key, str(key))
        self._delivered[index] += delivered
        self._sums[index] = (self._sums[index] + total) & UINT64
        self._unnumbered[index] += unnumbered
        before = self._total
        self._total = (before[0] + delivered, (before[1] + total) & UINT64, before[2] + unnumbered)

    def totals(self) -> Counts:
        """The sum of the books of all connections."""
        with self.lock:
            return self._total

    def connections(self) -> dict[str, Counts]:
        """The books of each connection by id, those of closed ones included as long as they are kept."""
        with self.lock:
            rows = zip(self._delivered, self._sums, self._unnumbered, strict=True)
            return {self._ids[index]: row for index, row in enumerate(rows) if self._ids[index]}


class NumberPosition(NamedTuple):
    """Position of a message's number. Later messages probably have it there, and a check is cheaper than a search."""

    frame: tuple[tuple[int, int], ...]
    """The bytes that prove the position, with offsets: the name before the number, and the end of a JSON number."""
    number: range
    """The offsets of the number's digits or bytes."""
    decimal: bool
    """Whether the number consists of decimal digits, not of the bytes of a binary number."""


def deliver_until(stopping: Callable[[], bool], deliver: Callable[[], int]) -> None:
    """Calls `deliver` in a loop; it waits for the first message and returns how many it found."""
    while not stopping():
        if 0 < deliver() < FEW_MESSAGES:
            time.sleep(LINGER_SECONDS)


def locate_number(data: bytes) -> tuple[int, int, int, bool] | None:
    """The offsets of a message's number: of the name before it, of its first byte, and of the end of the number, which
    may lie beyond a message that was cut; and whether it is decimal. `None` without a number."""
    at = data.find(JSON_NUMBER)
    if at >= 0:
        digits = DIGITS.match(data, at + len(JSON_NUMBER))
        return None if digits is None else (at, digits.start(1), digits.end(), True)
    at = data.find(MESSAGEPACK_NUMBER)
    if at < 0:
        return None
    first = at + len(MESSAGEPACK_NUMBER)
    return at, first, first + MESSAGEPACK_BYTES, False


def read_number(data: bytes) -> int | None:
    """The number of a message; `None` without one."""
    located = locate_number(data)
    if located is None:
        return None
    _name, first, end, decimal = located
    return int(data[first:end]) if decimal else int.from_bytes(data[first:end])


def find_number(data: bytes) -> tuple[int, NumberPosition | None] | None:
    """Finds the number of a message, and its position if later messages can be read from there."""
    located = locate_number(data)
    if located is None:
        return None
    name, first, end, decimal = located
    number, frame = data[first:end], tuple(enumerate(data[name:first], name))
    if decimal:
        # Without a byte after it, the number could have more digits in a longer message.
        is_whole = end < len(data)
        frame += tuple(enumerate(data[end : end + 1], end))
    else:
        is_whole = end <= len(data)
    position = NumberPosition(frame, range(first, end), decimal) if is_whole else None
    return int(number) if decimal else int.from_bytes(number), position


def have_equal_size(ends: bytes, size: int) -> bool:
    """Whether all messages with these end offsets have one size."""
    offsets = EVEN_OFFSETS.get(size)
    if offsets is None or len(offsets) < len(ends):
        if memoryview(ends).cast("I")[0] != size:
            return False
        if len(EVEN_OFFSETS) >= MAX_EVEN_OFFSETS:
            EVEN_OFFSETS.clear()
        count = max(MIN_EVEN_OFFSETS, len(ends) // END_BYTES)
        offsets = EVEN_OFFSETS[size] = array("I", range(size, size * (count + 1), size)).tobytes()
    return offsets.startswith(ends)


def are_successive(position: NumberPosition, table: bytes, size: int, count: int, first: int) -> bool:
    """Whether the numbers of the messages are `first` and its successors, by a check of every digit."""
    if count > MAX_SUCCESSIVE:
        return False
    scale = 1
    for offset in reversed(position.number):
        digit = first // scale % 10
        if scale < MAX_SUCCESSIVE:
            start = first % (scale * 10)
            expected = CYCLES[scale][start : start + count]
        else:
            # The digit changes at most once, because it changes every `scale` numbers and `count` is not larger.
            before = min(scale - first % scale, count)
            expected = DIGITS_OF[digit] * before + DIGITS_OF[(digit + 1) % 10] * (count - before)
        if table[offset::size] != expected:
            return False
        scale *= 10
    # If not, the last number has one digit more and doesn't fit.
    return first + count <= scale


def sum_columns(position: NumberPosition, table: bytes, size: int, count: int) -> int | None:
    """The sum of the messages' numbers, if every message has a number at exactly this position, else `None`.

    The messages are the rows of a table that is read by columns, so the work per message is a few bytes, in C.
    """
    if position.number.stop > size:
        return None
    for offset, byte in position.frame:
        if table[offset::size] != byte.to_bytes() * count:
            return None
    if position.decimal:
        digits = table[position.number.start : position.number.stop]
        # The numbers of a connection are mostly consecutive.
        if digits.isdigit() and are_successive(position, table, size, count, int(digits)):
            return count * int(digits) + count * (count - 1) // 2
    base, zero = (10, ord("0")) if position.decimal else (256, 0)
    total = 0
    for offset in position.number:
        column = table[offset::size]
        if position.decimal and not column.isdigit():
            return None
        total = total * base + sum(column) - zero * count
    return total


def sum_run(data: bytes, ends: bytes, position: NumberPosition | None) -> tuple[int, int, NumberPosition | None]:
    """The sum of the messages' numbers, the number of messages without one, and the position for the next messages."""
    count = len(ends) // END_BYTES
    size = len(data) // count
    even = size > 0 and have_equal_size(ends, size)
    total = sum_columns(position, data, size, count) if position and even else None
    if total is not None:
        return total, 0, position
    bounds = memoryview(ends).cast("I")
    found = find_number(data[: bounds[0]])
    position = found[1] if found else None
    total = sum_columns(position, data, size, count) if position and even and count > 1 else None
    if total is not None:
        return total, 0, position
    total = unnumbered = start = 0
    for end in bounds:
        found = find_number(data[start:end])
        start = end
        if found is None:
            unnumbered += 1
        else:
            total += found[0]
            position = found[1]
    return total, unnumbered, position


def find_decoded_number(message: Any) -> Any:
    """The number of a decoded message that has no type or no number in its payload; `None` if there is none."""
    if not isinstance(message, dict):
        return None
    payload = message.get("p")
    if isinstance(payload, dict) and "seq" in payload:
        return payload["seq"]
    return message.get("seq")


def count_packed(runs: Iterable[tuple[int, str | None, bytes, bytes]], books: Books) -> None:
    """Reads messages in runs of one connection and type, as (connection, type, concatenated data, end offsets).

    Adds them to the books.
    """
    position = None
    for connection, _type, data, ends in runs:
        if len(ends) == END_BYTES:
            # Where types vary, most runs are one message: its position says nothing about the next one.
            number = read_number(data)
            books.add(connection, 1, number or 0, number is None)
            continue
        total, unnumbered, position = sum_run(data, ends, position)
        books.add(connection, len(ends) // END_BYTES, total, unnumbered)


def count_events(events: Iterable[tuple[str, str, Any]], books: Books) -> None:
    """Reads decoded events as (kind, connection id, data) and adds the messages among them to the books."""
    current = ""
    delivered = total = unnumbered = 0
    for kind, connection, data in events:
        if connection != current:
            if delivered:
                books.add(current, delivered, total, unnumbered)
            current = connection
            delivered = total = unnumbered = 0
        if kind == "msg":
            delivered += 1
            try:
                _type = data["t"]
                number = data["p"]["seq"]
            except (KeyError, TypeError):
                number = find_decoded_number(data)
            if number.__class__ is int:
                total += number
            else:
                unnumbered += 1
        elif kind == "raw" or kind == "bin":
            delivered += 1
            found = find_number(data.encode() if kind == "raw" else data)
            if found is None:
                unnumbered += 1
            else:
                total += found[0]
        elif kind == "disconnect":
            if delivered:
                books.add(connection, delivered, total, unnumbered)
                delivered = total = unnumbered = 0
            books.close(connection)
        else:
            books.open(connection, connection)
    if delivered:
        books.add(current, delivered, total, unnumbered)
