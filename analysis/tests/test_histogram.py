"""Histograms: exact merging, and percentiles only with enough samples."""

from __future__ import annotations

import base64
import tracemalloc
import zlib

import pytest
from bench_format.histogram import (
    HIGHEST_NS,
    Values,
    agrees,
    alike,
    curve,
    decode,
    merge,
    percentile_ns,
    samples_needed,
)
from bench_format.schemas import Histogram
from bench_format.wire import FormatError

from tests.bundles import histogram as wire_of
from tests.bundles import lognormal


def wire(count: int, median_ns: float = 1e6) -> Histogram:
    return Histogram(**wire_of(lognormal(median_ns, 0.5, count)))


def flat(count: int, overflow: int = 0) -> Values:
    return Values(dict.fromkeys(range(1, count + 1), 1), overflow)


def test_the_needed_samples_are_those_of_the_published_table() -> None:
    assert [samples_needed(at) for at in (50, 99, 99.9, 99.99, 100)] == [7, 459, 4603, 46050, 1]


@pytest.mark.parametrize(("at", "needed"), [(99.0, 459), (99.9, 4603), (99.99, 46050)])
def test_a_percentile_is_printed_from_its_needed_samples_on(at: float, needed: int) -> None:
    assert percentile_ns(flat(needed - 1), at) is None
    assert percentile_ns(flat(needed), at) is not None


def test_percentiles_are_those_of_the_hdrhistogram_library() -> None:
    source = lognormal(1e6, 0.8, 60_000)
    values = decode(Histogram(**wire_of(source)), "x")
    for at in (50, 90, 99, 99.9, 99.99, 100):
        assert agrees(source.get_value_at_percentile(at), values, at)
        assert agrees(percentile_ns(values, at), values, at)


def uploaded(plain: bytes) -> Histogram:
    """A histogram of V2 bytes that may say anything."""
    deflated = zlib.compress(plain, 9)
    head = (0x1C849314).to_bytes(4) + len(deflated).to_bytes(4)
    return Histogram(v2=base64.b64encode(head + deflated).decode(), count=0, overflow=0)


def header(counts: int, digits: int) -> bytes:
    """The first 40 bytes of a V2 histogram from 1 ns to ten minutes."""
    fields = [(0x1C849313, 4), (counts, 4), (0, 4), (digits, 4), (1, 8), (HIGHEST_NS, 8)]
    return b"".join(value.to_bytes(size) for value, size in fields) + bytes.fromhex("3ff0000000000000")


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (bytes(64 << 20), "inflates to more than 524288 bytes"),
        (header(3 << 30, 3), "says 3221225472 bytes of counts and has 40 bytes in all"),
        (header(0, 5), "5 significant digits"),
        (b"short", "not a deflated V2 histogram"),
    ],
)
def test_a_histogram_that_claims_gigabytes_is_refused_before_they_are_allocated(plain: bytes, message: str) -> None:
    bomb = uploaded(plain)
    tracemalloc.start()
    with pytest.raises(FormatError, match=message):
        decode(bomb, "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_percentile_that_is_off_by_more_than_a_rank_disagrees() -> None:
    values = flat(1_000)
    assert percentile_ns(values, 99) == 990
    assert [agrees(reported, values, 99) for reported in (980, 990, 991, 1_000, None)] == [
        False,
        True,
        True,
        False,
        False,
    ]


def test_a_percentile_among_overflowed_values_has_no_value() -> None:
    values = flat(500, overflow=50)
    assert percentile_ns(values, 99) is None
    assert percentile_ns(values, 50) == 275


def test_merging_equals_recording_into_one() -> None:
    parts = [decode(wire(300, 1e6), "a"), decode(wire(700, 5e6), "b")]
    both = lognormal(1e6, 0.5, 300)
    both.add(lognormal(5e6, 0.5, 700))
    assert merge(parts) == decode(Histogram(**wire_of(both)), "c")


def test_nothing_merged_is_an_empty_histogram() -> None:
    assert merge([]).total == 0
    assert percentile_ns(merge([]), 50) is None


def test_a_count_that_lies_is_refused() -> None:
    lie = Histogram(wire(10).v2, 11, 0)
    with pytest.raises(FormatError, match="response_ns holds 10 values but says 11"):
        decode(lie, "response_ns")


@pytest.mark.parametrize("text", ["", "not base64!", "AAAA", "SGVsbG8gd29ybGQ="])
def test_an_invalid_histogram_is_refused_by_name(text: str) -> None:
    with pytest.raises(FormatError, match="response_ns is not a V2 histogram"):
        decode(Histogram(text, 1, 0), "response_ns")


def test_neighbouring_counters_are_alike_and_others_are_not() -> None:
    assert alike(1_000_000, 1_000_400)
    assert not alike(1_000_000, 1_010_000)


def test_a_histogram_of_another_range_keeps_its_values() -> None:
    from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

    narrow = HdrHistogram(1, HIGHEST_NS // 1000, 3)
    narrow.record_value(123_456, 7)
    values = decode(Histogram(narrow.encode().decode(), 7, 0), "x")
    assert list(values.counts.values()) == [7]
    assert alike(next(iter(values.counts)), 123_456)


def test_a_curve_rises_to_the_last_value_and_marks_where_samples_run_out() -> None:
    points = list(curve(flat(10_000)))
    assert [point.value_ns for point in points] == sorted(point.value_ns for point in points)
    assert points[-1].at_most == 10_000
    assert points[-1].quantile == 1
    supported = [point.quantile for point in points if point.supported]
    assert 0.999 < max(supported) < 0.9997
    # Enough points to draw a curve, few enough to print them.
    assert 60 < len(points) < 120


def test_a_curve_of_one_value_is_one_point() -> None:
    assert [point.value_ns for point in curve(Values({5: 9}))] == [5]
