"""Envelopes and filters: each rule, with Python objects."""

import datetime
import decimal
import enum
import json
import random
import uuid
from typing import Any

import pytest
from wse_server import rust_match_event, rust_transform_event


class Colour(enum.Enum):
    RED = "red"


class Thing:
    """An object with attributes."""

    def __init__(self) -> None:
        self.colour = Colour.RED
        self.parts = (b"x", 2)


def transform(event: dict[str, Any], types: dict[str, str] | None = None) -> dict[str, Any]:
    return rust_transform_event(event, 7, {} if types is None else types)


def test_an_envelope_is_returned_itself_with_a_sequence_number() -> None:
    event: dict[str, Any] = {"v": 1, "t": "x", "p": {}, "id": "1", "ts": "2"}
    assert transform(event) is event
    assert event["seq"] == 7
    assert rust_transform_event(event, 8, {})["seq"] == 7


def test_fields_are_in_the_envelopes_order() -> None:
    now = datetime.datetime.now(datetime.UTC).isoformat()
    event = {"event_type": "A", "payload": {}, "timestamp": now, "correlation_id": "c", "pri": 8, "trace_id": "t"}
    made = transform(event | {"version": 2})
    names = "c t id ts seq p v original_event_type latency_ms cid pri event_version trace_id"
    assert list(made) == names.split()
    assert 0 <= made["latency_ms"] < 60_000
    assert {name: made[name] for name in ("c", "t", "seq", "p", "v", "original_event_type", "ts")} == {
        "c": "U",
        "t": "a",
        "seq": 7,
        "p": {},
        "v": 1,
        "original_event_type": "A",
        "ts": now,
    }
    assert (made["cid"], made["pri"], made["trace_id"], made["event_version"]) == ("c", 8, "t", 2)


def test_missing_ids_and_times_are_generated() -> None:
    first, second = transform({}), transform({})
    assert uuid.UUID(first["id"]).version == 7
    assert first["id"] < second["id"]
    made = datetime.datetime.fromisoformat(first["ts"])
    assert first["ts"].endswith("Z")
    assert abs((datetime.datetime.now(datetime.UTC) - made).total_seconds()) < 60
    assert first["t"] == "unknown"


def test_metadata_takes_precedence_and_stays_out_of_the_payload() -> None:
    event = {"event_type": "a", "event_id": 1, "x": 2, "_metadata": {"event_id": uuid.UUID(int=5), "priority": 3}}
    made = transform(event)
    assert (made["id"], made["pri"], made["event_version"]) == (str(uuid.UUID(int=5)), 3, 1)
    assert made["p"] == {"event_type": "a", "event_id": 1, "x": 2}
    assert "_metadata" in event


def test_types_are_mapped_or_in_lower_case() -> None:
    assert transform({"event_type": "TRADE"})["t"] == "trade"
    made = transform({"type": "TRADE", "x": 1}, {"TRADE": "executed"})
    assert (made["t"], made["original_event_type"]) == ("executed", "TRADE")
    assert made["p"] == {"type": "TRADE", "x": 1, "event_type": "TRADE"}
    assert "original_event_type" not in transform({"event_type": "trade"})
    assert transform({"event_type": Colour.RED})["t"] == "red"


def test_the_category_follows_from_the_type_unless_it_is_given() -> None:
    for name, expected in (("error", "WSE"), ("a_snapshot", "S"), ("trade", "U")):
        assert transform({"event_type": name})["c"] == expected
    assert transform({"event_type": "error", "c": "X"})["c"] == "X"


def test_values_are_converted_to_json() -> None:
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, 678)
    payload = {
        "bytes": b"ab",
        "binary": b"\xff\xfe",
        "array": bytearray(b"x"),
        "id": uuid.UUID(int=5),
        "time": now,
        "day": now.date(),
        "colour": Colour.RED,
        "tuple": (1, (2,)),
        "set": {1},
        "thing": Thing(),
        "decimal": decimal.Decimal("1.50"),
        "class": Thing,
        "big": 2**70,
        1: {None: [Thing()]},
    }
    made = transform({"event_type": "a", "payload": payload})["p"]
    thing = {"colour": "red", "parts": ["x", 2]}
    assert made == {
        "bytes": "ab",
        "binary": "ÿþ",
        "array": "x",
        "id": str(uuid.UUID(int=5)),
        "time": "2026-01-02T03:04:05.000678",
        "day": "2026-01-02",
        "colour": "red",
        "tuple": [1, [2]],
        "set": [1],
        "thing": thing,
        "decimal": "1.50",
        "class": str(Thing),
        "big": 2**70,
        "1": {"null": [thing]},
    }
    assert json.loads(json.dumps(made)) == made
    assert isinstance(payload["bytes"], bytes)


