"""Decoding is strict, and its errors name the place."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from bench_format.schemas import (
    Arrivals,
    Figure,
    FigurePercentileMs,
    FigureReconnectedMs,
    Interval,
    Load,
    LoadClosed,
    LoadOpen,
    PercentileMs,
    PlainFigure,
    Reason,
    ReasonKind,
    ReconnectedMs,
    TrialId,
    Validity,
    ValidityInvalid,
    WireSearch,
)
from bench_format.wire import FormatError, decode, to_json


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
def test_values_that_the_format_does_not_allow_are_named_in_the_error(value: object, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        decode(Thing, value, "")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", ".lock", "a\n", "a" * 65, 5])
def test_a_name_that_could_leave_its_folder_is_refused_as_a_value_and_as_a_key(name: object) -> None:
    trial = {"workload": "w", "variant": "v", "tier": 1, "process": 1, "repeat": 1}
    assert decode(TrialId, {"service": "rust-sync_1.0", **trial}, "").service == "rust-sync_1.0"
    with pytest.raises(FormatError, match="service should be text that matches"):
        decode(TrialId, {"service": name, **trial}, "")
    with pytest.raises(FormatError, match="histograms's key should be text that matches"):
        decode(Interval, {"start_ns": 0, "duration_ns": 1, "histograms": {name: {}}}, "")


@dataclass(frozen=True)
class Held:
    """Unions, inside an object as in the files."""

    load: Load | None = None
    validity: Validity | None = None
    figure: Figure | None = None
    plan: WireSearch | None = None


def held(**values: object) -> Held:
    """Decodes an object that holds these fields."""
    return decode(Held, values, "")


def test_loads_are_told_apart_by_their_model() -> None:
    opened = held(load={"model": "open", "rate_per_second": 5, "arrivals": "poisson"}).load
    assert opened == LoadOpen(5.0, arrivals=Arrivals.POISSON)
    assert opened.model == "open"
    assert held(load={"model": "closed"}).load == LoadClosed()
    with pytest.raises(FormatError, match=r"load\.model is 'ajar'; known are open, closed, sessions"):
        held(load={"model": "ajar"})
    with pytest.raises(FormatError, match=r"load\.model is missing"):
        held(load={})
    with pytest.raises(FormatError, match=r"load has fields that this program doesn't know: in_flight"):
        held(load={"model": "open", "rate_per_second": 5, "in_flight": 1})


def test_a_figure_is_a_plain_string_or_an_object() -> None:
    assert held(figure="failed_share").figure is PlainFigure.FAILED_SHARE
    percentile = {"histogram": "response", "percentile": 99}
    assert held(figure={"percentile_ms": percentile}).figure == FigurePercentileMs(PercentileMs("response", 99.0))
    assert held(figure={"reconnected_ms": {"percent": 50}}).figure == FigureReconnectedMs(ReconnectedMs(50.0))
    with pytest.raises(FormatError, match=r"figure is 'beauty'; known are delivered_per_second"):
        held(figure="beauty")
    with pytest.raises(FormatError, match=r"figure has mean; known are percentile_ms, reconnected_ms"):
        held(figure={"mean": 1})


@pytest.mark.parametrize("value", [{"state": "invalid"}, {"state": "maybe"}, {"reasons": []}])
def test_a_validity_that_is_neither_is_refused(value: object) -> None:
    with pytest.raises(FormatError, match="validity"):
        held(validity=value)


def test_a_place_inside_several_is_named_whole() -> None:
    reason = {"kind": "boredom", "detail": ""}
    with pytest.raises(FormatError, match=r"^validity\.reasons\[1\]\.kind is 'boredom'"):
        held(validity={"state": "invalid", "reasons": [{"kind": "clock_step", "detail": ""}, reason]})


@pytest.mark.parametrize(
    "value",
    [
        LoadOpen(2.0),
        LoadClosed(messages_per_connection=3),
        ValidityInvalid([Reason(ReasonKind.CLOCK_STEP, "")]),
        WireSearch(from_=5, to=10, final_trial_seconds=1.0, duration_sum_seconds=2.0),
        Thing("a", 1.0, {"x": 2**64 - 1}, Colour.RED, [("b", 2)]),
    ],
)
def test_written_values_can_be_read_back(value: object) -> None:
    assert decode(type(value), json.loads(to_json(value)), "") == value
