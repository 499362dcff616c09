"""The application behind the benchmark servers: it reads every message and keeps books on what it read.

This is the witness of a delivery: a message counts when this loop has read its connection, its type and its data, and
the sum of the sequence numbers shows whether it read the right ones. It knows no server: both `bench_server.py` and
the reference's `services/wse-reference/server.py` run it, so that they are compared by what they deliver and not by
who counts.
"""

import re
import threading
import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

# A loop that finds less than this waits a little for more: handing over a few messages costs as much as handing over
# hundreds, and so does waking up. Nobody waits for this application's answer.
FEW_MESSAGES = 256
LINGER_SECONDS = 0.002

Counts = tuple[int, int, int]
"""Delivered messages, the sum of their sequence numbers modulo 2**64, and how many carried none."""

UINT64 = (1 << 64) - 1
JSON_NUMBER = b'"seq":'
DIGITS = re.compile(rb" ?([0-9]+)")
MESSAGEPACK_NUMBER = b"\xa3seq\xce"
MESSAGEPACK_BYTES = 4
# Where a message ends among others that lie back to back: an unsigned 32-bit integer, "I" in `array` and `memoryview`.
END_BYTES = 4
# The ends of messages of one size, by size; sizes that vary are no use to keep.
RULERS: dict[int, bytes] = {}
MOST_RULERS = 64
LEAST_RULER = 1024
# The last digits of successive numbers, by what a digit stands for: from the first of a cycle to beyond its end.
MOST_SUCCESSIVE = 10_000
DIGITS_OF = [str(digit).encode() for digit in range(10)]
CYCLES = {
    scale: b"".join(digit * scale for digit in DIGITS_OF) * (1 + MOST_SUCCESSIVE // scale)
    for scale in (1, 10, 100, 1000)
}


class Books:
    """Counts per connection and in total, in columns: 24 bytes a connection beside its key and id."""

    def __init__(self) -> None:
        # Held while a list of messages is counted, so that a reading sees whole lists.
        self.lock = threading.Lock()
        self._index: dict[int | str, int] = {}
        self._keys: list[int | str] = []
        self._ids: list[str] = []
        self._delivered = array("Q")
        self._sums = array("Q")
        self._unnumbered = array("Q")
        self._free: list[int] = []
        self._closed: list[int] = []
        self._total: Counts = (0, 0, 0)

    def open(self, key: int | str, connection_id: str) -> int:
        """Start the books of a connection; returns its row."""
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
        """Keep the books of a connection only until they were read once more."""
        index = self._index.get(key)
        if index is not None:
            self._closed.append(index)

    def add(self, key: int | str, delivered: int, total: int, unnumbered: int) -> None:
        """Enter a connection's messages."""
        index = self._index.get(key)
        if index is None:
            # A server that drops what it has no room for may have dropped the connection's announcement.
            index = self.open(key, str(key))
        self._delivered[index] += delivered
        self._sums[index] = (self._sums[index] + total) & UINT64
        self._unnumbered[index] += unnumbered
        before = self._total
        self._total = (before[0] + delivered, (before[1] + total) & UINT64, before[2] + unnumbered)

    def totals(self) -> Counts:
        """The books of all connections together."""
        with self.lock:
            return self._total

    def connections(self) -> dict[str, Counts]:
        """The books of each connection, by id; closed ones for the last time."""
        with self.lock:
            rows = zip(self._delivered, self._sums, self._unnumbered, strict=True)
            books = {self._ids[index]: row for index, row in enumerate(rows) if self._ids[index]}
            for index in self._closed:
                del self._index[self._keys[index]]
                self._ids[index] = ""
                self._free.append(index)
            self._closed.clear()
            return books


class Place(NamedTuple):
    """Where a message has its number: the next ones probably have it there, and looking is cheaper than searching."""

    frame: tuple[tuple[int, int], ...]
    """The bytes that show it, by offset: the name before the number, and what ends a JSON number."""
    number: range
    """The offsets of its digits."""
    decimal: bool
    """Whether these are decimal digits or the bytes of a binary number."""


def deliver_until(stopping: Callable[[], bool], deliver: Callable[[], int]) -> None:
    """Deliver again and again; `deliver` waits for the first message and says how many it found."""
    while not stopping():
        if 0 < deliver() < FEW_MESSAGES:
            time.sleep(LINGER_SECONDS)


def find_number(data: bytes) -> tuple[int, Place | None] | None:
    """Search for the number of a message, and say where it was if the next ones can be read from there."""
    at = data.find(JSON_NUMBER)
    if at >= 0:
        digits = DIGITS.match(data, at + len(JSON_NUMBER))
        if digits is None:
            return None
        first, end = digits.start(1), digits.end()
        frame = (*enumerate(data[at:first], at), *enumerate(data[end : end + 1], end))
        # Without a byte behind it, the number might go on in a longer message.
        return int(digits[1]), Place(frame, range(first, end), True) if end < len(data) else None
    at = data.find(MESSAGEPACK_NUMBER)
    if at < 0:
        return None
    first = at + len(MESSAGEPACK_NUMBER)
    number = data[first : first + MESSAGEPACK_BYTES]
    place = Place(tuple(enumerate(MESSAGEPACK_NUMBER, at)), range(first, first + MESSAGEPACK_BYTES), False)
    return int.from_bytes(number), place if len(number) == MESSAGEPACK_BYTES else None


def are_even(ends: bytes, size: int) -> bool:
    """Whether messages that end there are all of one size."""
    ruler = RULERS.get(size)
    if ruler is None or len(ruler) < len(ends):
        if memoryview(ends).cast("I")[0] != size:
            return False
        if len(RULERS) >= MOST_RULERS:
            RULERS.clear()
        count = max(LEAST_RULER, len(ends) // END_BYTES)
        ruler = RULERS[size] = array("I", range(size, size * (count + 1), size)).tobytes()
    return ruler.startswith(ends)


def are_successive(place: Place, table: bytes, size: int, count: int, first: int) -> bool:
    """Whether the numbers of the messages are `first` and those after it, digit by digit of every message."""
    if count > MOST_SUCCESSIVE:
        return False
    scale = 1
    for offset in reversed(place.number):
        digit = first // scale % 10
        if scale < MOST_SUCCESSIVE:
            start = first % (scale * 10)
            expected = CYCLES[scale][start : start + count]
        else:
            # It changes once at most: every so many numbers, and there are no more than that.
            before = min(scale - first % scale, count)
            expected = DIGITS_OF[digit] * before + DIGITS_OF[(digit + 1) % 10] * (count - before)
        if table[offset::size] != expected:
            return False
        scale *= 10
    # Or the last of them has a digit more.
    return first + count <= scale


def sum_columns(place: Place, table: bytes, size: int, count: int) -> int | None:
    """The sum of the messages' numbers, if every one has exactly a number there.

    The messages are the rows of a table, read by columns: the work for a message is a byte here and there, in C.
    """
    if place.number.stop > size:
        return None
    for offset, byte in place.frame:
        if table[offset::size] != byte.to_bytes() * count:
            return None
    if place.decimal:
        digits = table[place.number.start : place.number.stop]
        # What a connection counts, it mostly counts on.
        if digits.isdigit() and are_successive(place, table, size, count, int(digits)):
            return count * int(digits) + count * (count - 1) // 2
    base, zero = (10, ord("0")) if place.decimal else (256, 0)
    total = 0
    for offset in place.number:
        column = table[offset::size]
        if place.decimal and not column.isdigit():
            return None
        total = total * base + sum(column) - zero * count
    return total


def sum_run(data: bytes, ends: bytes, place: Place | None) -> tuple[int, int, Place | None]:
    """The sum of the messages' numbers, how many have none, and where to look for the next ones."""
    count = len(ends) // END_BYTES
    size = len(data) // count
    even = size > 0 and are_even(ends, size)
    total = sum_columns(place, data, size, count) if place and even else None
    if total is not None:
        return total, 0, place
    bounds = memoryview(ends).cast("I")
    found = find_number(data[: bounds[0]])
    place = found[1] if found else None
    total = sum_columns(place, data, size, count) if place and even and count > 1 else None
    if total is not None:
        return total, 0, place
    total = unnumbered = start = 0
    for end in bounds:
        found = find_number(data[start:end])
        start = end
        if found is None:
            unnumbered += 1
        else:
            total += found[0]
            place = found[1]
    return total, unnumbered, place


def number_elsewhere(message: Any) -> Any:
    """The number of a decoded message that has no type, or no number in its payload."""
    if not isinstance(message, dict):
        return None
    payload = message.get("p")
    if isinstance(payload, dict) and "seq" in payload:
        return payload["seq"]
    return message.get("seq")


def count_packed(runs: Iterable[tuple[int, str | None, bytes, bytes]], books: Books) -> None:
    """Read messages as (connection, type, data of all, where each ends), in runs of one connection and type.

    Enters them into the books.
    """
    place = None
    for connection, _type, data, ends in runs:
        total, unnumbered, place = sum_run(data, ends, place)
        books.add(connection, len(ends) // END_BYTES, total, unnumbered)


def count_events(events: Iterable[tuple[str, str, Any]], books: Books) -> None:
    """Read events as (kind, connection id, data), decoded, and enter the messages among them."""
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
                number = number_elsewhere(data)
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
