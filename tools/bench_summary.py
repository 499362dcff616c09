"""The summary of `just bench`: our figures beside the reference's and the floor's, from bundles and JSON. Pure.

A figure has one value per process; a row gives the medians, and the ratio of means with its 95 % bootstrap interval
over processes, as reports do. What can't be said is null, with the reason in `why`.
"""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ws_ladder_analysis import wording
from ws_ladder_analysis.bench_format.run import Failed
from ws_ladder_analysis.ladders import Getter, figure, ladders, percentile
from ws_ladder_analysis.load import Bundle, Trial
from ws_ladder_analysis.statistics import PROCESSES_NEEDED, ratio

# What `floor` prints, as parsed.
Floor = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A ladder that is climbed with the floor's program around it."""

    name: str
    plan: str
    # As in `ladder run --only`: workload, variant, perhaps a tier.
    only: str
    # Arguments of `floor`; empty where the kernel alone has no such figure.
    floor: tuple[str, ...] = ()
    # The name under which it is asked for together with others; its own without.
    together: str = ""

    @property
    def asked_for(self) -> str:
        """The word of `--part`."""
        return self.together or self.name

    @property
    def ladder(self) -> tuple[str, str]:
        """Workload and variant."""
        workload, variant, *_ = self.only.split("/")
        return workload, variant


# As many bytes as ours move in two round trips: upgrade with token, 101 with server_ready; client_hello, server_hello.
STORM = (
    *("handshake", "--connections", "5000", "--in-flight", "256"),
    *("--request-size", "417", "--response-size", "621", "--hello-size", "97", "--hello-response-size", "444"),
)
FANOUT_TIERS = (100, 1000, 5000)
# Deliveries per second at a pace: as in plans/bench.yaml.
FANOUT_RATE = 20_000
# A hundred messages in a write: what a flood comes to that isn't held up by single packets.
FANOUT_FLOOD = {tier: ("fanout", "--connections", str(tier), "--per-write", "100") for tier in FANOUT_TIERS}
PARTS = (
    Part("flood-64", "bench", "throughput/x64"),
    Part("flood-1", "bench", "throughput/x1"),
    Part("generator-64", "bench", "throughput/null-x64", ("flood", "--connections", "100", "--per-write", "64")),
    Part("generator-1", "bench", "throughput/null-x1", ("flood", "--connections", "100", "--per-write", "1")),
    Part("handshake", "bench", "connection-storm/jwt", STORM),
    Part("ping", "bench", "ping-latency/open", ("echo", "--connections", "1000", "--rate", "10000")),
    *(
        Part(f"fanout-flood-{tier}", "bench", f"fanout-broadcast/flood/{tier}", FANOUT_FLOOD[tier], "fanout")
        for tier in FANOUT_TIERS
    ),
    *(
        Part(
            f"fanout-paced-{tier}",
            "bench",
            f"fanout-broadcast/paced-{tier}",
            ("fanout", "--connections", str(tier), "--rate", str(FANOUT_RATE)),
            "fanout",
        )
        for tier in FANOUT_TIERS
    ),
    Part("memory", "memory", "ping-latency/idle/10000", ("idle", "--connections", "10000")),
)


@dataclass(frozen=True)
class Evidence:
    """What a part left: a bundle, if it was climbed, and what the floor's program said each time."""

    bundle: Bundle | None = None
    floor: Sequence[Floor] = ()
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class Asked:
    """A row before it is filled."""

    name: str
    part: str
    unit: str
    # Reads a trial in the row's unit.
    getter: Getter
    ours: str
    reference: str | None = None
    # The floor's figure, and what turns its unit into the row's.
    floor: tuple[str, float] | None = None
    more_is_better: bool = False


def scaled(getter: Getter, factor: float) -> Getter:
    """The same figure in another unit."""

    def read(trial: Trial) -> float | None:
        value = getter(trial)
        return None if value is None else value * factor

    return read


def per_handshake(side: str) -> Getter:
    """CPU of a side for each connection that opened, in microseconds."""
    seconds = figure(f"{side}_cpu_seconds")

    def read(trial: Trial) -> float | None:
        value, result = seconds(trial), trial.result
        if value is None or result is None or not result.connections.open:
            return None
        return value / result.connections.open * 1e6

    return read


# Seconds for a million messages are microseconds for one.
SERVICE_NS = scaled(figure("service_cpu_seconds_per_million"), 1000)
GENERATOR_NS = scaled(figure("worker_cpu_seconds_per_million"), 1000)
DELIVERED = figure("delivered_per_second")
US = 1e-3
ON, OFF = "reference with drain mode on", "reference with drain mode off"


