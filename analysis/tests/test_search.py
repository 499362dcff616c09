"""`ladder search` against MLRsearch of PyPI, decision by decision.

Both search the same simulated service. The library places loads on a logarithmic grid of real numbers, our loads are
integers. So the comparison gives the library our grid (`Grid` below replaces its `LoadRounding`); then all loads,
durations and bounds must be equal. The rest of the library runs as published, except that our `low` start, which it
doesn't have, goes directly to its main loop. With the library's own grid, only results that don't depend on the grid
can be compared; the last test does that.
"""

import bisect
import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal
from MLRsearch import multiple_loss_ratio_search as theirs

PROGRAM = Path(__file__).parents[2] / os.environ.get("TESTS_BUILT", "target/debug") / "examples/search_decisions"
MESSAGES = 1_000_000

Service = Callable[[float, float, int], float]
SearchResult = list[tuple[int | None, int | None, float | None]]
Decisions = list[tuple[int, float]]


@dataclass(frozen=True)
class Grid:
    """Our integer loads, in place of the library's logarithmic grid."""

    loads: list[int]

    @property
    def min_load(self) -> float:
        return float(self.loads[0])

    @property
    def max_load(self) -> float:
        return float(self.loads[-1])

    def int2float(self, place: int) -> float:
        return float(self.loads[min(max(place, 0), len(self.loads) - 1)])

    def float2int(self, load: float) -> int:
        return max(bisect.bisect_right(self.loads, load) - 1, 0)


@dataclass
class Measurer(AbstractMeasurer):  # type: ignore[misc]
    """Measures the simulated service and records each request."""

    service: Service
    requested: list[tuple[float, float]]

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        lost = lost_messages(self.service, intended_load, intended_duration, len(self.requested))
        self.requested.append((intended_load, intended_duration))
        return MeasurementResult(
            intended_duration=intended_duration, intended_load=intended_load, offered_count=MESSAGES, loss_count=lost
        )


def lost_messages(service: Service, load: float, seconds: float, number: int) -> int:
    return round(min(max(service(load, seconds, number), 0.0), 1.0) * MESSAGES)


@contextmanager
def program() -> Iterator[subprocess.Popen[str]]:
    assert PROGRAM.exists(), f"no {PROGRAM}; run: cargo build -p operator --example search_decisions"
    with subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def ours(
    goals: list[dict[str, Any]], limits: tuple[int, int], start: str, service: Service
) -> tuple[list[int], Decisions, SearchResult]:
    """Runs our search; returns its grid, decisions and bounds."""
    with program() as process:
        assert process.stdin
        assert process.stdout

        def say(value: object) -> None:
            print(json.dumps(value), file=process.stdin, flush=True)

        say({"from": limits[0], "to": limits[1], "high": start == "high", "goals": goals})
        grid: list[int] = json.loads(process.stdout.readline())["grid"]
        decisions: Decisions = []
        for line in process.stdout:
            decision = json.loads(line)
            if "goals" in decision:
                return grid, decisions, [tuple(goal) for goal in decision["goals"]]
            lost = lost_messages(service, decision["load"], decision["seconds"], len(decisions))
            decisions.append((decision["load"], decision["seconds"]))
            say([lost / MESSAGES] * len(goals))
    raise AssertionError("our search ended without a result")


def mlrsearch(
    goals: list[dict[str, Any]],
    limits: tuple[int, int],
    start: str,
    service: Service,
    grid: list[int] | None,
) -> tuple[list[tuple[float, float]], list[tuple[float | None, float | None, float | None]]]:
    """Runs the library on `grid`, or on its own grid without one; returns its decisions and bounds."""
    measurer = Measurer(service, [])
    config = Config(
        goals=[SearchGoal(**goal, fail_fast=False) for goal in goals],
        min_load=limits[0],
        max_load=limits[1],
        warmup_duration=0,
        search_duration_max=3600,
    )
    search = MultipleLossRatioSearch(config)
    with pytest.MonkeyPatch.context() as patch:
        if grid:
            patch.setattr(theirs, "LoadRounding", lambda **_: Grid(grid))
        if start == "low":
            at_the_lowest = SimpleNamespace(discrete_load=None)

            def no_initial_trials() -> tuple[SimpleNamespace, SimpleNamespace]:
                at_the_lowest.discrete_load = search.limit_handler.min_load
                return at_the_lowest, at_the_lowest

            patch.setattr(search, "run_initial_trials", no_initial_trials)
        results = search.search(measurer, debug=lambda _: None)

    def load(bound: object) -> float | None:
        return None if bound is None else float(bound)  # type: ignore[arg-type]

    found = [
        (load(goal.relevant_lower_bound), load(goal.relevant_upper_bound), load(goal.conditional_throughput))
        for goal in results.values()
    ]
    return measurer.requested, found


