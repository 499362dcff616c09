"""The service's side of a trial: readings of its counters, and its books of each connection."""

from __future__ import annotations

from tests.bundles.histograms import Json
from tests.bundles.spec import START_NS, TrialSpec, shares
from tests.bundles.workers import worker_books


def reading(spec: TrialSpec, at: float) -> Json:
    """A reading of the service's counters after the share `at` (0 to 1) of the trial's messages."""
    received = int(spec.due * at) if not spec.storm else 0
    dropped = int(spec.dropped * at)
    delivered = received - dropped - int(spec.lost * at)
    stats = {
        "service": spec.service,
        "version": "0.1.0",
        "uptime_seconds": 3.0 + at * spec.seconds,
        "connections": {
            "accepted": spec.tier - spec.failed,
            "open": spec.tier - spec.failed,
            "closed": {},
            "rejected": {},
        },
        "messages": {
            "received": delivered + dropped,
            "consumed": 0,
            "delivered": delivered,
            "dropped": {"inbound_overflow": dropped} if dropped else {},
            "queued": 0,
            "malformed": 0,
            "sent": 0,
            "send_dropped": {},
        },
        "bytes": {"received": received * 183, "sent": 0},
        "application": {"delivered": delivered, "sequence_sum": received * (received + 1) // 2, "unnumbered": 0},
    }
    return {
        "unix_ns": START_NS + int(at * spec.seconds * 1e9),
        "pid": 4711 + spec.process,
        "cpu_ns": 400_000_000 + int(at * spec.service_share * spec.seconds * 1e9),
        "rss_bytes": 50_000_000 + int(spec.tier * spec.bytes_per_connection),
        "cpu_limit": 1.0,
        "throttled_periods": None,
        "stats": stats,
    }


def readings(spec: TrialSpec) -> Json:
    """The readings before, at the window's edges and after the trial."""
    return {
        "before": reading(spec, 0),
        "window_start": reading(spec, 0),
        "window_end": reading(spec, 1),
        "after": reading(spec, 1),
    }


def service_books(spec: TrialSpec) -> list[Json]:
    """The service's books of all connections."""
    # The service's books don't cover messages that it sends.
    losses = [0 if spec.witness == "receiver" else spec.lost] + [0] * (spec.tier - 1)
    drops = shares(spec.dropped, spec.tier)
    return [
        {
            "id": book["id"],
            "open": True,
            "received": book["sent"] - lost,
            "consumed": 0,
            "dropped": dropped,
            "application": {
                "delivered": book["sent"] - lost - dropped,
                "sequence_sum": book["sequence_sum"],
                "unnumbered": 0,
            },
        }
        for book, lost, dropped in zip(worker_books(spec), losses, drops, strict=True)
    ]


def service_file(spec: TrialSpec) -> Json:
    """The content of `service.json`."""
    keeps = not spec.storm and not spec.totals_only
    return {"schema": 1, "readings": readings(spec), "connections": service_books(spec) if keeps else None}