def fanout_flood(tier: int) -> tuple[Asked, ...]:
    """What a service delivers of its own messages at most, and what that costs both sides."""
    part, words = f"fanout-flood-{tier}", f"fan-out to {wording.plain(wording.count(tier))}, flood"
    ours, reference = "wse-server-fanout", "wse-reference-fanout"
    return (
        Asked(f"{words}: delivered", part, "deliveries/s", DELIVERED, ours, reference, more_is_better=True),
        Asked(f"{words}: service CPU", part, "ns/delivery", SERVICE_NS, ours, reference, ("server_cpu", 1)),
        Asked(f"{words}: generator CPU", part, "ns/delivery", GENERATOR_NS, ours, None, ("client_cpu", 1)),
    )


def fanout_paced(tier: int) -> tuple[Asked, ...]:
    """How long a delivery takes at a pace that both services can keep."""
    part, words = f"fanout-paced-{tier}", f"fan-out to {wording.plain(wording.count(tier))}, 20 000 deliveries/s"
    ours, reference = "wse-server-fanout", "wse-reference-fanout"
    return tuple(
        Asked(
            f"{words}: p{at}",
            part,
            "us",
            scaled(percentile("response_ns", at), US),
            ours,
            reference,
            (f"response_p{at}", US),
        )
        for at in (50, 99)
    )


ROWS = (
    Asked(
        f"drain_inbound (dict), 64 per write: delivered; {ON}",
        "flood-64",
        "messages/s",
        DELIVERED,
        "wse-server-dict",
        "wse-reference",
        more_is_better=True,
    ),
    Asked(
        f"drain_inbound (dict), 1 per write: delivered; {ON}",
        "flood-1",
        "messages/s",
        DELIVERED,
        "wse-server-dict",
        "wse-reference",
        more_is_better=True,
    ),
    Asked(
        f"drain_batch, 64 per write: delivered; {ON}",
        "flood-64",
        "messages/s",
        DELIVERED,
        "wse-server",
        "wse-reference",
        more_is_better=True,
    ),
    Asked(
        f"drain_batch, 64 per write: service CPU per delivered message; {ON}",
        "flood-64",
        "ns/message",
        SERVICE_NS,
        "wse-server",
        "wse-reference",
    ),
    Asked(
        f"handed to nobody, 64 per write: service CPU per received message; {OFF}",
        "flood-64",
        "ns/message",
        SERVICE_NS,
        "wse-server-discard",
        "wse-reference-discard",
    ),
    Asked(
        "handshake with JWT: service CPU",
        "handshake",
        "us/handshake",
        per_handshake("service"),
        "wse-server",
        "wse-reference",
        ("server_cpu", 1),
    ),
    Asked(
        "handshake with JWT: generator CPU",
        "handshake",
        "us/handshake",
        per_handshake("worker"),
        "wse-server",
        None,
        ("client_cpu", 1),
    ),
    Asked(
        "memory of the service",
        "memory",
        "bytes/connection",
        figure("service_bytes_per_connection"),
        "wse-server",
        None,
        ("server_memory", 1),
    ),
    Asked(
        "generator CPU into a null service, 64 per write",
        "generator-64",
        "ns/message",
        GENERATOR_NS,
        "self-test-null",
        None,
        ("client_cpu", 1),
    ),
    Asked(
        "generator CPU into a null service, 1 per write",
        "generator-1",
        "ns/message",
        GENERATOR_NS,
        "self-test-null",
        None,
        ("client_cpu", 1),
    ),
    Asked(
        "ping at 10 000/s over 1 000 connections: p50",
        "ping",
        "us",
        scaled(percentile("response_ns", 50), 1e-3),
        "wse-server",
        "wse-reference",
        ("response_p50", 1e-3),
    ),
    Asked(
        "ping at 10 000/s over 1 000 connections: p99",
        "ping",
        "us",
        scaled(percentile("response_ns", 99), 1e-3),
        "wse-server",
        "wse-reference",
        ("response_p99", 1e-3),
    ),
    *(row for tier in FANOUT_TIERS for row in fanout_flood(tier)),
    *(row for tier in FANOUT_TIERS for row in fanout_paced(tier)),
)


@dataclass(frozen=True)
class Row:
    """A row of `summary.json`, in its fields' order."""

    name: str
    unit: str
    ours: float | None
    reference: float | None
    floor: float | None
    ratio: float | None
    interval: tuple[float, float] | None
    # What is above the line and what below.
    ratio_of: str
    # What limited each side of a closed load.
    bound_by: Mapping[str, str] | None
    command: str
    why: str | None


@dataclass
class Sides:
    """The values of a row's sides, one per process, and what is missing with its reason."""

    values: dict[str, list[float]] = field(default_factory=dict)
    bounds: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def median(self, side: str) -> float | None:
        """The median over processes."""
        known = self.values.get(side)
        return stdlib.median(known) if known else None


