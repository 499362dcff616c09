"""The example run for the tests of the report; `python -m tests.bundles.example FOLDER` writes it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tests.bundles.files import bundle
from tests.bundles.spec import TrialSpec, open_load, p99_at_most


def flood(service: str, tier: int, process: int, speed: float) -> TrialSpec:
    """A throughput flood; the generator limits a fast service at small tiers."""
    due = int(400_000 * speed * (1 - tier / 20_000) * (1 + 0.02 * math.sin(7 * process + tier)))
    generator = speed > 1.5 and tier < 500
    return TrialSpec(
        service=service,
        variant="batch",
        tier=tier,
        process=process,
        due=due,
        dropped=due // 50 if tier >= 5_000 else 0,
        service_share=0.46 if generator else 0.98,
        worker_share=0.99 if generator else 0.71,
        bound_by="generator" if generator else "service",
        bytes_per_connection=(4_500 if speed > 1.5 else 11_300) + 40 * process,
        totals_only=speed < 1.5,
    )


def storm(service: str, tier: int, process: int, speed: float) -> TrialSpec:
    """A connection storm, which measures handshakes and sends no messages."""
    return TrialSpec(
        service=service,
        workload="connection-storm",
        tier=tier,
        process=process,
        witness="reply",
        seconds=round(tier / (9_000 * speed) * (1 + 0.03 * math.sin(5 * process)), 9),
        latencies={"handshake_ns": (12e6 / speed * (1 + 0.04 * math.sin(process)), 0.5)},
        worker_share=0.4,
        bytes_per_connection=(4_500 if speed > 1.5 else 11_300) + 40 * process,
    )


def steady(service: str, tier: int, process: int, speed: float) -> TrialSpec:
    """An open-loop trial that meets its objective at small tiers; one of them has a late generator."""
    late = service == "wse-server" and tier == 2_000 and process == 2
    wobble = 1 + 0.05 * math.sin(3 * process + tier)
    return TrialSpec(
        service=service,
        workload="ping-latency",
        variant="open-25k",
        tier=tier,
        process=process,
        load=open_load(25_000),
        witness="reply",
        due=50_000,
        latencies={
            "response_ns": (0.5e6 / speed * (1 + tier / 500) * wobble, 0.6),
            "service_ns": (0.42e6 / speed * (1 + tier / 500) * wobble, 0.55),
            "delay_ns": (30e3 * (300 if late else 1), 0.8),
        },
        service_share=0.35 + tier / 5_000 / speed,
        worker_share=0.5,
        objectives=(p99_at_most(10.0),),
        reasons=(("generator_late", "the generator was late: p99 of delay 61.0 ms, allowed 5 ms"),) if late else (),
        bytes_per_connection=(4_500 if speed > 1.5 else 11_300) + 40 * process,
    )


def example(folder: Path) -> Path:
    """Writes the run: two services, three ladders, five processes, an invalid trial and a failed one."""
    specs = [
        make(service, tier, process, speed)
        for make, tiers in ((storm, (100, 500, 2_000)), (flood, (100, 500, 1_000, 5_000)), (steady, (100, 500, 2_000)))
        for tier in tiers
        for process in range(1, 6)
        for service, speed in (("wse-server", 2.0), ("wse-reference", 1.0))
    ]
    failed = {"state": "failed", "reason": "the service exited with status 1 before it was ready"}
    specs[-1] = replace(specs[-1], state=failed)
    return bundle(folder, specs)


if __name__ == "__main__":
    import sys

    print(example(Path(sys.argv[1])))
