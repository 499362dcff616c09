"""Formats figures and reasons for print: units, digits, and texts for the names used in the files. Pure."""

from __future__ import annotations

import math

from bench_format.schemas import (
    BoundBy,
    FigurePercentileMs,
    FigureReconnectedMs,
    Load,
    LoadChurn,
    LoadOpen,
    LoadReconnect,
    LoadSessions,
    Message,
    Objective,
    Reason,
    ReasonKind,
    Witness,
)

NOT_AVAILABLE = "n/a"
# No-break space between a number and its unit; narrow no-break space between groups of thousands.
GAP, THIN = "\u00a0", "\u202f"

# Why a trial is invalid, by rule, in terms that need no glossary.
REASONS = {
    ReasonKind.UNACCOUNTED: "the books don't balance",
    ReasonKind.WORKERS_MISSING: "a worker left no result",
    ReasonKind.START_SKEW: "the workers didn't start together",
    ReasonKind.GENERATOR_LATE: "the generator was late",
    ReasonKind.GENERATOR_CPU: "the generator ran out of CPU",
    ReasonKind.SEND_RATE: "too little of the schedule was sent",
    ReasonKind.INFERENCE_CPU: "the inference behind the service ran out of CPU",
    ReasonKind.SERVICE_RESTARTED: "the service died or was replaced during the trial",
    ReasonKind.CLOCK_STEP: "a clock jumped",
    ReasonKind.READING_LATE: "the service's counters were not read at the window's edges",
    ReasonKind.WINDOW_SHORT: "too few samples for an objective's percentile",
    ReasonKind.CONFORMANCE: "the service didn't answer as its contract says",
    ReasonKind.ISOLATION: "the service had no CPU of its own",
    ReasonKind.MACHINE_BUSY: "others used the trial's CPUs",
}

BOUNDS = {
    BoundBy.SERVICE: "the service used up its CPU, its quota or one of its threads: this is its capacity",
    BoundBy.GENERATOR: "the generator gave out first: the service can do at least this",
    BoundBy.BOTH: "service and generator gave out together",
    BoundBy.NEITHER: "neither side was busy: look for a lock or a window",
    BoundBy.INFERENCE: "the inference behind the service gave out: this says nothing about the service",
    BoundBy.MACHINE: "a side had work and waited for a CPU that others used: this says nothing about the service",
}

ROUND_TRIPS = "neither side was busy: every connection waits for its answer, so this is a round trip, not a capacity"

WITNESSES = {
    Witness.APPLICATION: "the application counted it",
    Witness.REPLY: "the reply proves it",
    Witness.RECEIVER: "the receiver got it, and its number is the next",
    Witness.NONE: "nobody",
}

_SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def digits(value: float) -> str:
    """Formats with three significant digits and without an exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    rounded = round(value, places)
    # Rounding may carry into another digit: 9.996 becomes 10.0, not 10.00.
    places = max(0, 2 - math.floor(math.log10(abs(rounded)))) if rounded else 0
    return f"{rounded:.{places}f}"


def count(value: float | None) -> str:
    """Formats a whole number with its thousands separated."""
    return NOT_AVAILABLE if value is None else f"{round(value):,}".replace(",", THIN)


def rate(value: float | None) -> str:
    """Formats a rate per second with a scale letter (k, M, G); the caller adds the unit."""
    if value is None:
        return NOT_AVAILABLE
    for scale, letter in _SCALES:
        # Below 10 000 the plain number is as short; 999 950 would be rounded to 1 000 k.
        if abs(value) >= (1e4 if scale == 1e3 else scale * 0.9995):
            return f"{digits(value / scale)}{GAP}{letter}"
    return count(value) if abs(value) >= 100 or value == int(value) else digits(value)


def duration(value_ns: float | None) -> str:
    """Formats a time in the unit that leaves one to three digits before the decimal point."""
    if value_ns is None:
        return NOT_AVAILABLE
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if value_ns >= scale * 0.9995:
            return f"{digits(value_ns / scale)}{GAP}{unit}"
    return f"{value_ns:.0f}{GAP}ns"


def seconds(value: float | None) -> str:
    """Formats CPU time; `value` is in seconds."""
    return NOT_AVAILABLE if value is None else f"{digits(value)}{GAP}s"


def memory(value_bytes: float | None) -> str:
    """Formats a number of bytes in binary units (KiB, MiB, GiB)."""
    if value_bytes is None:
        return NOT_AVAILABLE
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value_bytes) >= scale:
            return f"{digits(value_bytes / scale)}{GAP}{unit}"
    return f"{value_bytes:.0f}{GAP}B"


def share(value: float | None) -> str:
    """Formats a share (0 to 1) as a percentage."""
    if value is None:
        return NOT_AVAILABLE
    percent = value * 100
    return f"{percent:.0f}{GAP}%" if percent >= 10 or percent == 0 else f"{digits(percent)}{GAP}%"


def level(value: float) -> str:
    """Formats a confidence level (0 to 1) as a percentage with as many digits as it needs: `95 %`, `99.75 %`."""
    return f"{round(value * 100, 2):g}{GAP}%"


def interval_level(shown: str) -> str:
    """The sentence below a table about the level of its intervals."""
    return f"Level of the intervals: {shown}."


def percentile_name(percentile: float) -> str:
    """Names a percentile (0 to 100): `p50`, `p99.9`."""
    return f"p{percentile:g}"


def reason(one: Reason) -> str:
    """Formats why a trial is invalid: the rule, then what was observed."""
    rule = REASONS[one.kind]
    return one.detail if one.detail.startswith(rule) else f"{rule}: {one.detail}"


def reasons(all_of_them: list[Reason]) -> str:
    """Formats all reasons as `invalid: …`; `valid` without any."""
    return "invalid: " + "; ".join(map(reason, all_of_them)) if all_of_them else "valid"


def load(one: Load) -> str:
    """Describes the load model with its rate, ramp or number of messages."""
    if isinstance(one, LoadOpen):
        return f"open, {rate(one.rate_per_second)} messages/s, {one.arrivals}"
    if isinstance(one, LoadChurn):
        return f"open, {rate(one.rate_per_second)} messages/s, {one.arrivals}, {_coming(one)}"
    if isinstance(one, LoadReconnect):
        spread = f"over {digits(one.spread_seconds)}{GAP}s" if one.spread_seconds else "at once"
        return f"closed, all connections are cut by {one.cut} and connect again {spread}"
    if isinstance(one, LoadSessions):
        ramp = one.ramp_seconds + one.spread_ms / 1e3
        return f"sessions at their own pace, started over {digits(ramp)}{GAP}s"
    if one.messages_per_connection is not None:
        return f"closed, {count(one.messages_per_connection)} messages per connection"
    return "closed"


def _coming(one: LoadChurn) -> str:
    """How fast connections come and go."""
    if one.connections_per_second is not None:
        return f"{rate(one.connections_per_second)} connections/s come and go"
    return f"connections come and go after {digits(one.life_seconds or 0.0)}{GAP}s"


def reconnected(percent: float) -> str:
    """Names the time until this share of the connections was back; 0 % is the first one."""
    share = {0.0: "the first", 50.0: "half", 100.0: "all"}.get(percent, f"{percent:g}{GAP}%")
    return f"time until {share} of the connections {'was' if percent == 0 else 'were'} back"


def objective(one: Objective) -> str:
    """Formats an objective as a condition: `p99 of response ≤ 5 ms`."""
    what = one.figure
    if isinstance(what, FigurePercentileMs):
        named = what.percentile_ms
        name, unit = f"{percentile_name(named.percentile)} of {named.histogram}", " ms"
    elif isinstance(what, FigureReconnectedMs):
        name, unit = reconnected(what.reconnected_ms.percent), " ms"
    else:
        name, unit = str(what).replace("_", " "), ""
    parts = [
        f"{sign} {bound:g}{unit}" for sign, bound in (("≤", one.at_most), ("≥", one.at_least)) if bound is not None
    ]
    return f"{name} {' and '.join(parts)}"


def plain(text: str) -> str:
    """Replaces no-break spaces by ordinary ones, for output that can't show them."""
    return text.replace(GAP, " ").replace(THIN, " ")


def message(one: Message, described_in: str | None = None) -> str:
    """Describes the messages of a trial: format, size, and how many go into one write. Messages that a preset or a plan
    describes have no format of their own, and the size is that of their payload.
    """
    together = f", {one.coalesce} in one write" if one.coalesce != 1 else ""
    together += f", {one.shapes} shapes" if one.shapes != 1 else ""
    if described_in is not None:
        return f"as {described_in} says, payloads of {count(one.size_bytes)} bytes{together}"
    return f"{one.format}, {count(one.size_bytes)} bytes{together}"


def histogram(name: str) -> str:
    """Formats a histogram's name for print: without the unit suffix and underscores."""
    return name.removesuffix("_ns").replace("_", " ")


def number_of(number: int, things: str) -> str:
    """Formats a number of things, such as `1 connection` or `1 000 sessions`; `things` is the plural."""
    return f"{count(number)} {things.removesuffix('s') if number == 1 else things}"


def plain_number(value: float | None) -> str:
    """Formats any number with three significant digits; `n/a` without one."""
    return NOT_AVAILABLE if value is None else digits(value)


def per_second(value_ns: float | None) -> str:
    """Formats time spent per second of wall-clock time; `value_ns` is in nanoseconds."""
    return NOT_AVAILABLE if value_ns is None else f"{duration(value_ns)}/s"