def summary(evidence: Mapping[str, Evidence]) -> list[Row]:
    """All rows, in order; a part that was left out leaves rows that say so."""
    return [row(asked, evidence.get(asked.part, Evidence())) for asked in ROWS]


def row(asked: Asked, evidence: Evidence) -> Row:
    """One row from what its part left."""
    part = next(part for part in PARTS if part.name == asked.part)
    sides = Sides()
    services = {"ours": asked.ours} | ({"reference": asked.reference} if asked.reference else {})
    for side, service in services.items():
        read_service(sides, side, service, asked.getter, part, evidence.bundle)
    if asked.floor is not None:
        read_floor(sides, *asked.floor, evidence.floor)
    above, below = "ours", "floor" if asked.floor else "reference"
    # Against the reference a ratio says how many times as good, against the floor how many times as dear.
    if below == "reference" and not asked.more_is_better:
        above, below = below, above
    found, interval = compared(sides, above, below)
    return Row(
        asked.name,
        asked.unit,
        sides.median("ours"),
        sides.median("reference"),
        sides.median("floor"),
        found,
        interval,
        f"{above} / {below}",
        sides.bounds or None,
        "; ".join(evidence.commands),
        "; ".join(sides.missing) or None,
    )


def read_service(sides: Sides, side: str, service: str, getter: Getter, part: Part, bundle: Bundle | None) -> None:
    """The figure of one service, over the valid trials of the part's ladder."""
    if bundle is None:
        sides.missing.append(f"{side}: {part.plan} {part.only} was not climbed")
        return
    tiers = [
        tier
        for one in ladders(bundle)
        if (one.service, one.workload, one.variant) == (service, *part.ladder)
        for tier in one.tiers
    ]
    if not tiers:
        sides.missing.append(f"{side}: the bundle has no trial of {service}")
        return
    tier = tiers[-1]
    bad = [f"{trial.id}: {unusable(trial)}" for trial in tier.trials if not trial.valid]
    if bad:
        sides.missing.append(f"{side}: {len(bad)} of {len(tier.trials)} trials can't be used ({bad[0]})")
    sides.values[side] = [value for trial in tier.valid if (value := getter(trial)) is not None]
    if tier.valid and not sides.values[side]:
        sides.missing.append(f"{side}: its trials have no such figure")
    if tier.bounds:
        sides.bounds[side] = ", ".join(tier.bounds)


def unusable(trial: Trial) -> str:
    """Why a trial has no figure."""
    if trial.result is not None:
        return wording.plain(wording.reasons(trial.result.validity.reasons))
    state = trial.entry.state.now
    return state.reason if isinstance(state, Failed) else "it was not measured"


def read_floor(sides: Sides, name: str, factor: float, reports: Sequence[Floor]) -> None:
    """A figure of the floor's program, over all its runs."""
    figures = [one for report in reports for one in report["figures"] if one["name"] == name]
    sides.values["floor"] = [value * factor for one in figures for value in one["values"] if value is not None]
    if not reports:
        sides.missing.append("floor: it was not run")
    elif not sides.values["floor"]:
        sides.missing.append(f"floor: it has no {name}")


def compared(sides: Sides, above: str, below: str) -> tuple[float | None, tuple[float, float] | None]:
    """The ratio of two sides and its interval, as far as there are processes for them."""
    one, other = ({n: [value] for n, value in enumerate(sides.values.get(side, []))} for side in (above, below))
    found = ratio(one, other)
    if found is None:
        return None, None
    if found.low is None or found.high is None:
        few = " and ".join(map(str, found.processes))
        sides.missing.append(f"no interval: {few} processes, {PROCESSES_NEEDED} each are needed")
        return found.ratio, None
    return found.ratio, (found.low, found.high)


def wire(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For `summary.json`."""
    return [asdict(one) for one in rows]


def markdown(rows: Sequence[Row]) -> str:
    """The table that is printed at the end, and under it what is missing."""
    lines = [
        "| what | unit | ours | reference | floor | ratio | 95 % interval | bound by |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for one in rows:
        interval = " to ".join(map(number, one.interval)) if one.interval else number(None)
        bounds = ", ".join(f"{side}: {bound}" for side, bound in (one.bound_by or {}).items())
        found = f"{number(one.ratio)} ({one.ratio_of})" if one.ratio is not None else number(None)
        cells = [
            one.name,
            one.unit,
            number(one.ours),
            number(one.reference),
            number(one.floor),
            found,
            interval,
            bounds or number(None),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {one.name}: {one.why}" for one in rows if one.why]
    return "\n".join([*lines, *([""] if notes else []), *notes, ""])


def number(value: float | None) -> str:
    """A number for a person."""
    if value is None:
        return "—"
    return wording.plain(wording.count(value) if abs(value) >= 1000 else wording.digits(value))
