"""Changes of a series: what both detectors name, on enough points, by a large enough step. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..statistics import mean
from .detectors import LEAST_POINTS

# Points that a series needs: below that the detectors say more than the data does.
FEWEST_RUNS = 20
# Both detectors name a change when their points are at most so many apart.
APART = 3
# The smallest step that is reported, as a share of the value before it.
LEAST_STEP = 0.02


@dataclass(frozen=True)
class Change:
    """A change of a series' level, suspected until pairs confirm it."""

    # Index of the first point after the change.
    index: int
    # Geometric mean of the points from the change before it, and up to the change after it.
    before: float
    after: float

    @property
    def step(self) -> float:
        """The change as a share of the level before it: -0.05 is a drop of 5 %."""
        return self.after / self.before - 1


def agreed(
    values: Sequence[float], one: Sequence[int], other: Sequence[int], least_step: float = LEAST_STEP
) -> tuple[Change, ...]:
    """The changes that two detectors agree on, in order; none for a series of too few points.

    The place is that of `one`. Each point of `other` counts for one change.
    """
    if len(values) < FEWEST_RUNS:
        return ()
    places: list[int] = []
    free = sorted(other)
    for place in sorted(one):
        partner = min(free, key=lambda point: abs(point - place), default=None)
        fits = partner is not None and abs(partner - place) <= APART
        if fits and place - ([0, *places][-1]) >= LEAST_POINTS and len(values) - place >= LEAST_POINTS:
            free.remove(partner)  # type: ignore[arg-type]
            places.append(place)
    return _large_enough(values, places, least_step)


def _large_enough(values: Sequence[float], places: list[int], least_step: float) -> tuple[Change, ...]:
    """The changes at these places, without those below the least step: the smallest goes first, and its sides are one
    level for the next."""
    while True:
        found = _changes(values, places)
        smallest = min(found, key=lambda change: abs(math.log(change.after / change.before)), default=None)
        if smallest is None or abs(smallest.step) >= least_step:
            return found
        places = [place for place in places if place != smallest.index]


def _changes(values: Sequence[float], places: Sequence[int]) -> tuple[Change, ...]:
    ends = [0, *places, len(values)]
    levels = [mean(values[start:end]) for start, end in pairwise(ends)]
    return tuple(Change(place, *sides) for place, sides in zip(places, pairwise(levels), strict=True))
