"""Builds bundles on disk as `ladder run` leaves them, with real V2 histograms and books that balance.

A test says what is special about its trial; everything else follows from it, so that a fixture agrees with itself and
the checks find exactly the fault that was planted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

Json = dict[str, Any]

HIGHEST_NS = 600_000_000_000
START_NS = 1_790_000_000_000_000_000
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)


def histogram(values: HdrHistogram, overflow: int = 0) -> Json:
    """A histogram as it travels."""
    return {"v2": values.encode().decode(), "count": values.total_count, "overflow": overflow}


def lognormal(median_ns: float, sigma: float, count: int) -> HdrHistogram:
    """A histogram of exactly `count` values, spread like latencies are."""
    values = HdrHistogram(1, HIGHEST_NS, 3)
    steps, before = 400, 0
    for step in range(1, steps + 1):
        # Ever finer towards the end, where the interesting percentiles are.
        below = round(count * (1 - (1 - step / steps) ** 3))
        if below > before:
            quantile = (before + below) / 2 / count
            values.record_value(
                max(1, int(median_ns * math.exp(sigma * NormalDist().inv_cdf(quantile)))), below - before
            )
            before = below
    return values


@dataclass(frozen=True)
class TrialSpec:
    """What is special about one trial."""

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
    # By histogram: median and spread; every message has one value in each.
    latencies: dict[str, tuple[float, float]] = field(default_factory=dict)
    samples: int | None = None
    service_share: float = 0.97
    worker_share: float = 0.55
    bytes_per_connection: float = 4_400.0
    bound_by: str | None = "service"
    reasons: tuple[tuple[str, str], ...] = ()
    objectives: tuple[Json, ...] = ()
    workers: int = 2
    # A service that keeps no books on single connections.
    totals_only: bool = False
    state: Json | None = None

    @property
    def id(self) -> Json:
        """Which trial."""
        names = ("service", "workload", "variant", "tier", "process", "repeat")
        return {name: getattr(self, name) for name in names}

    @property
    def folder(self) -> str:
        """Where it lies inside `trials/`."""
        return f"{self.service}/{self.workload}/{self.variant}/{self.tier}-p{self.process}-r{self.repeat}"

    @property
    def storm(self) -> bool:
        """Whether it measures handshakes and sends nothing."""
        return "handshake_ns" in self.latencies


def shares(total: int, parts: int) -> list[int]:
    """A whole number, split as evenly as it goes."""
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]


def worker_parts(spec: TrialSpec) -> list[dict[str, HdrHistogram]]:
    """The workers' histograms."""
    total = spec.samples if spec.samples is not None else (spec.tier if spec.storm else spec.due)
    return [
        {name: lognormal(median * (1 + index / 50), sigma, part) for name, (median, sigma) in spec.latencies.items()}
        for index, part in enumerate(shares(total, spec.workers))
    ]


def merged(parts: list[dict[str, HdrHistogram]]) -> dict[str, HdrHistogram]:
    """All workers' histograms, added."""
    sums: dict[str, HdrHistogram] = {}
    for part in parts:
        for name, values in part.items():
            sums.setdefault(name, HdrHistogram(1, HIGHEST_NS, 3)).add(values)
    return sums


def percentiles(values: HdrHistogram) -> dict[str, int | None]:
    """Those that have enough samples, computed without the package under test."""
    total = values.total_count
    gates = {50.0: 1, 90.0: 44, 95.0: 90, 99.0: 459, 99.9: 4_603, 99.99: 46_050}
    at_once = values.get_percentile_to_value_dict(list(PERCENTILES)) if total else {}
    found: dict[str, int | None] = {f"p{at:g}": at_once[at] if total >= gates[at] else None for at in PERCENTILES}
    # The library's mean takes a second, and nobody looks at it: the median will do.
    extremes = {"max": values.get_max_value(), "mean": at_once.get(50.0), "min": values.get_min_value()}
    return found | {name: value if total else None for name, value in extremes.items()}


