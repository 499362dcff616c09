"""The table of `just bench-components`: measured times with intervals, beside the published figures. Pure.

A figure is the median time of an operation: first over the batches of a process, then over processes. A ratio is the
median of the processes' ratios, so that a process on a slower CPU doesn't change the ratio. The 95 % intervals are a
bootstrap over processes and, within each, over batches.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RESAMPLES = 1000
CONFIDENCE = 0.95

# Likely reasons why a published time for Python is longer than ours, by component and baseline.
UNEXPLAINED = {
    ("JWT decode (HS256)", "PyJWT"): "The library, with all checks that Rust makes, takes nowhere near as long.",
    ("Msgpack inbound parse", "msgpack with its C extension"): (
        "What was published fits the library without its C extension, which every wheel of it has."
    ),
    (
        "HMAC-SHA256 sign",
        "hmac.digest",
    ): "The standard library signs in C too: what can be saved is setting that up in every call.",
    (
        "Compression (1KB zlib)",
        "zlib",
    ): "Python's zlib is in C too: little more than making its state anew can be saved.",
}


@dataclass(frozen=True)
class Component:
    """A component: its name in the published table, the Python baseline, the published microseconds."""

    name: str
    baseline: str
    published_plain_us: float
    published_ours_us: float


@dataclass(frozen=True)
class Measured:
    """Nanoseconds per operation in each batch of one process; batches of both sides alternate."""

    ours_ns: Sequence[float]
    plain_ns: Sequence[float]


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """The figures of one component."""

    component: Component
    ours_ns: Figure
    plain_ns: Figure
    # Time in Python divided by time in Rust.
    ratio: Figure
    processes: int


def row(component: Component, processes: Sequence[Measured], seed: int = 0) -> Row:
    """Computes the figures of one component. The seed makes the table reproducible.

    Raises:
        ValueError: a process has no measurements.
    """
    if not processes or not all(process.ours_ns and process.plain_ns for process in processes):
        raise ValueError(f"{component.name}: a process has measured nothing")
    draw = random.Random(f"{seed} {component.name} {component.baseline}")
    drawn = [
        _medians([_again(draw, process) for process in draw.choices(processes, k=len(processes))])
        for _ in range(RESAMPLES)
    ]
    columns = zip(_medians(processes), *drawn, strict=True)
    ours, plain, ratio = (_figure(value, values) for value, *values in columns)
    return Row(component, ours, plain, ratio, len(processes))


def _medians(processes: Sequence[Measured]) -> tuple[float, float, float]:
    """Nanoseconds in Rust and in Python, and the ratio of Python to Rust."""
    pairs = [(statistics.median(process.ours_ns), statistics.median(process.plain_ns)) for process in processes]
    ours, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    return ours, plain, statistics.median(plain / ours for ours, plain in pairs)


def _again(draw: random.Random, process: Measured) -> Measured:
    ours = draw.choices(process.ours_ns, k=len(process.ours_ns))
    return Measured(ours, draw.choices(process.plain_ns, k=len(process.plain_ns)))


def _figure(value: float, drawn: Sequence[float]) -> Figure:
    ordered = sorted(drawn)
    tail = int(len(ordered) * (1 - CONFIDENCE) / 2)
    return Figure(value, ordered[tail], ordered[-1 - tail])


def microseconds(figure: Figure) -> str:
    """Formats a time in microseconds with three significant digits and its interval."""
    value, low, high = (f"{part / 1000:.3g}" for part in (figure.value, figure.low, figure.high))
    return f"{value} ({low} to {high})"


def times(figure: Figure) -> str:
    """Formats a ratio with its interval."""
    return f"{figure.value:.3g}x ({figure.low:.3g} to {figure.high:.3g})"


def markdown(rows: Sequence[Row]) -> str:
    """The Markdown table, followed by explanations of published baselines that are far slower than ours."""
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
    """A sentence for each published baseline that takes at least twice as long as ours."""
    said = []
    for one in rows:
        it, times_slower = one.component, one.component.published_plain_us * 1000 / one.plain_ns.value
        if times_slower >= 2:
            why = UNEXPLAINED.get((it.name, it.baseline), "No tidy implementation of ours takes as long.")
            said.append(f"- {it.name} ({it.baseline}): published for Python is {times_slower:.2g} times ours. {why}")
    return said


def wire(rows: Sequence[Row], environment: Mapping[str, Any]) -> dict[str, Any]:
    """The table as written to components.json."""
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
