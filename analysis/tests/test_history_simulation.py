"""How often the two detectors together raise a false alarm, and how soon they see a step: simulated, with fixed seeds.

The figures are those of `docs/METHODOLOGY.md`, "History of runs": series with a spread of 3 %, looked at after every
run, without the least step of 2 %.
"""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from ws_ladder_analysis.history.changes import APART, FEWEST_RUNS, agreed
from ws_ladder_analysis.history.detectors import otava, pelt

SERIES, SPREAD = 200, 0.03
# Runs after the twentieth in a series without a change; runs before a step and after it.
LOOKS, BEFORE, AFTER = 60, 40, 30

pytestmark = pytest.mark.timeout(120)


def looks(series: list[list[float]], first: int) -> list[list[list[int]]]:
    """For each series, the changes that both detectors name after each run from the run number `first` on."""
    asked = [values[:length] for values in series for length in range(first, len(values) + 1)]
    named = [
        [change.index for change in agreed(values, pelt(values), other, least_step=0)]
        for values, other in zip(asked, otava(asked), strict=True)
    ]
    each = len(series[0]) - first + 1
    return [named[start : start + each] for start in range(0, len(named), each)]


def drawn(seed: int, runs: int, step: float = 0.0) -> list[list[float]]:
    """Series of that many runs, with a step of the level before the run number `BEFORE`, counted from 0."""
    draw = np.random.default_rng(seed)
    level = np.where(np.arange(runs) < BEFORE, 0.0, np.log1p(step))
    return [np.exp(level + draw.normal(0, SPREAD, runs)).tolist() for _ in range(SERIES)]


def test_a_series_without_a_change_raises_few_alarms() -> None:
    alarms = 0
    for series in looks(drawn(7, FEWEST_RUNS + LOOKS - 1), FEWEST_RUNS):
        seen: list[int] = []
        for named in series:
            # A change that an earlier look named, perhaps a few runs beside, is not a new alarm.
            new = [place for place in named if all(abs(place - known) > APART for known in seen)]
            alarms += len(new)
            seen += new
    per_hundred = 100 * alarms / (SERIES * LOOKS)
    # 0.26 alarms in 100 runs, and three standard errors of a count over so many runs.
    assert per_hundred <= 0.26 + 3 * (0.26 / (SERIES * LOOKS / 100)) ** 0.5


def test_a_step_of_5_percent_is_named_after_a_few_runs() -> None:
    delays = []
    for series in looks(drawn(8, BEFORE + AFTER, -0.05), BEFORE + 1):
        # The first looks have few runs after the step and may place it some runs beside.
        hits = [runs for runs, named in enumerate(series, 1) if any(abs(one - BEFORE) <= 2 * APART for one in named)]
        delays.append(hits[0] if hits else AFTER + 1)
    assert 4 <= statistics.median(delays) <= 8
    assert statistics.quantiles(delays, n=10)[-1] <= 15
    assert sum(delay > AFTER for delay in delays) / SERIES <= 0.07
