"""The specification of a trial, from which its files are derived."""

from __future__ import annotations

from dataclasses import dataclass, field

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from tests.bundles.histograms import Json, lognormal

START_NS = 1_790_000_000_000_000_000


@dataclass(frozen=True)
class TrialSpec:
    """The properties of one trial that a test sets; the defaults are a valid throughput trial."""

    service: str = "wse-server"
    workload: str = "throughput"
    variant: str = "standard"
    tier: int = 100
    process: int = 1
    repeat: int = 1
    load: Json = field(default_factory=lambda: {"model": "closed", "in_flight": 256})
    message: Json = field(default_factory=lambda: {"format": "json", "size_bytes": 175, "coalesce": 1})
    witness: str = "application"
    seconds: float = 2.0
    due: int = 20_000
    dropped: int = 0
    lost: int = 0
    failed: int = 0
    # Median (ns) and sigma by histogram; every message has one value in each.
    latencies: dict[str, tuple[float, float]] = field(default_factory=dict)
    samples: int | None = None
    service_share: float = 0.97
    worker_share: float = 0.55
    bytes_per_connection: float = 4_400.0
    bound_by: str | None = "service"
    reasons: tuple[tuple[str, str], ...] = ()
    objectives: tuple[Json, ...] = ()
    workers: int = 2
    # Failures in the window and outside it, by kind; with `replies` there is an error share.
    failures: tuple[dict[str, int], dict[str, int]] = ({}, {})
    replies: int = 0
    # Whether the service has no books of single connections.
    totals_only: bool = False
    state: Json | None = None

    @property
    def id(self) -> Json:
        """The trial's id as JSON."""
        names = ("service", "workload", "variant", "tier", "process", "repeat")
        return {name: getattr(self, name) for name in names}

    @property
    def folder(self) -> str:
        """The trial's folder inside `trials/`."""
        return f"{self.service}/{self.workload}/{self.variant}/{self.tier}-p{self.process}-r{self.repeat}"

    @property
    def storm(self) -> bool:
        """Whether the trial measures handshakes and sends no messages."""
        return "handshake_ns" in self.latencies


def shares(total: int, parts: int) -> list[int]:
    """Splits an integer as evenly as possible."""
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


def worker_parts(spec: TrialSpec) -> list[dict[str, HdrHistogram]]:
    """The histograms of each worker."""
    total = spec.samples if spec.samples is not None else (spec.tier if spec.storm else spec.due)
    return [
        {name: lognormal(median * (1 + index / 50), sigma, part) for name, (median, sigma) in spec.latencies.items()}
        for index, part in enumerate(shares(total, spec.workers))
    ]


def p99_at_most(milliseconds: float, of: str = "response") -> Json:
    """An objective for p99 of a histogram."""
    return {
        "figure": {"percentile_ms": {"histogram": of, "percentile": 99.0}},
        "at_most": milliseconds,
        "at_least": None,
    }


def open_load(rate_per_second: float) -> Json:
    """An open load with constant arrivals."""
    return {"model": "open", "rate_per_second": rate_per_second, "arrivals": "constant"}
