"""Where the names of a chart's points stand, so that they cover neither each other nor a point. Pure.

A name stands at one of eight places around its point. Names choose in turn the place at which they cover least of what
is there, until none of them moves any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

FONT_SIZE = 9
# Mean width of a letter at that size, and the distance between a point's edge and its name, in pixels.
_LETTER = 4.4
_GAP = 3
# What a place costs for each one before it in the list, in square pixels: between free places the first one wins.
_LATER = 0.5
# A pixel outside of the chart costs as much as this many that are covered.
_OUTSIDE = 10
# Names move at most so many times: two could make way for each other without end.
_ROUNDS = 20

Side = Literal["left", "center", "right"]


@dataclass(frozen=True)
class Spot:
    """A named point: its centre in pixels from the chart's lower left corner, and its radius."""

    name: str
    right: float
    up: float
    radius: float


@dataclass(frozen=True)
class Place:
    """Where a name stands: how it is aligned, and pixels to the right of its point's centre and down."""

    align: Side
    dx: float
    dy: float


@dataclass(frozen=True)
class _Box:
    """The rectangle that a name covers, in pixels from the chart's lower left corner."""

    left: float
    right: float
    low: float
    high: float

    def shared(self, other: _Box) -> float:
        """The area that both cover."""
        across = min(self.right, other.right) - max(self.left, other.left)
        upward = min(self.high, other.high) - max(self.low, other.low)
        return max(across, 0.0) * max(upward, 0.0)


def places(spots: Sequence[Spot], width: float, height: float) -> list[Place]:
    """The place of each point's name in a chart of that size in pixels."""
    found = [next(_around(spot)) for spot in spots]
    discs = [_disc(spot) for spot in spots]
    whole = _Box(0, width, 0, height)
    for _ in range(_ROUNDS):
        before = list(found)
        for at, spot in enumerate(spots):
            names = [box(*other) for other in zip(spots, found, strict=True) if other[0] is not spot]
            options = list(_around(spot))
            costs = [
                _cost(box(spot, option), [*names, *discs], whole) + _LATER * later
                for later, option in enumerate(options)
            ]
            found[at] = options[costs.index(min(costs))]
        if found == before:
            break
    return found


def box(spot: Spot, place: Place) -> _Box:
    """What a name covers at a place."""
    width = _LETTER * len(spot.name)
    left = spot.right + place.dx - {"left": 0.0, "center": width / 2, "right": width}[place.align]
    middle = spot.up - place.dy
    return _Box(left, left + width, middle - FONT_SIZE / 2, middle + FONT_SIZE / 2)


def _around(spot: Spot) -> Iterator[Place]:
    """The places of a name, the best one first."""
    beside = spot.radius + _GAP
    above = spot.radius + _GAP + FONT_SIZE / 2
    yield Place("left", beside, 0)
    yield Place("right", -beside, 0)
    yield Place("center", 0, -above)
    yield Place("center", 0, above)
    # Where the diagonals leave the disc.
    corner = spot.radius * 0.7 + _GAP
    for down in (-corner - FONT_SIZE / 4, corner + FONT_SIZE / 4):
        yield Place("left", corner, down)
        yield Place("right", -corner, down)


def _disc(spot: Spot) -> _Box:
    """The square with a disc's area."""
    half = spot.radius * 0.886
    return _Box(spot.right - half, spot.right + half, spot.up - half, spot.up + half)


def _cost(name: _Box, others: Sequence[_Box], whole: _Box) -> float:
    """The area that a name covers of others, in square pixels, with what lies outside of the chart."""
    area = (name.right - name.left) * (name.high - name.low)
    return sum(name.shared(other) for other in others) + _OUTSIDE * (area - name.shared(whole))
