"""Decides which charts a report has: small multiples per workload, services beside each other on one scale.

A chart is drawn only when it has figures. Each chart carries a text that describes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from bench_format import histogram
from bench_format.schemas import FigurePercentileMs, Objective

from . import drawing, wording
from .drawing import Chart
from .ladders import Getter, Ladder, Percentile, Tier, figure
from .tables import cpu_per_session

# Most distribution charts in one report; with more, only the lowest and highest tier of each ladder are drawn.
MOST_DISTRIBUTIONS = 60
# Colours of services beside each other, in the plan's order.
_SERVICES = ("blue", "orange", "green", "violet", "red", "grey", "teal", "pink", "olive", "brown")
_HISTOGRAMS = {
    "response_ns": "blue",
    "service_ns": "green",
    "delay_ns": "orange",
    "handshake_ns": "violet",
    "frame_ns": "violet",
    "newest_ns": "blue",
    "oldest_ns": "green",
    "flush_lateness_ns": "red",
}
# Latency counted from sending instead of from due: it is in the tables and would only clutter a chart.
_LEFT_OUT = {"newest_service_ns", "oldest_service_ns", "lateness_ns"}
_OUTCOMES = {"written": "grey", "delivered": "blue", "dropped": "red"}
_SIDES = {"service": "blue", "generator": "orange"}
_MEMORY = {"connections": ("KiB per connection", "memory"), "sessions": ("KiB per session", "memory")}
_PERCENTILES = {"p50": "green", "p99": "blue", "p99.9": "violet"}
# Percentiles of sessions' charts: the objectives are about them, and their bounds are drawn as lines.
_SESSION_PERCENTILES = {"p50": "green", "p95": "blue"}
NS_PER_MS = 1e6

Rows = list[dict[str, object]]


def draw(group: Sequence[Ladder], every_distribution: bool, judged: Sequence[Objective] = ()) -> Iterator[Chart]:
    """All charts of one workload and variant; charts of sessions show the bounds of the objectives in `judged`."""
    yield from _sessions(group, judged) if group[0].is_sessions else _messages(group)
    yield from _bars_by_service(group, figure("service_bytes_per_connection"), "memory", *_MEMORY[group[0].unit], 1024)
    for ladder in group:
        whole = every_distribution or len(ladder.tiers) < 3
        for tier in ladder.tiers if whole else (ladder.tiers[0], ladder.tiers[-1]):
            yield from _distribution(ladder, tier)


def _messages(group: Sequence[Ladder]) -> Iterator[Chart]:
    """The charts of a load of messages: outcomes, response time, cost."""
    rates: dict[str, Getter] = {name: figure(f"{name}_per_second") for name in _OUTCOMES}
    yield from _bars(group, rates, _OUTCOMES, "outcomes", "messages per second", "messages")
    yield from _bars_by_service(group, figure("accepted_per_second"), "accepted", "connections per second", "accepted")
    for name in ("response_ns", "handshake_ns"):
        yield from _latency(group, name, _PERCENTILES)
    costs = {
        side: figure(f"{role}_cpu_seconds_per_million")
        for side, role in zip(_SIDES, ("service", "worker"), strict=True)
    }
    yield from _bars(group, costs, _SIDES, "cpu", "CPU seconds per million", "CPU cost")


def _sessions(group: Sequence[Ladder], judged: Sequence[Objective]) -> Iterator[Chart]:
    """The charts of sessions: age of the newest and oldest audio of a reply, with the objective's bound; CPU cost."""
    for name in ("newest_ns", "oldest_ns", "frame_ns", "flush_lateness_ns"):
        yield from _latency(group, name, _SESSION_PERCENTILES, _marks(name, judged))
    yield from _bars_by_service(
        group, cpu_per_session, "cpu", "CPU per session, ms/s", "service CPU per session", NS_PER_MS
    )


def _marks(name: str, judged: Sequence[Objective]) -> dict[str, float]:
    """The bounds that objectives set on percentiles of a histogram, in milliseconds, by the percentile's name."""
    figures = ((one.figure, one.at_most) for one in judged)
    bounds = [(one.percentile_ms, bound) for one, bound in figures if isinstance(one, FigurePercentileMs)]
    return {
        wording.percentile_name(what.percentile): bound
        for what, bound in bounds
        if f"{what.histogram}_ns" == name and bound is not None
    }


def count_distributions(ladders: Sequence[Ladder]) -> int:
    """The number of distribution charts if every tier had one."""
    return sum(1 for ladder in ladders for tier in ladder.tiers if tier.histograms)


def _rows(ladder: Ladder, series: Mapping[str, Getter], scale: float) -> Rows:
    """Mean and range of each figure at each tier; a figure that a tier lacks gets no row."""
    return [
        {
            "tier": wording.count(tier.connections),
            "series": name,
            "value": found.mean / scale,
            "low": found.low / scale,
            "high": found.high / scale,
        }
        for tier in ladder.tiers
        for name, getter in series.items()
        if (found := tier.spread(getter)) is not None
    ]


def _value_range(rows: Rows) -> tuple[float, float]:
    """The lowest and highest value over all ranges."""
    low = min(float(str(row["low"])) for row in rows)
    return low, max(float(str(row["high"])) for row in rows)


