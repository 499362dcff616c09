"""Writes a bundle's report: one self-contained HTML file, the same in Markdown, tables as CSV and charts as PNG.

Assembles what the other modules return; computes nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path

from bench_format.meaning import holds
from bench_format.schemas import Run, RunState, TrialResult, WireWebsocket

from . import (
    __version__,
    brackets,
    capacities,
    charts,
    choice,
    evidence,
    gateways,
    measured,
    overview,
    pages,
    reading,
    tables,
    turnover,
    wording,
)
from .cells import Table
from .charts import MOST_DISTRIBUTIONS, count_distributions
from .checks import Checked, check
from .compare import Comparison, compare
from .contract import contract
from .drawing import Chart
from .fanout import fanout_paths
from .frames import frames
from .ladders import Ladder, ladders, objectives
from .load import Bundle, read_bundle
from .pods import pods
from .published_tables import published_tables

# The first schema whose searches have a capacity with an interval.
CAPACITY_SCHEMA = 3


@dataclass(frozen=True)
class Section:
    """The section of one workload and variant, services beside each other."""

    title: str
    anchor: str
    facts: tuple[tuple[str, str], ...]
    tiers: tuple[Table, ...]
    comparison: Table | None
    charts: tuple[Chart, ...]
    distributions: tuple[Chart, ...]
    percentiles: tuple[Table, ...]
    failures: tuple[Table, ...]
    trials: tuple[Table, ...]


@dataclass(frozen=True)
class Report:
    """All data that the templates print."""

    run: Run
    lede: str
    facts: tuple[tuple[str, str], ...]
    unfinished: str
    checked: Checked
    headlines: Table
    # Results of searches; up to schema 2 also the bounds of each objective.
    capacity: tuple[Table, ...]
    # Sessions against lines of code, and what follows from both for a choice; empty for fewer than two capacities.
    capacity_picture: Chart | None
    capacity_choices: tuple[str, ...]
    # The two sides that were measured in pairs until it was decided; `None` for other runs.
    measured: Table | None
    unusable: Table | None
    sections: tuple[Section, ...]
    # Speech-to-text gateways side by side, their chart, and differences from the published order; empty without any.
    gateways: tuple[Table, ...]
    gateways_picture: Chart | None
    gateways_differences: tuple[str, ...]
    # Paths from a publisher to its subscribers side by side; empty when the run has only one.
    fanout_paths: tuple[Table, ...]
    # Published figures and ours for the same load; empty when none correspond.
    published_tables: tuple[Table, ...]
    books: tuple[Table, ...]
    books_held: str
    evidence: tuple[Table, ...]
    reproduce: str
    program: str = f"ws-ladder-analysis {__version__}"


def _capacity(bundle: Bundle) -> tuple[Table, ...]:
    run = bundle.run
    if run.searches and run.schema >= CAPACITY_SCHEMA:
        return (capacities.capacities(run, bundle.trials),)
    return tuple(filter(None, [brackets.brackets(run), brackets.bounds(run)]))


def write_report(folder: Path, output: Path | None = None) -> tuple[Path, Report]:
    """Reads the bundle and writes its report to `output` (default: the bundle's `report/`). Returns the page's path."""
    bundle = read_bundle(folder)
    found = ladders(bundle)
    # Student's intervals don't hold where the pairs themselves decided how many there are.
    compared = () if bundle.run.comparison else compare(found)
    report = build(bundle, found, compared)
    target = output or folder / "report"
    target.mkdir(parents=True, exist_ok=True)
    frames(bundle, found, compared).write(target)
    for old in target.glob("*.png"):
        # An earlier report may have left charts that this one doesn't have.
        old.unlink()
    drawn = [chart for section in report.sections for chart in (*section.charts, *section.distributions)]
    for chart in (*drawn, *filter(None, [report.capacity_picture, report.gateways_picture])):
        pages.write_atomically(target / f"{chart.name}.png", chart.png)
    pages.write_atomically(target / "report.md", render(report, "report.md.j2").encode())
    pages.write_atomically(target / "report.html", render(report, "report.html.j2").encode())
    return target / "report.html", report


def build(bundle: Bundle, found: Sequence[Ladder], compared: Sequence[Comparison]) -> Report:
    """Builds the report as data for the templates."""
    every = count_distributions(found) <= MOST_DISTRIBUTIONS
    groups = [tuple(group) for _, group in groupby(found, key=lambda one: (one.workload, one.variant))]
    results = [trial.result for trial in bundle.trials if trial.result is not None]
    return Report(
        run=bundle.run,
        lede=_summary(bundle, found),
        facts=_facts(bundle),
        unfinished=_unfinished(bundle),
        checked=check(bundle),
        headlines=overview.headlines(found),
        capacity=_capacity(bundle),
        capacity_picture=choice.picture(bundle.run),
        capacity_choices=choice.choices(bundle.run),
        measured=measured.table(bundle.run.comparison) if bundle.run.comparison else None,
        unusable=overview.unusable(found),
        sections=tuple(_section(bundle, group, compared, every) for group in groups),
        gateways=gateways.side_by_side(found, bundle.run.lines, bundle.starts),
        gateways_picture=gateways.picture(found, bundle.run.lines),
        gateways_differences=gateways.differences(found),
        fanout_paths=fanout_paths(found),
        published_tables=published_tables(found),
        books=tuple(tables.books(ladder) for ladder in found if ladder.sample is not None),
        books_held=_books_held(bundle),
        evidence=(
            evidence.machines(bundle),
            *filter(None, [contract(bundle.contracts), pods(results)]),
            evidence.roles(bundle),
            evidence.versions(bundle),
            evidence.generators(found),
        ),
        reproduce=results[0].reproduce if results else "",
    )


def render(report: Report, template: str) -> str:
    """Renders a template; text is escaped for HTML, charts are inserted as they are."""
    return pages.render(template, report=report, run=report.run, reading=reading)


def _section(bundle: Bundle, group: Sequence[Ladder], compared: Sequence[Comparison], every: bool) -> Section:
    first = group[0]
    judged = objectives(bundle.run.plan, first.workload, first.variant)
    drawn = tuple(charts.draw(group, every, judged))
    own = [one for one in compared if (one.ladder.workload, one.ladder.variant) == (first.workload, first.variant)]
    return Section(
        title=first.name,
        anchor=_anchor(first.name),
        facts=_section_facts(bundle, group),
        tiers=tuple(
            table for ladder in group for table in (tables.tiers(ladder), turnover.table(ladder)) if table is not None
        ),
        comparison=overview.comparisons(own),
        charts=tuple(chart for chart in drawn if "-distribution-" not in chart.name),
        distributions=tuple(chart for chart in drawn if "-distribution-" in chart.name),
        percentiles=tuple(table for ladder in group if (table := tables.percentiles(ladder))),
        failures=tuple(table for ladder in group if (table := tables.failures(ladder))),
        trials=tuple(tables.trials(ladder) for ladder in group),
    )


def _section_facts(bundle: Bundle, group: Sequence[Ladder]) -> tuple[tuple[str, str], ...]:
    """What all figures of a section have in common, above all the load model and the witness."""
    first = group[0]
    samples = [ladder.sample for ladder in group if ladder.sample is not None]
    facts = []
    if samples:
        facts.append(("load", _each(wording.load(one.load) for one in samples)))
        facts.append(("witness", _each(f"{one.witness} ({wording.WITNESSES[one.witness]})" for one in samples)))
        described = bundle.run.plan.websocket
        facts.append(("message", _each(wording.message(one.message, described_in(one, described)) for one in samples)))
        facts.append(("window", _window(group)))
    judged = objectives(bundle.run.plan, first.workload, first.variant)
    facts.append(("objective", "; ".join(map(wording.objective, judged)) or "none, so no verdict"))
    return tuple(facts)


def described_in(result: TrialResult, section: WireWebsocket | None) -> str | None:
    """The preset whose messages a trial sent, or `the plan`; absent where the worker knows the protocol."""
    if section is None or result.trial.service not in section.services:
        return None
    return section.extends or "the plan"


def _window(group: Sequence[Ladder]) -> str:
    """The length of the measured windows as text; a range when they differ, as in a storm."""
    trials = [trial for ladder in group for trial in ladder.trials if trial.result is not None]
    found = sorted(trial.result.figures.window_seconds * 1e9 for trial in trials if trial.result is not None)
    shortest, longest = wording.duration(found[0]), wording.duration(found[-1])
    return shortest if shortest == longest else f"{shortest} to {longest}"


def _each(description: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(description))


def _summary(bundle: Bundle, found: Sequence[Ladder]) -> str:
    services = " and ".join(filter(None, [", ".join(bundle.run.plan.services[:-1]), *bundle.run.plan.services[-1:]]))
    made, valid = len(bundle.trials), sum(trial.valid for trial in bundle.trials)
    return (
        f"How much load {services or 'no service'} carried, at what latency and at what cost:"
        f" {made} trials on {len(found)} ladders, {valid} of them valid."
    )


def _facts(bundle: Bundle) -> tuple[tuple[str, str], ...]:
    run = bundle.run
    machine = run.machines[0] if run.machines else None
    facts = [
        ("run", run.id),
        ("why", run.plan.why),
        ("started", _when(run.started_at)),
        ("took", _took(run)),
        ("commit", (run.commit[:12] if "+" not in run.commit else run.commit) or "outside a checkout"),
        ("machine", f"{machine.host}: {machine.cpus} × {machine.cpu_model}, Linux {machine.kernel}" if machine else ""),
    ]
    return tuple((name, description) for name, description in facts if description)


def _when(moment: str) -> str:
    try:
        return datetime.fromisoformat(moment).strftime("%-d %B %Y, %H:%M UTC%z").replace("+0000", "")
    except ValueError:
        return moment


def _took(run: Run) -> str:
    try:
        apart = datetime.fromisoformat(run.finished_at or "") - datetime.fromisoformat(run.started_at)
    except ValueError:
        return ""
    minutes, seconds = divmod(round(apart.total_seconds()), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _unfinished(bundle: Bundle) -> str:
    run = bundle.run
    if run.state is RunState.FINISHED:
        return ""
    ended = sum(trial.result is not None for trial in bundle.trials)
    return f"This run is {run.state}, not finished: {ended} of {len(bundle.trials)} trials left a result."


def _books_held(bundle: Bundle) -> str:
    equations = [one for trial in bundle.trials if trial.result for one in trial.result.books.equations]
    held = sum(holds(one) for one in equations)
    if not equations:
        return "No trial left books."
    remarks = sum(one.is_remark and not holds(one) for one in equations)
    others = f" {wording.count(remarks)} of the others are remarks on the services' own counters." if remarks else ""
    return f"{wording.count(held)} of {wording.count(len(equations))} equations hold.{others}"


def _anchor(title: str) -> str:
    return "ladder-" + (re.sub(r"\W+", "-", title).strip("-").lower() or "unnamed")
