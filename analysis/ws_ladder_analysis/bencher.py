"""Bencher Metric Format: benchmark → measure → value, with bounds where there is an interval.

A benchmark is a service at a tier, a measure is a figure in the unit of its name: rates per second, percentiles in
nanoseconds, memory in bytes, CPU time in seconds per million messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

Results = dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True)
class Metric:
    """One figure of one benchmark; its bounds are the lowest and the highest of the repeats."""

    benchmark: str
    figure: str
    value: float
    bounds: tuple[float, float] | None


def results(metrics: Iterable[Metric]) -> Results:
    """The metrics as a value for `bencher run --adapter json`."""
    found: Results = {}
    for one in metrics:
        value = {"value": one.value}
        if one.bounds is not None:
            value |= {"lower_value": one.bounds[0], "upper_value": one.bounds[1]}
        found.setdefault(one.benchmark, {})[slug(one.figure)] = value
    return found


def slug(figure: str) -> str:
    """The name of a measure: lower-case ASCII, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", figure.lower()).strip("-")
