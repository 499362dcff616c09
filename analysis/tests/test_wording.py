"""The format of numbers: units, digits, thousands."""

from __future__ import annotations

import pytest
from bench_format.schemas import BoundBy, Message, ReasonKind, Witness

from ws_ladder_analysis import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.250"),
        (99.6, "99.6"),
        (1_234, "1 234"),
        (9_999, "9 999"),
        (12_345, "12.3 k"),
        (999_900, "1.00 M"),
        (1_234_567, "1.23 M"),
        (3.2e9, "3.20 G"),
        (None, "n/a"),
    ],
)
def test_rates_keep_three_digits(value: float | None, text: str) -> None:
    assert wording.plain(wording.rate(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (950, "950 ns"),
        (1_500, "1.50 µs"),
        (999_900, "1.00 ms"),
        (61e6, "61.0 ms"),
        (2.345e9, "2.35 s"),
        (600e9, "600 s"),
        (None, "n/a"),
    ],
)
def test_times_take_the_unit_that_fits(value: float | None, text: str) -> None:
    assert wording.plain(wording.duration(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(512, "512 B"), (4_506, "4.40 KiB"), (50 * 2**20, "50.0 MiB"), (-2_048, "-2.00 KiB"), (None, "n/a")],
)
def test_memory_is_in_binary_units(value: float | None, text: str) -> None:
    assert wording.plain(wording.memory(value)) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0 %"), (0.005, "0.500 %"), (0.973, "97 %"), (1.0, "100 %")])
def test_shares_are_in_percent(value: float, text: str) -> None:
    assert wording.plain(wording.share(value)) == text


@pytest.mark.parametrize(("value", "text"), [(9.996, "10.0"), (0.0001234, "0.000123"), (123.4, "123"), (0, "0")])
def test_three_digits_are_kept_when_rounding_carries(value: float, text: str) -> None:
    assert wording.digits(value) == text


def test_every_reason_bound_and_witness_has_a_text() -> None:
    assert set(wording.REASONS) == set(ReasonKind)
    assert set(wording.BOUNDS) == set(BoundBy)
    assert set(wording.WITNESSES) == set(Witness)


def test_messages_that_a_plan_describes_have_no_format_of_their_own() -> None:
    described = Message(size_bytes=64)
    assert wording.plain(wording.message(described)) == "json, 64 bytes"
    assert wording.plain(wording.message(described, "socket.io")) == "as socket.io says, payloads of 64 bytes"
