"""What others published for gateways of the same protocol, and what of it may stand beside another machine's figures.

Document 002 (May 2026) names the most sessions that each of its gateways carried inside the objective on one CPU of
its machine, and the lines of its code. Sessions per CPU are the inverse of CPU per session, so as a share of one
gateway's they may stand beside ratios of CPU per frame measured elsewhere: with a grain of salt, because most of them
were stopped by a latency and not by a CPU that was used up. Three of its implementations were run on a machine of our
kind, all beside its own axum; where that was done, that ratio stands, and nothing is derived.
"""

from __future__ import annotations

from dataclasses import dataclass

# Ours that all others are compared with, and its counterpart there.
YARDSTICK = "rust-axum-plain"


@dataclass(frozen=True)
class Published:
    """A gateway of document 002."""

    name: str
    # Inside the objective, on one CPU of its machine.
    sessions: int
    # "App LOC" of its table.
    lines: int
    # CPU per frame beside that of its axum, where it was run on a machine of our kind.
    measured: float | None = None


# By the name of ours that is made of the same parts, as far as they could be had.
GATEWAYS = {
    YARDSTICK: Published("rust-axum", 3475, 696),
    "rust-axum": Published("rust-axum", 3475, 696),
    "rust-sync": Published("rust-sync", 4400, 1221),
    "cpp23-uwebsockets": Published("cpp23-uwebsockets", 4350, 1551),
    "java-helidon": Published("java-helidon-nima", 2625, 917),
    "typescript-bun": Published("typescript-bun", 2550, 734, measured=1.25),
    "go-nethttp": Published("go-nethttp", 2500, 893, measured=1.6),
    "scala-pekko": Published("scala-pekko", 1400, 726),
    "elixir-cowboy": Published("elixir-phoenix", 1250, 784),
    "python-fastapi": Published("python-fastapi", 1100, 678, measured=1.5),
}


def ratio(gateway: str) -> float | None:
    """CPU per frame beside the yardstick's, as published or derived; nothing where nothing corresponds."""
    found = GATEWAYS.get(gateway)
    if found is None:
        return None
    return found.measured or GATEWAYS[YARDSTICK].sessions / found.sessions
