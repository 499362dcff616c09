"""The table of `just bench-components`: what was measured, its intervals, and the published figures beside it. Pure.

A figure is the median time of an operation: of the batches of a process, then of the processes. Its 95 % interval is a
bootstrap over processes and, within each, over batches; a ratio is drawn from the same processes for both sides.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RESAMPLES = 1000
CONFIDENCE = 0.95

# What of the published figures no baseline of ours can explain, in words; by component.
UNEXPLAINED = {
    "JWT decode (HS256)": "PyJWT needs tens of microseconds where 850 are published for Python.",
    "Msgpack inbound parse": "Even without its C extension, which everyone has, the library is faster than published.",
    "Rate limiter (check)": "The published times for Python are a multiple of what a plain class takes.",
    "HMAC-SHA256 sign": "The standard library signs in C too: no more than the cost of a call can be saved.",
    "Compression (1KB zlib)": "Python's zlib is C as well: what differs is the library, and making its state anew.",
}


@dataclass(frozen=True)
class Component:
    """One row: its name in the published table, what ours is measured against, the published microseconds."""

    name: str
    baseline: str
    published_plain_us: float
    published_ours_us: float


@dataclass(frozen=True)
class Measured:
    """Nanoseconds of an operation in each batch of one process; batches of both sides alternate."""

    ours_ns: Sequence[float]
    plain_ns: Sequence[float]


@dataclass(frozen=True)
class Figure:
    """A value with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """What is known of one component."""

    component: Component
    ours_ns: Figure
    plain_ns: Figure
    # How many times as fast Rust is.
    ratio: Figure
    processes: int


def row(component: Component, processes: Sequence[Measured], seed: int = 0) -> Row:
    """The figures of one component. Seeded, so that the same evidence gives the same table.

    Raises:
        ValueError: nothing was measured.
    """
    if not processes or not all(process.ours_ns and process.plain_ns for process in processes):
        raise ValueError(f"{component.name}: a process has measured nothing")
    point = _medians(processes)
    draw = random.Random(f"{seed} {component.name} {component.baseline}")
    drawn = [
        _medians([_again(draw, process) for process in draw.choices(processes, k=len(processes))])
        for _ in range(RESAMPLES)
    ]
    ours = _figure(point[0], [left for left, _ in drawn])
    plain = _figure(point[1], [right for _, right in drawn])
    ratio = _figure(point[1] / point[0], [right / left for left, right in drawn])
    return Row(component, ours, plain, ratio, len(processes))


def _medians(processes: Sequence[Measured]) -> tuple[float, float]:
    ours = statistics.median(statistics.median(process.ours_ns) for process in processes)
    return ours, statistics.median(statistics.median(process.plain_ns) for process in processes)


def _again(draw: random.Random, process: Measured) -> Measured:
    ours = draw.choices(process.ours_ns, k=len(process.ours_ns))
    return Measured(ours, draw.choices(process.plain_ns, k=len(process.plain_ns)))


def _figure(value: float, drawn: Sequence[float]) -> Figure:
    ordered = sorted(drawn)
    tail = int(len(ordered) * (1 - CONFIDENCE) / 2)
    return Figure(value, ordered[tail], ordered[-1 - tail])


def microseconds(figure: Figure) -> str:
    """A time as it is printed: three digits that count, and the interval."""
    value, low, high = (f"{part / 1000:.3g}" for part in (figure.value, figure.low, figure.high))
    return f"{value} ({low} to {high})"


def times(figure: Figure) -> str:
    """A ratio as it is printed."""
    return f"{figure.value:.3g}x ({figure.low:.3g} to {figure.high:.3g})"


def markdown(rows: Sequence[Row]) -> str:
    """The table, and what in the published one can't be explained."""
    lines = [
        "| component | Python: baseline | Python, µs | Rust, µs | ratio | published: Python, Rust, ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for one in rows:
        it = one.component
        published = (
            f"{it.published_plain_us:g}, {it.published_ours_us:g}, {it.published_plain_us / it.published_ours_us:.3g}x"
        )
        cells = (
            it.name,
            it.baseline,
            microseconds(one.plain_ns),
            microseconds(one.ours_ns),
            times(one.ratio),
            published,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *explanations(rows)])


def explanations(rows: Sequence[Row]) -> list[str]:
    """A sentence for every published baseline that is at least twice what ours takes."""
    said = []
    for one in rows:
        it, times_slower = one.component, one.component.published_plain_us * 1000 / one.plain_ns.value
        if times_slower >= 2:
            why = UNEXPLAINED.get(it.name, "No baseline of ours takes as long.")
            said.append(f"- {it.name} ({it.baseline}): published for Python is {times_slower:.2g} times ours. {why}")
    return said


def wire(rows: Sequence[Row], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The table as JSON."""
    return {
        "schema": 1,
        "environment": dict(environment),
        "components": [
            {
                "name": one.component.name,
                "baseline": one.component.baseline,
                "processes": one.processes,
                "python_ns": vars(one.plain_ns),
                "rust_ns": vars(one.ours_ns),
                "ratio": vars(one.ratio),
                "published_python_us": one.component.published_plain_us,
                "published_rust_us": one.component.published_ours_us,
            }
            for one in rows
        ],
        "unexplained": explanations(rows),
    }
