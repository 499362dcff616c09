"""Figures over repeats, and the ratio of two services with its interval. Pure.

Figures vary between windows, and more between processes (Kalibera & Jones, ISMM 2013). So the repeats of one process
are made one figure first, and an interval is computed over processes. Services take turns: process 1 of one and process
1 of the other are measured one after the other and are a *pair*, which a drift of the machine affects alike.
`tests/test_coverage.py` simulates how often each interval holds the truth.
"""

from __future__ import annotations

import math
import statistics as stdlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from bench_format import histogram
from bench_format.histogram import Values
from scipy import stats

# Pairs of processes that a ratio needs for an interval.
PAIRS_NEEDED = 5
# From so many pairs on, a pair that lies far from the others is noticed; with fewer, each pair is printed.
PAIRS_FOR_OUTLIERS = 10
CONFIDENCE = 0.95
# A pair is far from the others when it is so many robust standard deviations away, and at least so far in all.
OUTLIER_DEVIATIONS, OUTLIER_LOG = 5.0, 0.03
# Converts a median absolute deviation to the standard deviation of a normal distribution.
MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Spread:
    """A figure over repeats: its mean over processes (for a percentile, that of all values), and the range."""

    mean: float
    low: float
    high: float
    samples: int


def mean(values: Sequence[float]) -> float:
    """The geometric mean, so that a ratio of means is a mean of ratios; the arithmetic one if a value isn't above 0."""
    if min(values) <= 0 or min(values) == max(values):
        # The logarithms of a geometric mean would cost a digit of equal values.
        return stdlib.fmean(values)
    return stdlib.geometric_mean(values)


def spread(processes: Mapping[int, Sequence[float | None]]) -> Spread | None:
    """Mean over processes and range over all repeats; `None` when any repeat lacks the figure, because the others would
    be a biased selection."""
    values = [value for repeats in processes.values() for value in repeats]
    known = [value for value in values if value is not None]
    if not known or len(known) != len(values):
        return None
    each = [stdlib.fmean(value for value in repeats if value is not None) for repeats in processes.values() if repeats]
    return Spread(mean(each), min(known), max(known), len(known))


@dataclass(frozen=True)
class Ratio:
    """The ratio of two figures over pairs of processes; an interval needs `PAIRS_NEEDED` pairs."""

    ratio: float
    # The figure of each side over the pairs: their quotient is the ratio.
    above: float
    below: float
    # The ratio of each pair; empty when the sides are not paired.
    pairs: tuple[float, ...]
    # Number of processes of each side.
    processes: tuple[int, int]
    # Standard error of the ratio's logarithm, and its degrees of freedom; `None` without an interval.
    error: float | None
    freedom: float
    # Whether process by process of one side was measured beside one of the other.
    paired: bool = True

    def interval(self, level: float = CONFIDENCE) -> tuple[float, float] | None:
        """Student's interval of the logarithm at this level (0 to 1); `None` with too few pairs."""
        if self.error is None:
            return None
        half = float(stats.t.ppf((1 + level) / 2, self.freedom)) * self.error
        return self.ratio * math.exp(-half), self.ratio * math.exp(half)

    @property
    def p_value(self) -> float | None:
        """Probability of a ratio as far from 1 or farther if the services were equal; `None` without an interval."""
        if self.error is None:
            return None
        if self.error == 0:
            return 1.0 if self.ratio == 1 else 0.0
        return float(2 * stats.t.sf(abs(math.log(self.ratio)) / self.error, self.freedom))

    @property
    def is_uneven(self) -> bool:
        """Whether a pair lies far from the others, so that the mean says little about a typical pair."""
        logs = [math.log(pair) for pair in self.pairs]
        if len(logs) < PAIRS_FOR_OUTLIERS:
            return False
        middle = stdlib.median(logs)
        farthest = max(abs(log - middle) for log in logs)
        deviation = MAD_TO_DEVIATION * stdlib.median(abs(log - middle) for log in logs)
        return farthest > OUTLIER_DEVIATIONS * deviation and farthest > OUTLIER_LOG

    def typical(self, level: float = CONFIDENCE) -> tuple[float, float, float]:
        """The ratio of a typical pair with its interval as (low, ratio, high): the median of the means of any two pairs
        (Hodges & Lehmann 1963), and Wilcoxon's interval. Outliers move it little. Needs pairs."""
        logs = [math.log(pair) for pair in self.pairs]
        averages = sorted((one + other) / 2 for one, other in combinations_with_replacement(logs, 2))
        cut = _signed_rank_quantile(len(logs), (1 - level) / 2)
        low, middle, high = averages[cut], stdlib.median(averages), averages[-1 - cut]
        return math.exp(low), math.exp(middle), math.exp(high)

    def shows_difference(self, level: float = CONFIDENCE) -> bool | None:
        """Whether the interval leaves out 1, and for uneven pairs that of a typical pair, too; `None` without one."""
        interval = self.interval(level)
        if interval is None:
            return None
        intervals = [interval]
        if self.is_uneven:
            low, _, high = self.typical(level)
            intervals.append((low, high))
        return all(high < 1 for _, high in intervals) or all(low > 1 for low, _ in intervals)


