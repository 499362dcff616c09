"""What a trial leaves: as each worker uploaded it, and merged and judged (`result.rs`, `trial.rs`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .books import Books
from .environment import Environment
from .plan import Load, Message, Objective
from .pod import Pod
from .service import LinksStats, ProcessStats, PublisherStats, ServiceStats
from .wire import FormatError, Raw, decode, tagged


@dataclass(frozen=True, order=True)
class TrialId:
    """Which trial, within a run."""

    service: str
    workload: str
    variant: str
    tier: int
    process: int
    repeat: int

    def __str__(self) -> str:
        """Its folder inside `trials/`."""
        return f"{self.service}/{self.workload}/{self.variant}/{self.tier}-p{self.process}-r{self.repeat}"


@dataclass(frozen=True)
class WireHistogram:
    """A histogram as it travels: V2 deflate, base64."""

    v2: str
    count: int
    overflow: int


class Witness(StrEnum):
    """Who says that a message arrived."""

    APPLICATION = "application"
    REPLY = "reply"
    RECEIVER = "receiver"
    NONE = "none"


class BoundBy(StrEnum):
    """What limited a closed-loop trial or one of sessions."""

    SERVICE = "service"
    GENERATOR = "generator"
    BOTH = "both"
    NEITHER = "neither"
    INFERENCE = "inference"


class ReasonKind(StrEnum):
    """Why a trial is invalid."""

    UNACCOUNTED = "unaccounted"
    WORKERS_MISSING = "workers_missing"
    START_SKEW = "start_skew"
    GENERATOR_LATE = "generator_late"
    GENERATOR_CPU = "generator_cpu"
    SEND_RATE = "send_rate"
    INFERENCE_CPU = "inference_cpu"
    SERVICE_RESTARTED = "service_restarted"
    CLOCK_STEP = "clock_step"
    READING_LATE = "reading_late"
    WINDOW_SHORT = "window_short"
    CONFORMANCE = "conformance"
    ISOLATION = "isolation"


@dataclass(frozen=True)
class Reason:
    """A rule that was broken, and what was seen against what is allowed."""

    kind: ReasonKind
    detail: str


@dataclass(frozen=True)
class Validity:
    """Whether a trial may be used at all: no reasons means valid."""

    reasons: tuple[Reason, ...]

    @property
    def valid(self) -> bool:
        """Whether the trial may be used."""
        return not self.reasons

    @classmethod
    def from_wire(cls, value: object, where: str) -> Validity:
        """From `{"state": "valid"}` or `{"state": "invalid", "reasons": […]}`."""
        state, fields = tagged(value, "state", where)
        if state == "valid" and not fields:
            return cls(())
        if state == "invalid" and set(fields) == {"reasons"}:
            reasons = decode(list[Reason], fields["reasons"], f"{where}.reasons")
            if reasons:
                return cls(tuple(reasons))
            raise FormatError(f"{where} is invalid without a reason")
        raise FormatError(f"{where} is neither valid nor invalid with reasons: {state!r}")


@dataclass(frozen=True)
class ConnectionCounts:
    """Connections over a whole trial: `attempted = open + sum(failed)`."""

    attempted: int
    open: int
    failed: dict[str, int]
    closed_early: dict[str, int]


@dataclass(frozen=True)
class MessageCounts:
    """Messages: `due = delivered + late + wrong + sum(dropped) + lost + unsent`, and `sent = due - unsent`.

    Where a service publishes, those are due that were published for a connection, and workers send none.
    """

    due: int
    sent: int
    delivered: int
    late: int
    wrong: int
    dropped: dict[str, int]
    lost: int
    unsent: int
    duplicates: int
    reorders: int
    bytes_sent: int
    bytes_received: int


@dataclass(frozen=True)
class Failures:
    """Failures by kind, each counted once, where it happened."""

    window: dict[str, int] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Conformance:
    """The protocol check of the service before and after the load: what was wrong."""

    before: list[str]
    after: list[str]
    opened: int = 0


@dataclass(frozen=True)
class WindowCounts:
    """Counters over the measured window only, from the worker's side."""

    duration_ns: int
    due: int
    sent: int
    replies: int
    writes: int
    cpu_ns: int
    answered: int = 0
    reads: int = 0
    bytes_read: int = 0


