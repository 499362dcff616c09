"""How often the rule of `steady.rule` finds the steady state of a minute, and how far off the mean of it is: simulated
with fixed seeds, over shapes as services have them. `docs/METHODOLOGY.md` has the table.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from ws_ladder_analysis.statistics import mean
from ws_ladder_analysis.steady.rule import steadiness

RUNS = 400
SECONDS = 60
# The noise of a second, and how much of it the next second keeps.
NOISE, KEPT = 0.02, 0.3
TIMES = np.arange(SECONDS)

# The level of each second relative to steady state.
Shape = Callable[[], np.ndarray]


def flat() -> np.ndarray:
    return np.ones(SECONDS)


def warms_up_in_4_s() -> np.ndarray:
    return 1 - 0.3 * np.exp(-TIMES / 4)


def warms_up_in_12_s() -> np.ndarray:
    return 1 - 0.3 * np.exp(-TIMES / 12)


def step_at_20_s() -> np.ndarray:
    return np.where(TIMES < 20, 0.85, 1.0)


def steps_at_10_and_30_s() -> np.ndarray:
    return np.where(TIMES < 10, 0.7, np.where(TIMES < 30, 0.85, 1.0))


def trend_of_10_percent() -> np.ndarray:
    return 0.9 + 0.1 * TIMES / (SECONDS - 1)


def collector() -> np.ndarray:
    """Slower by 15 % in every seventh second. That is its steady state, whose mean is the truth."""
    levels: np.ndarray = np.where(TIMES % 7 == 6, 0.85, 1.0)
    relative: np.ndarray = levels / np.exp(np.log(levels).mean())
    return relative


def step_at_50_s() -> np.ndarray:
    return np.where(TIMES < 50, 0.9, 1.0)


def two_levels_in_turn() -> np.ndarray:
    """Levels 10 % apart, 15 s each."""
    return np.where(TIMES // 15 % 2 == 0, 0.9, 1.0)


@dataclass(frozen=True)
class Found:
    """What the rule says about many minutes of one shape."""

    # Share of them that it calls steady.
    steady: float
    # Median start of those, in seconds, and mean and root mean square of the error of their means; 0 without any.
    start: float
    bias: float
    rms: float


@cache
def simulated(shape: Shape) -> Found:
    draw = np.random.default_rng(8)
    starts, errors = [], []
    for _ in range(RUNS):
        values = (shape() * np.exp(noise(draw))).tolist()
        found = steadiness(values)
        if found.start is not None:
            starts.append(found.start)
            errors.append(mean(values[found.start :]) - 1)
    if not starts:
        return Found(0, 0, 0, 0)
    rms = statistics.fmean(error**2 for error in errors) ** 0.5
    return Found(len(starts) / RUNS, statistics.median(starts), statistics.fmean(errors), rms)


def noise(draw: np.random.Generator) -> np.ndarray:
    """A first-order autoregressive series with the standard deviation `NOISE`."""
    innovations = draw.normal(0, NOISE * (1 - KEPT**2) ** 0.5, SECONDS)
    series = np.zeros(SECONDS)
    series[0] = draw.normal(0, NOISE)
    for second in range(1, SECONDS):
        series[second] = KEPT * series[second - 1] + innovations[second]
    return series


@pytest.mark.parametrize(
    ("shape", "steady", "start"),
    [
        (flat, 0.94, (0, 0)),
        (collector, 0.94, (0, 0)),
        (warms_up_in_4_s, 0.94, (8, 12)),
        (step_at_20_s, 0.92, (20, 20)),
        (steps_at_10_and_30_s, 0.90, (30, 30)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_steady_state_is_found_where_it_begins(shape: Shape, steady: float, start: tuple[int, int]) -> None:
    found = simulated(shape)
    assert found.steady >= steady, found
    assert start[0] <= found.start <= start[1], found
    assert abs(found.bias) <= 0.003, found
    assert found.rms <= 0.006, found


def test_a_slow_warm_up_is_found_late_or_not_at_all() -> None:
    found = simulated(warms_up_in_12_s)
    assert 0.4 <= found.steady <= 0.75, found
    assert 22 <= found.start <= 30, found
    assert abs(found.bias) <= 0.015, found


def test_a_trend_is_rarely_called_steady() -> None:
    found = simulated(trend_of_10_percent)
    assert found.steady <= 0.25, found


@pytest.mark.parametrize("shape", [step_at_50_s, two_levels_in_turn], ids=lambda one: one.__name__)
def test_levels_that_change_late_or_again_and_again_are_not_steady(shape: Shape) -> None:
    assert simulated(shape).steady <= 0.01
