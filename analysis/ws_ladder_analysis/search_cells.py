"""The cells and notes that the tables of searches share: those of capacities and those of older brackets."""

from __future__ import annotations

from bench_format.schemas import BoundBy, Run, Search, SearchFound

from . import wording
from .cells import NONE, Cell, Tone
from .tables import AT_LEAST


def head(search: Search) -> Cell:
    """The service of a search with its ladder."""
    return Cell(
        search.service, search.workload if search.variant == "standard" else f"{search.workload} · {search.variant}"
    )


def gates(found: SearchFound) -> Cell:
    """The objective that most failed trials missed first, with the only other one that some did or the number of them;
    `run.json` names them all."""
    if not found.gates:
        return NONE
    first, *others = map(wording.objective, found.gates)
    return Cell(first, others[0] if len(others) == 1 else f"and {len(others)} others" if others else "")


def bound(by: BoundBy | None) -> Cell:
    """What limited the failing trials; highlighted unless it was the service."""
    if by is None:
        return NONE
    return Cell(by, tone=Tone.GOOD if by is BoundBy.SERVICE else Tone.WARN)


def at_least(found: SearchFound) -> str:
    """The sign before a load if the search reached the end of its range."""
    return AT_LEAST if found.at_least else ""


def ended_early(run: Run) -> list[str]:
    """Under which load a service ended, and what ended a search before its range did."""
    found_notes = []
    for search in run.searches:
        found = search.found
        if found and found.crash is not None:
            load = wording.count(found.crash.load)
            found_notes.append(f"{search.service} ended under a load of {load}: {found.crash.cause}.")
        if found and found.generator_limit is not None:
            load = wording.count(found.generator_limit)
            found_notes.append(
                f"{search.service}: the generator could not offer {load}; what is above was not searched."
            )
        if found and found.given_up_at is not None:
            load = wording.count(found.given_up_at)
            found_notes.append(f"{search.service}: no valid trial at {load}; the search ended there.")
    return found_notes
