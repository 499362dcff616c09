"""A bundle's histograms as Fortio's results, which `fortio report` and its web page show. Pure.

One result is one histogram of one tier, merged over its valid trials. Times are in seconds, as Fortio has them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from bench_format import histogram
from bench_format.histogram import HIGHEST_NS, Values, bucket_ns
from bench_format.schemas import LoadOpen

from . import __version__
from .ladders import Ladder, Tier, ladders
from .load import Bundle

# The percentiles that Fortio's page looks for; one with too few samples is left out.
PERCENTILES = (50.0, 75.0, 90.0, 99.0, 99.9)
NS_PER_SECOND = 1e9

Json = dict[str, object]


def results(bundle: Bundle) -> Iterator[Json]:
    """One result for each histogram of each tier with valid trials; its `ID` is the name of Fortio's file."""
    for ladder in ladders(bundle):
        for tier in ladder.tiers:
            for name, values in tier.histograms.items():
                if values.count:
                    yield _result(bundle, ladder, tier, name, values)


def _result(bundle: Bundle, ladder: Ladder, tier: Tier, name: str, values: Values) -> Json:
    labels = f"{ladder.service} {ladder.workload} {ladder.variant} {tier.connections} {name.removesuffix('_ns')}"
    start = datetime.fromtimestamp(min(one.started_at_unix_ns for one in tier.results) / NS_PER_SECOND, UTC)
    seconds = sum(result.figures.window_seconds for result in tier.results)
    url = bundle.run.outside.url if bundle.run.outside else f"{bundle.run.id}/{ladder.service}"
    return {
        "RunType": "WebSocket",
        "Labels": labels,
        "StartTime": start.isoformat().replace("+00:00", "Z"),
        "RequestedQPS": _requested(tier),
        "RequestedDuration": f"{seconds:g}s",
        "ActualQPS": values.total / seconds if seconds else 0.0,
        "ActualDuration": round(seconds * NS_PER_SECOND),
        "NumThreads": tier.connections,
        "Version": f"ws-ladder {__version__}",
        "DurationHistogram": duration_histogram(values),
        "ErrorsDurationHistogram": None,
        "Exactly": 0,
        "Jitter": False,
        "Uniform": False,
        "NoCatchUp": False,
        "RunID": 0,
        "AccessLoggerInfo": "",
        "ID": identity(start, labels),
        "URL": url,
        "RetCodes": _codes(tier, values),
    }


def identity(start: datetime, labels: str) -> str:
    """Fortio's name of a result: its start and its labels, with one underscore for all other characters."""
    return f"{start:%Y-%m-%d-%H%M%S}_{re.sub(r'[^A-Za-z0-9]+', '_', labels).strip('_')}"


def _requested(tier: Tier) -> str:
    """The rate of an open load, in messages per second; `max` for others, as Fortio calls a closed loop."""
    rates = {result.load.rate_per_second for result in tier.results if isinstance(result.load, LoadOpen)}
    return f"{rates.pop():g}" if len(rates) == 1 else "max"


def _codes(tier: Tier, values: Values) -> dict[str, int]:
    """Messages by outcome. Fortio counts all but 200 as errors; what was late or wrong has a time nevertheless."""
    messages = [result.messages for result in tier.results]
    failed = {
        "late": sum(one.late for one in messages),
        "wrong": sum(one.wrong for one in messages),
        "dropped": sum(sum(one.dropped.values()) for one in messages),
        "lost": sum(one.lost for one in messages),
        "unsent": sum(one.unsent for one in messages),
    }
    good = max(0, values.total - failed["late"] - failed["wrong"])
    return {"200": good} | {name: count for name, count in failed.items() if count}


def duration_histogram(values: Values) -> Json:
    """A histogram as Fortio exports it: its buckets with the cumulative share, and percentiles, in seconds."""
    buckets = [(*bucket_ns(value), count) for value, count in values.counts.items()]
    if values.overflow:
        buckets.append((HIGHEST_NS, HIGHEST_NS, values.overflow))
    middles = [((low + high) / 2 / NS_PER_SECOND, count) for low, high, count in buckets]
    total = sum(middle * count for middle, count in middles)
    average = total / values.total
    variance = sum(count * (middle - average) ** 2 for middle, count in middles) / values.total
    found = [(at, histogram.percentile_ns(values, at)) for at in PERCENTILES]
    return {
        "Count": values.total,
        "Min": buckets[0][0] / NS_PER_SECOND,
        "Max": buckets[-1][1] / NS_PER_SECOND,
        "Sum": total,
        "Avg": average,
        "StdDev": math.sqrt(variance),
        "Data": list(_data(buckets, values.total)),
        "Percentiles": [{"Percentile": at, "Value": value / NS_PER_SECOND} for at, value in found if value is not None],
    }


def _data(buckets: Sequence[tuple[int, int, int]], total: int) -> Iterator[Json]:
    """The buckets with their ends. Fortio's are left open: each starts where the one below it may end."""
    seen = 0
    below = [buckets[0][0], *(max(one[1], other[0] - 1) for one, other in pairwise(buckets))]
    for (_, high, count), low in zip(buckets, below, strict=True):
        seen += count
        yield {
            "Start": low / NS_PER_SECOND,
            "End": high / NS_PER_SECOND,
            "Percent": 100 * seen / total,
            "Count": count,
        }
