"""The figures that others published for gateways of the same protocol, and which of them can be compared with ours.

Document 002 (May 2026) names the most sessions that each of its gateways carried within the objective on one CPU of its
machine, and its lines of code. Sessions per CPU are the inverse of CPU per session, so their ratios to one gateway can
be compared with ratios of CPU per frame measured elsewhere. The comparison is rough, because most gateways were limited
by latency and not by CPU. Three of its implementations were run on a machine of our kind, each beside its own axum; for
these the measured ratio is used instead of the derived one.
"""

from __future__ import annotations

from dataclasses import dataclass

# Our gateway that all others are compared with; the document has a counterpart of it.
YARDSTICK = "rust-axum-plain"


@dataclass(frozen=True)
class Published:
    """A gateway of document 002."""

    name: str
    # Most sessions within the objective, on one CPU of its machine.
    sessions: int
    # "App LOC" in its table.
    lines: int
    # CPU per frame divided by that of its axum, where it was run on a machine of our kind.
    measured: float | None = None
    # Sessions on two CPUs divided by sessions on one, in one process (CPython: in two).
    second_cpu: float | None = None


# Keyed by the name of our gateway that is made of the same parts, as far as these are available.
GATEWAYS = {
    YARDSTICK: Published("rust-axum", 3475, 696, second_cpu=1.42),
    "rust-axum": Published("rust-axum", 3475, 696, second_cpu=1.42),
    "rust-sync": Published("rust-sync", 4400, 1221, second_cpu=1.25),
    "cpp23-uwebsockets": Published("cpp23-uwebsockets", 4350, 1551),
    "java-helidon": Published("java-helidon-nima", 2625, 917, second_cpu=1.44),
    "typescript-bun": Published("typescript-bun", 2550, 734, measured=1.25),
    "go-nethttp": Published("go-nethttp", 2500, 893, measured=1.6, second_cpu=1.6),
    "scala-pekko": Published("scala-pekko", 1400, 726, second_cpu=1.57),
    "elixir-cowboy": Published("elixir-phoenix", 1250, 784, second_cpu=1.8),
    "python-fastapi": Published("python-fastapi", 1100, 678, measured=1.5, second_cpu=1.59),
}


def ratio(gateway: str) -> float | None:
    """CPU per frame divided by the yardstick's, measured or derived; `None` when no published gateway corresponds."""
    found = GATEWAYS.get(gateway)
    if found is None:
        return None
    return found.measured or GATEWAYS[YARDSTICK].sessions / found.sessions


def second_cpu(gateway: str) -> float | None:
    """How many times as many sessions a gateway carried on two CPUs; `None` where that wasn't published."""
    found = GATEWAYS.get(gateway)
    return found.second_cpu if found else None
