"""Judges again, from the files, the rules that a valid trial must meet."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bench_format import histogram
from bench_format.meaning import is_scheduled, is_valid
from bench_format.schemas import (
    BoundBy,
    BoundMeasure,
    BoundSide,
    FigurePercentileMs,
    LoadOpen,
    LoadSessions,
    Objective,
    Thresholds,
    TrialResult,
)

from .claims import Claims
from .load import Trial

# Share of late results of inference from which it counts as the bound.
_LATE_SHARE = 0.05


def of_trial(trial: Trial, result: TrialResult, limits: Thresholds, objectives: tuple[Objective, ...]) -> Claims:
    """What bound the load, the lateness of the generator and the share of the schedule that it sent."""
    if not is_valid(result.validity):
        return
    bound = _bound(result, limits)
    yield f"it is called bound by {result.bound_by} but what was looked at says {bound}", result.bound_by == bound
    yield from _bound_checks(result, limits)
    if not is_scheduled(result.load):
        return
    # If the generator reports when it tried to send, that counts: what a blocked socket adds is due to the service.
    tried = trial.histograms.get("lateness_ns")
    delay = tried or trial.histograms.get("delay_ns")
    late = None if delay is None else histogram.percentile_ns(delay, 99)
    if late is not None:
        allowed = max(limits.delay_p99_ms, 0.05 * _strictest_ms(objectives))
        description = f"it is called valid although p99 of its lateness is {late / 1e6:g} ms, allowed {allowed:g} ms"
        yield description, late / 1e6 <= allowed * (1 + 1e-3)
    window_due = sum(worker.window.due for worker in trial.workers)
    if window_due:
        offered = sum(worker.window.sent for worker in trial.workers) if tried is None else tried.total
        # The messages that each load thread was sending when the window ended were due before its end, sent after it.
        in_hand = sum(math.ceil(worker.evidence.cpu_limit) for worker in trial.workers) * result.message.coalesce
        description = f"it is called valid although {offered / window_due:.2%} of the schedule was sent"
        yield description, offered >= window_due * limits.send_share - in_hand


def _bound_checks(result: TrialResult, limits: Thresholds) -> Claims:
    """The shares that were looked at are those of the figures, with the plan's limits."""
    cpu_shares = {
        BoundSide.SERVICE: result.figures.service_cpu_share,
        BoundSide.GENERATOR: result.figures.worker_cpu_share,
        BoundSide.INFERENCE: result.figures.inference_cpu_share,
    }
    fixed = {
        BoundMeasure.CPU: limits.bound_share,
        BoundMeasure.THREAD: limits.bound_share,
        BoundMeasure.QUOTA: 1 - limits.bound_share,
        BoundMeasure.WAITING: 1 - limits.bound_share,
        BoundMeasure.LATE: _LATE_SHARE,
    }
    for check in result.bound_checks or ():
        description = f"its limit for {check.measure} of the {check.side} is {check.limit}"
        yield description, math.isclose(check.limit, fixed[check.measure], abs_tol=1e-6)
        if check.measure is BoundMeasure.CPU:
            used = cpu_shares[check.side]
            description = f"the CPU of the {check.side} is {used} in its figures and {check.share} where it is judged"
            yield description, used is not None and math.isclose(check.share, used, abs_tol=1e-6)


def _strictest_ms(objectives: tuple[Objective, ...]) -> float:
    """The smallest time that an objective allows, in milliseconds; 0 without one."""
    times = [
        one.at_most for one in objectives if isinstance(one.figure, FigurePercentileMs) and one.at_most is not None
    ]
    return min(times, default=0.0)


def _bound(result: TrialResult, limits: Thresholds) -> BoundBy | None:
    """What limited the load; `None` when it can't be known, or when the schedule did."""
    if result.bound_checks is None:
        # From before anything but CPU was looked at.
        return None if isinstance(result.load, LoadOpen) else _bound_by_cpu(result, limits)
    reached = {(check.side, check.measure): check.share >= check.limit for check in result.bound_checks}
    used_up = {side for side in BoundSide if _used_up(side, reached)}
    service, generator = BoundSide.SERVICE in used_up, BoundSide.GENERATOR in used_up
    known = {side for side, measure in reached if measure is BoundMeasure.CPU}
    if BoundSide.INFERENCE in used_up:
        return BoundBy.INFERENCE
    if generator:
        return BoundBy.BOTH if service else BoundBy.GENERATOR
    if service and BoundSide.GENERATOR in known:
        return BoundBy.SERVICE
    if not {BoundSide.SERVICE, BoundSide.GENERATOR} <= known:
        return None
    if any(_waited(side, reached) for side in BoundSide if side not in used_up):
        return BoundBy.MACHINE
    failed = result.verdict is not None and not result.verdict.passed
    return BoundBy.NEITHER if failed or not is_scheduled(result.load) else None


def _used_up(side: BoundSide, reached: Mapping[tuple[BoundSide, BoundMeasure], bool]) -> bool:
    """Whether a side used up its CPU, its quota or a thread, or was late."""
    alone = (BoundMeasure.CPU, BoundMeasure.QUOTA, BoundMeasure.LATE)
    if any(reached.get((side, measure), False) for measure in alone):
        return True
    return reached.get((side, BoundMeasure.THREAD), False) and not reached.get((side, BoundMeasure.WAITING), False)


def _waited(side: BoundSide, reached: Mapping[tuple[BoundSide, BoundMeasure], bool]) -> bool:
    """Whether a thread of a side had work all the time, and waited for a CPU for a good part of it."""
    return all(reached.get((side, measure), False) for measure in (BoundMeasure.THREAD, BoundMeasure.WAITING))


def _bound_by_cpu(result: TrialResult, limits: Thresholds) -> BoundBy | None:
    """What limited a closed loop or sessions, by the CPU shares; `None` when it can't be known.

    Sessions that meet their objectives are limited by their own pace, unless a CPU was used up.
    """
    inference = result.figures.inference_cpu_share
    if inference is not None and inference >= limits.bound_share:
        return BoundBy.INFERENCE
    service, worker = result.figures.service_cpu_share, result.figures.worker_cpu_share
    if worker is None:
        return None
    if service is None:
        # When the generator has used up its CPU, its rate is a lower bound even if the service's share is unknown.
        return BoundBy.GENERATOR if worker >= limits.bound_share else None
    sides = {
        (True, True): BoundBy.BOTH,
        (True, False): BoundBy.SERVICE,
        (False, True): BoundBy.GENERATOR,
        (False, False): BoundBy.NEITHER,
    }
    bound = sides[service >= limits.bound_share, worker >= limits.bound_share]
    failed = result.verdict is not None and not result.verdict.passed
    carried = isinstance(result.load, LoadSessions) and bound is BoundBy.NEITHER and not failed
    return None if carried else bound
