"""The components in carefully written plain Python: the baselines of the Rust ones.

Each uses a suitable data structure, creates no needless objects, and does no more than the Rust one. Both return the
same results, which `component_tasks.py` checks before measuring.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any

# The protocol's priority levels, the most urgent first; and the nearest level of each priority from 0 to 10 (ties up).
LEVELS = (10, 8, 5, 3, 1)
NEAREST = tuple(min(LEVELS, key=lambda level: abs(level - priority)) for priority in range(11))
ENVELOPE = ("v", "t", "p", "id", "ts")
PROTOCOL_TYPES = frozenset(
    {"server_ready", "snapshot_complete", "client_hello_ack", "connection_state_change", "error", "pong"}
)
SCALARS = (str, int, float, bool, type(None))


class TokenBucket:
    """A token bucket: tokens refill at a rate, up to a capacity."""

    __slots__ = ("_at", "_capacity", "_rate", "_tokens")

    def __init__(self, capacity: float, rate: float) -> None:
        self._capacity = self._tokens = capacity
        self._rate = rate
        self._at = time.monotonic()

    def acquire(self, tokens: float) -> bool:
        """Takes `tokens` if that many are there; returns whether it did."""
        now = time.monotonic()
        held = min(self._capacity, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if tokens > held:
            self._tokens = held
            return False
        self._tokens = held - tokens
        return True


class Sequencer:
    """Sequence numbers, and a window of the latest ids with the time of their arrival."""

    __slots__ = ("_current", "_order", "_seen", "_window")

    def __init__(self, window: int) -> None:
        self._current = 0
        self._window = window
        self._seen: set[str] = set()
        self._order: deque[tuple[str, float]] = deque()

    def next_seq(self) -> int:
        """Increments and returns the sequence number."""
        self._current += 1
        return self._current

    def is_duplicate(self, event_id: str) -> bool:
        """Whether the id is in the window; adds it if not."""
        if event_id in self._seen:
            return True
        if len(self._order) >= self._window:
            self._seen.discard(self._order.popleft()[0])
        self._seen.add(event_id)
        self._order.append((event_id, time.monotonic()))
        return False


class PriorityMessageQueue:
    """A queue with five priority levels, each first in, first out; when full, the least urgent messages are dropped."""

    __slots__ = ("_batch", "_levels", "_size", "_yielding", "size")

    def __init__(self, max_size: int, batch_size: int) -> None:
        self._size, self._batch, self.size = max_size, batch_size, 0
        self._levels: dict[int, deque[tuple[Any, float]]] = {level: deque() for level in LEVELS}
        self._yielding = [self._levels[level] for level in (1, 3, 5)]

    def enqueue(self, message: Any, priority: int = 5) -> bool:
        """Adds a message at the nearest level; returns `False` when the queue is full and nothing can be dropped."""
        level = NEAREST[priority] if 0 <= priority <= 10 else 10 if priority > 10 else 1
        if self.size >= self._size:
            for queue in self._yielding:
                if queue:
                    queue.popleft()
                    break
            else:
                return False
        else:
            self.size += 1
        self._levels[level].append((message, time.monotonic()))
        return True

    def dequeue_batch(self) -> list[tuple[int, Any]]:
        """Removes and returns the next batch, the most urgent first."""
        batch: list[tuple[int, Any]] = []
        for level, queue in self._levels.items():
            while queue and len(batch) < self._batch:
                batch.append((level, queue.popleft()[0]))
        self.size -= len(batch)
        return batch

    def clear(self) -> None:
        """Removes all messages from all levels."""
        for queue in self._levels.values():
            queue.clear()
        self.size = 0


def new_id() -> str:
    """A new UUID of version 7 (RFC 9562, 5.7)."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10))
    return str(uuid.UUID(int=number & ~(0xF << 76 | 0x3 << 62) | 0x7 << 76 | 0x2 << 62))