def message_counts(spec: TrialSpec, due: int, delivered: int, dropped: int, lost: int) -> Json:
    """Outcomes of messages."""
    return {
        "due": due,
        "sent": due,
        "delivered": delivered,
        "late": 0,
        "wrong": 0,
        "dropped": {"inbound_overflow": dropped} if dropped else {},
        "lost": lost,
        "unsent": 0,
        "duplicates": 0,
        "reorders": 0,
        "bytes_sent": due * (spec.message["size_bytes"] + 8),
        "bytes_received": due * 4,
    }


def connection_counts(attempted: int, failed: int) -> Json:
    """Outcomes of connections."""
    return {
        "attempted": attempted,
        "open": attempted - failed,
        "failed": {"refused": failed} if failed else {},
        "closed_early": {},
    }


def evidence(spec: TrialSpec) -> Json:
    """How a worker fared."""
    return {
        "program": "wse-bench 0.1.0",
        "start_at_unix_ns": START_NS,
        "start_skew_ns": 212_000,
        "clock_offset_ns": -3_100,
        "clock_uncertainty_ns": 41_000,
        "clock_step_ns": 900,
        "cpu_limit": 1.0 / spec.workers,
        "cpu_seconds": spec.worker_share * spec.seconds * 1.3 / spec.workers,
        "throttled_periods": None,
        "periods": None,
        "throttling": "not_measured",
        "rss_bytes": 21_000_000,
        "nodelay": True,
        "congestion_control": "cubic",
    }


def environment() -> Json:
    """A machine."""
    return {
        "host": "bench-1",
        "kernel": "6.1.0-amd64",
        "cpu_model": "AMD EPYC 7B13",
        "cpus": 2,
        "cpus_allowed": "0-1",
        "memory_bytes": 8 * 2**30,
        "virtualised": True,
        "congestion_control": "cubic",
        "somaxconn": "4096",
        "port_range": "1024 65535",
        "tcp_rmem": "4096 131072 6291456",
        "tcp_wmem": "4096 16384 4194304",
        "open_files": 1_048_576,
    }