def test_the_payload_is_a_copy() -> None:
    payload = {"a": 1, "inner": {"b": 2}}
    made = transform({"event_type": "a", "payload": payload})["p"]
    made["a"] = made["inner"]["b"] = 9
    assert payload == {"a": 1, "inner": {"b": 2}}


def test_a_value_without_json_equivalent_raises() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested more than 64 deep, or contains itself"):
        transform({"loop": loop})
    with pytest.raises(TypeError):
        rust_transform_event([], 1, {})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        rust_transform_event({}, 1, None)  # type: ignore[arg-type]


EVENT: dict[str, Any] = {
    "a": 1,
    "n": None,
    "s": "hello",
    "l": [1, 2, "x"],
    "tu": (1, 2),
    "d": {"e": {"f": 5}},
    "x.y": 7,
    "t": True,
    "by": b"abc",
    "day": datetime.date(2026, 1, 2),
}

HOLD: list[dict[str, Any]] = [
    {},
    {"a": 1},
    {"a": 1.0},
    {"t": 1},
    {"by": b"abc"},
    {"zz": None},
    {"n": None},
    {"d.e.f": 5},
    {"d.e.f.g": None},
    {"a": {}},
    {"a": {"$gte": 1, "$lt": 2}},
    {"zz": {"$eq": None}},
    {"zz": {"$ne": 1}},
    {"zz": {"$nin": [None]}},
    {"n": {"$in": [None]}},
    {"a": {"$in": (1, 2)}},
    {"a": {"$in": {1, 2}}},
    {"n": {"$exists": True}},
    {"zz": {"$exists": False}},
    {"s": {"$gt": "a"}},
    {"l": {"$gt": [1]}},
    {"day": {"$lt": datetime.date(2026, 1, 3)}},
    {"s": {"$regex": "hel"}},
    {"s": {"$regex": r"h\w+o$"}},
    {"a": {"$regex": "1"}},
    {"n": {"$regex": "None"}},
    {"s": {"$contains": "ell"}},
    {"l": {"$contains": 2}},
    {"tu": {"$contains": 2}},
    {"d": {"$contains": "e"}},
    {"s": {"$startswith": "he", "$endswith": "lo"}},
    {"a": {"$startswith": "1"}},
    {"start_from_latest": False, "a": 2},
    {"$and": [{"a": 1}, {"s": "hello"}], "a": 2},
    {"$or": [{"a": 2}, {"a": 1}], "a": 2},
    {"$and": [{"a": 1}], "$or": [{"a": 2}]},
    {"$and": [], "a": 2},
    {"$and": [{"start_from_latest": 1, "a": 2}]},
]

DO_NOT: list[dict[str, Any]] = [
    {"a": 2},
    {"a": "1"},
    {"a": 1, "s": "x"},
    {"zz": 1},
    {"x.y": 7},
    {"l.0": 1},
    {"d": {"e": {"f": 5}}},
    {"a": {"$foo": 1}},
    {"a": {"$eq": 1, "$foo": 1}},
    {"a": {"plain": 1}},
    {"zz": {"$ne": None}},
    {"n": {"$ne": None}},
    {"zz": {"$in": [None]}},
    {"n": {"$nin": [None]}},
    {"l": {"$in": {1}}},
    {"n": {"$exists": False}},
    {"a": {"$gt": "0"}},
    {"n": {"$gt": 0}},
    {"zz": {"$lt": 5}},
    {"s": {"$regex": "ell"}},
    {"s": {"$regex": "x|ello"}},
    {"zz": {"$regex": ""}},
    {"zz": {"$startswith": ""}},
    {"l": {"$contains": "xx"}},
    {"d": {"$contains": []}},
    {"$or": []},
    {"$not": {"a": 1}},
    {"": 1},
    {".": 1},
]


@pytest.mark.parametrize("criteria", HOLD, ids=str)
def test_matching_criteria(criteria: dict[str, Any]) -> None:
    assert rust_match_event(EVENT, criteria) is True


@pytest.mark.parametrize("criteria", DO_NOT, ids=str)
def test_criteria_that_do_not_match(criteria: dict[str, Any]) -> None:
    assert rust_match_event(EVENT, criteria) is False


