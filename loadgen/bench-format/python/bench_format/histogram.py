"""HdrHistograms: decoding, exact merging, and percentiles that have enough samples.

Merging adds counts; nothing here averages percentiles.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from .schemas import Histogram
from .wire import FormatError

# Largest value that a recorder holds (ten minutes), and the significant decimal digits of every histogram.
HIGHEST_NS = 600_000_000_000
SIGNIFICANT_DIGITS = 3
# The most bytes of an inflated histogram: one with a count in each counter has less than 300 KiB.
_MAX_INFLATED = 512 << 10
# The first four bytes of a V2 histogram and of a deflated one, and the bytes before its counts (HdrHistogram's format).
_V2_COOKIE, _V2_DEFLATED_COOKIE = 0x1C849313, 0x1C849314
_V2_HEADER = 40


@cache
def _scale(lowest: int, digits: int) -> HdrHistogram:
    return HdrHistogram(lowest, HIGHEST_NS, digits)


@cache
def _top(index: int, lowest: int, digits: int) -> int:
    """The highest value of the counter with this index."""
    scale = _scale(lowest, digits)
    return int(scale.get_highest_equivalent_value(scale.get_value_from_index(index)))


@dataclass(frozen=True)
class Values:
    """A decoded histogram: counts by (rounded) value, in rising order, and the number of values above the range."""

    counts: Mapping[int, int] = field(default_factory=dict)
    overflow: int = 0

    @cached_property
    def count(self) -> int:
        """Number of recorded values without overflow."""
        return sum(self.counts.values())

    @property
    def total(self) -> int:
        """Number of all values, overflow included."""
        return self.count + self.overflow


def decode(histogram: Histogram, where: str) -> Values:
    """Decodes a histogram; raises `FormatError`, naming `where`, if it is broken or its `count` is wrong."""
    try:
        _check_size(histogram.v2)
        inner = HdrHistogram.decode(histogram.v2)
    except Exception as error:  # the library raises zlib, struct and its own errors alike
        raise FormatError(f"{where} is not a V2 histogram: {error}") from error
    scale = (inner.lowest_trackable_value, inner.significant_figures)
    counts = {_top(index, *scale): count for index, count in enumerate(inner.counts[:]) if count}
    found = sum(counts.values())
    if found != histogram.count:
        raise FormatError(f"{where} holds {found} values but says {histogram.count}")
    return Values(counts, histogram.overflow)


def _check_size(encoded: str) -> None:
    """Raises `ValueError` if a histogram inflates to too much or its header says other sizes than it has.

    The library inflates without a bound and allocates what the header asks for.
    """
    deflated = base64.b64decode(encoded, validate=True)
    inflater = zlib.decompressobj()
    plain = inflater.decompress(deflated[8:], _MAX_INFLATED + 1)
    if len(plain) > _MAX_INFLATED:
        raise ValueError(f"it inflates to more than {_MAX_INFLATED} bytes")
    number = [int.from_bytes(plain[at : at + 4]) for at in (0, 4, 12)]
    if int.from_bytes(deflated[:4]) != _V2_DEFLATED_COOKIE or number[0] != _V2_COOKIE or len(plain) < _V2_HEADER:
        raise ValueError("it is not a deflated V2 histogram")
    if number[1] != len(plain) - _V2_HEADER:
        raise ValueError(f"it says {number[1]} bytes of counts and has {len(plain)} bytes in all")
    if number[2] > SIGNIFICANT_DIGITS:
        raise ValueError(f"it has {number[2]} significant digits; at most {SIGNIFICANT_DIGITS} are read")


def merge(parts: Iterable[Values]) -> Values:
    """The sum of all parts; exact, because they share one scale."""
    counts: dict[int, int] = {}
    overflow = 0
    for part in parts:
        overflow += part.overflow
        for value, count in part.counts.items():
            counts[value] = counts.get(value, 0) + count
    return Values(dict(sorted(counts.items())), overflow)


def samples_needed(percentile: float) -> int:
    """Number of samples that a percentile needs before it is printed, for 99 % confidence with no violation."""
    if percentile <= 0 or percentile >= 100:
        return 1
    return math.ceil(math.log(0.01) / math.log(percentile / 100))


def percentile_ns(values: Values, percentile: float) -> int | None:
    """A percentile, or `None` if there are too few samples or the rank lies among the overflowed values."""
    if not values.count or values.total < samples_needed(percentile):
        return None
    rank = math.ceil(percentile / 100 * values.total)
    if rank > values.count:
        return None
    # Convert to a quantile and back as Rust does: both print the same value even where the product isn't exact.
    return at_rank(values, math.ceil(rank / values.count * values.count))


def at_rank(values: Values, rank: int) -> int:
    """The value at this rank, counted from 1; a rank outside the range gives the first or the last value."""
    seen, last = 0, 0
    for value, count in values.counts.items():
        seen, last = seen + count, value
        if seen >= rank:
            break
    return last


def agrees(reported_ns: int | None, values: Values, percentile: float) -> bool:
    """Whether a reported percentile matches the histogram within one rank, because products of shares are rounded."""
    if reported_ns is None or percentile_ns(values, percentile) is None:
        return reported_ns is None and percentile_ns(values, percentile) is None
    rank = math.ceil(percentile / 100 * values.total)
    low, high = at_rank(values, rank - 1), at_rank(values, rank + 1)
    return low <= reported_ns <= high or alike(reported_ns, low) or alike(reported_ns, high)


def bucket_ns(value_ns: int) -> tuple[int, int]:
    """The lowest and the highest value that share a counter with this one."""
    scale = _scale(1, SIGNIFICANT_DIGITS)
    return int(scale.get_lowest_equivalent_value(value_ns)), int(scale.get_highest_equivalent_value(value_ns))


def alike(left_ns: int, right_ns: int) -> bool:
    """Whether two values lie at most one counter apart; libraries round differently within one counter."""
    low, high = bucket_ns(left_ns)
    return abs(left_ns - right_ns) <= high - low + 1


@dataclass(frozen=True)
class Point:
    """One point of a distribution: the share `quantile` of all values is at most `value_ns`."""

    quantile: float
    value_ns: int
    at_most: int
    supported: bool


def curve(values: Values, steps_per_halving: int = 6) -> Iterator[Point]:
    """The distribution, sampled more finely towards its end: `steps_per_halving` points each time 1 - q halves."""
    total = values.total
    seen, tick = 0, 0
    for value, count in values.counts.items():
        seen += count
        quantile = seen / total
        due = 1 - 2 ** (-tick / steps_per_halving)
        last = seen == values.count
        if quantile < due and not last:
            continue
        yield Point(quantile, value, seen, quantile < 1 and total >= samples_needed(100 * quantile))
        while not last and 1 - 2 ** (-tick / steps_per_halving) <= quantile:
            tick += 1