def _shown(colours: dict[str, str], rows: Rows) -> dict[str, str]:
    """The series that have a figure, so that the legend names only what is drawn."""
    found = {row["series"] for row in rows}
    return {name: colour for name, colour in colours.items() if name in found}


def _tiers(group: Sequence[Ladder]) -> list[str]:
    return [wording.count(tier) for tier in sorted({tier.connections for one in group for tier in one.tiers})]


def _bars(
    group: Sequence[Ladder], series: dict[str, Getter], colours: dict[str, str], file: str, unit: str, title: str
) -> Iterator[Chart]:
    """One bar chart for each service, all on one scale."""
    rows = [(ladder, _rows(ladder, series, 1)) for ladder in group]
    highest = max((_value_range(found)[1] for _, found in rows if found), default=0)
    for ladder, found in rows:
        if found and highest > 0:
            text = (
                f"{', '.join(_shown(colours, found))}: {unit} at each tier of {ladder.name} against {ladder.service}."
            )
            chart = drawing.bars(found, _tiers(group), _shown(colours, found), unit, (0, highest), ladder.unit)
            yield drawing.render(_file(ladder, file), f"{ladder.service}: {title}", text, chart)


def _bars_by_service(
    group: Sequence[Ladder], getter: Getter, file: str, unit: str, title: str, scale: float = 1
) -> Iterator[Chart]:
    """One bar chart with all services beside each other."""
    colours = {ladder.service: _SERVICES[place % len(_SERVICES)] for place, ladder in enumerate(group)}
    rows = [row for ladder in group for row in _rows(ladder, {ladder.service: getter}, scale)]
    lowest, highest = _value_range(rows) if rows else (0, 0)
    if highest <= 0:
        return
    head = title[0].upper() + title[1:]
    text = f"{head} in {unit} at each tier of {group[0].name}: {', '.join(colours)}."
    chart = drawing.bars(rows, _tiers(group), colours, unit, (min(lowest, 0), highest), group[0].unit)
    yield drawing.render(_file(group[0], file, shared=True), head, text, chart)


def _latency(
    group: Sequence[Ladder], name: str, colours: dict[str, str], marks: Mapping[str, float] | None = None
) -> Iterator[Chart]:
    """Percentiles over tiers, one chart for each service, on one scale. Draws nothing for a single tier."""
    if len(_tiers(group)) < 2:
        return
    series = {label: Percentile(name, float(label[1:])) for label in colours}
    rows = [(ladder, _rows(ladder, series, NS_PER_MS)) for ladder in group]
    bounds = marks or {}
    ranges = [_value_range(found) for _, found in rows if found]
    if not ranges:
        return
    domain = (min(low for low, _ in ranges) * 0.8, max([high for _, high in ranges] + list(bounds.values())) * 1.25)
    what = wording.histogram(name)
    for ladder, found in rows:
        if found:
            lines = "".join(f" The objective asks for {label} ≤ {bound:g} ms." for label, bound in bounds.items())
            text = f"{', '.join(colours)} of {what} in milliseconds at each tier of {ladder.name}: {ladder.service}."
            shown = _shown(colours, found)
            drawn = {label: (bound, shown[label]) for label, bound in bounds.items() if label in shown}
            chart = drawing.lines(found, _tiers(group), shown, "milliseconds", domain, drawn, ladder.unit)
            yield drawing.render(_file(ladder, what), f"{ladder.service}: {what}", text + lines, chart)


def _distribution(ladder: Ladder, tier: Tier) -> Iterator[Chart]:
    """Percentile curves of one tier, from the merged histograms of its valid trials."""
    drawn = {name: values for name, values in tier.histograms.items() if values.count and name not in _LEFT_OUT}
    rows = [row for name, values in drawn.items() for row in _curve(name, values)]
    if not rows:
        return
    colours = {wording.histogram(name): _HISTOGRAMS.get(name, "grey") for name in drawn}
    farthest = max(values.total for values in drawn.values()) * 2.0
    load = ladder.load_of(tier)
    text = f"Percentile curves of {', '.join(colours)} at {load} of {ladder.name} against {ladder.service}."
    chart = drawing.curves(rows, colours, "milliseconds", farthest)
    yield drawing.render(_file(ladder, f"distribution-{tier.connections}"), f"{ladder.service}: {load}", text, chart)


def _curve(name: str, values: histogram.Values) -> Rows:
    """Points of a curve; the unsupported part starts at the last supported point, so that the line has no gap."""
    rows: Rows = []
    for point in histogram.curve(values):
        if point.value_ns == 0:
            # A logarithmic axis has no 0.
            continue
        inverse = min(1 / (1 - point.quantile), 2.0 * values.total) if point.quantile < 1 else 2.0 * values.total
        row: dict[str, object] = {
            "series": wording.histogram(name),
            "inverse": inverse,
            "value": point.value_ns / NS_PER_MS,
            "supported": "true" if point.supported else "false",
        }
        if rows and rows[-1]["supported"] != row["supported"]:
            rows.append({**rows[-1], "supported": row["supported"]})
        rows.append(row)
    return rows


def _file(ladder: Ladder, what: str, shared: bool = False) -> str:
    """A file name from workload, variant, service (unless `shared`) and `what`; unusual characters become dashes."""
    parts = [ladder.workload, ladder.variant, *([] if shared else [ladder.service]), what]
    return re.sub(r"[^\w.-]+", "-", "-".join(parts), flags=re.ASCII).strip("-.") or "chart"
