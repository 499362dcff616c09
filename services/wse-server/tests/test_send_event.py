"""Events from Python to clients: conversion of objects, fields of the envelope, and events that are not sent."""

import datetime
import decimal
import enum
import json
import math
import re
import uuid
import zlib
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from harness import DEADLINE_SECONDS, Running, message
from websockets.sync.client import ClientConnection


def ready(running: Running, query: str = "") -> tuple[ClientConnection, str]:
    """A connection that has received `server_ready`, and its id."""
    connection = running.connect(query)
    return connection, message(connection)["p"]["details"]["connection_id"]


def received(connection: ClientConnection) -> bytes:
    """The payload of the next binary message."""
    data = connection.recv(DEADLINE_SECONDS)
    assert isinstance(data, bytes), data
    return data


@pytest.fixture
def payload(running: Running) -> Callable[[Any], Any]:
    """Sends an object as an event's payload; returns what arrives, which must be equal as JSON and MessagePack."""
    as_json, json_id = ready(running)
    as_messagepack, messagepack_id = ready(running, "?format=msgpack")

    def payload(value: Any) -> Any:
        for connection_id in (json_id, messagepack_id):
            running.server.send_event(connection_id, {"t": "x", "p": value}, 0)
        text = received(as_json).decode()
        event = json.loads(text)
        packed = msgpack.unpackb(received(as_messagepack)[2:], strict_map_key=False)
        assert packed["p"] == event["p"]
        return event["p"]

    return payload


def test_an_event_arrives_with_its_envelope_and_its_keys_sorted(running: Running) -> None:
    connection, connection_id = ready(running)
    size = running.server.send_event(connection_id, {"t": "user_update", "p": {"b": 1, "a": {"d": 2, "c": 3}}})
    data = received(connection)
    assert len(data) == size
    event = json.loads(data)
    assert list(event) == ["c", "id", "p", "seq", "t", "ts", "v"]
    assert b'"p":{"a":{"c":3,"d":2},"b":1}' in data
    assert (event["c"], event["t"], event["v"]) == ("U", "user_update", 1)
    assert uuid.UUID(event["id"]).version == 7
    sent = datetime.datetime.fromisoformat(event["ts"])
    assert abs((datetime.datetime.now(datetime.UTC) - sent).total_seconds()) < DEADLINE_SECONDS


def test_given_fields_stay_except_category_and_version(running: Running) -> None:
    connection, connection_id = ready(running)
    event = {"v": 9, "c": "X", "t": "book_snapshot", "id": None, "seq": "mine", "ts": 7, "pri": 8, "cid": "q"}
    running.server.send_event(connection_id, event)
    expected = b'{"c":"S","cid":"q","id":null,"pri":8,"seq":"mine","t":"book_snapshot","ts":7,"v":1}'
    assert received(connection) == expected
    assert event["v"] == 9, "the application's own object is not touched"


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


class Odd:
    def isoformat(self) -> int:
        return 5

    def __str__(self) -> str:
        return "odd"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (-(2**63), -(2**63)),
        (2**63, "9223372036854775808"),
        (-(2**63) - 1, "-9223372036854775809"),
        (1.5, 1.5),
        (1e300, 1e300),
        (math.nan, None),
        (-math.inf, None),
        ('ü\u2028\x7f\x01"\\', 'ü\u2028\x7f\x01"\\'),
        ("\ud800x", "\ufffd\ufffd\ufffdx"),
        (b"\x00\xff", "00ff"),
        (bytearray(b"ab"), "6162"),
        (memoryview(b"ab"), "6162"),
        ([1, (2, [3])], [1, [2, [3]]]),
        ({1: 2, None: 4, (1, 2): 5, "k": {}}, {"1": 2, "None": 4, "(1, 2)": 5, "k": {}}),
        ({"1": "first", 1: "second"}, {"1": "second"}),
        (datetime.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (decimal.Decimal("1.50"), "1.50"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        ({3}, "{3}"),
        (Colour.RED, "Colour.RED"),
        (Number.ONE, 1),
        (Text("x"), "x"),
        (Odd(), "odd"),
    ],
    # Without addresses, so that every process that collects the tests calls them the same.
    ids=lambda value: re.sub(r" at 0x[0-9a-f]+", "", repr(value)),
)
def test_python_objects_become_their_json_values(payload: Callable[[Any], Any], value: Any, expected: Any) -> None:
    assert payload(value) == expected


def nested(depth: int) -> dict[str, Any]:
    """A dict nested `depth` levels deep."""
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_too_deep_or_cyclic_values_are_refused_and_not_sent(running: Running) -> None:
    connection, connection_id = ready(running)
    assert running.server.send_event(connection_id, {"t": "deep", "p": nested(127)}, 0) > 0
    assert received(connection).endswith(b'"v":1}')
    circle: list[Any] = []
    circle.append(circle)
    for refused in (nested(128), circle, nested(100_000)):
        with pytest.raises(ValueError, match="nested more than 128 deep"):
            running.server.send_event(connection_id, {"t": "deep", "p": refused})
    running.server.send_event(connection_id, {"t": "after"})
    assert json.loads(received(connection))["t"] == "after"