def reading(spec: TrialSpec, at: float) -> Json:
    """The service's counters with a share `at` of the trial's messages behind it."""
    received = int(spec.due * at) if not spec.storm else 0
    dropped = int(spec.dropped * at)
    delivered = received - dropped - int(spec.lost * at)
    stats = {
        "service": spec.service,
        "version": "0.1.0",
        "uptime_seconds": 3.0 + at * spec.seconds,
        "connections": {
            "accepted": spec.tier - spec.failed,
            "open": spec.tier - spec.failed,
            "closed": {},
            "rejected": {},
        },
        "messages": {
            "received": delivered + dropped,
            "consumed": 0,
            "delivered": delivered,
            "dropped": {"inbound_overflow": dropped} if dropped else {},
            "queued": 0,
            "malformed": 0,
            "sent": 0,
            "send_dropped": {},
        },
        "bytes": {"received": received * 183, "sent": 0},
        "application": {"delivered": delivered, "sequence_sum": received * (received + 1) // 2, "unnumbered": 0},
    }
    return {
        "unix_ns": START_NS + int(at * spec.seconds * 1e9),
        "pid": 4711 + spec.process,
        "cpu_ns": 400_000_000 + int(at * spec.service_share * spec.seconds * 1e9),
        "rss_bytes": 50_000_000 + int(spec.tier * spec.bytes_per_connection),
        "cpu_limit": 1.0,
        "throttled_periods": None,
        "stats": stats,
    }


def figures(spec: TrialSpec) -> Json:
    """Rates and costs, from the counts."""
    delivered = spec.due - spec.dropped - spec.lost
    service_cpu = spec.service_share * spec.seconds
    worker_cpu = spec.worker_share * spec.seconds
    found: Json = {
        "window_seconds": spec.seconds,
        "service_cpu_seconds": service_cpu,
        "worker_cpu_seconds": worker_cpu,
        "service_cpu_share": spec.service_share,
        "worker_cpu_share": spec.worker_share,
        "service_rss_bytes": 50_000_000 + int(spec.tier * spec.bytes_per_connection),
        "service_bytes_per_connection": spec.bytes_per_connection,
        "failed_share": spec.failed / spec.tier if spec.storm else (spec.dropped + spec.lost) / spec.due,
    }
    if spec.storm:
        return found | {"accepted_per_second": (spec.tier - spec.failed) / spec.seconds}
    return found | {
        "due_per_second": spec.due / spec.seconds,
        "written_per_second": spec.due / spec.seconds,
        "received_per_second": (delivered + spec.dropped) / spec.seconds,
        "delivered_per_second": None if spec.witness == "none" else delivered / spec.seconds,
        "dropped_per_second": spec.dropped / spec.seconds,
        "messages_per_write": 1.0,
        "service_cpu_seconds_per_million": service_cpu / delivered * 1e6 if delivered else None,
        "worker_cpu_seconds_per_million": worker_cpu / spec.due * 1e6,
    }


def equation(name: str, left: int, terms: dict[str, int]) -> Json:
    """One equation of the books."""
    return {"name": name, "left": left, "right": sum(terms.values()), "terms": [list(term) for term in terms.items()]}


def books(spec: TrialSpec) -> Json:
    """The equations; what was lost is missing from the right side, as it would be."""
    opened = equation("attempted = open + failed", spec.tier, {"open": spec.tier - spec.failed, "failed": spec.failed})
    if spec.storm:
        return {"equations": [opened], "connections": None}
    delivered = spec.due - spec.dropped - spec.lost
    fates = {"delivered (application)": delivered, "dropped(inbound_overflow)": spec.dropped}
    numbers = spec.due * (spec.due + 1) // 2
    return {
        "equations": [
            opened,
            equation("due = sent + unsent", spec.due, {"sent": spec.due, "unsent": 0}),
            equation("sent = delivered (application) + dropped", spec.due, fates),
            equation("sequence sum sent = sequence sum delivered", numbers, {"sequence sum delivered": numbers}),
        ],
        "connections": None if spec.totals_only else connection_check(spec),
    }


def connection_check(spec: TrialSpec) -> Json:
    """The comparison of both sides' books: what was lost is missing on the first connection."""
    sent = shares(spec.due, spec.tier)[0]
    examples = [f"c-0: sent {sent}, received {sent - spec.lost}"] if spec.lost else []
    return {"compared": spec.tier, "mismatched": len(examples), "examples": examples}


def worker_books(spec: TrialSpec) -> list[Json]:
    """Every connection as the workers saw it."""
    return [
        {"id": f"c-{index}", "sent": sent, "sequence_sum": index * 7, "unnumbered": 0, "replies": 0}
        for index, sent in enumerate(shares(spec.due, spec.tier))
    ]


def service_books(spec: TrialSpec) -> list[Json]:
    """Every connection as the service saw it."""
    losses = [spec.lost] + [0] * (spec.tier - 1)
    drops = shares(spec.dropped, spec.tier)
    return [
        {
            "id": book["id"],
            "open": True,
            "received": book["sent"] - lost,
            "consumed": 0,
            "dropped": dropped,
            "application": {
                "delivered": book["sent"] - lost - dropped,
                "sequence_sum": book["sequence_sum"],
                "unnumbered": 0,
            },
        }
        for book, lost, dropped in zip(worker_books(spec), losses, drops, strict=True)
    ]


def service_file(spec: TrialSpec) -> Json:
    """`service.json`."""
    keeps = not spec.storm and not spec.totals_only
    return {"schema": 1, "readings": readings(spec), "connections": service_books(spec) if keeps else None}


def readings(spec: TrialSpec) -> Json:
    """The service's counters around the trial."""
    return {
        "before": reading(spec, 0),
        "window_start": reading(spec, 0),
        "window_end": reading(spec, 1),
        "after": reading(spec, 1),
    }


def seen(objective: Json, figures_: Json, values: dict[str, dict[str, int | None]]) -> float | None:
    """The figure that an objective judges."""
    figure = objective["figure"]
    if isinstance(figure, str):
        found: float | None = figures_.get(figure)
        return found
    at = figure["percentile_ms"]
    nanoseconds = values[f"{at['histogram']}_ns"][f"p{at['percentile']:g}"]
    return None if nanoseconds is None else nanoseconds / 1e6


def verdict(spec: TrialSpec, values: dict[str, dict[str, int | None]]) -> Json | None:
    """Against the objectives; nothing without objectives or when invalid."""
    if not spec.objectives or spec.reasons:
        return None
    judged = []
    for objective in spec.objectives:
        figure = seen(objective, figures(spec), values)
        low, high = objective.get("at_least") or -math.inf, objective.get("at_most") or math.inf
        judged.append({"objective": objective, "seen": figure, "passed": figure is not None and low <= figure <= high})
    return {"passed": all(one["passed"] for one in judged), "objectives": judged}


def worker_results(spec: TrialSpec, run: str, parts: list[dict[str, HdrHistogram]]) -> Iterator[Json]:
    """What each worker uploads."""
    all_books = worker_books(spec)
    columns = zip(*(shares(total, spec.workers) for total in (spec.due, spec.tier, spec.failed)), strict=True)
    for index, (due, connections, failed) in enumerate(columns):
        sent = 0 if spec.storm else due
        yield {
            "schema": 1,
            "run": run,
            "trial": spec.id,
            "attempt": 1,
            "worker": index,
            "witness": spec.witness,
            "connections": connection_counts(connections, failed),
            "messages": message_counts(spec, sent, 0, 0, 0),
            "window": {
                "duration_ns": int(spec.seconds * 1e9),
                "due": sent,
                "sent": sent,
                "replies": sent if spec.witness == "reply" else 0,
                "writes": sent,
                "cpu_ns": int(spec.worker_share * spec.seconds * 1e9 / spec.workers),
            },
            "histograms": {name: histogram(values) for name, values in parts[index].items()},
            "intervals": [],
            "books": [] if spec.storm or spec.totals_only else all_books[index :: spec.workers],
            "evidence": evidence(spec),
            "environment": environment(),
        }


def trial_result(spec: TrialSpec, run: str, parts: list[dict[str, HdrHistogram]]) -> Json:
    """`result.json`."""
    sums = merged(parts)
    values = {name: percentiles(sum_) for name, sum_ in sums.items()}
    due = 0 if spec.storm else spec.due
    delivered = 0 if spec.storm else spec.due - spec.dropped - spec.lost
    reasons = [{"kind": kind, "detail": detail} for kind, detail in spec.reasons]
    return {
        "schema": 1,
        "run": run,
        "trial": spec.id,
        "attempt": 1,
        "started_at_unix_ns": START_NS,
        "load": spec.load,
        "message": spec.message,
        "witness": spec.witness,
        "validity": {"state": "invalid", "reasons": reasons} if reasons else {"state": "valid"},
        "verdict": verdict(spec, values),
        "bound_by": spec.bound_by if spec.load["model"] == "closed" else None,
        "connections": connection_counts(spec.tier, spec.failed),
        "messages": message_counts(spec, due, delivered, spec.dropped, spec.lost),
        "figures": figures(spec),
        "percentiles": values,
        "histograms": {name: histogram(sum_) for name, sum_ in sums.items()},
        "books": books(spec),
        "service": readings(spec),
        "workers": [evidence(spec)] * spec.workers,
        "reproduce": f"ladder run plans/example.yaml --only {spec.folder}",
    }


def plan(specs: list[TrialSpec], name: str) -> Json:
    """The plan that these trials come from."""
    found: dict[tuple[str, str], Json] = {}
    for spec in specs:
        ladder = found.setdefault(
            (spec.workload, spec.variant),
            {
                "workload": spec.workload,
                "variant": spec.variant,
                "tiers": [],
                "load": spec.load,
                "message": spec.message,
                "service_env": {},
                "services": [],
                "window_seconds": None,
                "objectives": list(spec.objectives),
            },
        )
        ladder["tiers"] = sorted({*ladder["tiers"], spec.tier})
    return {
        "schema": 1,
        "name": name,
        "why": "Shows what a report looks like.",
        "seed": 42,
        "services": list(dict.fromkeys(spec.service for spec in specs)),
        "workers": max((spec.workers for spec in specs), default=1),
        "repeats": max((spec.repeat for spec in specs), default=1),
        "service_process": "repeat",
        "cpu": {"service": {"cpus": 1.0}, "worker": {"cpus": 1.0}},
        "warmup_seconds": 0.5,
        "window_seconds": 2.0,
        "drain_seconds": 10.0,
        "validity": {
            "start_skew_ms": 50.0,
            "delay_p99_ms": 5.0,
            "worker_cpu_share": 0.9,
            "throttled_share": 0.01,
            "send_share": 0.995,
            "bound_share": 0.9,
        },
        "ladders": list(found.values()),
    }


def entry(spec: TrialSpec) -> Json:
    """A trial in `run.json`."""
    if spec.state is not None:
        return {"trial": spec.id, "state": spec.state}
    reasons = [{"kind": kind, "detail": detail} for kind, detail in spec.reasons]
    validity = {"state": "invalid", "reasons": reasons} if reasons else {"state": "valid"}
    return {"trial": spec.id, "state": {"state": "finished", "validity": validity, "passed": None}}


def write(file: Path, value: Json) -> None:
    """Writes JSON, with its folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), encoding="utf-8")


def bundle(folder: Path, specs: list[TrialSpec], **overrides: object) -> Path:
    """Writes a bundle of these trials and gives back its folder."""
    run_id = str(overrides.get("id", "2026-11-21-example"))
    root = folder / run_id
    entries = []
    for spec in specs:
        this = entry(spec)
        if spec.state is None:
            parts = worker_parts(spec)
            result = trial_result(spec, run_id, parts)
            if result["verdict"] is not None:
                this["state"]["passed"] = result["verdict"]["passed"]
            write(root / "trials" / spec.folder / "result.json", result)
            write(root / "trials" / spec.folder / "service.json", service_file(spec))
            for worker in worker_results(spec, run_id, parts):
                write(root / "trials" / spec.folder / "workers" / f"{worker['worker']}.json", worker)
        entries.append(this)
    run = {
        "schema": 1,
        "id": run_id,
        "started_at": "2026-11-21T22:40:00Z",
        "finished_at": "2026-11-21T22:58:30Z",
        "state": "finished",
        "plan": plan(specs, "example"),
        "command": "ladder run plans/example.yaml",
        "version": "0.1.0",
        "commit": "8f07ac637740ce9a8c0d98b800cdef6ab90f6c08",
        "versions": {"wse-server": "0.1.0", "wse-reference": "2.5.1", "wse-bench": "0.1.0", "python": "3.11.7"},
        "machines": [environment()],
        "cpu_roles": {"service": "0", "worker": "1", "ladder": "1"},
        "trials": entries,
    } | overrides
    write(root / "run.json", run)
    return root


def edit(file: Path, change: Callable[[Json], object]) -> None:
    """Changes a JSON file in place: how a test plants its fault."""
    value = json.loads(file.read_text(encoding="utf-8"))
    change(value)
    write(file, value)


def p99_at_most(milliseconds: float, of: str = "response") -> Json:
    """An objective."""
    return {
        "figure": {"percentile_ms": {"histogram": of, "percentile": 99.0}},
        "at_most": milliseconds,
        "at_least": None,
    }


def open_load(rate_per_second: float) -> Json:
    """An open load at a constant rate."""
    return {"model": "open", "rate_per_second": rate_per_second, "arrivals": "constant"}


def flood(service: str, tier: int, process: int, speed: float) -> TrialSpec:
    """A throughput flood; the small tiers of a fast service are bound by the generator."""
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
    """A connection storm."""
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
    """An open-loop trial that meets its objective up to a point, or whose generator was late."""
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
    """A run with everything in it: two services, three ladders, three processes, an invalid and a failed trial."""
    specs = [
        make(service, tier, process, speed)
        for make, tiers in ((storm, (100, 500, 2_000)), (flood, (100, 500, 1_000, 5_000)), (steady, (100, 500, 2_000)))
        for tier in tiers
        for process in (1, 2, 3)
        for service, speed in (("wse-server", 2.0), ("wse-reference", 1.0))
    ]
    failed = {"state": "failed", "reason": "the service exited with status 1 before it was ready"}
    specs[-1] = replace(specs[-1], state=failed)
    return bundle(folder, specs)


if __name__ == "__main__":
    import sys

    print(example(Path(sys.argv[1])))
