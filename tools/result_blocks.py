"""The blocks of docs/RESULTS.md as text, each from the evidence of its part: bundles, or the folder of `just bench`.

Nothing here is measured or typed by hand: the same functions make the blocks when they are written, and again when the
tests compare docs/RESULTS.md with the archives in docs/results/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import bench
from bench_format.schemas import CapacityEstimate, Run
from bench_summary import markdown, summary
from ws_ladder_analysis import capacities, charts, choice, gateways, overview, pages, wording
from ws_ladder_analysis.cells import NOTHING, Cell, Column, Table
from ws_ladder_analysis.compare import compare
from ws_ladder_analysis.drawing import Chart
from ws_ladder_analysis.frames import Row, frames
from ws_ladder_analysis.ladders import Ladder, Percentile, ladders
from ws_ladder_analysis.load import Bundle, read_bundle
from ws_ladder_analysis.whole_cpu import whole_cpu

# Which process used most of a CPU that a trial needed.
OTHER_PROCESS = re.compile(r", \S+ \(process \d+\) most")
# The chart of the overview, by its name in a report.
OVERVIEW_CHART = "throughput-batch-wse-server-outcomes"
# Latencies at a share of each capacity: the age of the newest and of the oldest audio in an answer.
LATENCIES = tuple((f"{name} p{at}", Percentile(f"{name}_ns", at)) for name in ("newest", "oldest") for at in (50, 95))


@dataclass(frozen=True)
class Block:
    """A block: its text, and the pictures that it shows, by their file names in docs/images/."""

    text: str
    pictures: Mapping[str, Chart]


Find = Callable[[str], Path]
"""Returns the folder of the evidence with this name: that of a plan's bundle, or of `bench`."""


def block(part: str, find: Find, command: str) -> Block:
    """The block of a part, which says that `command` makes it. Raises `KeyError` for an unknown part."""
    return MAKERS[part](find, command)


def origin(*runs: Run, command: str = "", sides: str = "service on one CPU, generator on the other") -> str:
    """A sentence with machine, commit and command of runs; the command defaults to the first run's. `sides` says which
    CPUs service and generator had."""
    machine = runs[0].machines[0]
    where = f"{machine.cpus} CPUs of {machine.cpu_model} (virtual), Linux {machine.kernel}"
    commits = ", ".join(dict.fromkeys(f"`{commit(run)}`" for run in runs))
    return f"`{command or runs[0].command}` at commit\n{commits}; {where}; {sides}.\n\n"


def commit(run: Run) -> str:
    """The shortened commit of a run, marked when the checkout had changes."""
    name, changed, _ = run.commit.partition("+")
    return f"{name[:12]}{changed}{'changes' if changed else ''}"


def results(find: Find, command: str) -> Block:
    """The report's "At a glance" table, and a chart."""
    bundle = read_bundle(find("quick"))
    found = ladders(bundle)
    drawn = next(chart for one in found for chart in charts.draw([one], False) if chart.name == OVERVIEW_CHART)
    head = "The most informative tier of each ladder, means over processes with the range over repeats. "
    text = head + origin(bundle.run, command=command) + rows_only(overview.headlines(found))
    return shown(text, "Messages per second, written, delivered and dropped, at each tier", "results.png", drawn)


def comparison(find: Find, command: str) -> Block:
    """Delivered messages per second of both services, and their ratio with its interval."""
    bundle = read_bundle(find("reference"))
    found = ladders(bundle)
    tables = frames(bundle, found, compare(found))
    compared = [row for row in tables.comparisons.to_dicts() if row["figure"] == "delivered per second"]
    trials = tables.trials.to_dicts()
    services = (str(compared[0]["service"]), str(compared[0]["other"]))
    titles = " | ".join(f"{service} {bundle.run.versions.get(service, '')}".strip() for service in services)
    lines = [
        f"| delivery, messages per write | {titles} | ratio | {100 * compared[0]['level']:.4g} % interval | dropped |",
        "| --- | ---: | ---: | ---: | --- | ---: |",
        *(comparison_row(row, trials, services) for row in compared),
    ]
    head = f"Messages delivered to Python, taking turns, {compared[0]['pairs']} fresh processes each. "
    return Block(head + origin(bundle.run, command=command) + "\n".join(lines) + "\n", {})


