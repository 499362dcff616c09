"""Writes docs/LEAGUE.md from the archive of plans/league*.yaml: a table for each preset and workload, between markers.

Servers have a rank only where their intervals don't overlap. All means and intervals are computed by the analysis.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import league_servers
import result_archive
from bench_format.schemas import BoundBy, Witness
from league_run import LEFT_OUT, PART
from league_servers import ROOT, Server
from readme_highlights import replaced
from result_blocks import origin
from ws_ladder_analysis import wording
from ws_ladder_analysis.ladders import Ladder, Percentile, Tier, figure, ladders
from ws_ladder_analysis.load import Bundle, read_bundle
from ws_ladder_analysis.statistics import CONFIDENCE, unpaired_ratio

PAGE = ROOT / "docs/LEAGUE.md"
SECONDS_PER_HOUR = 3600
COMMAND = "./justw league"
# US dollars per vCPU-hour.
PRICE = 0.04
NONE = "—"
# From the moment a message was due to its reply, or to its arrival at a subscriber.
LATENCY = "response_ns"


@dataclass(frozen=True)
class Ranked:
    """The figure by which servers are ranked in a table."""

    title: str
    figure: str
    higher_is_better: bool
    shown: Callable[[float], str]


def microseconds(value: float) -> str:
    """CPU seconds per million messages, which is the same number of microseconds for each."""
    return f"{wording.digits(value)} µs"


CPU = Ranked("CPU per message", "service_cpu_seconds_per_million", False, microseconds)
DELIVERY = replace(CPU, title="CPU per delivery")
IDLE = Ranked("memory per connection", "service_bytes_per_connection", False, wording.memory)
RANKED = {
    ("request-reply", "open"): CPU,
    ("request-reply", "closed"): Ranked("messages per second of one CPU", "delivered_per_second", True, wording.rate),
    ("fanout", "standard"): DELIVERY,
    ("idle", "standard"): IDLE,
    ("connection-storm", "standard"): Ranked(
        "handshakes per second of one CPU", "accepted_per_second", True, wording.rate
    ),
}


@dataclass(frozen=True)
class Row:
    """One server in a table, before it has a rank."""

    name: str
    tier: Tier
    mean: float | None
    # The interval of the mean; `None` with too few processes. It has no upper end where the generator was the limit.
    interval: tuple[float, float] | None


def row(ladder: Ladder, ranked: Ranked) -> Row:
    """The server of a ladder, which has one tier."""
    (tier,) = ladder.tiers
    processes = tier.by_process(figure(ranked.figure))
    each = [sum(repeats) / len(repeats) for repeats in processes.values()]
    found, interval = interval_of(each)
    if interval and ranked.higher_is_better and tier.at_least:
        interval = (interval[0], math.inf)
    return Row(ladder.service, tier, found, interval)


def interval_of(processes: Sequence[float]) -> tuple[float | None, tuple[float, float] | None]:
    """The geometric mean over processes, and Student's interval of it; `None` where there is none."""
    # The ratio to 1, whose processes have no variance.
    found = unpaired_ratio(processes, [1.0] * len(processes))
    return (None, None) if found is None else (found.ratio, found.interval())


def ranks(rows: Sequence[Row], *, higher_is_better: bool) -> list[int | None]:
    """For each row one more than the number of rows that are better with certainty: their whole interval is better. A
    row that is alone has no rank."""
    if len(rows) < 2:
        return [None] * len(rows)
    if not higher_is_better:
        flipped = [None if one.interval is None else (-one.interval[1], -one.interval[0]) for one in rows]
    else:
        flipped = [one.interval for one in rows]
    known = [each for each in flipped if each is not None]
    return [None if own is None else 1 + sum(other[0] > own[1] for other in known) for own in flipped]


@dataclass(frozen=True)
class Sheet:
    """What the tables of a bundle share."""

    servers: dict[str, Server]
    versions: dict[str, str]
    # US dollars per vCPU-hour.
    price: float
    # Bytes of a silent connection, by server. Under load, memory is mostly that of the load.
    idle: dict[str, float | None]


