"""Whether the seconds of a trial have a steady state, and when it begins. Pure.

Change points by PELT divide the seconds into levels. Steady state is the last level, together with those right before
it that are about the same. `tests/test_steady_simulation.py` simulates how often it is found. (Kalibera & Jones 2013;
Barrett et al., OOPSLA 2017)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..history.detectors import pelt
from ..statistics import mean

# Shortest level, in seconds.
LEAST_SECONDS = 5
# PELT's penalty: twice that of a history, because seconds of one process are correlated.
PENALTY = 6.0
# Largest difference of two means that count as the same, as a share of the later one.
ABOUT_THE_SAME = 0.02
# Steady state holds only if it is at least this share of the trial.
LEAST_SHARE = 0.5
# Fewest seconds about which the rule says anything: two levels.
FEWEST_SECONDS = 2 * LEAST_SECONDS


@dataclass(frozen=True)
class Level:
    """Seconds between two changes."""

    # First second of the level, and the number of its seconds.
    start: int
    seconds: int
    # Geometric mean of the level's values.
    mean: float


@dataclass(frozen=True)
class Steadiness:
    """The levels of a trial, and its steady state if it has one."""

    levels: tuple[Level, ...]
    # The second in which steady state begins; `None` if it doesn't hold.
    start: int | None

    @property
    def seconds(self) -> int:
        """Length of the trial."""
        return self.levels[-1].start + self.levels[-1].seconds

    @property
    def share(self) -> float | None:
        """The share of the trial that is steady, 0.5 to 1; `None` without steady state."""
        return None if self.start is None else 1 - self.start / self.seconds


def steadiness(values: Sequence[float]) -> Steadiness:
    """Looks for the steady state of at least `FEWEST_SECONDS` positive values, one for each second."""
    ends = [0, *pelt(values, LEAST_SECONDS, PENALTY), len(values)]
    levels = tuple(Level(start, end - start, mean(values[start:end])) for start, end in pairwise(ends))
    last = levels[-1]
    start = last.start
    for level in reversed(levels[:-1]):
        if not _same(level.mean, last.mean):
            break
        start = level.start
    return Steadiness(levels, start if _holds(values, start) else None)


def _holds(values: Sequence[float], start: int) -> bool:
    """Whether what begins at `start` is long enough and doesn't drift."""
    steady = values[start:]
    middle = len(steady) // 2
    return len(steady) >= LEAST_SHARE * len(values) and _same(mean(steady[:middle]), mean(steady[middle:]))


def _same(one: float, other: float) -> bool:
    return abs(one / other - 1) <= ABOUT_THE_SAME
