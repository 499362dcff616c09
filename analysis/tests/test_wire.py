"""Decoding is strict, and its errors name the place."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from ws_ladder_analysis.bench_format.plan import Closed, Load, Open
from ws_ladder_analysis.bench_format.result import Validity
from ws_ladder_analysis.bench_format.wire import FormatError, decode


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Thing:
    name: str
    size: float
    flags: dict[str, int] = field(default_factory=dict)
    colour: Colour | None = None
    pairs: list[tuple[str, int]] = field(default_factory=list)


def test_a_whole_number_will_do_for_a_fraction_and_absent_fields_get_their_defaults() -> None:
    assert decode(Thing, {"name": "a", "size": 2}, "") == Thing("a", 2.0)


def test_every_kind_of_field_is_decoded() -> None:
    value = {"name": "a", "size": 1.5, "flags": {"x": 1}, "colour": "red", "pairs": [["b", 2]]}
    assert decode(Thing, value, "") == Thing("a", 1.5, {"x": 1}, Colour.RED, [("b", 2)])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"name": "a"}, "size is missing"),
        ({"name": "a", "size": 1, "new": 1}, "fields that this program doesn't know: new"),
        ({"name": 5, "size": 1}, "name should be str and is 5"),
        ({"name": "a", "size": True}, "size should be float and is True"),
        ({"name": "a", "size": 1, "colour": "blue"}, "colour is 'blue'; known are red"),
        ({"name": "a", "size": 1, "flags": {"x": "y"}}, "flags.x should be int and is 'y'"),
        ({"name": "a", "size": 1, "flags": []}, "flags should be an object"),
        ({"name": "a", "size": 1, "pairs": [["b"]]}, r"pairs\[0\] should have 2 entries and has 1"),
        ({"name": "a", "size": 1, "pairs": "b"}, "pairs should be a list and is 'b'"),
        ("text", "the file should be an object"),
    ],
)
def test_what_the_format_does_not_allow_is_named(value: object, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode(Thing, value, "")


def test_loads_are_told_apart_by_their_model() -> None:
    opened = decode(Load, {"model": "open", "rate_per_second": 5, "arrivals": "poisson"}, "load")
    assert isinstance(opened.model, Open)
    assert opened.is_open
    assert decode(Load, {"model": "closed"}, "load").model == Closed()
    with pytest.raises(FormatError, match=r"load\.model is 'ajar'"):
        decode(Load, {"model": "ajar"}, "load")


@pytest.mark.parametrize(
    "value", [{"state": "invalid", "reasons": []}, {"state": "invalid"}, {"state": "maybe"}, {"reasons": []}]
)
def test_a_validity_that_is_neither_is_refused(value: object) -> None:
    with pytest.raises(FormatError, match="validity"):
        decode(Validity, value, "validity")
