"""The posterior of a capacity from trials that passed or failed, computed a second time from `run.json`.

`operator/src/search/posterior.rs` and `rounds.rs` decide a search and write its result; this module recomputes the
result from the trials alone, with numpy and scipy (`docs/METHODOLOGY.md`, "Capacity search").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from bench_format.meaning import is_valid, meets, reasons
from bench_format.schemas import (
    CapacityEstimate,
    LoadTest,
    Objective,
    PlainFigure,
    ReasonKind,
    SearchStep,
    TrialStateCrashed,
    TrialStateFailed,
    TrialStateFinished,
)
from numpy.typing import NDArray
from scipy.special import ndtr

from .load import Trial

# Step of the grid of ln C, and steps from its centre to an end (25 %) and to the end of the prior's flat part (12 %).
STEP = 0.0025
_REACH, _FLAT = 100, 48
_SPREADS = np.geomspace(0.003, 0.1, 12)
# Logarithm of the prior outside its flat part, relative to it.
_OUTSIDE = -20.0
_LAPSE = 0.02
# Steps from an end (2 %) within which this share of the mass moves the grid: of the grid, and of the flat part.
_MARGIN = 8
_ENDS = ((_REACH, 0.01), (_FLAT, 0.5))
_MOVES = 20
_SPAN = np.arange(-_REACH, _REACH + 1)
# What a service that has used up its CPU, or reads nothing more, causes by itself.
_DEAF = {ReasonKind.SEND_RATE, ReasonKind.GENERATOR_LATE, ReasonKind.WINDOW_SHORT}
_MUTE = {ReasonKind.CONFORMANCE, ReasonKind.READING_LATE, ReasonKind.UNACCOUNTED}
# Why the generator ended a connection whose socket took no byte for longer than it waits.
_UNREAD = "send_timeout"


class Outcome(NamedTuple):
    """A valid trial: its load, and whether it met every objective."""

    load: int
    passed: bool


def estimate(start: float, trials: Sequence[Outcome]) -> CapacityEstimate:
    """The load that passes with probability 0.5, its 95 % interval and the spread."""
    centre, weights = log(start), _posterior(log(start), ())
    for made in range(1, len(trials) + 1):
        weights = _posterior(centre, trials[:made])
        for _ in range(_MOVES):
            steps = _shift(weights)
            if steps is None:
                break
            centre += steps * STEP
            weights = _posterior(centre, trials[:made])
    places, spreads = weights.sum(axis=1), weights.sum(axis=0)
    below, grid = np.cumsum(places), centre + _SPAN * STEP
    low, high = (float(grid[min(int(np.searchsorted(below, at)), len(grid) - 1)]) for at in (0.025, 0.975))
    return CapacityEstimate(
        load=float(np.exp(places @ grid)),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        spread=float(spreads @ _SPREADS),
        trials=len(trials),
    )


def _posterior(centre: float, trials: Sequence[Outcome]) -> NDArray[np.float64]:
    """The probability of each place (rows) and spread (columns) of a grid around a centre."""
    logs = np.where(abs(_SPAN) <= _FLAT, 0.0, _OUTSIDE)[:, None] + np.zeros(len(_SPREADS))
    grid = centre + _SPAN * STEP
    for load, passed in trials:
        passes = _LAPSE / 2 + (1 - _LAPSE) * ndtr((grid[:, None] - log(load)) / _SPREADS)
        logs += np.log(passes if passed else 1 - passes)
    weights = np.exp(logs - np.max(logs))
    return np.asarray(weights / weights.sum())


def _shift(weights: NDArray[np.float64]) -> int | None:
    """The steps by which the grid has to move; `None` when it may stay."""
    places = weights.sum(axis=1)
    for end, limit in _ENDS:
        low = places[: _REACH - end + _MARGIN + 1].sum()
        high = places[_REACH + end - _MARGIN :].sum()
        if max(low, high) >= limit:
            return end if high > low else -end
    return None


@dataclass(frozen=True)
class Replay:
    """What the trials of a search on fresh processes add up to."""

    # The trials that the estimate is from: those of the rounds, and of tests that did not succeed.
    evidence: tuple[Outcome, ...]
    # The last test of each kind that had a valid trial.
    confirm: LoadTest | None
    fail: LoadTest | None
    # Number of trials of the rounds.
    rounds: int


def replay(trials: Sequence[Trial], objectives: Sequence[Objective], bound_share: float, complete: bool) -> Replay:
    """Sorts the trials of one search, in their order, into rounds and tests. `complete` is false for a search that was
    given up: the trials of the test that it was in count nowhere."""
    evidence: list[Outcome] = []
    tests: dict[SearchStep, LoadTest] = {}
    rounds, running = 0, None
    for trial in trials:
        step = trial.entry.search.step if trial.entry.search else SearchStep.BOUNDS
        outcome = _outcome(trial, objectives, bound_share)
        if step is SearchStep.BOUNDS or outcome is None:
            continue
        if running is not None and running != (step, outcome.load):
            # The generator could not offer the load of the test.
            _enter(evidence, tests.pop(running[0]))
            running = None
        if step is SearchStep.ROUND:
            rounds += 1
            evidence.append(outcome)
            continue
        before = tests.get(step) if running else None
        tests[step] = _with(before or LoadTest(outcome.load, 0, 0, succeeded=False), outcome, step)
        running = (step, outcome.load)
        if tests[step].succeeded:
            running = None
        elif _has_failed(tests[step], step):
            _enter(evidence, tests[step])
            running = None
    if running is not None and complete:
        _enter(evidence, tests.pop(running[0]))
    return Replay(tuple(evidence), tests.get(SearchStep.CONFIRM), tests.get(SearchStep.FAIL), rounds)


def _enter(evidence: list[Outcome], test: LoadTest) -> None:
    evidence += [Outcome(test.load, True)] * test.passed + [Outcome(test.load, False)] * test.failed


def _agreeing(test: LoadTest, step: SearchStep) -> tuple[int, int]:
    return (test.passed, test.failed) if step is SearchStep.CONFIRM else (test.failed, test.passed)


def _with(test: LoadTest, outcome: Outcome, step: SearchStep) -> LoadTest:
    """The test after one more trial: it succeeds with 5 of 5, or with 8 of 9 and the exception among the first five."""
    counted = LoadTest(test.load, test.passed + outcome.passed, test.failed + (not outcome.passed), succeeded=False)
    succeeded = _agreeing(counted, step) in ((5, 0), (8, 1))
    return LoadTest(counted.load, counted.passed, counted.failed, succeeded=succeeded)


def _has_failed(test: LoadTest, step: SearchStep) -> bool:
    return _agreeing(test, step)[1] >= 2


def _outcome(trial: Trial, objectives: Sequence[Objective], bound_share: float) -> Outcome | None:
    """Whether a trial passed; `None` for an invalid one, unless the service made it invalid."""
    state, load = trial.entry.state, trial.id.tier
    if isinstance(state, TrialStateCrashed | TrialStateFailed):
        ended = trial.entry.search is not None and trial.entry.search.service_ended
        return Outcome(load, False) if ended else None
    if not isinstance(state, TrialStateFinished):
        return None
    if is_valid(state.validity):
        return Outcome(load, state.passed is True)
    kinds = {reason.kind for reason in reasons(state.validity)}
    missed = _is_starved(trial, kinds, bound_share) or _is_missed_without_samples(trial, kinds, objectives)
    return Outcome(load, False) if missed else None


def _is_starved(trial: Trial, kinds: set[ReasonKind], bound_share: float) -> bool:
    """Whether the service, and nothing else, made a trial invalid: it has used up its CPU, or read so little that the
    generator gave up connections."""
    if trial.result is None or not kinds <= _DEAF | _MUTE:
        return False
    share = trial.result.figures.service_cpu_share
    if (share is None or share < bound_share) and _UNREAD not in trial.result.connections.closed_early:
        return False
    return bool(kinds & (_MUTE | {ReasonKind.SEND_RATE}))


def _is_missed_without_samples(trial: Trial, kinds: set[ReasonKind], objectives: Sequence[Objective]) -> bool:
    """Whether a trial with too few samples for a percentile misses an objective that needs none."""
    result = trial.result
    if result is None or kinds != {ReasonKind.WINDOW_SHORT} or result.figures.window_seconds <= 0:
        return False
    for objective in objectives:
        if isinstance(objective.figure, PlainFigure) and objective.figure is not PlainFigure.ERROR_SHARE:
            seen: float | None = getattr(result.figures, objective.figure.value)
            if seen is not None and not meets(objective, seen):
                return True
    return False
