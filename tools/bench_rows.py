"""The ladders that `just bench` climbs, and the rows of its summary: figure, unit, services and floor."""

from __future__ import annotations

from dataclasses import dataclass

from ws_ladder_analysis import wording
from ws_ladder_analysis.ladders import Getter, Percentile, figure
from ws_ladder_analysis.load import Trial


@dataclass(frozen=True)
class Part:
    """A ladder, with the floor's program that runs before and after it."""

    name: str
    plan: str
    # As in `ladder run --only`: workload, variant and, if given, a tier.
    only: str
    # Arguments of `floor`; empty when the floor has no such figure.
    floor: tuple[str, ...] = ()
    # The name for `--part` that several parts share; empty: the part's own name.
    together: str = ""

    @property
    def option(self) -> str:
        """The part's name for `--part`."""
        return self.together or self.name

    @property
    def ladder(self) -> tuple[str, str]:
        """The workload and variant of `only`."""
        workload, variant, *_ = self.only.split("/")
        return workload, variant


# Sizes of our handshake's two round trips: upgrade with token, 101 with server_ready; client_hello, server_hello.
STORM = (
    *("handshake", "--connections", "5000", "--in-flight", "256"),
    *("--request-size", "417", "--response-size", "621", "--hello-size", "97", "--hello-response-size", "444"),
)
# Subscribers → variant of the flood's ladder; a variant of its own where the reference can't be flooded.
FANOUT_FLOODS = {100: "flood", 1000: "flood", 5000: "flood-5000"}
# Subscribers of the flood with one publication per call.
FANOUT_SINGLES = (100, 1000)
# Deliveries per second of the open load, as in plans/bench.yaml.
FANOUT_RATE = 20_000
PARTS = (
    Part("flood-64", "bench", "throughput/x64"),
    Part("flood-64-varied", "bench", "throughput/x64-varied"),
    Part("flood-1", "bench", "throughput/x1"),
    Part("generator-64", "bench", "throughput/null-x64", ("flood", "--connections", "100", "--per-write", "64")),
    Part("generator-1", "bench", "throughput/null-x1", ("flood", "--connections", "100", "--per-write", "1")),
    Part("handshake", "bench", "connection-storm/jwt", STORM),
    Part("ping", "bench", "ping-latency/open", ("echo", "--connections", "1000", "--rate", "10000")),
    *(
        Part(
            f"fanout-flood-{tier}",
            "bench",
            f"fanout-broadcast/{variant}/{tier}",
            # Several messages per write, so that the cost of single packets doesn't limit the flood.
            ("fanout", "--connections", str(tier), "--per-write", "100"),
            "fanout",
        )
        for tier, variant in FANOUT_FLOODS.items()
    ),
    *(
        Part(f"fanout-single-{tier}", "bench", f"fanout-broadcast/flood-single/{tier}", together="fanout")
        for tier in FANOUT_SINGLES
    ),
    *(
        Part(
            f"fanout-paced-{tier}",
            "bench",
            f"fanout-broadcast/paced-{tier}",
            ("fanout", "--connections", str(tier), "--rate", str(FANOUT_RATE)),
            "fanout",
        )
        for tier in FANOUT_FLOODS
    ),
    Part("memory", "memory", "ping-latency/idle/10000", ("idle", "--connections", "10000")),
    # In turns: what a machine does meanwhile falls on both generators.
    Part("template-before", "bench-websocket", "request-reply/template", together="template"),
    Part("template-compiled", "bench-websocket", "ping-latency/compiled", together="template"),
    Part("template-after", "bench-websocket", "request-reply/template", together="template"),
)


@dataclass(frozen=True)
class RowDefinition:
    """The definition of a row, without its figures."""

    name: str
    part: str
    unit: str
    # Reads the figure of a trial, in the row's unit.
    getter: Getter
    ours: str
    reference: str | None = None
    # The name of the floor's figure, and the factor from its unit to the row's.
    floor: tuple[str, float] | None = None
    more_is_better: bool = False
    # A further part whose figures are ours, and the part whose figure is the reference, where neither is `part`. Such a
    # row says how many times costlier we are, as one with a floor does.
    again: str | None = None
    reference_part: str | None = None


def scaled(getter: Getter, factor: float) -> Getter:
    """Multiplies a figure by a factor, to convert its unit."""

    def read(trial: Trial) -> float | None:
        value = getter(trial)
        return None if value is None else value * factor

    return read


def per_handshake(side: str) -> Getter:
    """CPU time of a side per opened connection, in microseconds."""
    seconds = figure(f"{side}_cpu_seconds")

    def read(trial: Trial) -> float | None:
        value, result = seconds(trial), trial.result
        if value is None or result is None or not result.connections.open:
            return None
        return value / result.connections.open * 1e6

    return read


# CPU per message in nanoseconds: seconds per million are microseconds per message.
SERVICE_NS = scaled(figure("service_cpu_seconds_per_million"), 1000)
GENERATOR_NS = scaled(figure("worker_cpu_seconds_per_million"), 1000)
DELIVERED = figure("delivered_per_second")
NS_TO_US = 1e-3
ON, OFF = "reference with drain mode on", "reference with drain mode off"


def delivered_per_cpu_second(trial: Trial) -> float | None:
    """Deliveries per second of the service's CPU time."""
    nanoseconds = SERVICE_NS(trial)
    return 1e9 / nanoseconds if nanoseconds else None


