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
class Sessions:
    """Each session sends at the pace that its protocol fixes, whatever the service does."""

    ramp_seconds: float = 0.0
    spread_ms: float = 0.0
    in_flight: int = 256


MODELS = {"open": Open, "closed": Closed, "sessions": Sessions}


@dataclass(frozen=True)
class Load:
    """How load is offered: exactly one of the models."""

    model: Open | Closed | Sessions

    @property
    def is_open(self) -> bool:
        """Whether a schedule says when messages are due."""
        return not isinstance(self.model, Closed)

    @property
    def name(self) -> str:
        """The model's word in a plan."""
        return next(name for name, kind in MODELS.items() if isinstance(self.model, kind))

    @classmethod
    def from_wire(cls, value: object, where: str) -> Load:
        """From `{"model": "open", …}`."""
        model, fields = tagged(value, "model", where)
        if model in MODELS:
            return cls(decode(MODELS[model], fields, where))
        raise FormatError(f"{where}.model is {model!r}; known are {', '.join(MODELS)}")


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
    inference: CpuShape = field(default_factory=CpuShape)


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
    ERROR_SHARE = "error_share"
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


class SearchOver(StrEnum):
    """What grows in a search."""

    CONNECTIONS = "connections"
    RATE_PER_SECOND = "rate_per_second"


class SearchStart(StrEnum):
    """Where a search begins."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True)
class Confirm:
    """How what a search found is confirmed."""

    window_seconds: float = 45.0
    repeats: int = 2


@dataclass(frozen=True)
class SearchPlan:
    """A search for the largest load that meets the objectives."""

    final_trial_seconds: float
    duration_sum_seconds: float
    to: int
    from_: int
    over: SearchOver = SearchOver.CONNECTIONS
    connections: int | None = None
    start: SearchStart = SearchStart.LOW
    initial_trial_seconds: float | None = None
    width: float = 0.02
    exceed_ratio: float = 0.5
    confirm: Confirm = field(default_factory=Confirm)


@dataclass(frozen=True)
class Ladder:
    """Tiers of one workload in one variant."""

    workload: str
    load: Load
    tiers: list[int] = field(default_factory=list)
    variant: str = "standard"
    message: Message = field(default_factory=Message)
    service_env: dict[str, str] = field(default_factory=dict)
    inference_env: dict[str, str] = field(default_factory=dict)
    services: list[str] = field(default_factory=list)
    repeats: int | None = None
    warmup_seconds: float | None = None
    window_seconds: float | None = None
    samples: bool = False
    objectives: list[Objective] = field(default_factory=list)
    search: SearchPlan | None = None


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
