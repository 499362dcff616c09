"""Recomputes what can be recomputed from a bundle and reports where its files disagree.

A disagreement is a fault of the tools or of the files, not of the service; the report shows it at the top. An invalid
trial or a failed objective is not a disagreement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from bench_format import histogram
from bench_format.histogram import Values
from bench_format.meaning import balance, is_scheduled, is_valid, meets, summed
from bench_format.schemas import (
    BoundBy,
    ConnectionBook,
    FigurePercentileMs,
    LoadOpen,
    LoadSessions,
    Objective,
    Reading,
    ReceiverBook,
    Run,
    RunState,
    Thresholds,
    TrialResult,
    TrialStateFailed,
    TrialStateFinished,
    WindowCounts,
    Witness,
    WorkerBook,
)
from bench_format.wire import FormatError

from . import wording
from .ladders import objectives, planned_window
from .load import Bundle, Trial

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
        pending = [trial.name for trial in open_ends if not isinstance(trial.entry.state, TrialStateFailed)]
        yield Check("run.json", not pending, f"it is finished but these trials are not: {', '.join(pending)}")


def _trial(run: Run, trial: Trial) -> Iterator[Check]:
    where = trial.name
    finished = isinstance(trial.entry.state, TrialStateFinished)
    yield Check(where, finished == (trial.result is not None), "run.json and result.json disagree on whether it ended")
    if trial.result is None:
        return
    judges = objectives(run.plan, trial.id.workload, trial.id.variant)
    for description, holds in [
        *_entry(run, trial, trial.result),
        *_histograms(trial),
        *_percentiles(trial, trial.result),
        *_books(trial.result),
        *_connection_books(trial, trial.result),
        *_outcomes(trial.result),
        *_sums(trial, trial.result),
        *_verdict(trial, trial.result, judges),
        *_rates(trial, trial.result, planned_window(run.plan, trial)),
        *_readings(trial.result),
        *_validity(trial, trial.result, run.plan.validity, judges),
    ]:
        yield Check(where, holds, description)


# Each check yields pairs: the text of the disagreement, and whether the check holds.
Claims = Iterator[tuple[str, bool]]


def _entry(run: Run, trial: Trial, result: TrialResult) -> Claims:
    yield f"result.json is of run {result.run}", result.run == run.id
    state = trial.entry.state
    if isinstance(state, TrialStateFinished):
        yield "run.json and result.json disagree on validity", state.validity == result.validity
        passed = None if result.verdict is None else result.verdict.passed
        yield "run.json and result.json disagree on the verdict", state.passed == passed
    if is_valid(result.validity):
        found, claimed = len(trial.workers), len(result.workers)
        yield f"{claimed} workers are named but {found} left a file", found == claimed
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
            description = f"{figure} is {_value_text(value)} but the histogram says {_value_text(recomputed)}"
            yield description, histogram.agrees(value, values, at)


def _percentile_of(label: str) -> float | None:
    if label == "max":
        return 100.0
    try:
        return float(label.removeprefix("p")) if label.startswith("p") else None
    except ValueError:
        return None


def _value_text(value_ns: int | None) -> str:
    return wording.NOT_AVAILABLE if value_ns is None else f"{value_ns} ns"


def _books(result: TrialResult) -> Claims:
    for equation in result.books.equations:
        yield (
            f"the terms of {equation.name!r} add up to {summed(equation)}, not {equation.right}",
            equation.right == summed(equation),
        )
    yield "it is called valid although its books don't balance", balance(result.books) or not is_valid(result.validity)


def _connection_books(trial: Trial, result: TrialResult) -> Claims:
    """Compares the books of workers and service again, connection by connection."""
    if trial.service is not None:
        yield "service.json and result.json have other readings", trial.service.readings == result.service
    claimed = result.books.connections
    if claimed is None or trial.service is None or trial.service.connections is None:
        return
    sent = [book for worker in trial.workers for book in worker.books]
    known = {book.id: book for book in trial.service.connections}
    wrong = sum(not _agree(book, known.pop(book.id, None)) for book in sent)
    others = frozenset() if trial.file is None else frozenset(trial.file.others)
    wrong += sum(book.received > 0 and book.id not in others for book in known.values())
    difference = f"{claimed.mismatched} of {claimed.compared} connections are said to differ"
    description = f"{difference}, counted again {wrong} of {len(sent)}"
    yield description, (claimed.compared, claimed.mismatched) == (len(sent), wrong)


def _agree(worker: WorkerBook, service: ConnectionBook | None) -> bool:
    """Whether a connection's messages are accounted for; the application doesn't see numbers of dropped messages."""
    if service is None:
        return False
    receiver = worker.receiver
    if receiver is not None and not _received(receiver, service.sent):
        return False
    sent, application = worker.sent + worker.unnumbered, service.application
    if sent != service.received or application is None:
        return sent == service.received
    accounted = application.delivered + service.dropped + service.consumed
    numbers = service.dropped > 0 or application.sequence_sum == worker.sequence_sum
    return sent == accounted and numbers


def _received(receiver: ReceiverBook, sent: int | None) -> bool:
    """Whether the messages a receiver counted are complete from first to last and equal the number sent to it."""
    first, last = receiver.first, receiver.last
    expected = 0 if first is None or last is None else last - first + 1
    messages = receiver.received + receiver.duplicated + receiver.wrong + receiver.others
    claimed = sent is None or not receiver.closed or messages == sent
    return expected == receiver.received + receiver.missing and claimed


def _outcomes(result: TrialResult) -> Claims:
    messages, connections = result.messages, result.connections
    ended = messages.delivered + messages.late + messages.wrong + messages.lost + messages.unsent
    ended += sum(messages.dropped.values())
    if is_valid(result.validity) and result.witness is not Witness.NONE:
        yield f"{messages.due} messages were due but {ended} have an outcome", messages.due == ended
    if result.witness is Witness.RECEIVER:
        yield f"{messages.sent} were sent by connections that only receive", messages.sent == 0
    else:
        yield (
            f"{messages.sent} were sent, {messages.unsent} unsent and {messages.due} due",
            messages.sent + messages.unsent == messages.due,
        )
    tried = connections.open + sum(connections.failed.values())
    yield (
        f"{connections.attempted} connections were attempted but {tried} have an outcome",
        connections.attempted == tried,
    )


def _sums(trial: Trial, result: TrialResult) -> Claims:
    if not trial.workers:
        return
    # Messages that the service dropped after a receiver's last one were due as well; only the service counts them.
    received = result.witness is Witness.RECEIVER
    counted = "delivered" if received else "due"
    pairs: list[tuple[str, int, list[int]]] = [
        (
            f"messages {counted}",
            getattr(result.messages, counted),
            [getattr(worker.messages, counted) for worker in trial.workers],
        ),
        ("messages sent", result.messages.sent, [worker.messages.sent for worker in trial.workers]),
        ("connections attempted", result.connections.attempted, [w.connections.attempted for w in trial.workers]),
        ("connections open", result.connections.open, [worker.connections.open for worker in trial.workers]),
    ]
    for name, whole, parts in pairs:
        yield f"{name}: {whole} in the result, {sum(parts)} over the workers", whole == sum(parts)


def _verdict(trial: Trial, result: TrialResult, judges: tuple[Objective, ...]) -> Claims:
    if not is_valid(result.validity):
        yield "it is invalid and yet has a verdict", result.verdict is None
        return
    yield "it has objectives but no verdict", not judges or result.verdict is not None
    if result.verdict is None:
        return
    judged = result.verdict.objectives
    yield "its verdict is on other objectives than the plan's", [one.objective for one in judged] == list(judges)
    yield "its verdict contradicts its objectives", result.verdict.passed == all(one.passed for one in judged)
    for one in judged:
        description = wording.objective(one.objective)
        yield (
            f"{description}: seen {one.seen}, called {_passed(one.passed)}",
            one.passed == meets(one.objective, one.seen),
        )
        what = one.objective.figure
        if isinstance(what, FigurePercentileMs):
            named = what.percentile_ms
            values = trial.histograms.get(f"{named.histogram}_ns", Values())
            claimed = None if one.seen is None else round(one.seen * 1e6)
            recomputed = _value_text(histogram.percentile_ns(values, named.percentile))
            description = f"{description}: seen {one.seen} ms but the histogram says {recomputed}"
            yield description, histogram.agrees(claimed, values, named.percentile)
        else:
            figure = getattr(result.figures, what)
            yield f"{description}: seen {one.seen} but the figure is {figure}", _close(one.seen, figure, ROUNDING)


def _passed(passed: bool) -> str:
    return "passed" if passed else "failed"


def _close(claimed: float | None, recomputed: float | None, tolerance: float) -> bool:
    if claimed is None or recomputed is None:
        return claimed is None and recomputed is None
    return abs(claimed - recomputed) <= tolerance * max(abs(claimed), abs(recomputed), 1e-9)


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
        recomputed["accepted_per_second"] = result.connections.open / figures.window_seconds
    start, end = result.service.window_start, result.service.window_end
    if start is not None and end is not None and end.unix_ns > start.unix_ns:
        recomputed |= _service_rates(result, start, end, planned)
    for name, found in recomputed.items():
        claimed = getattr(figures, name)
        if claimed is not None:
            yield f"{name} is {claimed:g} but the counters say {found:g}", _close(claimed, found, RATE_TOLERANCE)


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


def _readings(result: TrialResult) -> Claims:
    readings = result.service
    named = {
        "before": readings.before,
        "at the window's start": readings.window_start,
        "at the window's end": readings.window_end,
        "after": readings.after,
    }
    for name, reading in named.items():
        if reading is None:
            continue
        # A service without books per connection may not count what it receives.
        if result.books.connections is None:
            continue
        messages = reading.stats.messages
        placed = messages.consumed + messages.delivered + sum(messages.dropped.values()) + messages.queued
        if is_valid(result.validity):
            yield f"{name}, the service received {messages.received} but placed {placed}", messages.received == placed
    pids = {_processes(reading) for reading in named.values() if reading is not None}
    if is_valid(result.validity):
        yield "it is called valid although the service's process changed", len(pids) <= 1


def _processes(reading: Reading) -> tuple[object, ...]:
    """The process ids of the service and its companions; they must not change during a trial."""
    return (reading.pid, *sorted((name, process.pid) for name, process in reading.companions.items()))


def _validity(trial: Trial, result: TrialResult, limits: Thresholds, judges: tuple[Objective, ...]) -> Claims:
    """Judges the rules that a valid trial must meet again, from the files."""
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
        allowed = max(limits.delay_p99_ms, 0.05 * _strictest_ms(judges))
        description = f"it is called valid although p99 of its lateness is {late / 1e6:g} ms, allowed {allowed:g} ms"
        yield description, late / 1e6 <= allowed * (1 + 1e-3)
    window_due = sum(worker.window.due for worker in trial.workers)
    if window_due:
        offered = sum(worker.window.sent for worker in trial.workers) if tried is None else tried.total
        # The messages that each load thread was sending when the window ended were due before its end, sent after it.
        in_hand = sum(math.ceil(worker.evidence.cpu_limit) for worker in trial.workers) * result.message.coalesce
        description = f"it is called valid although {offered / window_due:.2%} of the schedule was sent"
        yield description, offered >= window_due * limits.send_share - in_hand


def _strictest_ms(judges: tuple[Objective, ...]) -> float:
    """The smallest time that an objective allows, in milliseconds; 0 without one."""
    times = [one.at_most for one in judges if isinstance(one.figure, FigurePercentileMs) and one.at_most is not None]
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