def ratio(above: Mapping[int, Sequence[float]], below: Mapping[int, Sequence[float]]) -> Ratio | None:
    """The ratio of two figures, given as the repeats of each process; Student's t on the logarithms of pairs.

    `None` without a pair or when a figure isn't above 0. A process without its counterpart is left out.
    """
    both = [number for number in above if above[number] and below.get(number)]
    left = [stdlib.fmean(above[number]) for number in both]
    right = [stdlib.fmean(below[number]) for number in both]
    if not both or min(*left, *right) <= 0:
        return None
    pairs = tuple(one / other for one, other in zip(left, right, strict=True))
    error = _standard_error([math.log(pair) for pair in pairs])
    sides = mean(left), mean(right)
    return Ratio(sides[0] / sides[1], *sides, pairs, (len(both), len(both)), error, len(both) - 1)


def percentile_ratio(above: Mapping[int, Values], below: Mapping[int, Values], at: float) -> Ratio | None:
    """The ratio of a percentile (`at`, 0 to 100) of two services' merged histograms, given by process.

    The interval leaves out one pair at a time (Quenouille 1956; Tukey 1958). Each process needs enough samples for the
    percentile, or there is none. `None` without a pair or without enough samples in all.
    """
    both = [number for number in above if number in below]
    sides = [_merged(side, both, at) for side in (above, below)]
    if not both or sides[0] is None or sides[1] is None or min(sides[0], sides[1]) <= 0:
        return None
    estimate = math.log(sides[0] / sides[1])
    each = [_log_quotient(above, below, [number], at) for number in both]
    error = None
    if None not in each and len(both) >= PAIRS_NEEDED:
        rest = [_log_quotient(above, below, [other for other in both if other != number], at) for number in both]
        count = len(both)
        error = _standard_error([count * estimate - (count - 1) * one for one in rest if one is not None])
    pairs = tuple(math.exp(one) for one in each if one is not None)
    # The pairs tell outliers of a mean; a percentile isn't one.
    shown = pairs if len(pairs) < PAIRS_FOR_OUTLIERS else ()
    return Ratio(math.exp(estimate), sides[0], sides[1], shown, (len(both), len(both)), error, len(both) - 1)


def unpaired_ratio(above: Sequence[float], below: Sequence[float]) -> Ratio | None:
    """The ratio of two figures whose processes are not pairs; Welch's t on logarithms. `None` if one isn't above 0."""
    if not above or not below or min(*above, *below) <= 0:
        return None
    logs = [[math.log(value) for value in side] for side in (above, below)]
    return _welch((mean(above), mean(below)), logs)


