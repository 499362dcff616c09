"""Medians, ranges and ratios with their interval."""

from __future__ import annotations

import pytest

from ws_ladder_analysis.statistics import Ratio, ratio, spread


def processes(*figures: float) -> dict[int, list[float]]:
    return {process: [figure] for process, figure in enumerate(figures, 1)}


def known(found: Ratio | None) -> tuple[float, float, float]:
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    return found.low, found.ratio, found.high


def test_a_figure_over_repeats_is_its_median_and_range() -> None:
    found = spread([3.0, 1.0, 10.0])
    assert found is not None
    assert (found.median, found.low, found.high, found.samples) == (3.0, 1.0, 10.0, 3)


def test_a_figure_that_one_repeat_lacks_is_no_figure() -> None:
    assert spread([1.0, None]) is None
    assert spread([]) is None


def test_an_interval_holds_its_ratio_and_leaves_out_1_when_services_differ() -> None:
    found = ratio(processes(20, 21, 19), processes(10, 10.5, 9.5))
    low, middle, high = known(found)
    assert low < middle < high
    assert middle == pytest.approx(2)
    assert found is not None
    assert found.shows_difference is True


def test_services_that_overlap_show_no_difference() -> None:
    found = ratio(processes(10, 12, 9), processes(10, 11, 9.5))
    assert found is not None
    assert found.shows_difference is False


def test_the_interval_of_three_processes_is_known_in_advance() -> None:
    # Each extreme resample has a probability above 2.5 %, so the interval ends at the extreme ratios.
    low, _, high = known(ratio(processes(9, 10, 11), processes(5, 5, 5)))
    assert low == pytest.approx(9 / 5)
    assert high == pytest.approx(11 / 5)


def test_more_processes_narrow_the_interval() -> None:
    few = known(ratio(processes(9, 10, 11), processes(9, 10, 11)))
    many = known(ratio(processes(*[9, 10, 11] * 5), processes(*[9, 10, 11] * 5)))
    assert many[2] - many[0] < few[2] - few[0]


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_processes_have_a_ratio_but_no_interval(count: int) -> None:
    found = ratio(processes(*[2.0] * count), processes(*[1.0] * 3))
    assert found is not None
    assert (found.ratio, found.low, found.high, found.shows_difference) == (2.0, None, None, None)


def test_repeats_within_a_process_are_not_repetitions() -> None:
    found = ratio({1: [1.0, 2.0, 3.0]}, {1: [1.0, 1.0, 1.0]})
    assert found is not None
    assert (found.ratio, found.low) == (2.0, None)


def test_there_is_no_ratio_to_nothing() -> None:
    assert ratio(processes(1, 2, 3), {}) is None
    assert ratio(processes(1, 2, 3), processes(0, 1, 1)) is None


def test_equal_figures_give_equal_intervals() -> None:
    sides = processes(10, 12, 9, 8), processes(10, 11, 9.5, 9)
    assert ratio(*sides) == ratio(*sides)
