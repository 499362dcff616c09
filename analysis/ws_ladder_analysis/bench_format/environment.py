"""What the machine was (`environment.rs`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Environment:
    """One machine, as far as it shapes a result."""

    host: str
    kernel: str
    cpu_model: str
    cpus: int
    cpus_allowed: str
    memory_bytes: int
    virtualised: bool
    congestion_control: str
    somaxconn: str
    port_range: str
    tcp_rmem: str
    tcp_wmem: str
    open_files: int