class Failing:
    def __str__(self) -> str:
        raise LookupError("no text")


def test_an_objects_exception_is_raised_and_the_event_may_be_sent_again(running: Running) -> None:
    connection, connection_id = ready(running)
    with pytest.raises(LookupError, match="no text"):
        running.server.send_event(connection_id, {"t": "x", "id": "once", "p": [Failing()]})
    with pytest.raises(LookupError, match="no text"):
        running.server.send_event(connection_id, {Failing(): 1})  # type: ignore[dict-item]
    assert running.server.send_event(connection_id, {"t": "x", "id": "once"}) > 0
    assert json.loads(received(connection))["id"] == "once"


def test_objects_that_change_while_they_are_written_do_no_harm(running: Running) -> None:
    connection, connection_id = ready(running)
    shared: dict[str, Any] = {}
    items: list[Any] = []

    class Meddler:
        def __str__(self) -> str:
            shared.clear()
            items.clear()
            return "meddled"

    for number in range(50):
        shared[f"k{number}"] = Meddler()
        items.append(Meddler())
    running.server.send_event(connection_id, {"t": "x", "p": [shared, items]}, 0)
    first, second = json.loads(received(connection))["p"]
    assert set(first.values()) == {"meddled"}
    assert len(first) == 50
    assert second == []


def test_only_a_dict_is_an_event_and_a_threshold_is_not_negative(running: Running) -> None:
    _, connection_id = ready(running)
    for wrong in ([1], "x", 5, None):
        with pytest.raises(TypeError):
            running.server.send_event(connection_id, wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="compression_threshold"):
        running.server.send_event(connection_id, {}, -1)


def test_long_events_are_compressed_and_packed_ones_are_not(running: Running) -> None:
    connection, connection_id = ready(running)
    packing, packing_id = ready(running, "?format=msgpack")
    event = {"t": "long", "p": {"text": "y" * 3000}}
    size = running.server.send_event(connection_id, event)
    data = received(connection)
    assert (len(data), data[:2]) == (size, b"C:")
    assert json.loads(zlib.decompress(data[2:]))["p"] == event["p"]
    assert running.server.send_event(connection_id, event, compression_threshold=0) > 3000
    assert json.loads(received(connection))["p"] == event["p"]
    size = running.server.send_event(packing_id, event)
    data = received(packing)
    assert (len(data), data[:3]) == (size, b"M:\x87")
    assert msgpack.unpackb(data[2:])["p"] == event["p"]


def test_a_duplicate_and_an_unknown_connection_are_0(running: Running) -> None:
    connection, connection_id = ready(running)
    assert running.server.send_event("nobody", {"t": "x"}) == 0
    assert running.server.send_event(connection_id, {"t": "x", "id": "e1"}) > 0
    assert running.server.send_event(connection_id, {"t": "x", "id": "e1"}) == 0
    assert json.loads(received(connection))["id"] == "e1"
    text = running.server.prometheus_metrics()
    assert '\nservice_messages_send_dropped_total{reason="duplicate"} 1\n' in text
    running.server.stop()
    assert running.server.send_event(connection_id, {"t": "x"}) == 0


def test_events_over_the_rate_are_dropped_counted_and_reported(start: Callable[..., Running]) -> None:
    running = start(rate_limit_capacity=10.0, rate_limit_refill=0.001)
    connection, connection_id = ready(running)
    sizes = [running.server.send_event(connection_id, {"t": "x", "p": number}) for number in range(15)]
    assert [size > 0 for size in sizes] == [True] * 10 + [False] * 5
    frames = [connection.recv(DEADLINE_SECONDS) for _ in range(12)]
    texts = [json.loads(frame) for frame in frames if isinstance(frame, str)]
    assert [text["t"] for text in texts] == ["rate_limit_warning", "error"]
    assert texts[0]["p"] == {"current_rate": 8, "limit": 10, "remaining": 1, "retry_after": 1.0}
    assert texts[1]["p"] == {"code": "RATE_LIMITED", "message": "Rate limit exceeded", "retry_after": 1.0}
    assert "\nwse_rate_limited_total 5\n" in running.server.prometheus_metrics()
    connection.send('{"t":"client_hello","p":{}}')
    assert message(connection)["p"]["limits"]["rate_limit_capacity"] == 10


def test_an_invalid_rate_limit_is_refused(start: Callable[..., Running]) -> None:
    for wrong in ({"rate_limit_capacity": 0.5}, {"rate_limit_capacity": math.nan}, {"rate_limit_refill": -1.0}):
        with pytest.raises(ValueError, match="rate_limit"):
            start(**wrong)