def category(message_type: str) -> str:
    """The protocol's category of a message type."""
    if message_type in PROTOCOL_TYPES:
        return "WSE"
    return "S" if message_type.startswith("snapshot_") or "_snapshot" in message_type else "U"


def json_safe(value: Any) -> Any:
    """A copy of a value with only types that JSON has."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is dict:
        return {name: json_safe(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_safe(item) for item in value]
    if isinstance(value, Enum):
        return json_safe(value.value)
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    if isinstance(value, date):
        return value.isoformat()
    return json_safe(vars(value)) if hasattr(value, "__dict__") else str(value)


def transform_event(event: dict[str, Any], sequence: int, types: Mapping[str, str]) -> dict[str, Any]:
    """Wraps an application's event in an envelope."""
    if all(name in event for name in ENVELOPE):
        event.setdefault("seq", sequence)
        return event
    metadata = event.get("_metadata") or {}
    original = event.get("event_type") or event.get("type") or "unknown"
    message_type = types.get(original) or original.lower()
    payload = event.get("payload")
    if not isinstance(payload, dict):
        payload = {name: value for name, value in event.items() if name != "_metadata"}
    made = {
        "c": event.get("c") or category(message_type),
        "t": message_type,
        "id": metadata.get("event_id") or event.get("event_id") or new_id(),
        "ts": metadata.get("timestamp") or event.get("timestamp") or datetime.now(UTC).isoformat()[:-6] + "Z",
        "seq": sequence,
        "p": {name: json_safe(value) for name, value in payload.items()},
        "v": 1,
    }
    if original != message_type:
        made["original_event_type"] = original
    if cid := metadata.get("correlation_id") or event.get("correlation_id"):
        made["cid"] = cid
    if (priority := metadata.get("priority", event.get("pri"))) is not None:
        made["pri"] = priority
    made["event_version"] = event.get("version", metadata.get("version", 1))
    if trace := metadata.get("trace_id") or event.get("trace_id"):
        made["trace_id"] = trace
    return made


MISSING: Any = object()

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, expected: value == expected,
    "$ne": lambda value, expected: value != expected,
    "$gt": lambda value, expected: value > expected,
    "$gte": lambda value, expected: value >= expected,
    "$lt": lambda value, expected: value < expected,
    "$lte": lambda value, expected: value <= expected,
    "$in": lambda value, expected: value in expected,
    "$nin": lambda value, expected: value not in expected,
    # `re` caches compiled patterns.
    "$regex": lambda value, expected: re.match(expected, value) is not None,
    "$contains": lambda value, expected: expected in value,
    "$startswith": lambda value, expected: value.startswith(expected),
    "$endswith": lambda value, expected: value.endswith(expected),
}


def find(event: Any, path: str) -> Any:
    """The field at a dotted path; `MISSING` when there is none."""
    for name in path.split("."):
        if not isinstance(event, dict) or name not in event:
            return MISSING
        event = event[name]
    return event


def holds(value: Any, operator: str, expected: Any) -> bool:
    """Whether a value meets one operator of the criteria."""
    if operator == "$exists":
        return (value is not MISSING) is expected
    test = OPERATORS.get(operator)
    if test is None:
        return False
    if value is not MISSING:
        try:
            return test(value, expected)
        except TypeError:
            return False
    if operator == "$eq":
        return expected is None
    return operator == "$nin" or (operator == "$ne" and expected is not None)


def match_event(event: dict[str, Any], criteria: dict[str, Any]) -> bool:
    """Whether an event meets all criteria."""
    if "start_from_latest" in criteria:
        return True
    if "$and" in criteria:
        return all(match_event(event, one) for one in criteria["$and"])
    if "$or" in criteria:
        return any(match_event(event, one) for one in criteria["$or"])
    for path, expected in criteria.items():
        value = find(event, path)
        if isinstance(expected, dict):
            for operator, operand in expected.items():
                if not holds(value, operator, operand):
                    return False
        elif (None if value is MISSING else value) != expected:
            return False
    return True