def goal(**changes: float) -> dict[str, Any]:
    """A goal with MLRsearch's defaults and the given changes."""
    return {
        "loss_ratio": 0.0,
        "exceed_ratio": 0.5,
        "relative_width": 0.005,
        "initial_trial_duration": 1.0,
        "final_trial_duration": 1.0,
        "duration_sum": 21.0,
        "preceding_targets": 2,
        "expansion_coefficient": 2,
    } | changes


GOALS = {
    "none lost": [goal()],
    "none and half a percent lost": [goal(), goal(loss_ratio=0.005)],
    "one long trial": [goal(exceed_ratio=0.0, final_trial_duration=60.0, duration_sum=60.0)],
    "two long trials": [goal(final_trial_duration=60.0, duration_sum=120.0, preceding_targets=3)],
    "a third may exceed": [goal(exceed_ratio=0.34, final_trial_duration=5.0, duration_sum=20.0, preceding_targets=4)],
    "percentiles": [
        goal(
            loss_ratio=ratio,
            relative_width=0.02,
            initial_trial_duration=2.0,
            final_trial_duration=4.0,
            duration_sum=16.0,
        )
        for ratio in (0.5, 0.05, 0.00001)
    ],
    "unlike widths and durations": [
        goal(relative_width=0.01, expansion_coefficient=4),
        goal(loss_ratio=0.01, final_trial_duration=3.0, duration_sum=12.0, preceding_targets=1),
    ],
}


def noise(seed: int, number: int, sigma: float) -> float:
    return random.Random(f"{seed}/{number}").gauss(1.0, sigma)


def beyond(capacity: float, load: float) -> float:
    """Loss ratio of a service that carries `capacity` and no more."""
    return 1.0 - capacity / load if load > capacity else 0.0


SERVICES: dict[str, Callable[[int], Service]] = {
    "a hard limit": lambda seed: lambda load, _, __: beyond(1100 + 617 * seed, load),
    "a noisy limit": lambda seed: lambda load, _, number: beyond(4000 * noise(seed, number, 0.02), load),
    "a very noisy limit": lambda seed: lambda load, _, number: beyond(4000 * noise(seed, number, 0.2), load),
    "steps": lambda seed: lambda load, _, __: 0.0 if load < 2000 + 91 * seed else 0.004 if load < 5000 else 0.4,
    "an inversion": lambda seed: lambda load, _, __: 0.1 if 3000 + 100 * seed < load < 5000 or load > 8000 else 0.0,
    "a coin": lambda seed: (
        lambda load, _, number: 0.2 if load > 6000 or (load > 1500 and noise(seed, number, 1.0) > 1.0) else 0.0
    ),
    "a buffer that long trials fill": lambda seed: (
        lambda load, seconds, _: beyond(3000 + 100 * seed, load) * (seconds > 2.5)
    ),
    "nothing lost": lambda _: lambda _, __, ___: 0.0,
    "a little lost": lambda _: lambda _, __, ___: 0.003,
    "all lost": lambda _: lambda _, __, ___: 1.0,
    "half lost": lambda _: lambda _, __, ___: 0.5,
}


@pytest.mark.parametrize("start", ["low", "high"])
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("goals", GOALS)
def test_every_decision_is_that_of_mlrsearch(goals: str, service: str, start: str) -> None:
    limits = (1000, 10_000)
    for seed in range(6):
        system = SERVICES[service](seed)
        grid, decisions, found = ours(GOALS[goals], limits, start, system)
        requested, bounds = mlrsearch(GOALS[goals], limits, start, system, grid)
        assert decisions == requested, f"seed {seed}"
        assert found == bounds, f"seed {seed}"


def carries(capacity: float) -> Service:
    return lambda load, _, __: beyond(capacity, load)


@pytest.mark.parametrize("start", ["low", "high"])
@pytest.mark.parametrize("goals", GOALS)
def test_narrow_limits_and_wide_goals_decide_alike(goals: str, start: str) -> None:
    wide = [goal | {"relative_width": 0.3 if number else 0.2} for number, goal in enumerate(GOALS[goals])]
    for capacity in (90, 104, 150, 250):
        grid, decisions, found = ours(wide, (100, 200), start, carries(capacity))
        requested, bounds = mlrsearch(wide, (100, 200), start, carries(capacity), grid)
        assert (decisions, found) == (requested, bounds), f"capacity {capacity}"


@pytest.mark.parametrize("goals", GOALS)
def test_on_a_grid_of_its_own_the_library_brackets_the_same_limit(goals: str) -> None:
    for capacity in (1234.5, 4321.0, 9876.0):
        _, _, found = ours(GOALS[goals], (1000, 20_000), "high", carries(capacity))
        _, bounds = mlrsearch(GOALS[goals], (1000, 20_000), "high", carries(capacity), None)
        for goal, own, other in zip(GOALS[goals], found, bounds, strict=True):
            limit = capacity / (1.0 - goal["loss_ratio"])
            for lower, upper, _ in (own, other):
                assert lower is not None
                assert upper is not None
                assert lower <= limit <= upper
                assert (upper - lower) / upper <= goal["relative_width"] * 1.0001