def table(group: Sequence[Ladder], sheet: Sheet) -> str:
    """The table of one workload, best first; servers without a figure are last, with the reason."""
    ranked = RANKED[group[0].workload, group[0].variant]
    rows = [row(ladder, ranked) for ladder in group]
    sign = -1 if ranked.higher_is_better else 1
    placed = zip(rows, ranks(rows, higher_is_better=ranked.higher_is_better), strict=True)
    ordered = sorted(placed, key=lambda one: (one[0].mean is None, sign * (one[0].mean or 0)))
    columns = columns_of(group[0].workload, ranked)
    cells = [[wording.plain(read(one, rank, sheet)) for read in columns.values()] for one, rank in ordered]
    return markdown_table(list(columns), cells) + "\n" + remarks_on(rows, ranked)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


Read = Callable[[Row, int | None, Sheet], str]


def columns_of(workload: str, ranked: Ranked) -> dict[str, Read]:
    """The columns of a table, each with what is read into its cells."""
    columns: dict[str, Read] = {
        "rank": lambda _, rank, __: NONE if rank is None else f"{rank}",
        "server": lambda one, _, __: f"[{one.name}](../services/league/{one.name}/README.md)",
        "language": lambda one, _, sheet: sheet.servers[one.name].language,
        "version": lambda one, _, sheet: sheet.versions.get(one.name, NONE),
        "licence": lambda one, _, sheet: sheet.servers[one.name].licence,
        f"{ranked.title} (95 %)": lambda one, _, __: estimate(one, ranked),
    }
    if workload in ("request-reply", "fanout"):
        if ranked.figure != CPU.figure:
            columns[CPU.title] = lambda one, _, __: shown(mean(one.tier, CPU.figure), microseconds)
        columns["cost per million"] = lambda one, _, sheet: dollars(mean(one.tier, CPU.figure), sheet.price)
        columns["p50"] = lambda one, _, __: latency(one.tier, 50)
        columns["p99"] = lambda one, _, __: latency(one.tier, 99)
    if ranked.higher_is_better:
        columns["bound by"] = lambda one, _, __: ", ".join(one.tier.bounds) or NONE
    if workload != "idle":
        columns["memory per silent connection"] = lambda one, _, sheet: shown(sheet.idle.get(one.name), wording.memory)
    return columns


def shown(value: float | None, formatted: Callable[[float], str]) -> str:
    """A figure as text, or a dash where there is none."""
    return NONE if value is None else formatted(value)


def estimate(one: Row, ranked: Ranked) -> str:
    """The mean with its interval, or why there is none."""
    if one.mean is None:
        invalid = [trial.result.validity for trial in one.tier.trials if trial.result is not None and not trial.valid]
        return "no valid trial" if invalid or not one.tier.valid else "no figure"
    at_least = "&ge; " if ranked.higher_is_better and one.tier.at_least else ""
    text = f"{at_least}{ranked.shown(one.mean)}"
    if one.interval is None:
        return f"{text} (no interval)"
    low, high = one.interval
    return text if math.isinf(high) else f"{text} [{ranked.shown(low)}, {ranked.shown(high)}]"


def mean(tier: Tier, name: str) -> float | None:
    """The mean of a figure over processes; `None` where a trial lacks it."""
    found = tier.spread(figure(name))
    return None if found is None else found.mean


def dollars(cpu_seconds_per_million: float | None, price: float) -> str:
    """What the CPU time of a million messages costs; `price` is per vCPU-hour."""
    return shown(cpu_seconds_per_million, lambda value: f"${wording.digits(value / SECONDS_PER_HOUR * price)}")


def latency(tier: Tier, at: float) -> str:
    """A percentile of all replies or deliveries together."""
    found = tier.spread(Percentile(LATENCY, at))
    return NONE if found is None else wording.duration(found.mean)


def remarks_on(rows: Sequence[Row], ranked: Ranked) -> str:
    """Sentences about trials that are no part of the figures, about messages that failed, and about servers that didn't
    keep up with a given rate; empty without any."""
    sentences = []
    for one in rows:
        if not ranked.higher_is_better and {BoundBy.SERVICE, BoundBy.BOTH} & set(one.tier.bounds):
            sentences.append(f"{one.name}: this load takes its whole CPU, so that its latencies are those of a queue.")
        invalid = len(one.tier.trials) - len(one.tier.valid)
        if invalid:
            sentences.append(f"{one.name}: {invalid} of {len(one.tier.trials)} trials were invalid.")
        worst = max((result.figures.failed_share or 0 for result in one.tier.results), default=0)
        if worst:
            sentences.append(f"{one.name}: up to {wording.plain(wording.share(worst))} failed in a trial.")
    return "".join(f"\n- {sentence}" for sentence in sentences) + ("\n" if sentences else "")


