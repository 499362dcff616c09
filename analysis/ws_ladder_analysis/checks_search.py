"""Recomputes the results of searches from their trials."""

from __future__ import annotations

from math import sqrt

from bench_format.schemas import CapacityEstimate, LoadTest, Search, SearchFound

from .capacity import STEP, estimate, replay
from .claims import Claims, close
from .ladders import objectives
from .load import Bundle, Trial

# Relative tolerance of a mean: both programs sum in another order.
_MEAN = 1e-6
# The ends of an interval are places of the grid: where a sum is on the border of two, the programs may differ by one.
_ENDS = 1.5 * STEP


def of_search(bundle: Bundle, search: Search) -> Claims:
    """The start, the estimate, the tests and what follows from them; nothing for a search of schema 2."""
    found = search.found
    if found is None or found.capacity is None:
        return
    capacity = found.capacity
    of_it = [trial for trial in bundle.trials if trial.entry.search and _is_of(trial, search)]
    plan = bundle.run.plan
    judged_by = objectives(plan, search.workload, search.variant)
    made = replay(of_it, judged_by, plan.validity.bound_share, complete=found.given_up_at is None)
    start = _start(found)
    if start is not None and made.rounds:
        yield f"it began at {capacity.start:g}, but its bounds say {start:g}", close(capacity.start, start, _MEAN)
    recomputed = estimate(capacity.start, made.evidence) if made.rounds else None
    description = f"its capacity is {_text(capacity.estimate)}, but its trials say {_text(recomputed)}"
    yield description, _agree(capacity.estimate, recomputed)
    if found.given_up_at is None:
        yield from _tests("confirm", capacity.confirm, made.confirm)
        yield from _tests("fail", capacity.fail, made.fail)
    yield "its confirmed load is not the one that a test confirmed", found.confirmed == _succeeded(capacity.confirm)
    yield "its solid fail is not the load of a test", found.first_solid_fail == _succeeded(capacity.fail)


def _is_of(trial: Trial, search: Search) -> bool:
    return (trial.id.service, trial.id.workload, trial.id.variant) == (search.service, search.workload, search.variant)


def _start(found: SearchFound) -> float | None:
    """The geometric mean of the bounds; `None` where one is missing."""
    lower = [goal.lower for goal in found.goals if goal.lower is not None]
    upper = [goal.upper for goal in found.goals if goal.upper is not None]
    return sqrt(min(lower) * min(upper)) if len(lower) == len(found.goals) and lower and upper else None


def _tests(name: str, claimed: LoadTest | None, recounted: LoadTest | None) -> Claims:
    yield f"its last test to {name} is {claimed}, but its trials say {recounted}", claimed == recounted


def _succeeded(test: LoadTest | None) -> int | None:
    return test.load if test is not None and test.succeeded else None


def _agree(claimed: CapacityEstimate | None, recomputed: CapacityEstimate | None) -> bool:
    if claimed is None or recomputed is None:
        return claimed is recomputed
    means = close(claimed.load, recomputed.load, _MEAN) and close(claimed.spread, recomputed.spread, _MEAN)
    ends = close(claimed.low, recomputed.low, _ENDS) and close(claimed.high, recomputed.high, _ENDS)
    return means and ends and claimed.trials == recomputed.trials


def _text(one: CapacityEstimate | None) -> str:
    if one is None:
        return "none"
    return f"{one.load:g} [{one.low:g}, {one.high:g}], spread {one.spread:.3%}, {one.trials} trials"
