"""The result of a trial as the operator merges and judges it."""

from __future__ import annotations

import math

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from tests.bundles.histograms import Json, histogram, merged, percentiles
from tests.bundles.services import readings
from tests.bundles.spec import START_NS, TrialSpec, shares
from tests.bundles.workers import connection_counts, evidence, message_counts


def figures(spec: TrialSpec) -> Json:
    """Rates and costs, computed from the counts."""
    delivered = spec.due - spec.dropped - spec.lost
    service_cpu = spec.service_share * spec.seconds
    worker_cpu = spec.worker_share * spec.seconds
    found: Json = {
        "window_seconds": spec.seconds,
        "service_cpu_seconds": service_cpu,
        "worker_cpu_seconds": worker_cpu,
        "service_cpu_share": spec.service_share,
        "worker_cpu_share": spec.worker_share,
        "service_rss_bytes": 50_000_000 + int(spec.tier * spec.bytes_per_connection),
        "service_bytes_per_connection": spec.bytes_per_connection,
        "failed_share": spec.failed / spec.tier if spec.storm else (spec.dropped + spec.lost) / spec.due,
    }
    if spec.replies:
        found |= {
            "replies_per_second": spec.replies / spec.seconds,
            "error_share": sum(spec.failures[0].values()) / spec.replies,
            "inference_cpu_seconds": 0.1 * spec.seconds,
            "inference_cpu_share": 0.1,
        }
    if spec.storm:
        return found | {"accepted_per_second": (spec.tier - spec.failed) / spec.seconds}
    if spec.witness == "receiver":
        return found | {
            "delivered_per_second": delivered / spec.seconds,
            "published_per_second": spec.due / spec.tier / spec.seconds,
            "messages_per_read": 10.0,
            "bytes_read_per_second": delivered * 102 / spec.seconds,
            "service_cpu_seconds_per_million": service_cpu / delivered * 1e6,
            "worker_cpu_seconds_per_million": worker_cpu / delivered * 1e6,
        }
    return found | {
        "due_per_second": spec.due / spec.seconds,
        "written_per_second": spec.due / spec.seconds,
        "received_per_second": (delivered + spec.dropped) / spec.seconds,
        "delivered_per_second": None if spec.witness == "none" else delivered / spec.seconds,
        "dropped_per_second": spec.dropped / spec.seconds,
        "messages_per_write": 1.0,
        "service_cpu_seconds_per_million": service_cpu / delivered * 1e6 if delivered else None,
        "worker_cpu_seconds_per_million": worker_cpu / spec.due * 1e6,
    }


def equation(name: str, left: int, terms: dict[str, int]) -> Json:
    """An equation of the books, with the sum of `terms` as its right side."""
    return {"name": name, "left": left, "right": sum(terms.values()), "terms": [list(term) for term in terms.items()]}


def books(spec: TrialSpec) -> Json:
    """The equations of the books; lost messages are missing from the right side."""
    opened = equation("attempted = open + failed", spec.tier, {"open": spec.tier - spec.failed, "failed": spec.failed})
    if spec.storm:
        return {"equations": [opened], "connections": None}
    delivered = spec.due - spec.dropped - spec.lost
    if spec.witness == "receiver":
        came = {"received": delivered, "missing": spec.lost}
        name = "last - first + 1 = received + missing (receivers)"
        check = None if spec.totals_only else {"compared": spec.tier, "mismatched": 0, "examples": []}
        return {"equations": [opened, equation(name, spec.due, came)], "connections": check}
    fates = {"delivered (application)": delivered, "dropped(inbound_overflow)": spec.dropped}
    numbers = spec.due * (spec.due + 1) // 2
    return {
        "equations": [
            opened,
            equation("due = sent + unsent", spec.due, {"sent": spec.due, "unsent": 0}),
            equation("sent = delivered (application) + dropped", spec.due, fates),
            equation("sequence sum sent = sequence sum delivered", numbers, {"sequence sum delivered": numbers}),
        ],
        "connections": None if spec.totals_only else connection_check(spec),
    }


def connection_check(spec: TrialSpec) -> Json:
    """The comparison of both sides' books; lost messages are missing on the first connection."""
    sent = shares(spec.due, spec.tier)[0]
    examples = [f"c-0: sent {sent}, received {sent - spec.lost}"] if spec.lost else []
    return {"compared": spec.tier, "mismatched": len(examples), "examples": examples}


def observed(objective: Json, figures_: Json, values: dict[str, dict[str, int | None]]) -> float | None:
    """The observed figure of an objective; a percentile is in milliseconds."""
    figure = objective["figure"]
    if isinstance(figure, str):
        found: float | None = figures_.get(figure)
        return found
    at = figure["percentile_ms"]
    nanoseconds = values[f"{at['histogram']}_ns"][f"p{at['percentile']:g}"]
    return None if nanoseconds is None else nanoseconds / 1e6


def verdict(spec: TrialSpec, values: dict[str, dict[str, int | None]]) -> Json | None:
    """The verdict on the objectives; `None` without objectives or when the trial is invalid."""
    if not spec.objectives or spec.reasons:
        return None
    judged = []
    for objective in spec.objectives:
        figure = observed(objective, figures(spec), values)
        low, high = objective.get("at_least") or -math.inf, objective.get("at_most") or math.inf
        judged.append({"objective": objective, "seen": figure, "passed": figure is not None and low <= figure <= high})
    return {"passed": all(one["passed"] for one in judged), "objectives": judged}


def trial_result(spec: TrialSpec, run: str, parts: list[dict[str, HdrHistogram]]) -> Json:
    """The content of `result.json`."""
    sums = merged(parts)
    values = {name: percentiles(sum_) for name, sum_ in sums.items()}
    due = 0 if spec.storm else spec.due
    delivered = 0 if spec.storm else spec.due - spec.dropped - spec.lost
    reasons = [{"kind": kind, "detail": detail} for kind, detail in spec.reasons]
    return {
        "schema": 1,
        "run": run,
        "trial": spec.id,
        "attempt": 1,
        "started_at_unix_ns": START_NS,
        "load": spec.load,
        "message": spec.message,
        "witness": spec.witness,
        "validity": {"state": "invalid", "reasons": reasons} if reasons else {"state": "valid"},
        "verdict": verdict(spec, values),
        "bound_by": spec.bound_by if spec.load["model"] == "closed" else None,
        "connections": connection_counts(spec.tier, spec.failed),
        "messages": message_counts(spec, due, delivered, spec.dropped, spec.lost),
        "figures": figures(spec),
        "percentiles": values,
        "histograms": {name: histogram(sum_) for name, sum_ in sums.items()},
        "books": books(spec),
        "failures": dict(zip(("window", "outside"), spec.failures, strict=True)),
        "service": readings(spec),
        "workers": [evidence(spec)] * spec.workers,
        "reproduce": f"ladder run plans/example.yaml --only {spec.folder}",
    }