def section(bundle: Bundle, servers: dict[str, Server], price: float) -> str:
    """All tables of a bundle, which has one preset."""
    plan = bundle.run.plan
    preset = next(servers[name].preset for name in plan.services if name in servers)
    groups: dict[tuple[str, str], list[Ladder]] = {}
    for ladder in ladders(bundle):
        groups.setdefault((ladder.workload, ladder.variant), []).append(ladder)
    silent = {ladder.service: row(ladder, IDLE).mean for ladder in groups.get(("idle", "standard"), [])}
    sheet = Sheet(servers, dict(bundle.run.versions), price, silent)
    parts = [f"## {preset}\n\n{origin(bundle.run, command=COMMAND)}{witness(bundle)}"]
    for (workload, variant), group in groups.items():
        loads = f"{wording.plain(group[0].load_of(group[0].tiers[0]))}"
        title = workload if variant == "standard" else f"{workload}, {variant}"
        sample = group[0].sample
        load = f"; {wording.plain(wording.load(sample.load))}" if sample else ""
        parts.append(f"### {preset}: {title}\n\n{loads}{load}.\n\n{table(group, sheet)}")
    return "\n".join(parts)


def witness(bundle: Bundle) -> str:
    """Who confirms the messages of a bundle."""
    found = {trial.result.witness for trial in bundle.trials if trial.result is not None}
    confirmed = "Each message counts when its own reply came. " if Witness.REPLY in found else ""
    if Witness.RECEIVER in found:
        confirmed += "A publication counts once for each subscriber that received it. "
    return confirmed + "What a reply proves: [PRESETS.md](PRESETS.md).\n"


def lacking(bundles: Iterable[Bundle], servers: dict[str, Server], gone: dict[str, str]) -> str:
    """The servers that have no figures, each with the reason; `gone`: why servers were not built."""
    measured = {name for bundle in bundles for name in bundle.run.plan.services}
    reasons = {name: gone.get(name, "it was not in this run") for name in servers if name not in measured}
    reasons |= league_servers.unavailable()
    return "## Not measured\n\n" + "".join(f"- {name}: {reason}\n" for name, reason in reasons.items())


def remarks(bundles: Iterable[Bundle], servers: dict[str, Server]) -> str:
    """What a reader must know about each server that was measured."""
    measured = {name for bundle in bundles for name in bundle.run.plan.services}
    lines = []
    for name in sorted(measured & servers.keys()):
        lines.append(f"- {name}: {' '.join(servers[name].notes)} CPUs: {servers[name].threads}.\n")
    return "## What differs between them\n\n" + "".join(lines)


def text(bundles: Sequence[Bundle], servers: dict[str, Server], gone: dict[str, str], price: float) -> str:
    """The generated part of the page."""
    head = (
        f"Geometric means over fresh processes that take turns, with {CONFIDENCE:.0%} intervals. A rank is one more"
        " than the number of servers whose interval is wholly better; this run can't separate servers of equal rank."
        f" Costs are those of CPU time alone, at ${price:g} per vCPU-hour. Percentiles are of all replies together;"
        " those of a closed loop leave out what a stall would have delayed.\n"
    )
    sections = [section(bundle, servers, price) for bundle in bundles]
    return "\n".join([head, *sections, remarks(bundles, servers), lacking(bundles, servers, gone)])


def block(servers: dict[str, Server], folder: Path, price: float = PRICE) -> str:
    """The generated part from the archive, unpacked into a folder; without one it says that nothing is published."""
    if not result_archive.file_of(PART).is_file():
        return "No run is published yet.\n"
    result_archive.unpack(PART, folder)
    bundles = [read_bundle(file.parent) for file in sorted(folder.glob("*/run.json"))]
    return text(bundles, servers, json.loads((folder / LEFT_OUT).read_text()), price)


def write(servers: dict[str, Server], price: float = PRICE) -> None:
    """Writes the page's generated part."""
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(replaced(PAGE.read_text(), PART, block(servers, Path(folder), price)))