def unpaired_percentile_ratio(above: Sequence[Values], below: Sequence[Values], at: float) -> Ratio | None:
    """The ratio of a percentile (`at`, 0 to 100) of two merged histograms whose processes are not pairs.

    Each side leaves out one process at a time, and Welch's t is computed on what that gives. `None` without enough
    samples in all; there is no interval unless each process has enough of them.
    """
    sides = [histogram.percentile_ns(histogram.merge(side), at) for side in (above, below)]
    if sides[0] is None or sides[1] is None or min(sides[0], sides[1]) <= 0:
        return None
    enough = all(histogram.percentile_ns(one, at) for one in (*above, *below))
    logs = [_leaving_out_one(side, at) if enough else [] for side in (above, below)]
    found = _welch((sides[0], sides[1]), logs)
    return replace(found, processes=(len(above), len(below)))


def _leaving_out_one(side: Sequence[Values], at: float) -> list[float]:
    """The pseudo-value of each process: what it adds to the logarithm of the merged percentile."""
    if len(side) < PAIRS_NEEDED:
        return []
    whole = math.log(histogram.percentile_ns(histogram.merge(side), at) or 1)
    count = len(side)
    rest = [histogram.merge(other for place, other in enumerate(side) if place != left) for left in range(count)]
    return [count * whole - (count - 1) * math.log(histogram.percentile_ns(one, at) or 1) for one in rest]


def _welch(sides: tuple[float, float], logs: Sequence[Sequence[float]]) -> Ratio:
    counts = (len(logs[0]), len(logs[1]))
    quotient = sides[0] / sides[1]
    if min(counts) < PAIRS_NEEDED:
        return Ratio(quotient, *sides, (), counts, None, 0, paired=False)
    variances = [stdlib.variance(side) / len(side) for side in logs]
    error = math.sqrt(sum(variances))
    shares = sum(variance**2 / (count - 1) for variance, count in zip(variances, counts, strict=True))
    freedom = sum(variances) ** 2 / shares if shares else sum(counts) - 2
    return Ratio(quotient, *sides, (), counts, error, freedom, paired=False)


def table_level(p_values: Sequence[float | None]) -> float:
    """The level of all intervals of one figure in one table, so that of the rows that claim a difference at most one in
    twenty is expected to be wrong (Benjamini & Hochberg 1995; for intervals, Benjamini & Yekutieli 2005)."""
    known = [value for value in p_values if value is not None]
    if not known:
        return CONFIDENCE
    claims = int((stats.false_discovery_control(known, method="bh") <= 1 - CONFIDENCE).sum())
    return 1 - (1 - CONFIDENCE) * max(claims, 1) / len(known)


def _standard_error(values: Sequence[float]) -> float | None:
    if len(values) < PAIRS_NEEDED:
        return None
    return stdlib.stdev(values) / math.sqrt(len(values))


def _merged(side: Mapping[int, Values], processes: Sequence[int], at: float) -> float | None:
    return histogram.percentile_ns(histogram.merge(side[number] for number in processes), at)


def _log_quotient(
    above: Mapping[int, Values], below: Mapping[int, Values], processes: Sequence[int], at: float
) -> float | None:
    left, right = _merged(above, processes, at), _merged(below, processes, at)
    return math.log(left / right) if left and right else None


def _signed_rank_quantile(count: int, tail: float) -> int:
    """The largest number of means that may be cut off at each end with a probability of at most `tail` each, from the
    exact distribution of Wilcoxon's signed-rank statistic: all 2^count signs of the ranks are alike."""
    counts = [1]
    for rank in range(1, count + 1):
        shifted = [0] * rank + counts
        counts = [one + other for one, other in zip(counts + [0] * rank, shifted, strict=True)]
    allowed, below = tail * 2**count, 0
    for statistic, number in enumerate(counts):
        below += number
        if below > allowed:
            return max(statistic - 1, 0)
    return 0