def comparison_row(row: Row, trials: Sequence[Row], services: Sequence[str]) -> str:
    """One flood. The rate of a flood that the generator limited is a lower bound."""
    variant = str(row["variant"])
    own = {name: [one for one in trials if (one["service"], one["variant"]) == (name, variant)] for name in services}
    at_least = ["&ge; " if any(one["bound_by"] == "generator" for one in own[name]) else "" for name in services]
    delivery, _, per_write = variant.partition("-x")
    means = [float(str(row[name])) / 1000 for name in ("service_mean", "other_mean")]
    ratio, low, high = (float(str(row[name])) for name in ("ratio", "ratio_low", "ratio_high"))
    cells = [
        f"{delivery}, {per_write}",
        *(f"{sign}{mean:,.0f} k/s" for sign, mean in zip(at_least, means, strict=True)),
        f"{at_least[0]}{ratio:.1f}",
        f"{low:.1f} to {high:.1f}",
        ", ".join(f"{100 * dropped(own[name]):.0f} %" for name in services),
    ]
    return f"| {' | '.join(cells)} |"


def dropped(trials: Sequence[Row]) -> float:
    """The share of sent messages that a service dropped, over all these trials."""
    counts = [[int(str(one[name] or 0)) for name in ("messages_dropped", "messages_sent")] for one in trials]
    return sum(count for count, _ in counts) / sum(count for _, count in counts)


def sessions(find: Find, command: str) -> Block:
    """The gateways side by side, and their chart."""
    bundle = read_bundle(find("stt"))
    found = ladders(bundle)
    tables = gateways.side_by_side(found, bundle.run.lines, bundle.starts)
    drawn = gateways.picture(found, bundle.run.lines)
    assert drawn is not None, "a bundle of gateways has at least two"
    head = f"Means over processes that take turns. {origin(bundle.run, command=command)}"
    text = head + "\n".join(pages.markdown(table) for table in tables)
    return shown(text, "CPU per frame against lines of code, with the memory of a session", "gateways.png", drawn)


def two_cpus(find: Find, command: str) -> Block:
    """The table of gateways by variant. Raises `ValueError` where no gateway was measured in several."""
    bundle = read_bundle(find("two-cpus"))
    tables = gateways.side_by_side(ladders(bundle), bundle.run.lines, bundle.starts)
    of_variants = [table for table in tables if table.caption.endswith(gateways.BY_VARIANT)]
    if not of_variants:
        raise ValueError(f"{bundle.folder} has no table of variants: it is not a bundle of plans/two-cpus.yaml")
    shared = "shared(" in bundle.run.cpu_roles["worker"]
    sides = "service and generator share both" if shared else "the generator has CPUs of its own"
    head = f"{of_variants[0].caption}; means over processes that take turns. "
    rows = "\n".join(map(rows_only, of_variants))
    notes = "".join(f"\n{note}\n" for table in of_variants for note in table.notes)
    return Block(head + origin(bundle.run, command=command, sides=sides) + rows + notes, {})


def capacity(find: Find, command: str) -> Block:
    """The capacities of a search, and what to choose."""
    bundle = read_bundle(find("stt-capacity"))
    head = f"Searched in turns. {origin(bundle.run, command=command)}"
    text = head + pages.markdown(capacities.capacities(bundle.run, bundle.trials))
    drawn = choice.picture(bundle.run)
    if drawn is None:
        return Block(text, {})
    choices = "".join(f"- {one}\n" for one in choice.choices(bundle.run))
    made = shown(text, "Sessions against lines of code, with intervals", "capacity.png", drawn)
    return Block(f"{made.text}\nBy [rule](METHODOLOGY.md#what-to-choose), not by taste:\n\n{choices}", made.pictures)


