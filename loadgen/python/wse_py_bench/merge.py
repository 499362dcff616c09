"""Workers' results, added up: counts are sums, histograms are merged, nothing is averaged. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from bench_format.schemas import ConnectionCounts, Histogram, MessageCounts, WindowCounts, WorkerBook, WorkerResult

from .recorder import add_up

T = TypeVar("T", ConnectionCounts, MessageCounts, WindowCounts)


@dataclass(frozen=True)
class Merged:
    """What all workers of a trial saw together."""

    connections: ConnectionCounts
    messages: MessageCounts
    # Sums; the duration is the longest.
    window: WindowCounts
    histograms: dict[str, Histogram]
    books: list[WorkerBook]


def merge(results: Sequence[WorkerResult]) -> Merged:
    """Adds results up; there is at least one."""
    window = _sum([result.window for result in results])
    return Merged(
        connections=_sum([result.connections for result in results]),
        messages=_sum([result.messages for result in results]),
        window=replace(window, duration_ns=max(result.window.duration_ns for result in results)),
        histograms=add_up(result.histograms for result in results),
        books=[book for result in results for book in result.books],
    )


def _sum(parts: Sequence[T]) -> T:
    """Field by field; reasons are added up by name."""
    first = parts[0]
    totals: dict[str, Any] = {}
    for field in fields(first):
        values = [getattr(part, field.name) for part in parts]
        if isinstance(values[0], dict):
            reasons: Counter[str] = Counter()
            for value in values:
                reasons.update(value)
            totals[field.name] = dict(reasons)
        else:
            totals[field.name] = sum(values)
    return type(first)(**totals)
