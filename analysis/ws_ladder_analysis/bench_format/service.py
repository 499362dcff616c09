"""What a service says of itself (`services/contract`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ConnectionStats:
    """How connections ended up."""

    accepted: int
    open: int
    closed: dict[str, int]
    rejected: dict[str, int]


@dataclass(frozen=True)
class MessageStats:
    """What became of messages: `received = consumed + delivered + sum(dropped) + queued`."""

    received: int
    consumed: int
    delivered: int
    dropped: dict[str, int]
    queued: int
    malformed: int
    sent: int
    send_dropped: dict[str, int]


@dataclass(frozen=True)
class ByteStats:
    """Bytes on the wire."""

    received: int
    sent: int


@dataclass(frozen=True)
class ApplicationStats:
    """What the application counted, inside the loop that received the messages."""

    delivered: int
    sequence_sum: int
    unnumbered: int


@dataclass(frozen=True)
class InferenceStats:
    """A gateway's requests to the inference behind it."""

    requests: int
    answered: int
    failed: dict[str, int]
    abandoned: int
    in_flight: int
    ticks_skipped: int
    buffered_bytes: int


@dataclass(frozen=True)
class ServiceStats:
    """One consistent reading of the service's counters."""

    service: str
    version: str
    uptime_seconds: float
    connections: ConnectionStats
    messages: MessageStats
    bytes: ByteStats
    application: ApplicationStats | None
    inference: InferenceStats | None = None


@dataclass(frozen=True)
class PublisherStats:
    """What a service that publishes by itself has published."""

    mode: str
    rate_per_second: float | None
    backpressure: str
    publishing: bool
    published: int
    bytes: int
    first_sequence: int | None
    last_sequence: int | None
    publishing_seconds: float
    late: int
    lateness_max_us: int


@dataclass(frozen=True)
class LinkStats:
    """What one kind of link carried between the instances of a service: `published = sent + sum(dropped) + queued`."""

    published: int
    sent: int
    dropped: dict[str, int]
    received: int
    delivered: int
    lost: int
    queued: int = 0
    reconnects: int = 0
    connected: int = 0


@dataclass(frozen=True)
class LinksStats:
    """What carried publications between the instances of a service, all instances together."""

    cluster: LinkStats | None = None
    redis: LinkStats | None = None


@dataclass(frozen=True)
class ProcessStats:
    """What the kernel says of one process of a service."""

    pid: int
    cpu_ns: int
    rss_bytes: int