@pytest.mark.parametrize(
    ("criteria", "reason"),
    [
        ({"$and": 5}, r"\$and takes a list of criteria, and was given 5"),
        ({"$or": [5]}, r"\$or takes a list of criteria, and was given 5"),
        ({"a": {"$in": 1}}, r"\$in takes a list, and was given 1"),
        ({"a": {"$exists": "yes"}}, r"\$exists takes true or false, and was given yes"),
        ({"s": {"$regex": 5}}, r"\$regex takes text, and was given 5"),
        ({"s": {"$contains": 5}}, r"\$contains takes text, and was given 5"),
        ({"s": {"$endswith": "x" * 99, "$startswith": ["y" * 99]}}, None),
        ({5: 1}, "a key of the criteria is 5: give text"),
        ({"a": {5: 1}}, "a key of the criteria is 5: give text"),
    ],
)
def test_operands_of_another_type_raise(criteria: dict[str, Any], reason: str | None) -> None:
    if reason is None:
        assert rust_match_event(EVENT, criteria) is False
        return
    with pytest.raises(TypeError, match=reason):
        rust_match_event(EVENT, criteria)


def test_patterns_that_cannot_be_used_raise() -> None:
    for pattern, reason in (("(", "unclosed group"), ("(?=h)", "look-around"), ("x" * 5000, "5000 bytes")):
        with pytest.raises(ValueError, match=reason):
            rust_match_event(EVENT, {"s": {"$regex": pattern}})


def test_criteria_nested_too_deep_are_refused() -> None:
    criteria: dict[str, Any] = {"a": 1}
    for _ in range(31):
        criteria = {"$and": [criteria]}
    assert rust_match_event(EVENT, criteria)
    with pytest.raises(ValueError, match="more than 32 deep"):
        rust_match_event(EVENT, {"$or": [criteria]})


class Odd:
    """An object that raises on comparison."""

    def __eq__(self, other: object) -> bool:
        raise ZeroDivisionError

    __hash__ = None  # type: ignore[assignment]


def test_exceptions_of_values_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        rust_match_event({"a": Odd()}, {"a": 1})
    with pytest.raises(ZeroDivisionError):
        rust_match_event({"a": Odd()}, {"a": {"$in": [1]}})


class Emptying:
    """An object that empties the criteria when it is compared."""

    def __init__(self, criteria: dict[str, Any]) -> None:
        self.criteria = criteria

    def __eq__(self, other: object) -> bool:
        self.criteria.clear()
        return True

    __hash__ = None  # type: ignore[assignment]


def test_criteria_that_change_during_a_match_are_evaluated_unchanged() -> None:
    criteria: dict[str, Any] = {"a": 1, "b": 2, "c": 3}
    assert rust_match_event({"a": Emptying(criteria), "b": 2, "c": 3}, criteria)
    criteria = {"a": 1, "b": 2}
    assert not rust_match_event({"a": Emptying(criteria), "b": 3}, criteria)


def plain_match(event: dict[str, Any], criteria: dict[str, Any]) -> bool:
    """A model of the same rules in Python, for scalars."""

    def holds(name: str, operator: str, operand_value: Any) -> bool:
        is_present = name in event
        value = event.get(name)
        if operator in ("$in", "$nin"):
            return (is_present and value in operand_value) == (operator == "$in")
        if operator in ("$eq", "$ne"):
            return bool(value == operand_value) == (operator == "$eq")
        if (
            not is_present
            or isinstance(value, str) != isinstance(operand_value, str)
            or value is None
            or operand_value is None
        ):
            return False
        order = {
            "$gt": value > operand_value,
            "$gte": value >= operand_value,
            "$lt": value < operand_value,
            "$lte": value <= operand_value,
        }
        return bool(order[operator])

    return all(
        holds(name, operator, operand)
        for name, operand_value in criteria.items()
        for operator, operand in (operand_value if isinstance(operand_value, dict) else {"$eq": operand_value}).items()
    )


def test_random_filters_agree_with_the_rules_in_python() -> None:
    seed = random.randrange(2**32)
    numbers = random.Random(seed)

    def scalar() -> Any:
        return numbers.choice([None, 0, 1, 1.5, True, "", "a", "b"])

    def condition() -> Any:
        if numbers.random() < 0.3:
            return scalar()
        operators = numbers.sample(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin"], numbers.randrange(3))
        return {name: [scalar(), scalar()] if name in ("$in", "$nin") else scalar() for name in operators}

    for _ in range(3000):
        event = {name: scalar() for name in numbers.sample("abc", numbers.randrange(4))}
        criteria = {name: condition() for name in numbers.sample("abc", numbers.randrange(3))}
        assert rust_match_event(event, criteria) == plain_match(event, criteria), f"seed {seed}: {event} {criteria}"
