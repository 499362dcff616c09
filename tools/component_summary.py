"""The table of `just bench-components`: measured times with intervals, beside the published figures. Pure.

A process's figure is the median over its batches, which alternate between both sides. A time is the geometric mean over
processes, and a ratio that of the processes' ratios, so that a process on a slower CPU doesn't change the ratio. The
95 % intervals are Student's of logarithms over processes, as in reports.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ws_ladder_analysis.statistics import Ratio, ratio

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
    """A value with its 95 % interval; `None` with too few processes."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Row:
    """The figures of one component."""

    component: Component
    ours_ns: Figure
    plain_ns: Figure
    # Time in Python divided by time in Rust.
    ratio: Figure
    processes: int


def row(component: Component, processes: Sequence[Measured]) -> Row:
    """Computes the figures of one component.

    Raises:
        ValueError: a process has no measurements.
    """
    if not processes or not all(process.ours_ns and process.plain_ns for process in processes):
        raise ValueError(f"{component.name}: a process has measured nothing")
    ours = {number: [statistics.median(process.ours_ns)] for number, process in enumerate(processes)}
    plain = {number: [statistics.median(process.plain_ns)] for number, process in enumerate(processes)}
    one = {number: [1.0] for number in ours}
    rust, python, quotient = (
        _figure(component, value) for value in (ratio(ours, one), ratio(plain, one), ratio(plain, ours))
    )
    return Row(component, rust, python, quotient, len(processes))


def _figure(component: Component, measured_ratio: Ratio | None) -> Figure:
    if measured_ratio is None:
        raise ValueError(f"{component.name}: a process has measured nothing")
    low, high = measured_ratio.interval() or (None, None)
    return Figure(measured_ratio.ratio, low, high)


def microseconds(figure: Figure) -> str:
    """Formats a time in microseconds with three significant digits and its interval."""
    return _with_interval(figure, 1000, "")


def times(figure: Figure) -> str:
    """Formats a ratio with its interval."""
    return _with_interval(figure, 1, "x")


def _with_interval(figure: Figure, divisor: float, unit: str) -> str:
    value = f"{figure.value / divisor:.3g}{unit}"
    if figure.low is None or figure.high is None:
        return f"{value} (n/a)"
    return f"{value} ({figure.low / divisor:.3g} to {figure.high / divisor:.3g})"


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
    sentences = []
    for one in rows:
        it, times_slower = one.component, one.component.published_plain_us * 1000 / one.plain_ns.value
        if times_slower >= 2:
            why = UNEXPLAINED.get((it.name, it.baseline), "No tidy implementation of ours takes as long.")
            sentences.append(
                f"- {it.name} ({it.baseline}): published for Python is {times_slower:.2g} times ours. {why}"
            )
    return sentences


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