def capacity_of_half(find: Find, command: str) -> Block:
    """The capacities on half of the share, and what a whole CPU would carry by both."""
    half = read_bundle(find("stt-capacity-half"))
    runs = [read_bundle(find("stt-capacity")).run, half.run]
    models = sorted({run.machines[0].cpu_model for run in runs})
    if len(models) > 1:
        raise ValueError(f"one share was searched on {models[0]} and its half on {models[1]}: they aren't comparable")
    text = f"### On half of that share\n\n{origin(half.run, command=command)}"
    tables = [capacities.capacities(half.run, half.trials), *filter(None, [whole_cpus(runs)])]
    return Block(text + "\n".join(map(pages.markdown, tables)), {})


def whole_cpus(runs: Iterable[Run]) -> Table | None:
    """The services that were searched on two shares of a CPU or more; `None` without any."""
    shares: dict[str, list[tuple[float, CapacityEstimate]]] = {}
    for run in runs:
        for search in run.searches:
            found = search.found.capacity if search.found else None
            if found is not None and found.estimate is not None:
                shares.setdefault(search.service, []).append((run.plan.cpu.service.cpus, found.estimate))
    fits = {service: fit for service, found in shares.items() if (fit := whole_cpu(found))}
    if not fits:
        return None
    columns = (
        Column("gateway", number=False),
        Column("on a whole CPU, fitted (95 %)"),
        Column("grows with the share to the power of"),
    )
    rows = tuple(
        (Cell(service), Cell(f"{fit.load:,.0f} [{fit.low:,.0f}, {fit.high:,.0f}]"), Cell(f"{fit.power:.2f}"))
        for service, fit in fits.items()
    )
    note = (
        "Fitted, not measured: the capacity as a power of the share. The interval is that of the searches and doesn't"
        " say how well a power describes what lies beyond them."
    )
    return Table("A whole CPU, from shares of it", columns, rows, (note,))


def latency(find: Find, command: str) -> Block:
    """Latencies at a share of each capacity."""
    bundle = read_bundle(find("stt-at-70"))
    columns = (Column("gateway", number=False), Column("sessions"), *(Column(title) for title, _ in LATENCIES))
    rows = tuple(latency_row(ladder) for ladder in ladders(bundle))
    why = f"{bundle.run.plan.why[0].upper()}{bundle.run.plan.why[1:]}"
    head = f"### At a share of each capacity\n\n{why}. {origin(bundle.run, command=command)}"
    return Block(head + rows_only(Table("", columns, rows)), {})


def latency_row(ladder: Ladder) -> tuple[Cell, ...]:
    """The latencies of a gateway at its only tier."""
    [tier] = ladder.tiers
    found = [tier.spread(getter) for _, getter in LATENCIES]
    cells = [NOTHING if one is None else Cell(wording.duration(one.mean)) for one in found]
    return (Cell(ladder.service), Cell(wording.count(tier.connections)), *cells)


def rows_of_bench(find: Find, command: str) -> Block:
    """Ours beside the reference and the floor: the rows that have figures."""
    evidence = find("bench")
    measured = bench.evidence(evidence)
    bundles: list[Bundle] = [one.bundle for one in measured.values() if one.bundle is not None]
    rows = [row for row in (*summary(measured), *bench.bystanders(evidence)) if row.ours is not None]
    head = "Means over fresh processes that take turns, with the floor's programs before and after. "
    # What else ran on this machine has a name here, and none that says anything to who reads the page.
    table = OTHER_PROCESS.sub("", markdown(rows))
    return Block(head + origin(*(one.run for one in bundles), command=command) + table, {})


def rows_only(table: Table) -> str:
    """The rows of a table as Markdown, without caption and notes."""
    lines = (line.rstrip() for line in pages.markdown(table).splitlines())
    return "\n".join(line for line in lines if line.startswith("|")) + "\n"


def shown(text: str, description: str, file: str, drawn: Chart) -> Block:
    """A text with a picture below it."""
    return Block(f"{text.rstrip()}\n\n![{description}](images/{file})\n", {file: drawn})


MAKERS: Mapping[str, Callable[[Find, str], Block]] = {
    "results": results,
    "comparison": comparison,
    "bench": rows_of_bench,
    "sessions": sessions,
    "two-cpus": two_cpus,
    "capacity": capacity,
    "latency": latency,
    "capacity-half": capacity_of_half,
}
