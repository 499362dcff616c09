"""The block `generators` of docs/LEAGUE.md: what load generators count, cost, and report of a known delay and freeze.

It is made from the evidence alone, so that the same archive gives the same block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from generator_tools import Generator
from generator_trials import DELAY, FLOOD, FREEZE
from league_page import NONE, interval_of, markdown_table
from ws_ladder_analysis import wording

Evidence = Mapping[str, Any]
Trial = Mapping[str, Any]
LATENCIES = ("mean", "p50", "p99", "max")
NOT_MEASURED = "No run is published yet."


def block(evidence: Evidence | None, generators: Sequence[Generator]) -> str:
    """The block; without evidence it says so."""
    parts = [kinds(generators)]
    if evidence is None:
        parts.append(NOT_MEASURED)
    else:
        parts += [origin(evidence), costs(evidence, generators), delays(evidence, generators)]
        parts += [freezes(evidence, generators), failures(evidence)]
    parts.append(remarks(generators))
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def kinds(generators: Sequence[Generator]) -> str:
    """What each tool is, and what its figures are."""
    head = ("generator", "licence", "open loop", "its latency is", "it reports", "it counts")
    rows = [
        (name(one), one.licence, one.open_loop, one.latency, one.percentiles, one.counts) for one in ordered(generators)
    ]
    return markdown_table(head, rows)


def ordered(generators: Sequence[Generator]) -> list[Generator]:
    """Ours first, and last what isn't measured."""
    return sorted(generators, key=lambda one: (bool(one.unavailable), one.toolchain != "own", one.name))


def name(generator: Generator) -> str:
    return f"[{generator.title}](../services/league/generators/{generator.name}/README.md)"


def origin(evidence: Evidence) -> str:
    """Where the figures are from, and the load."""
    machine, settings = evidence["machine"], evidence["settings"]
    versions = ", ".join(f"{one} {number}" for one, number in evidence["versions"].items())
    rate = settings["paced_connections"] / settings["pause_seconds"]
    return (
        f"`{evidence['command']}` at commit\n`{evidence['commit'][:12]}`; {machine['cpus']} CPUs of {machine['model']}"
        f" (virtual), Linux {machine['kernel']}; the echo on one CPU, the generator on another. {versions}.\n\n"
        f"In turns, {settings['processes']} fresh processes of each. In floods, {settings['flood_connections']}"
        f" connections send as fast as the tool lets them, and {settings['window_seconds']:g} s are counted after"
        f" {settings['warm_up_seconds']:g} s. At a pace, {settings['paced_connections']} connections send"
        f" {rate:g} messages per second for {settings['paced_seconds']:g} s."
    )


def trials(evidence: Evidence, tool: str, scenario: str) -> list[Trial]:
    """The trials of a tool that have figures."""
    same = [one for one in evidence["trials"] if (one["generator"], one["scenario"]) == (tool, scenario)]
    return [one for one in same if "error" not in one]


def measured(evidence: Evidence, generators: Sequence[Generator]) -> list[Generator]:
    return [one for one in ordered(generators) if one.name in evidence["versions"]]


def costs(evidence: Evidence, generators: Sequence[Generator]) -> str:
    """Messages per CPU second of each tool."""
    rows = []
    for one in measured(evidence, generators):
        found = trials(evidence, one.name, FLOOD)
        each = [trial["messages"] / trial["cpu_seconds"] for trial in found if trial["cpu_seconds"]]
        mean, interval = interval_of(each) if each else (None, None)
        busy = fmean(trial["cpu_seconds"] / trial["seconds"] for trial in found) if found else None
        start = fmean(trial["start_up_cpu_seconds"] for trial in found) if found else None
        rows.append(
            (
                name(one),
                NONE if mean is None else f"{mean:,.0f}",
                "no interval" if interval is None else f"{interval[0]:,.0f} to {interval[1]:,.0f}",
                NONE if busy is None else wording.plain(wording.share(busy)),
                NONE if start is None else wording.plain(wording.seconds(start)),
            )
        )
    head = ("generator", "messages per CPU second", "95 %", "of its CPU", "CPU time until its first message")
    note = (
        "Where a tool used less than its CPU, the echo was the limit: the tool then wakes up for fewer messages at a"
        " time, and each costs it more."
    )
    return f"### Cost of a message\n\n{note}\n\n{markdown_table(head, rows)}"


def delays(evidence: Evidence, generators: Sequence[Generator]) -> str:
    """What each tool reports where each reply is late by the same time."""
    delay = evidence["settings"]["delay_ms"]
    text = f"### A known delay\n\nThe echo answers each message {delay:g} ms later, and notes how long it really was."
    return f"{text}\n\n{latencies(evidence, generators, DELAY)}"


def freezes(evidence: Evidence, generators: Sequence[Generator]) -> str:
    """What each tool reports where the service stops for a while."""
    freeze = evidence["settings"]["freeze_seconds"]
    text = (
        f"### A known freeze\n\nThe echo stops for {freeze:g} s in the middle. True is what clients see whose messages"
        " are due at the planned times, whether the service answers or not. A tool that waits for an answer before its"
        " next message has few messages in the freeze, and a p99 that doesn't show it: coordinated omission."
    )
    return f"{text}\n\n{latencies(evidence, generators, FREEZE)}"


def latencies(evidence: Evidence, generators: Sequence[Generator], scenario: str) -> str:
    """Reported latencies, each with its difference from the true one."""
    rows = []
    for one in measured(evidence, generators):
        found = trials(evidence, one.name, scenario)
        counts = f"{sum(trial['counted'] for trial in found):,} of {sum(trial['served'] for trial in found):,}"
        true = {key: mean_of(found, "true_ms", key) for key in LATENCIES}
        reported = {key: mean_of(found, "reported_ms", key) for key in LATENCIES}
        cells = [latency(reported[key], true[key]) for key in LATENCIES]
        shown = " / ".join(milliseconds(true[key]) for key in LATENCIES if true[key] is not None)
        rows.append((name(one), *cells, shown or NONE, counts if found else NONE))
    head = ("generator", *LATENCIES, "true mean / p50 / p99 / max", "messages counted, of those that the echo got")
    return markdown_table(head, rows) + "\n\nIn milliseconds; in brackets, how far the figure is from the true one.\n"


def mean_of(found: Sequence[Trial], group: str, key: str) -> float | None:
    """The mean over processes; `None` where one of them lacks it."""
    values = [trial[group].get(key) for trial in found]
    return None if not values or None in values else fmean(values)


def latency(reported: float | None, true: float | None) -> str:
    if reported is None:
        return NONE
    return milliseconds(reported) if true is None else f"{milliseconds(reported)} ({reported - true:+.1f})"


def milliseconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def failures(evidence: Evidence) -> str:
    """Trials without figures, each with its reason."""
    lines = [
        f"- {one['generator']}, {one['scenario']}, process {one['number'] + 1}: {one['error']}"
        for one in evidence["trials"]
        if "error" in one
    ]
    return "Trials without figures:\n\n" + "\n".join(lines) if lines else ""


def remarks(generators: Sequence[Generator]) -> str:
    """What a reader must know about each tool."""
    lines = [f"- {one.title}: {' '.join([*one.notes, one.unavailable]).strip()}" for one in ordered(generators)]
    return "\n".join(lines)
