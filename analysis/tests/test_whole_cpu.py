"""The capacity of a whole CPU from fractions: what it is fitted from, and how often its interval holds."""

import math

import numpy as np
import pytest
from bench_format.schemas import CapacityEstimate

from ws_ladder_analysis.whole_cpu import whole_cpu

SEARCHES = 2000


def found(load: float, deviation: float = 0.01) -> CapacityEstimate:
    """A search's estimate whose interval has this standard deviation of ln C."""
    low, high = (load * math.exp(sign * 1.96 * deviation) for sign in (-1, 1))
    return CapacityEstimate(load=load, low=low, high=high, spread=0.02, trials=14)


def test_a_capacity_that_grows_slower_than_its_share_is_less_than_a_multiple() -> None:
    fit = whole_cpu([(0.05, found(270)), (0.1, found(512))])
    assert fit is not None
    assert fit.power == pytest.approx(math.log(512 / 270, 2))
    assert fit.load == pytest.approx(512 * 10**fit.power)
    assert fit.load < 5120
    assert fit.low < fit.load < fit.high


def test_one_share_says_nothing_about_a_whole_cpu() -> None:
    assert whole_cpu([(0.1, found(512))]) is None
    assert whole_cpu([(0.1, found(512)), (0.1, found(520))]) is None
    assert whole_cpu([]) is None


def test_the_interval_holds_the_load_of_a_whole_cpu_in_95_of_100_fits() -> None:
    random = np.random.default_rng(20)
    held = 0
    for _ in range(SEARCHES):
        power, at_one = random.uniform(0.8, 1.05), random.uniform(1000, 12000)
        searches = [
            (share, found(at_one * share**power * math.exp(random.normal(0, deviation)), deviation))
            for share, deviation in ((0.08, 0.01), (0.04, 0.015))
        ]
        fit = whole_cpu(searches)
        assert fit is not None
        held += fit.low <= at_one <= fit.high
    # 95 % ± three standard deviations of a count.
    assert 0.935 <= held / SEARCHES <= 0.965
