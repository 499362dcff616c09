"""The workers' side of a trial: the counts, books and evidence that they upload."""

from __future__ import annotations

from collections.abc import Iterator

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from tests.bundles.histograms import Json, histogram
from tests.bundles.spec import START_NS, TrialSpec, shares


def message_counts(spec: TrialSpec, due: int, delivered: int, dropped: int, lost: int) -> Json:
    """Message counts by outcome."""
    return {
        "due": due,
        "sent": 0 if spec.witness == "receiver" else due,
        "delivered": delivered,
        "late": 0,
        "wrong": 0,
        "dropped": {"inbound_overflow": dropped} if dropped else {},
        "lost": lost,
        "unsent": 0,
        "duplicates": 0,
        "reorders": 0,
        "bytes_sent": due * (spec.message["size_bytes"] + 8),
        "bytes_received": due * 4,
    }


def connection_counts(attempted: int, failed: int) -> Json:
    """Connection counts by outcome."""
    return {
        "attempted": attempted,
        "open": attempted - failed,
        "failed": {"refused": failed} if failed else {},
        "closed_early": {},
    }


def evidence(spec: TrialSpec) -> Json:
    """A worker's evidence: CPU, throttling, clock and start skew."""
    return {
        "program": "wse-bench 0.1.0",
        "start_at_unix_ns": START_NS,
        "start_skew_ns": 212_000,
        "clock_offset_ns": -3_100,
        "clock_uncertainty_ns": 41_000,
        "clock_step_ns": 900,
        "cpu_limit": 1.0 / spec.workers,
        "cpu_seconds": spec.worker_share * spec.seconds * 1.3 / spec.workers,
        "throttled_periods": None,
        "periods": None,
        "throttling": "not_measured",
        "rss_bytes": 21_000_000,
        "nodelay": True,
        "congestion_control": "cubic",
    }


def environment() -> Json:
    """The environment of a machine."""
    return {
        "host": "bench-1",
        "kernel": "6.1.0-amd64",
        "cpu_model": "AMD EPYC 7B13",
        "cpus": 2,
        "cpus_allowed": "0-1",
        "memory_bytes": 8 * 2**30,
        "virtualised": True,
        "congestion_control": "cubic",
        "somaxconn": "4096",
        "port_range": "1024 65535",
        "tcp_rmem": "4096 131072 6291456",
        "tcp_wmem": "4096 16384 4194304",
        "open_files": 1_048_576,
    }


def worker_books(spec: TrialSpec) -> list[Json]:
    """The workers' books of all connections."""
    if spec.witness == "receiver":
        missing = shares(spec.lost, spec.tier)
        return [
            {
                "id": f"c-{index}",
                "sent": 0,
                "sequence_sum": 0,
                "unnumbered": 0,
                "replies": 0,
                "receiver": receiver(due, lost),
            }
            for index, (due, lost) in enumerate(zip(shares(spec.due, spec.tier), missing, strict=True))
        ]
    return [
        {"id": f"c-{index}", "sent": sent, "sequence_sum": index * 7, "unnumbered": 0, "replies": 0}
        for index, sent in enumerate(shares(spec.due, spec.tier))
    ]


def receiver(due: int, lost: int) -> Json:
    """The receiver's counts of a connection to a service that publishes."""
    counts = {"received": due - lost, "missing": lost, "duplicated": 0, "reordered": 0, "wrong": 0, "others": 1}
    return {"first": 5, "last": 4 + due, **counts, "reached": True, "closed": True}


def worker_results(spec: TrialSpec, run: str, parts: list[dict[str, HdrHistogram]]) -> Iterator[Json]:
    """The result that each worker uploads."""
    all_books = worker_books(spec)
    receives = spec.witness == "receiver"
    totals = (spec.due, spec.tier, spec.failed, spec.lost)
    columns = zip(*(shares(total, spec.workers) for total in totals), strict=True)
    for index, (due, connections, failed, lost) in enumerate(columns):
        sent = 0 if spec.storm else due
        got = due - lost if receives else 0
        yield {
            "schema": 1,
            "run": run,
            "trial": spec.id,
            "attempt": 1,
            "worker": index,
            "witness": spec.witness,
            "connections": connection_counts(connections, failed),
            "messages": message_counts(spec, sent, got, 0, lost if receives else 0),
            "window": {
                "duration_ns": int(spec.seconds * 1e9),
                "due": 0 if receives else sent,
                "sent": 0 if receives else sent,
                "replies": sent if spec.witness == "reply" else got,
                "writes": 0 if receives else sent,
                "reads": got // 10,
                "bytes_read": got * 102,
                "cpu_ns": int(spec.worker_share * spec.seconds * 1e9 / spec.workers),
            },
            "histograms": {name: histogram(values) for name, values in parts[index].items()},
            "intervals": [],
            "books": [] if spec.storm or spec.totals_only else all_books[index :: spec.workers],
            "evidence": evidence(spec),
            "environment": environment(),
        }
