"""Figures over repeats, and the ratio of two services with its interval. Pure.

Figures vary at several levels. An interval is computed over the highest level that was repeated, the service process
(Kalibera & Jones, ISMM 2013).
"""

from __future__ import annotations

import random
import statistics as stdlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Service processes that each side of a comparison needs for an interval.
PROCESSES_NEEDED = 3
RESAMPLES = 5_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """The median and range of a figure over repeats."""

    median: float
    low: float
    high: float
    samples: int


def spread(values: Sequence[float | None]) -> Spread | None:
    """Median and range; `None` when any repeat lacks the figure, because the others would be a biased selection."""
    known = [value for value in values if value is not None]
    if not known or len(known) != len(values):
        return None
    return Spread(stdlib.median(known), min(known), max(known), len(known))


@dataclass(frozen=True)
class Ratio:
    """The ratio of two figures; `low` and `high` (95 % interval) are `None` with too few processes."""

    ratio: float
    low: float | None
    high: float | None
    processes: tuple[int, int]

    @property
    def shows_difference(self) -> bool | None:
        """Whether the interval excludes 1; `None` without an interval."""
        if self.low is None or self.high is None:
            return None
        return not self.low <= 1 <= self.high


def ratio(above: Mapping[int, Sequence[float]], below: Mapping[int, Sequence[float]], seed: int = 0) -> Ratio | None:
    """The ratio of two figures, given as each process's repeats; `None` when a side has no figure or is 0.

    Each process counts once, with the median of its repeats; a side is the mean of its processes.
    """
    left = [stdlib.median(repeats) for repeats in above.values() if repeats]
    right = [stdlib.median(repeats) for repeats in below.values() if repeats]
    if not left or not right or min(right) <= 0:
        return None
    point = stdlib.fmean(left) / stdlib.fmean(right)
    counts = (len(left), len(right))
    if min(counts) < PROCESSES_NEEDED:
        return Ratio(point, None, None, counts)
    low, high = _bootstrap(left, right, seed)
    return Ratio(point, low, high, counts)


def _bootstrap(left: Sequence[float], right: Sequence[float], seed: int) -> tuple[float, float]:
    """Percentile bootstrap: resamples both sides' processes with replacement. The seed makes a report repeatable."""
    draw = random.Random(seed)
    ratios = sorted(
        sum(draw.choices(left, k=len(left))) / len(left) / (sum(draw.choices(right, k=len(right))) / len(right))
        for _ in range(RESAMPLES)
    )
    tail = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return ratios[tail], ratios[-1 - tail]