@dataclass(frozen=True)
class WorkerEvidence:
    """How a worker itself fared: its innocence, or not."""

    program: str
    start_at_unix_ns: int
    start_skew_ns: int
    clock_offset_ns: int
    clock_uncertainty_ns: int
    clock_step_ns: int
    cpu_limit: float
    cpu_seconds: float
    throttled_periods: int | None
    periods: int | None
    throttling: str
    rss_bytes: int
    nodelay: bool
    congestion_control: str


@dataclass(frozen=True)
class WorkerResult:
    """`workers/<index>.json`. Intervals and the books of single connections are kept as parsed."""

    schema: int
    run: str
    trial: TrialId
    attempt: int
    worker: int
    witness: Witness
    connections: ConnectionCounts
    messages: MessageCounts
    window: WindowCounts
    histograms: dict[str, WireHistogram]
    evidence: WorkerEvidence
    environment: Environment
    intervals: list[Raw] = field(default_factory=list)
    books: list[Raw] = field(default_factory=list)
    failures: Failures = field(default_factory=Failures)
    conformance: Conformance | None = None


@dataclass(frozen=True)
class Judged:
    """One objective and what was seen."""

    objective: Objective
    seen: float | None
    passed: bool


@dataclass(frozen=True)
class Verdict:
    """Against the objectives."""

    passed: bool
    objectives: list[Judged]


@dataclass(frozen=True)
class Figures:
    """Rates and costs of the window. A field that makes no sense for the workload is absent."""

    window_seconds: float
    due_per_second: float | None = None
    written_per_second: float | None = None
    received_per_second: float | None = None
    delivered_per_second: float | None = None
    dropped_per_second: float | None = None
    accepted_per_second: float | None = None
    messages_per_write: float | None = None
    service_cpu_seconds: float | None = None
    worker_cpu_seconds: float | None = None
    service_cpu_share: float | None = None
    worker_cpu_share: float | None = None
    service_cpu_seconds_per_million: float | None = None
    worker_cpu_seconds_per_million: float | None = None
    service_rss_bytes: int | None = None
    service_bytes_per_connection: float | None = None
    failed_share: float | None = None
    replies_per_second: float | None = None
    error_share: float | None = None
    inference_cpu_seconds: float | None = None
    inference_cpu_share: float | None = None
    published_per_second: float | None = None
    messages_per_read: float | None = None
    bytes_read_per_second: float | None = None


@dataclass(frozen=True)
class ProcessReading:
    """What the kernel says of a process."""

    pid: int
    cpu_ns: int
    rss_bytes: int
    cpu_limit: float
    throttled_periods: int | None
    periods: int | None


@dataclass(frozen=True)
class Reading:
    """One reading of the service."""

    unix_ns: int
    throttled_periods: int | None
    stats: ServiceStats
    pid: int | None = None
    cpu_ns: int | None = None
    rss_bytes: int | None = None
    cpu_limit: float | None = None
    periods: int | None = None
    publisher: PublisherStats | None = None
    links: LinksStats | None = None
    processes: dict[str, ProcessStats] = field(default_factory=dict)
    inference: ProcessReading | None = None
    companions: dict[str, ProcessReading] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceReadings:
    """Readings of the service around a trial."""

    before: Reading | None
    window_start: Reading | None
    window_end: Reading | None
    after: Reading | None


@dataclass(frozen=True)
class ServiceFile:
    """`service.json`: the service's side of a trial. The books of single connections are kept as parsed."""

    schema: int
    readings: ServiceReadings
    connections: list[Raw] | None


@dataclass(frozen=True)
class TrialResult:
    """`result.json`: a trial, merged over its workers and judged."""

    schema: int
    run: str
    trial: TrialId
    attempt: int
    started_at_unix_ns: int
    load: Load
    message: Message
    witness: Witness
    validity: Validity
    verdict: Verdict | None
    bound_by: BoundBy | None
    connections: ConnectionCounts
    messages: MessageCounts
    figures: Figures
    percentiles: dict[str, dict[str, int | None]]
    histograms: dict[str, WireHistogram]
    books: Books
    service: ServiceReadings
    workers: list[WorkerEvidence]
    reproduce: str
    pods: list[Pod] = field(default_factory=list)
    failures: Failures = field(default_factory=Failures)
