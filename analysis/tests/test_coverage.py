"""How often intervals hold the truth: simulated with fixed seeds, over populations as services have them.

Each population gives the logarithms of both sides' figures, pair by pair, with a true ratio of 1. The bounds are the
simulated coverage of the rule with the noise of so many runs. `docs/METHODOLOGY.md` has the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from bench_format.histogram import Values

from ws_ladder_analysis.statistics import Ratio, percentile_ratio, ratio, table_level, unpaired_ratio

RUNS = 2_000
# Three standard errors of a share of 95 % over so many runs.
NOISE = 3 * math.sqrt(0.95 * 0.05 / RUNS)

Population = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def normal(draw: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal figures that vary by 10 %."""
    return np.log(draw.normal(1, 0.1, pairs)), np.log(draw.normal(1, 0.1, pairs))


def lognormal(draw: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Lognormal figures that vary by 30 %."""
    return draw.normal(0, 0.3, pairs), draw.normal(0, 0.3, pairs)


def unequal(draw: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """One side varies by 3 %, the other by 15 %."""
    return draw.normal(0, 0.03, pairs), draw.normal(0, 0.15, pairs)


def modes(draw: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Both sides have two modes, 10 % apart, by chance for each process."""
    return tuple(0.1 * draw.integers(0, 2, pairs) + draw.normal(0, 0.01, pairs) for _ in range(2))  # type: ignore[return-value]


def drift(draw: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """The machine drifts (AR(1), 8 %) from trial to trial; the order turns in each pair."""
    machine = np.zeros(2 * pairs)
    for trial in range(1, 2 * pairs):
        machine[trial] = 0.95 * machine[trial - 1] + draw.normal(0, 0.08 * math.sqrt(1 - 0.95**2))
    return in_turned_order(machine + draw.normal(0, 0.02, 2 * pairs))


def trend(draw: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """The machine gets slower by 20 % from the first trial to the last; the order turns in each pair."""
    return in_turned_order(np.linspace(0, -0.2, 2 * pairs) + draw.normal(0, 0.03, 2 * pairs))


def in_turned_order(trials: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Deals trials out as A B, B A, A B, …"""
    pairs = trials.reshape(-1, 2)
    turned = np.arange(len(pairs)) % 2
    return pairs[np.arange(len(pairs)), turned], pairs[np.arange(len(pairs)), 1 - turned]


def paired(left: np.ndarray, right: np.ndarray) -> Ratio:
    """The ratio of two sides given as logarithms, pair by pair."""
    sides = [{number: [float(value)] for number, value in enumerate(np.exp(side))} for side in (left, right)]
    found = ratio(*sides)
    assert found is not None
    return found


def share_that_holds_1(population: Population, pairs: int, compare: Callable[[np.ndarray, np.ndarray], Ratio]) -> float:
    draw = np.random.default_rng(pairs)
    held = 0
    for _ in range(RUNS):
        interval = compare(*population(draw, pairs)).interval()
        assert interval is not None
        held += interval[0] <= 1 <= interval[1]
    return held / RUNS


@pytest.mark.parametrize("pairs", [5, 10, 20])
@pytest.mark.parametrize("population", [normal, lognormal, unequal, modes, drift, trend], ids=lambda one: one.__name__)
def test_the_interval_of_pairs_holds_the_truth_as_often_as_it_says(population: Population, pairs: int) -> None:
    held = share_that_holds_1(population, pairs, paired)
    assert 0.935 - NOISE <= held <= 0.97 + NOISE, f"{held:.3f}"


def test_an_order_that_never_turns_would_read_a_trend_as_a_difference() -> None:
    def unturned(draw: np.random.Generator, pairs: int) -> tuple[np.ndarray, np.ndarray]:
        trials = np.linspace(0, -0.2, 2 * pairs) + draw.normal(0, 0.03, 2 * pairs)
        return trials[::2], trials[1::2]

    assert share_that_holds_1(unturned, 5, paired) < 0.92


@pytest.mark.parametrize("population", [normal, unequal], ids=lambda one: one.__name__)
def test_the_interval_without_pairs_holds_the_truth_as_often_as_it_says(population: Population) -> None:
    def welch(left: np.ndarray, right: np.ndarray) -> Ratio:
        found = unpaired_ratio(list(np.exp(left)), list(np.exp(right)))
        assert found is not None
        return found

    assert abs(share_that_holds_1(population, 10, welch) - 0.95) <= 0.01 + NOISE


def test_rare_outliers_of_one_side_are_held_by_the_typical_pair_alone() -> None:
    draw = np.random.default_rng(1)
    mean = typical = 0
    true_mean = 0.05 * math.log(0.7)
    for _ in range(RUNS):
        left = draw.normal(0, 0.03, 20) + (draw.random(20) < 0.05) * math.log(0.7)
        found = paired(left, draw.normal(0, 0.03, 20))
        low, high = (math.log(end) for end in found.interval() or (0, 0))
        mean += low <= true_mean <= high
        low, _, high = found.typical()
        typical += low <= 1 <= high
    assert mean / RUNS < 0.90
    assert typical / RUNS > 0.93


def test_a_table_s_claims_are_wrong_at_most_once_in_twenty() -> None:
    draw = np.random.default_rng(2)
    false = claims = 0
    for _ in range(150):
        # Twenty equal services, ten that differ by 5 %.
        rows = [paired(draw.normal(0.05 if row < 10 else 0, 0.03, 10), draw.normal(0, 0.03, 10)) for row in range(30)]
        level = table_level([row.p_value for row in rows])
        claimed = [number for number, row in enumerate(rows) if row.shows_difference(level)]
        claims += len(claimed)
        false += sum(number >= 10 for number in claimed)
    assert claims > 150 * 5, "differences of 5 % are found"
    assert false / claims <= 0.05


def test_the_interval_of_a_percentile_holds_the_truth_as_often_as_it_says() -> None:
    # Processes differ by 5 % in the body and by a factor in their share of stalls, which p99.9 lies among.
    draw, runs, pairs, held = np.random.default_rng(3), 300, 8, 0

    def process() -> Values:
        factor = 20 * math.exp(draw.normal(0, 0.5))
        body = draw.lognormal(math.log(1e6) + draw.normal(0, 0.05), 0.3, 5_000)
        stalled = draw.random(5_000) < 0.002 * factor / 20
        # As histograms have it: three significant digits.
        rounded = np.round(np.where(stalled, body * 20, body), -4).astype(int)
        found, counts = np.unique(rounded, return_counts=True)
        return Values(dict(zip(found.tolist(), counts.tolist(), strict=True)))

    for _ in range(runs):
        above, below = ({number: process() for number in range(pairs)} for _ in range(2))
        found = percentile_ratio(above, below, 99)
        assert found is not None
        interval = found.interval()
        assert interval is not None
        held += interval[0] <= 1 <= interval[1]
    assert held / runs >= 0.91
