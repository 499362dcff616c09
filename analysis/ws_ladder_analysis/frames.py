"""A bundle as Polars frames: a row per trial, percentile, equation, point of a distribution, comparison.

Each frame becomes one CSV file. Column names end in their unit. A missing figure is an empty cell, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import polars as pl
from bench_format import histogram
from bench_format.histogram import Values
from bench_format.meaning import balance, holds, is_valid, reasons
from bench_format.schemas import (
    Figures,
    LoadOpen,
    TrialId,
    TrialResult,
    TrialStateCrashed,
    TrialStateFailed,
    TrialStateFinished,
)

from . import wording
from .compare import Comparison
from .ladders import Ladder
from .load import Bundle, Trial

# The percentiles in the table; each has a value only with enough samples.
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0)

_ID = {"service": pl.String, "workload": pl.String, "variant": pl.String, "tier": pl.UInt32}
_TRIAL = {**_ID, "process": pl.UInt32, "repeat": pl.UInt32}
_COUNTS = ("due", "sent", "delivered", "late", "wrong", "lost", "unsent", "duplicates", "reorders")
_TRIALS = {
    **_TRIAL,
    "state": pl.String,
    "validity": pl.String,
    "reasons": pl.String,
    "passed": pl.Boolean,
    "bound_by": pl.String,
    "witness": pl.String,
    "load_model": pl.String,
    "rate_per_second": pl.Float64,
    "format": pl.String,
    "size_bytes": pl.UInt32,
    "connections_open": pl.UInt64,
    "connections_failed": pl.UInt64,
    **{f"messages_{name}": pl.UInt64 for name in _COUNTS},
    "messages_dropped": pl.UInt64,
    "books_balance": pl.Boolean,
    **{one.name: pl.UInt64 if one.name == "service_rss_bytes" else pl.Float64 for one in fields(Figures)},
    "reproduce": pl.String,
}
_PERCENTILES = {
    **_TRIAL,
    "valid": pl.Boolean,
    "histogram": pl.String,
    "percentile": pl.Float64,
    "value_ns": pl.UInt64,
    "samples": pl.UInt64,
    "samples_needed": pl.UInt64,
}
_BOOKS = {
    **_TRIAL,
    "equation": pl.String,
    "left": pl.UInt64,
    "right": pl.UInt64,
    "holds": pl.Boolean,
    "terms": pl.String,
}
_DISTRIBUTIONS = {
    **_ID,
    "trials": pl.UInt32,
    "histogram": pl.String,
    "quantile": pl.Float64,
    "value_ns": pl.UInt64,
    "at_most": pl.UInt64,
    "samples": pl.UInt64,
    "supported": pl.Boolean,
}
_COMPARISONS = {
    "workload": pl.String,
    "variant": pl.String,
    "tier": pl.UInt32,
    "figure": pl.String,
    "service": pl.String,
    "other": pl.String,
    "service_mean": pl.Float64,
    "other_mean": pl.Float64,
    "ratio": pl.Float64,
    "ratio_low": pl.Float64,
    "ratio_high": pl.Float64,
    "level": pl.Float64,
    "pairs": pl.UInt32,
    "uneven": pl.Boolean,
    "conclusion": pl.String,
}

Row = dict[str, object]


@dataclass(frozen=True)
class Frames:
    """The frames of a bundle; each field's name is the name of its CSV file."""

    trials: pl.DataFrame
    percentiles: pl.DataFrame
    books: pl.DataFrame
    distributions: pl.DataFrame
    comparisons: pl.DataFrame

    def write(self, folder: Path) -> None:
        """Writes each frame to `folder` as `<field name>.csv`."""
        for one in fields(self):
            frame: pl.DataFrame = getattr(self, one.name)
            frame.write_csv(folder / f"{one.name}.csv")


