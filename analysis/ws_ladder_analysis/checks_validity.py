"""Judges again, from the files, the rules that a valid trial must meet."""

from __future__ import annotations

import math

from bench_format import histogram
from bench_format.meaning import is_scheduled, is_valid
from bench_format.schemas import BoundBy, FigurePercentileMs, LoadOpen, LoadSessions, Objective, Thresholds, TrialResult

from .claims import Claims
from .load import Trial


def of_trial(trial: Trial, result: TrialResult, limits: Thresholds, objectives: tuple[Objective, ...]) -> Claims:
    """What bound the load, the lateness of the generator and the share of the schedule that it sent."""
    if not is_valid(result.validity):
        return
    if isinstance(result.load, LoadOpen):
        yield "it is an open loop and yet says what bound it", result.bound_by is None
    else:
        bound = _bound(result, limits)
        yield f"it is called bound by {result.bound_by} but the CPU shares say {bound}", result.bound_by == bound
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


def _strictest_ms(objectives: tuple[Objective, ...]) -> float:
    """The smallest time that an objective allows, in milliseconds; 0 without one."""
    times = [
        one.at_most for one in objectives if isinstance(one.figure, FigurePercentileMs) and one.at_most is not None
    ]
    return min(times, default=0.0)


def _bound(result: TrialResult, limits: Thresholds) -> BoundBy | None:
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
