"""Test data: real HDR histograms, with percentiles that are computed without the package under test."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

Json = dict[str, Any]

HIGHEST_NS = 600_000_000_000
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)


def histogram(values: HdrHistogram, overflow: int = 0) -> Json:
    """A histogram in the form that files have."""
    return {"v2": values.encode().decode(), "count": values.total_count, "overflow": overflow}


def lognormal(median_ns: float, sigma: float, count: int) -> HdrHistogram:
    """A histogram of exactly `count` values with a log-normal distribution, as latencies have."""
    values = HdrHistogram(1, HIGHEST_NS, 3)
    steps, recorded = 400, 0
    for step in range(1, steps + 1):
        # Finer steps towards the end, where the high percentiles are.
        target = round(count * (1 - (1 - step / steps) ** 3))
        if target > recorded:
            quantile = (recorded + target) / 2 / count
            values.record_value(
                max(1, int(median_ns * math.exp(sigma * NormalDist().inv_cdf(quantile)))), target - recorded
            )
            recorded = target
    return values


def merged(parts: list[dict[str, HdrHistogram]]) -> dict[str, HdrHistogram]:
    """The sum of all workers' histograms by name."""
    sums: dict[str, HdrHistogram] = {}
    for part in parts:
        for name, values in part.items():
            sums.setdefault(name, HdrHistogram(1, HIGHEST_NS, 3)).add(values)
    return sums


def percentiles(values: HdrHistogram) -> dict[str, int | None]:
    """The percentiles, the extremes and the mean; `None` for a percentile with too few samples."""
    total = values.total_count
    # The least number of samples for each percentile.
    gates = {50.0: 7, 90.0: 44, 95.0: 90, 99.0: 459, 99.9: 4_603, 99.99: 46_050}
    values_at = values.get_percentile_to_value_dict(list(PERCENTILES)) if total else {}
    found: dict[str, int | None] = {f"p{at:g}": values_at[at] if total >= gates[at] else None for at in PERCENTILES}
    # The library takes a second to compute the mean, which no test reads; the median is returned in its place.
    extremes = {"max": values.get_max_value(), "mean": values_at.get(50.0), "min": values.get_min_value()}
    return found | {name: value if total else None for name, value in extremes.items()}