def delivered(name: str, part: str, ours: str) -> RowDefinition:
    """The row of the rate at which messages reach the application, beside the reference."""
    name = f"{name}: delivered; {ON}"
    return RowDefinition(name, part, "messages/s", DELIVERED, ours, "wse-reference", more_is_better=True)


def response(name: str, part: str, ours: str, reference: str) -> tuple[RowDefinition, ...]:
    """The rows of p50 and p99 of the response or delivery time, beside the reference."""
    return tuple(
        RowDefinition(
            f"{name}: p{at}",
            part,
            "us",
            scaled(Percentile("response_ns", at), NS_TO_US),
            ours,
            reference,
            (f"response_p{at}", NS_TO_US),
        )
        for at in (50, 99)
    )


def generator(per_write: int) -> RowDefinition:
    """The row of the generator's CPU per message, against a service that discards everything."""
    name = f"generator CPU into a null service, {per_write} per write"
    part = f"generator-{per_write}"
    return RowDefinition(name, part, "ns/message", GENERATOR_NS, "self-test-null", None, ("client_cpu", 1))


def fanout_rates(name: str, part: str) -> tuple[RowDefinition, ...]:
    """The rows of the highest rate at which a service delivers publications, by the clock and by its CPU time."""
    ours, reference = "wse-server-fanout", "wse-reference-fanout"
    return tuple(
        RowDefinition(f"{name}: {what}", part, "deliveries/s", getter, ours, reference, more_is_better=True)
        for what, getter in (("delivered", DELIVERED), ("per second of service CPU", delivered_per_cpu_second))
    )


def fanout_flood(tier: int) -> tuple[RowDefinition, ...]:
    """The rows of a flood whose publisher makes large calls, and of its CPU cost for both sides."""
    part, name = f"fanout-flood-{tier}", f"fan-out to {wording.plain(wording.count(tier))}, flood"
    ours, reference = "wse-server-fanout", "wse-reference-fanout"
    return (
        *fanout_rates(name, part),
        RowDefinition(f"{name}: service CPU", part, "ns/delivery", SERVICE_NS, ours, reference, ("server_cpu", 1)),
        RowDefinition(f"{name}: generator CPU", part, "ns/delivery", GENERATOR_NS, ours, None, ("client_cpu", 1)),
    )


def fanout_single(tier: int) -> tuple[RowDefinition, ...]:
    """The rows of a flood whose publisher makes a call for each message."""
    name = f"fan-out to {wording.plain(wording.count(tier))}, flood, one publication per call"
    return fanout_rates(name, f"fanout-single-{tier}")


def fanout_paced(tier: int) -> tuple[RowDefinition, ...]:
    """The rows of the delivery time at a rate that both services sustain."""
    name = f"fan-out to {wording.plain(wording.count(tier))}, 20 000 deliveries/s"
    return response(name, f"fanout-paced-{tier}", "wse-server-fanout", "wse-reference-fanout")


ROWS = (
    delivered("drain_inbound (dict), 64 per write", "flood-64", "wse-server-dict"),
    delivered("drain_inbound (dict), 64 per write, 256 kinds of messages", "flood-64-varied", "wse-server-dict"),
    delivered("drain_batch, 64 per write, 256 kinds of messages", "flood-64-varied", "wse-server"),
    delivered("drain_inbound (dict), 1 per write", "flood-1", "wse-server-dict"),
    delivered("drain_batch, 64 per write", "flood-64", "wse-server"),
    RowDefinition(
        f"drain_batch, 64 per write: service CPU per delivered message; {ON}",
        "flood-64",
        "ns/message",
        SERVICE_NS,
        "wse-server",
        "wse-reference",
    ),
    RowDefinition(
        f"discarded, 64 per write: service CPU per received message; {OFF}",
        "flood-64",
        "ns/message",
        SERVICE_NS,
        "wse-server-discard",
        "wse-reference-discard",
    ),
    RowDefinition(
        "handshake with JWT: service CPU",
        "handshake",
        "us/handshake",
        per_handshake("service"),
        "wse-server",
        "wse-reference",
        ("server_cpu", 1),
    ),
    RowDefinition(
        "handshake with JWT: generator CPU",
        "handshake",
        "us/handshake",
        per_handshake("worker"),
        "wse-server",
        None,
        ("client_cpu", 1),
    ),
    RowDefinition(
        "memory of the service",
        "memory",
        "bytes/connection",
        figure("service_bytes_per_connection"),
        "wse-server",
        None,
        ("server_memory", 1),
    ),
    generator(64),
    generator(1),
    *response("ping at 10 000/s over 1 000 connections", "ping", "wse-server", "wse-reference"),
    *(row for tier in FANOUT_FLOODS for row in fanout_flood(tier)),
    *(row for tier in FANOUT_SINGLES for row in fanout_single(tier)),
    *(row for tier in FANOUT_FLOODS for row in fanout_paced(tier)),
    # The same bytes to the same service.
    RowDefinition(
        "generator CPU for pings at 10 000/s: ws-bench with a template; reference wse-bench",
        "template-before",
        "ns/message",
        GENERATOR_NS,
        "wse-server-described",
        "wse-server",
        again="template-after",
        reference_part="template-compiled",
    ),
)
