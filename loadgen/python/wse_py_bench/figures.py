"""Rates and costs of the window. Pure.

A rate comes from the receiving side's counters; what makes no sense is absent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench_format.meaning import is_scheduled
from bench_format.schemas import (
    BoundBy,
    Figures,
    Load,
    MessageCounts,
    Reading,
    ServiceReadings,
    Thresholds,
    Witness,
    WorkerResult,
)

from .equations import between
from .merge import Merged
from .service import seconds

# A load that ended before this share of the planned window ended by itself: its own window counts.
ENDED_EARLY = 0.95
PER_MILLION = 1e6


@dataclass(frozen=True)
class Measured:
    """Everything that a trial left, before it is judged."""

    load: Load
    # The window as it was asked for, in nanoseconds.
    window_ns: int
    # Connections that were open when the load started; 0 where they are opened in the window.
    open_at_start: int
    results: Sequence[WorkerResult]
    readings: ServiceReadings
    # CPUs on which workers and service may run; none where nobody knows.
    worker_cpus: frozenset[int]
    service_cpus: frozenset[int]


@dataclass(frozen=True)
class _Edges:
    """What the readings at the window's edges tell."""

    start: Reading
    end: Reading
    duration: float
    # Of the service; nothing where nobody knows it.
    cpu_seconds: float | None


def figures(measured: Measured, merged: Merged, messages: MessageCounts, seen_by: Witness) -> Figures:
    """All figures of a trial."""
    window, counts = merged.window, merged.connections
    duration = seconds(window.duration_ns)
    bad = sum(counts.failed.values()) + sum(messages.dropped.values())
    bad += messages.wrong + messages.lost + messages.unsent
    found: dict[str, Any] = {
        "worker_cpu_seconds": seconds(window.cpu_ns),
        "failed_share": _ratio(bad, counts.attempted + messages.due),
    }
    if window.sent:
        found["written_per_second"] = _ratio(window.sent, duration)
        found["messages_per_write"] = _ratio(window.sent, window.writes)
        found["worker_cpu_seconds_per_million"] = _ratio(seconds(window.cpu_ns) * PER_MILLION, window.sent)
        if seen_by is Witness.REPLY:
            found["delivered_per_second"] = _ratio(window.answered, duration)
            found["replies_per_second"] = _ratio(window.replies, duration)
    if is_scheduled(measured.load):
        found["due_per_second"] = _ratio(window.due, duration)
    if not measured.open_at_start:
        found["accepted_per_second"] = _ratio(counts.open, duration)
    found |= _shares(measured, merged) | _of_service(measured, merged, seen_by) | _memory(measured, counts.open)
    return Figures(window_seconds=duration, **found)


def bound_by(load: Load, found: Figures, limits: Thresholds) -> BoundBy | None:
    """What bound a closed load; nothing for open ones, and where a side's CPU isn't known."""
    service, worker = found.service_cpu_share, found.worker_cpu_share
    if is_scheduled(load) or service is None or worker is None:
        return None
    sides = {
        (True, True): BoundBy.BOTH,
        (True, False): BoundBy.SERVICE,
        (False, True): BoundBy.GENERATOR,
        (False, False): BoundBy.NEITHER,
    }
    return sides[service >= limits.bound_share, worker >= limits.bound_share]


def ended_early(measured: Measured, merged: Merged) -> bool:
    """Whether the load ended by itself and not with the window."""
    return merged.window.duration_ns < measured.window_ns * ENDED_EARLY


def _shares(measured: Measured, merged: Merged) -> dict[str, Any]:
    """Shares of the CPU that each side could have had.

    A side that shares CPUs with the other could have had what the other left. A worker can't use more than one: where
    each had one the busiest counts, and where they had less all of them together.
    """
    edges = _edges(measured, merged)
    duration = seconds(merged.window.duration_ns)
    if duration <= 0:
        return {}
    shared = bool(measured.worker_cpus & measured.service_cpus)
    used = edges.cpu_seconds if edges else None
    service = used / edges.duration if edges and used is not None else 0.0
    workers = seconds(merged.window.cpu_ns) / duration
    room = len(measured.worker_cpus) - (service if shared else 0.0)
    service_room = len(measured.service_cpus) - (workers if shared else 0.0)
    found: dict[str, Any] = {}
    if room > 0:
        windows = [result.window for result in measured.results]
        busiest = max((window.cpu_ns / window.duration_ns for window in windows if window.duration_ns), default=0.0)
        crowded = room < len(windows)
        found["worker_cpu_share"] = min(1.0, workers / room if crowded else busiest)
    if used is not None and service_room > 0:
        found["service_cpu_share"] = min(1.0, service / service_room)
    return found


def _edges(measured: Measured, merged: Merged) -> _Edges | None:
    start, end = measured.readings.window_start, measured.readings.window_end
    if start is None or end is None or end.unix_ns <= start.unix_ns:
        return None
    early = ended_early(measured, merged)
    duration = seconds(merged.window.duration_ns if early else end.unix_ns - start.unix_ns)
    cpu_seconds = None
    if start.cpu_ns is not None and end.cpu_ns is not None:
        cpu_seconds = seconds(end.cpu_ns - start.cpu_ns)
    return _Edges(start, end, duration, cpu_seconds) if duration > 0 else None


def _of_service(measured: Measured, merged: Merged, seen_by: Witness) -> dict[str, Any]:
    edges = _edges(measured, merged)
    if edges is None:
        return {}
    used = edges.cpu_seconds
    found: dict[str, Any] = {} if used is None else {"service_cpu_seconds": used}
    if not merged.window.sent:
        return found
    delta = between(edges.start.stats, edges.end.stats)
    arrived = merged.window.answered if seen_by is Witness.REPLY else 0
    if delta.received:
        found["received_per_second"] = delta.received / edges.duration
    if seen_by is Witness.APPLICATION and delta.application:
        arrived = delta.application.delivered
        found["delivered_per_second"] = arrived / edges.duration
    if seen_by is not Witness.REPLY:
        found["dropped_per_second"] = sum(delta.dropped.values()) / edges.duration
    if used is not None:
        found["service_cpu_seconds_per_million"] = _ratio(used * PER_MILLION, arrived or delta.received)
    return found


def _memory(measured: Measured, opened: int) -> dict[str, Any]:
    """Memory at a reading at which the tier's connections were open, else the highest that was seen."""
    readings = measured.readings
    held = measured.open_at_start or opened
    edges = [reading for reading in (readings.window_start, readings.window_end) if reading]
    every = [reading for reading in (readings.before, *edges, readings.after) if reading]
    with_all = [reading.rss_bytes for reading in edges if reading.stats.connections.open >= held]
    rss = with_all[0] if with_all else max((reading.rss_bytes or 0 for reading in every), default=0)
    if readings.before is None or readings.before.rss_bytes is None or not rss or not held:
        return {}
    grown = rss - readings.before.rss_bytes
    return {"service_rss_bytes": rss, "service_bytes_per_connection": grown / held}


def _ratio(count: float, by: float) -> float | None:
    return count / by if by > 0 else None
