"""What to climb, as `run.json` carries it (`plan.rs`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .wire import FormatError, decode, table, tagged


class Arrivals(StrEnum):
    """How due times are spaced."""

    CONSTANT = "constant"
    POISSON = "poisson"


class ServiceProcess(StrEnum):
    """When the service process is replaced by a fresh one."""

    TIER = "tier"
    REPEAT = "repeat"


@dataclass(frozen=True)
class Open:
    """A schedule says when each message is due before the trial starts."""

    rate_per_second: float
    arrivals: Arrivals = Arrivals.CONSTANT


@dataclass(frozen=True)
class Closed:
    """Each connection sends its next message when the last was answered, or when the socket takes it."""

    messages_per_connection: int | None = None
    in_flight: int = 256


@dataclass(frozen=True)
class Load:
    """How load is offered: exactly one of the two models."""

    model: Open | Closed

    @property
    def is_open(self) -> bool:
        """Whether a schedule says when messages are due."""
        return isinstance(self.model, Open)

    @classmethod
    def from_wire(cls, value: object, where: str) -> Load:
        """From `{"model": "open", …}` or `{"model": "closed", …}`."""
        model, fields = tagged(value, "model", where)
        if model == "open":
            return cls(decode(Open, fields, where))
        if model == "closed":
            return cls(decode(Closed, fields, where))
        raise FormatError(f"{where}.model is {model!r}; known are open, closed")


@dataclass(frozen=True)
class Message:
    """What the messages are."""

    format: str = "json"
    size_bytes: int = 175
    coalesce: int = 1


@dataclass(frozen=True)
class CpuShape:
    """How much CPU one process of a role may use."""

    cpus: float = 1.0


@dataclass(frozen=True)
class CpuShapes:
    """CPU given to each role."""

    service: CpuShape = field(default_factory=CpuShape)
    worker: CpuShape = field(default_factory=CpuShape)


@dataclass(frozen=True)
class Thresholds:
    """Limits beyond which a trial is invalid."""

    start_skew_ms: float = 50.0
    delay_p99_ms: float = 5.0
    worker_cpu_share: float = 0.9
    throttled_share: float = 0.01
    send_share: float = 0.995
    bound_share: float = 0.9


@dataclass(frozen=True)
class PercentileMs:
    """A percentile of a histogram, in milliseconds."""

    histogram: str
    percentile: float


class PlainFigure(StrEnum):
    """A figure without parameters that an objective can judge."""

    DELIVERED_PER_SECOND = "delivered_per_second"
    FAILED_SHARE = "failed_share"
    SERVICE_CPU_SECONDS_PER_MILLION = "service_cpu_seconds_per_million"
    SERVICE_BYTES_PER_CONNECTION = "service_bytes_per_connection"


@dataclass(frozen=True)
class Figure:
    """A figure that an objective can judge."""

    what: PercentileMs | PlainFigure

    @classmethod
    def from_wire(cls, value: object, where: str) -> Figure:
        """From `"delivered_per_second"` or `{"percentile_ms": {…}}`."""
        if isinstance(value, str):
            return cls(decode(PlainFigure, value, where))
        fields = table(value, where)
        if set(fields) != {"percentile_ms"}:
            raise FormatError(f"{where} names no figure that this program knows: {', '.join(fields)}")
        return cls(decode(PercentileMs, fields["percentile_ms"], f"{where}.percentile_ms"))


@dataclass(frozen=True)
class Objective:
    """One condition on a trial's figures."""

    figure: Figure
    at_most: float | None = None
    at_least: float | None = None

    def holds(self, seen: float | None) -> bool:
        """Whether the figure meets it; one that could not be computed doesn't."""
        if seen is None:
            return False
        return (self.at_most is None or seen <= self.at_most) and (self.at_least is None or seen >= self.at_least)


@dataclass(frozen=True)
class Ladder:
    """Tiers of one workload in one variant."""

    workload: str
    tiers: list[int]
    load: Load
    variant: str = "standard"
    message: Message = field(default_factory=Message)
    service_env: dict[str, str] = field(default_factory=dict)
    services: list[str] = field(default_factory=list)
    warmup_seconds: float | None = None
    window_seconds: float | None = None
    objectives: list[Objective] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """A plan file, as it was when the run started."""

    schema: int
    name: str
    why: str
    seed: int
    services: list[str]
    window_seconds: float
    ladders: list[Ladder]
    workers: int = 1
    repeats: int = 1
    service_process: ServiceProcess = ServiceProcess.TIER
    cpu: CpuShapes = field(default_factory=CpuShapes)
    warmup_seconds: float = 0.5
    drain_seconds: float = 10.0
    validity: Thresholds = field(default_factory=Thresholds)
