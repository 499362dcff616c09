"""Recomputes what can be recomputed from a bundle and reports where its files disagree.

A disagreement is a fault of the tools or of the files, not of the service; the report shows it at the top. An invalid
trial or a failed objective is not a disagreement. `checks_counts` recomputes the counters, `checks_validity` the rules
of a valid trial, `checks_search` the results of searches, `checks_comparison` those of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench_format import histogram
from bench_format.histogram import Values
from bench_format.meaning import is_valid, meets
from bench_format.schemas import (
    ErrorBudget,
    FigurePercentileMs,
    FigureReconnectedMs,
    Objective,
    Reading,
    Run,
    RunState,
    Shown,
    TrialResult,
    TrialStateCrashed,
    TrialStateFailed,
    TrialStateFinished,
    WindowCounts,
    Witness,
)
from bench_format.wire import FormatError

from . import checks_comparison, checks_counts, checks_search, checks_validity, turnover, wording
from .claims import Claims, close, value_text
from .error_budget import Errors, budget_of
from .ladders import objectives, planned_window
from .load import Bundle, Trial
from .turnover import reconnected_ms

# Relative tolerance for rates: they are computed in another order than the operator's.
RATE_TOLERANCE = 1e-3
# A load that ends before this share of the planned window ended by itself; rates then use its own window.
ENDED_EARLY = 0.95
# Relative tolerance for figures that are copied or divided once: they may differ in the last digits only.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Check:
    """The outcome of one comparison."""

    where: str
    holds: bool
    # The values of both sides, printed when they disagree.
    description: str


@dataclass(frozen=True)
class Checked:
    """The number of comparisons made, and those that failed."""

    compared: int
    disagreements: tuple[Check, ...]


def check(bundle: Bundle) -> Checked:
    """Makes all comparisons of a bundle: those of the run, then those of each trial."""
    made = [*_run(bundle), *(one for trial in bundle.trials for one in _trial(bundle.run, trial))]
    return Checked(len(made), tuple(one for one in made if not one.holds))


def _run(bundle: Bundle) -> Iterator[Check]:
    for stray in bundle.strays:
        yield Check(f"trials/{stray}", False, "it has a result but run.json doesn't list it")
    open_ends = [trial for trial in bundle.trials if not isinstance(trial.entry.state, TrialStateFinished)]
    if bundle.run.state is RunState.FINISHED:
        without_result = TrialStateFailed | TrialStateCrashed
        pending = [trial.name for trial in open_ends if not isinstance(trial.entry.state, without_result)]
        yield Check("run.json", not pending, f"it is finished but these trials are not: {', '.join(pending)}")
    for search in bundle.run.searches:
        where = f"search of {search.service}/{search.workload}/{search.variant}"
        for description, holds in checks_search.of_search(bundle, search):
            yield Check(where, holds, description)
    if bundle.run.comparison is not None:
        for description, holds in checks_comparison.of_comparison(bundle, bundle.run.comparison):
            yield Check("comparison", holds, description)


def _trial(run: Run, trial: Trial) -> Iterator[Check]:
    where = trial.name
    finished = isinstance(trial.entry.state, TrialStateFinished)
    yield Check(where, finished == (trial.result is not None), "run.json and result.json disagree on whether it ended")
    if trial.result is None:
        return
    planned_objectives = objectives(run.plan, trial.id.workload, trial.id.variant)
    for description, holds in [
        *_entry(run, trial, trial.result),
        *_histograms(trial),
        *_percentiles(trial, trial.result),
        *checks_counts.of_trial(trial, trial.result),
        *_verdict(trial, trial.result, planned_objectives),
        *_rates(trial, trial.result, planned_window(run.plan, trial)),
        *_sessions(trial, trial.result, planned_window(run.plan, trial), planned_objectives),
        *turnover.of_trial(trial, trial.result),
        *checks_counts.of_readings(trial.result),
        *checks_validity.of_trial(trial, trial.result, run.plan.validity, planned_objectives),
    ]:
        yield Check(where, holds, description)


def _entry(run: Run, trial: Trial, result: TrialResult) -> Claims:
    yield f"result.json is of run {result.run}", result.run == run.id
    state = trial.entry.state
    if isinstance(state, TrialStateFinished):
        yield "run.json and result.json disagree on validity", state.validity == result.validity
        passed = None if result.verdict is None else result.verdict.passed
        yield "run.json and result.json disagree on the verdict", state.passed == passed
    if is_valid(result.validity):
        files, claimed = len(trial.workers), len(result.workers)
        yield f"{claimed} workers are named but {files} left a file", files == claimed
    for worker in trial.workers:
        same = (worker.run, worker.trial, worker.attempt) == (result.run, result.trial, result.attempt)
        yield f"workers/{worker.worker}.json is of another run, trial or attempt", same
        yield (
            f"the witness is {result.witness} but worker {worker.worker} says {worker.witness}",
            not is_valid(result.validity) or worker.witness == result.witness or result.witness is Witness.NONE,
        )


def _histograms(trial: Trial) -> Claims:
    if not trial.workers:
        return
    for name, merged in trial.histograms.items():
        try:
            parts = [
                histogram.decode(worker.histograms[name], f"workers/{worker.worker}.json: histograms.{name}")
                for worker in trial.workers
                if name in worker.histograms
            ]
        except FormatError as error:
            yield str(error), False
            continue
        added = histogram.merge(parts)
        yield (
            f"{name}: the merged histogram holds {merged.total} values, the workers' together {added.total}",
            merged.total == added.total,
        )
        yield f"{name}: the merged histogram isn't the sum of the workers'", dict(merged.counts) == dict(added.counts)


def _percentiles(trial: Trial, result: TrialResult) -> Claims:
    for name, claimed in result.percentiles.items():
        values = trial.histograms.get(name)
        if values is None:
            yield f"{name} has percentiles but no histogram", not any(value is not None for value in claimed.values())
            continue
        for label, value in claimed.items():
            at = _percentile_of(label)
            if at is None:
                continue
            recomputed = histogram.percentile_ns(values, at)
            figure = f"{label} of {wording.histogram(name)}"
            description = f"{figure} is {value_text(value)} but the histogram says {value_text(recomputed)}"
            yield description, histogram.agrees(value, values, at)


def _percentile_of(label: str) -> float | None:
    if label == "max":
        return 100.0
    try:
        return float(label.removeprefix("p")) if label.startswith("p") else None
    except ValueError:
        return None


def _verdict(trial: Trial, result: TrialResult, planned: tuple[Objective, ...]) -> Claims:
    if not is_valid(result.validity):
        yield "it is invalid and yet has a verdict", result.verdict is None
        return
    yield "it has objectives but no verdict", not planned or result.verdict is not None
    if result.verdict is None:
        return
    judged = result.verdict.objectives
    yield "its verdict is on other objectives than the plan's", [one.objective for one in judged] == list(planned)
    yield "its verdict contradicts its objectives", result.verdict.passed == all(one.passed for one in judged)
    for one in judged:
        description = wording.objective(one.objective)
        if one.budget is None:
            holds = meets(one.objective, one.seen)
        else:
            holds = one.budget.shown is not Shown.MISSED
            yield from _budget(description, one.objective, one.budget)
        yield f"{description}: seen {one.seen}, called {_passed(one.passed)}", one.passed == holds
        compared = one.objective.figure
        if isinstance(compared, FigurePercentileMs):
            percentile = compared.percentile_ms
            values = trial.histograms.get(f"{percentile.histogram}_ns", Values())
            claimed = None if one.seen is None else round(one.seen * 1e6)
            recomputed = value_text(histogram.percentile_ns(values, percentile.percentile))
            description = f"{description}: seen {one.seen} ms but the histogram says {recomputed}"
            yield description, histogram.agrees(claimed, values, percentile.percentile)
        elif isinstance(compared, FigureReconnectedMs):
            value = reconnected_ms(trial, compared.reconnected_ms.percent)
            description = f"{description}: seen {one.seen} ms but the histogram says {value}"
            yield description, close(one.seen, value, RATE_TOLERANCE)
        else:
            figure = getattr(result.figures, compared)
            yield f"{description}: seen {one.seen} but the figure is {figure}", close(one.seen, figure, ROUNDING)


def _budget(description: str, objective: Objective, claimed: ErrorBudget) -> Claims:
    """Recomputes what the errors of a trial show about its budget."""
    errors, budget = Errors.of([claimed]), budget_of(objective)
    if budget is None:
        yield f"{description}: a budget that no counts can show", False
        return
    bound, shown = errors.upper_bound, errors.shown(budget)
    yield (
        f"{description}: at most {claimed.upper_bound:g} is claimed, recomputed {bound:g}",
        close(claimed.upper_bound, bound, ROUNDING),
    )
    yield f"{description}: {claimed.shown} is claimed, recomputed {shown}", claimed.shown is shown


def _passed(passed: bool) -> str:
    return "passed" if passed else "failed"


def _rates(trial: Trial, result: TrialResult, planned: float) -> Claims:
    figures = result.figures
    if not trial.workers or figures.window_seconds <= 0:
        return
    windows = [worker.window for worker in trial.workers]
    recomputed = {
        "window_seconds": max(window.duration_ns for window in windows) / 1e9,
        "worker_cpu_seconds": sum(window.cpu_ns for window in windows) / 1e9,
        "written_per_second": sum(window.sent for window in windows) / figures.window_seconds,
    }
    if result.witness in (Witness.REPLY, Witness.RECEIVER):
        recomputed["delivered_per_second"] = _answered(windows) / figures.window_seconds
    if figures.accepted_per_second is not None:
        opened = result.connections.open if result.turnover is None else result.turnover.ready
        recomputed["accepted_per_second"] = opened / figures.window_seconds
    start, end = result.service.window_start, result.service.window_end
    if start is not None and end is not None and end.unix_ns > start.unix_ns:
        recomputed |= _service_rates(result, start, end, planned)
    for name, value in recomputed.items():
        claimed = getattr(figures, name)
        if claimed is not None:
            yield f"{name} is {claimed:g} but the counters say {value:g}", close(claimed, value, RATE_TOLERANCE)


def _sessions(trial: Trial, result: TrialResult, planned: float, objectives: tuple[Objective, ...]) -> Claims:
    """Recomputes what sessions lack: answers for their seconds, and frames answered in time."""
    answers = result.figures.answers_per_session_second
    if answers is not None and trial.workers:
        replies = sum(worker.window.replies for worker in trial.workers)
        value = replies / (trial.id.tier * planned)
        yield f"answers_per_session_second is {answers:g} but counted {value:g}", close(answers, value, RATE_TOLERANCE)
    claimed, ages = result.figures.late_share, trial.histograms.get("frame_ns")
    if claimed is None or ages is None:
        return
    bounds = [
        one.at_most
        for one in objectives
        if isinstance(one.figure, FigurePercentileMs) and one.figure.percentile_ms.histogram == "oldest"
    ]
    allowed_ns = max((bound for bound in bounds if bound is not None), default=0.0) * 1e6
    late = ages.overflow + sum(count for value, count in ages.counts.items() if value > allowed_ns)
    # A histogram knows a value within a thousandth, so values at the bound itself may count on either side.
    near = sum(count for value, count in ages.counts.items() if abs(value - allowed_ns) <= RATE_TOLERANCE * allowed_ns)
    yield (
        f"late_share is {claimed:g} but the histogram says {late / ages.total:g}",
        abs(claimed * ages.total - late) <= near + ROUNDING,
    )


def _answered(windows: list[WindowCounts]) -> int:
    """Messages that were answered; a worker that doesn't report the number got one reply for each message."""
    return sum(window.answered or window.replies for window in windows)


def _service_rates(result: TrialResult, start: Reading, end: Reading, planned: float) -> dict[str, float]:
    """Rates from the service's counters at the window's edges; a load that ended early uses its own window."""
    between = (end.unix_ns - start.unix_ns) / 1e9
    window = result.figures.window_seconds
    seconds = window if window < planned * ENDED_EARLY else between
    recomputed = {"received_per_second": (end.stats.messages.received - start.stats.messages.received) / seconds}
    if start.cpu_ns is not None and end.cpu_ns is not None:
        both = [name for name in start.companions if name in end.companions]
        of_companions = sum(end.companions[name].cpu_ns - start.companions[name].cpu_ns for name in both)
        recomputed["service_cpu_seconds"] = (end.cpu_ns - start.cpu_ns + of_companions) / 1e9
    before, after = start.stats.application, end.stats.application
    if result.witness is Witness.APPLICATION and after is not None:
        recomputed["delivered_per_second"] = (after.delivered - (before.delivered if before else 0)) / seconds
    return recomputed
