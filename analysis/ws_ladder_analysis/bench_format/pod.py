"""What a container orchestrator gave to a service, what stands behind it, or a worker (`pod.rs`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PodRole(StrEnum):
    """What a pod did."""

    SERVICE = "service"
    COMPANION = "companion"
    INFERENCE = "inference"
    WORKER = "worker"


@dataclass(frozen=True)
class Pod:
    """One pod that took part in a trial."""

    name: str
    role: PodRole
    worker: int | None
    node: str
    qos_class: str
    cpus_allowed: str
    image: str
    image_digest: str
    restarts: int
    throttled_periods: int | None
    companion: str | None = None
