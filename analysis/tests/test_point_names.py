"""Names of points in a chart: readable where points stand close together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from ws_ladder_analysis.point_names import Spot, box, places

WIDTH, HEIGHT = 290, 240
# Gateways as measured: six of them within 50 pixels.
CROWDED = [
    Spot("scala-pekko", 55, 207, 9.8),
    Spot("python-fastapi", 95, 193, 5.8),
    Spot("elixir-cowboy", 103, 179, 5.5),
    Spot("rust-axum-plain", 74, 177, 3.7),
    Spot("node-ws", 83, 169, 5.6),
    Spot("typescript-bun", 82, 162, 5.0),
    Spot("rust-sync", 233, 30, 3.1),
]


def covered(spots: Sequence[Spot]) -> float:
    """The area that two names cover both, in square pixels."""
    names = [box(*one) for one in zip(spots, places(spots, WIDTH, HEIGHT), strict=True)]
    return sum(one.shared(other) for one, other in combinations(names, 2))


def test_names_of_a_crowd_do_not_cover_each_other() -> None:
    assert covered(CROWDED) == 0


def test_the_order_of_points_does_not_make_names_cover_each_other() -> None:
    assert covered(CROWDED[::-1]) == 0


def test_a_name_stands_right_of_its_point_where_there_is_room() -> None:
    [place] = places([Spot("alone", 100, 100, 4)], WIDTH, HEIGHT)
    assert (place.align, place.dy) == ("left", 0)
    assert place.dx > 4


def test_a_name_leaves_neither_the_right_nor_the_left_edge() -> None:
    spots = [Spot("at-the-right-edge", 285, 100, 4), Spot("at-the-left-edge", 5, 50, 4)]
    for spot, place in zip(spots, places(spots, WIDTH, HEIGHT), strict=True):
        name = box(spot, place)
        assert name.left >= 0
        assert name.right <= WIDTH


def test_points_at_one_place_have_names_at_different_places() -> None:
    assert covered([Spot(name, 100, 100, 4) for name in ("first", "second", "third")]) == 0