def frames(bundle: Bundle, ladders: Sequence[Ladder], comparisons: Sequence[Comparison]) -> Frames:
    """Builds the frames; rows are in climbing order."""
    ended = [(trial, trial.result) for trial in bundle.trials if trial.result is not None]
    return Frames(
        pl.DataFrame([_trial(trial) for trial in bundle.trials], schema=_TRIALS),
        pl.DataFrame([row for trial, _ in ended for row in _percentiles(trial)], schema=_PERCENTILES),
        pl.DataFrame([row for trial, result in ended for row in _books(trial.id, result)], schema=_BOOKS),
        pl.DataFrame([row for ladder in ladders for row in _distributions(ladder)], schema=_DISTRIBUTIONS),
        pl.DataFrame([_comparison(one) for one in comparisons], schema=_COMPARISONS),
    )


def _trial(trial: Trial) -> Row:
    state = trial.entry.state
    row: Row = {**asdict(trial.id), "state": state.state}
    if isinstance(state, TrialStateFailed):
        row["reasons"] = state.reason
    if isinstance(state, TrialStateCrashed):
        row["passed"], row["reasons"] = False, f"{state.cause}: {state.reason}"
    if isinstance(state, TrialStateFinished):
        row["passed"] = state.passed
    result = trial.result
    if result is None:
        return row
    load = result.load
    return row | {
        "validity": "valid" if is_valid(result.validity) else "invalid",
        "reasons": "; ".join(map(wording.reason, reasons(result.validity))) or None,
        "bound_by": result.bound_by,
        "witness": result.witness,
        "load_model": result.load.model,
        "rate_per_second": load.rate_per_second if isinstance(load, LoadOpen) else None,
        "format": result.message.format,
        "size_bytes": result.message.size_bytes,
        "connections_open": result.connections.open,
        "connections_failed": sum(result.connections.failed.values()),
        **{f"messages_{name}": getattr(result.messages, name) for name in _COUNTS},
        "messages_dropped": sum(result.messages.dropped.values()),
        "books_balance": balance(result.books),
        **asdict(result.figures),
        "reproduce": result.reproduce,
    }


def _percentiles(trial: Trial) -> Iterator[Row]:
    for name, values in trial.histograms.items():
        for at in PERCENTILES:
            yield {
                **asdict(trial.id),
                "valid": trial.valid,
                "histogram": name,
                "percentile": at,
                "value_ns": histogram.percentile_ns(values, at),
                "samples": values.total,
                "samples_needed": histogram.samples_needed(at),
            }


def _books(trial: TrialId, result: TrialResult) -> Iterator[Row]:
    for equation in result.books.equations:
        yield {
            **asdict(trial),
            "equation": equation.name,
            "left": equation.left,
            "right": equation.right,
            "holds": holds(equation),
            "terms": " + ".join(f"{name} {count}" for name, count in equation.terms),
        }


def _distributions(ladder: Ladder) -> Iterator[Row]:
    for tier in ladder.tiers:
        for name, values in tier.histograms.items():
            for row in _points(values):
                yield {
                    "service": ladder.service,
                    "workload": ladder.workload,
                    "variant": ladder.variant,
                    "tier": tier.connections,
                    "trials": len(tier.valid),
                    "histogram": name,
                    **row,
                }


def _points(values: Values) -> Iterator[Row]:
    for point in histogram.curve(values):
        yield {**asdict(point), "samples": values.total}


def _comparison(one: Comparison) -> Row:
    ratio, (low, high) = one.ratio, one.interval or (None, None)
    return {
        "workload": one.ladder.workload,
        "variant": one.ladder.variant,
        "tier": one.connections,
        "figure": one.figure.name,
        "service": one.service,
        "other": one.other,
        "service_mean": one.left,
        "other_mean": one.right,
        "ratio": ratio and ratio.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "level": one.level,
        "pairs": ratio and ratio.processes[0],
        "uneven": ratio and ratio.is_uneven,
        "conclusion": one.conclusion,
    }
