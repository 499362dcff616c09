"""Means, ranges, and ratios with their interval."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from bench_format.histogram import Values
from scipy import stats

from ws_ladder_analysis.statistics import (
    Ratio,
    percentile_ratio,
    ratio,
    spread,
    table_level,
    unpaired_ratio,
)


def processes(*figures: float) -> dict[int, list[float]]:
    return {process: [figure] for process, figure in enumerate(figures, 1)}


def known(found: Ratio | None, level: float = 0.95) -> tuple[float, float, float]:
    assert found is not None
    interval = found.interval(level)
    assert interval is not None
    return interval[0], found.ratio, interval[1]


def test_a_figure_is_the_geometric_mean_over_processes_with_the_range_over_repeats() -> None:
    found = spread({1: [1.0, 3.0], 2: [8.0]})
    assert found is not None
    assert found.mean == pytest.approx(4.0)
    assert (found.low, found.high, found.samples) == (1.0, 8.0, 3)


def test_a_figure_with_a_zero_is_the_arithmetic_mean() -> None:
    found = spread({1: [0.0], 2: [3.0]})
    assert found is not None
    assert found.mean == 1.5


def test_a_figure_that_one_repeat_lacks_is_absent() -> None:
    assert spread({1: [1.0, None]}) is None
    assert spread({}) is None


def test_the_interval_is_student_s_on_the_logarithms_of_pairs() -> None:
    above, below = (20, 21, 19, 20.5, 22), (10, 10.2, 9.9, 10.1, 10.4)
    logs = [math.log(one / other) for one, other in zip(above, below, strict=True)]
    theirs = stats.ttest_1samp(logs, 0)
    low, middle, high = known(ratio(processes(*above), processes(*below)))
    expected = theirs.confidence_interval(0.95)
    assert (math.log(low), math.log(high)) == pytest.approx((expected.low, expected.high))
    assert math.log(middle) == pytest.approx(sum(logs) / 5)
    found = ratio(processes(*above), processes(*below))
    assert found is not None
    assert found.p_value == pytest.approx(theirs.pvalue)
    assert found.shows_difference() is True


def test_the_ratio_is_the_quotient_of_the_columns() -> None:
    found = ratio(processes(10, 12, 9, 11, 14), processes(4, 5, 5, 6, 3))
    assert found is not None
    assert found.ratio == pytest.approx(found.above / found.below)
    assert found.above == pytest.approx((10 * 12 * 9 * 11 * 14) ** 0.2)


def test_a_drift_that_both_sides_share_is_not_a_difference_and_widens_nothing() -> None:
    drift = [1.0, 0.9, 0.8, 0.7, 0.6]
    low, middle, high = known(ratio(processes(*drift), processes(*[2 * value for value in drift])))
    assert (low, middle, high) == pytest.approx((0.5, 0.5, 0.5))


def test_services_that_overlap_show_no_difference() -> None:
    found = ratio(processes(10, 12, 9, 11, 10), processes(10, 11, 9.5, 10, 11))
    assert found is not None
    assert found.shows_difference() is False


@pytest.mark.parametrize("count", [1, 4])
def test_fewer_than_five_pairs_have_a_ratio_but_no_interval(count: int) -> None:
    found = ratio(processes(*[2.0] * count), processes(*[1.0] * 5))
    assert found is not None
    assert (found.ratio, found.interval(), found.p_value, found.shows_difference()) == (2.0, None, None, None)


def test_repeats_within_a_process_are_not_repetitions() -> None:
    found = ratio({1: [1.0, 2.0, 3.0]}, {1: [1.0, 1.0, 1.0]})
    assert found is not None
    assert (found.ratio, found.interval()) == (2.0, None)


def test_a_process_without_its_counterpart_is_left_out() -> None:
    found = ratio({1: [2.0], 2: [99.0], 3: [2.0]}, {1: [1.0], 3: [1.0], 4: [0.01]})
    assert found is not None
    assert (found.ratio, found.processes) == (2.0, (2, 2))


def test_there_is_no_ratio_to_nothing() -> None:
    assert ratio(processes(1, 2, 3), {}) is None
    assert ratio(processes(1, 2, 3), processes(0, 1, 1)) is None
    assert unpaired_ratio([1.0], []) is None
    assert unpaired_ratio([1.0], [0.0]) is None


def test_without_pairs_the_interval_is_welch_s() -> None:
    above, below = [20, 21, 19, 20.5, 22], [10, 10.2, 9.9, 10.1, 10.4, 10.0]
    theirs = stats.ttest_ind([math.log(one) for one in above], [math.log(one) for one in below], equal_var=False)
    low, _, high = known(unpaired_ratio(above, below))
    expected = theirs.confidence_interval(0.95)
    assert (math.log(low), math.log(high)) == pytest.approx((expected.low, expected.high))
    few = unpaired_ratio(above, below[:4])
    assert few is not None
    assert few.interval() is None


def test_a_pair_far_from_the_others_makes_the_row_uneven_from_ten_pairs_on() -> None:
    calm = [1.0 + 0.002 * number for number in range(9)]
    found = ratio(processes(*calm, 0.7), processes(*[1.0] * 10))
    assert found is not None
    assert found.is_uneven
    _, typical, _ = found.typical()
    assert typical == pytest.approx(1.0065, abs=0.003)
    few = ratio(processes(*calm[:4], 0.7), processes(*[1.0] * 5))
    assert few is not None
    assert not few.is_uneven


def test_uneven_pairs_show_a_difference_only_where_the_typical_pair_does() -> None:
    # Fourteen pairs say 2 % more, six say less by far: the mean is below 1 and a typical pair isn't.
    figures = [1.02 + 0.0001 * number for number in range(14)] + [0.5] * 6
    found = ratio(processes(*figures), processes(*[1.0] * 20))
    assert found is not None
    assert found.is_uneven
    assert known(found)[2] < 1
    assert found.typical()[2] > 1
    assert found.shows_difference() is False


def test_wilcoxon_s_interval_has_the_ends_of_the_published_tables() -> None:
    # Critical values of the signed-rank statistic at 5 %, two-sided: 8 for 10 pairs, 52 for 20 (McCornack 1965), so
    # that many means are cut off at each end.
    for count, cut in ((10, 8), (20, 52)):
        figures = [math.exp(2.0**-number) for number in range(count)]
        found = ratio(processes(*figures), processes(*[1.0] * count))
        assert found is not None
        logs = [2.0**-number for number in range(count)]
        means = sorted((one + other) / 2 for place, one in enumerate(logs) for other in logs[place:])
        low, _, high = found.typical()
        assert (math.log(low), math.log(high)) == pytest.approx((means[cut], means[-1 - cut]))


def values(*milliseconds: float, times: int = 1000) -> Values:
    """A histogram with these values, each `times` times."""
    return Values({round(one * 1_000_000): times for one in sorted(milliseconds)})


def test_a_percentile_is_that_of_all_processes_together_and_never_a_mean_of_percentiles() -> None:
    above: Mapping[int, Values] = {1: values(1, 2, 100), 2: values(1, 2, 3), 3: values(1, 2, 3)}
    below: Mapping[int, Values] = {process: values(1, 2, 3) for process in (1, 2, 3)}
    found = percentile_ratio(above, below, 99)
    assert found is not None
    assert (found.above, found.below) == (100e6, 3e6)
    assert found.interval() is None


def test_a_percentile_has_an_interval_when_each_process_has_the_samples() -> None:
    above = {process: values(2 + 0.01 * process, 4) for process in range(1, 7)}
    below = {process: values(1, 2 + 0.01 * process) for process in range(1, 7)}
    low, middle, high = known(percentile_ratio(above, below, 99))
    assert low < middle < high
    assert middle == pytest.approx(2, rel=0.05)
    above[3] = values(2, 4, times=200)
    found = percentile_ratio(above, below, 99)
    assert found is not None
    assert found.interval() is None


def test_one_row_has_the_nominal_level_and_many_rows_a_higher_one() -> None:
    assert table_level([0.01]) == pytest.approx(0.95)
    assert table_level([]) == pytest.approx(0.95)
    assert table_level([None, 0.5]) == pytest.approx(0.95)
    # One claim of ten, and five of ten.
    assert table_level([0.001, *[0.9] * 9]) == pytest.approx(0.995)
    assert table_level([*[0.0001] * 5, *[0.9] * 5]) == pytest.approx(0.975)
    # What a single row would claim isn't claimed among twenty.
    assert table_level([0.04, *[0.9] * 19]) == pytest.approx(0.9975)
