"""The always-valid interval: its decisions, and how often and how soon it makes them, simulated with fixed seeds.

The figures that simulations are compared with are those of `docs/METHODOLOGY.md`, "Comparing two builds".
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from ws_ladder_analysis.sequential import (
    FIRST_LOOK,
    SAME_WITHIN,
    Decision,
    Verdict,
    decide,
    half_width,
    pairs_needed,
    verdict_of,
)

RUNS = 400
# Decisions that `operator/src/compare/rule.rs` makes, too.
SHARED = Path(__file__).parents[2] / "operator/testdata/sequential.json"
VERDICTS = {
    Verdict.DIFFERS: "differs",
    Verdict.SAME: "same",
    Verdict.NOT_SHOWN: "not-shown",
    Verdict.UNDECIDED: "undecided",
}


@dataclass(frozen=True)
class Simulated:
    """Shares of the simulated comparisons (0 to 1), and their mean number of pairs."""

    differs: float
    same: float
    pairs: float


def compared(draw: np.random.Generator, cv: float, difference: float, most_pairs: int = 60) -> Decision:
    """Measures pairs of two services until the rule decides; both vary by `cv` from process to process."""
    logs = (draw.normal(0, cv, most_pairs) - draw.normal(0, cv, most_pairs) + difference).tolist()
    for pairs in range(1, most_pairs + 1):
        found = decide(logs[:pairs], most_pairs)
        if found.verdict is not Verdict.UNDECIDED:
            return found
    raise AssertionError("the last pair decides")


def simulated(seed: int, cv: float, difference: float, most_pairs: int = 60) -> Simulated:
    draw = np.random.default_rng(seed)
    found = [compared(draw, cv, difference, most_pairs) for _ in range(RUNS)]
    share = {one: sum(each.verdict is one for each in found) / RUNS for one in Verdict}
    return Simulated(share[Verdict.DIFFERS], share[Verdict.SAME], sum(each.pairs for each in found) / RUNS)


# Spread between processes, share of differences of 5 % that are found, mean pairs until then.
@pytest.mark.parametrize(("cv", "found", "pairs"), [(0.02, 1.0, 7), (0.03, 0.99, 11), (0.05, 0.98, 21)])
def test_a_difference_of_5_percent_is_found_after_few_pairs(cv: float, found: float, pairs: float) -> None:
    seen = simulated(4, cv, SAME_WITHIN)
    assert seen.differs == pytest.approx(found, abs=0.025)
    assert seen.pairs == pytest.approx(pairs, abs=1 + 0.1 * pairs)


# Spread between processes, share of equal services said to differ, mean pairs, share said to be the same.
@pytest.mark.parametrize(
    ("cv", "alarms", "pairs", "same"), [(0.02, 0.005, 8, 0.99), (0.03, 0.01, 13, 0.99), (0.05, 0.02, 30, 0.97)]
)
def test_equal_services_are_the_same_and_rarely_differ(cv: float, alarms: float, pairs: float, same: float) -> None:
    seen = simulated(5, cv, 0)
    # Three standard errors of so small a share over so many runs.
    assert seen.differs <= alarms + 3 * math.sqrt(alarms / RUNS)
    assert seen.same == pytest.approx(same, abs=0.025)
    assert seen.pairs == pytest.approx(pairs, abs=1 + 0.1 * pairs)


def test_noise_that_hides_5_percent_ends_at_the_cap_and_says_how_many_pairs_it_takes() -> None:
    found = compared(np.random.default_rng(6), 0.2, 0)
    assert (found.verdict, found.pairs) == (Verdict.NOT_SHOWN, 60)
    assert found.pairs_needed is not None
    assert 200 < found.pairs_needed < 500
    assert found.low < 1 < found.high


@pytest.mark.parametrize("cv", [0.01, 0.02, 0.03, 0.05, 0.06, 0.08, 0.1])
@pytest.mark.parametrize("wanted", [0.9, 0.965])
def test_the_number_of_pairs_is_that_of_statsmodels(cv: float, wanted: float) -> None:
    deviation = cv * math.sqrt(2)
    theirs = TTestPower().solve_power(effect_size=SAME_WITHIN / deviation, alpha=0.05, power=wanted)
    assert pairs_needed(deviation, wanted) == math.ceil(theirs)


def test_the_fewest_and_the_most_pairs_are_bounded() -> None:
    assert pairs_needed(0) == pairs_needed(1e-6) == 2
    assert pairs_needed(50) is None


def test_nothing_is_decided_before_the_fifth_pair() -> None:
    clear = [0.5 + 0.001 * number for number in range(FIRST_LOOK)]
    assert decide(clear[:-1]).verdict is Verdict.UNDECIDED
    assert decide(clear).verdict is Verdict.DIFFERS


def test_two_or_three_pairs_bound_nothing_and_equal_pairs_bound_everything() -> None:
    assert half_width([0.1]) == math.inf
    assert half_width([0.1, 0.2]) == math.inf
    found = decide([0.1, 0.2])
    assert (found.low, found.high) == (0, math.inf)
    assert half_width([0.1] * FIRST_LOOK) == 0


def test_a_comparison_of_many_rows_needs_wider_intervals() -> None:
    logs = [0.02, 0.03, 0.01, 0.02, 0.025, 0.015]
    assert half_width(logs, 0.05 / 10) > half_width(logs)


def test_an_interval_says_one_of_three_things() -> None:
    assert verdict_of(1.01, 1.2) is verdict_of(0.5, 0.99) is Verdict.DIFFERS
    assert verdict_of(0.96, 1.04) is Verdict.SAME
    assert verdict_of(0.94, 1.02) is verdict_of(0.9, 1.1) is Verdict.NOT_SHOWN
    # A difference that is shown stays one, also where it is below 5 %.
    assert verdict_of(1.01, 1.02) is Verdict.DIFFERS


def test_without_a_pair_there_is_no_decision() -> None:
    with pytest.raises(ValueError, match="needs a pair"):
        decide([])


def test_ladder_and_the_analysis_decide_the_same() -> None:
    cases = json.loads(SHARED.read_text())
    assert {case["verdict"] for case in cases} == set(VERDICTS.values())
    for case in cases:
        found = decide(case["logs"], case["pairs_at_most"], case["alpha"])
        assert (VERDICTS[found.verdict], found.pairs_needed) == (case["verdict"], case["pairs_needed"]), case
        assert found.ratio == pytest.approx(case["ratio"], rel=1e-9)
        if case["interval"] is None:
            assert found.high == math.inf
        else:
            assert [found.low, found.high] == pytest.approx(case["interval"], rel=1e-9)
