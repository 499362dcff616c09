"""One value for each second of a trial's window: what its load measures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bench_format.histogram import HIGHEST_NS, Values, decode, merge
from bench_format.meaning import is_scheduled
from bench_format.schemas import Interval, LoadSessions, WorkerResult

from .. import wording
from ..load import Trial

_NS = 1_000_000_000
# A window may end this much early, in seconds, and still have its last second.
_TOLERANCE = 0.02


@dataclass(frozen=True)
class Figure:
    """What the values are, and how one is printed."""

    name: str
    shown: Callable[[float], str]


RATE = Figure("messages per second", wording.rate)
RESPONSE, NEWEST = (Figure(f"p50 of {name} in each second", wording.duration) for name in ("response", "newest"))


@dataclass(frozen=True)
class Seconds:
    """A figure in each second of a window, from its start. All values are positive."""

    figure: Figure
    values: tuple[float, ...]


def length(trial: Trial) -> int:
    """Number of whole seconds of the trial's window; 0 if no worker left a result."""
    shortest = min((worker.window.duration_ns for worker in trial.workers), default=0)
    return int(shortest / _NS + _TOLERANCE)


def seconds(trial: Trial) -> Seconds | None:
    """The values of a trial that has a result; `None` if its workers recorded nothing by the second."""
    if trial.result is None:
        return None
    load, number = trial.result.load, length(trial)
    if not is_scheduled(load):
        return _of(RATE, _rates(trial.workers, number))
    figure, name = (NEWEST, "newest_ns") if isinstance(load, LoadSessions) else (RESPONSE, "response_ns")
    return _of(figure, _medians(trial.workers, name, number))


def _of(figure: Figure, values: Sequence[float] | None) -> Seconds | None:
    return None if values is None else Seconds(figure, tuple(values))


def _medians(workers: Sequence[WorkerResult], name: str, number: int) -> list[float] | None:
    """The median of each second over all workers. A second without an answer has that of the next one that has any:
    what was due in it is answered later."""
    parts: list[list[Values]] = [[] for _ in range(number)]
    for second, interval in _intervals(workers, number):
        if name in interval.histograms:
            parts[second].append(decode(interval.histograms[name], f"intervals[{second}].{name}"))
    medians = [_median(merge(part)) for part in parts]
    if not any(medians):
        return None
    last = next(median for median in reversed(medians) if median)
    filled = accumulate(reversed(medians), lambda later, median: median or later, initial=last)
    return [float(median or last) for median in list(filled)[:0:-1]]


def _median(values: Values) -> int | None:
    """The median, however few samples there are: the rule looks at many seconds, and their noise is part of it."""
    if not values.total:
        return None
    ranks = zip(accumulate(values.counts.values()), values.counts, strict=True)
    return next((value for rank, value in ranks if 2 * rank >= values.total), HIGHEST_NS)


def _rates(workers: Sequence[WorkerResult], number: int) -> list[float] | None:
    """The answers (or published messages) of each second, or what the sockets took if there are none. A second without
    any counts as one message, because the rule takes logarithms."""
    found = list(_intervals(workers, number))
    for name in ("response_ns", "age_ns"):
        counts = [0] * number
        for second, interval in found:
            counts[second] += interval.histograms[name].count if name in interval.histograms else 0
        if any(counts):
            return [float(max(count, 1)) for count in counts]
    sent = [0] * number
    for second, interval in found:
        sent[second] += interval.sent
    return [float(max(count, 1)) for count in sent] if any(sent) else None


def _intervals(workers: Sequence[WorkerResult], number: int) -> list[tuple[int, Interval]]:
    """The workers' intervals of the first `number` seconds, with their second."""
    all_of_them = [(round(interval.start_ns / _NS), interval) for worker in workers for interval in worker.intervals]
    return [(second, interval) for second, interval in all_of_them if second < number]
