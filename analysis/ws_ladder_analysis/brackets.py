"""The results of searches of runs up to schema 2: `confirmed ↔ borderline ↔ first solid fail`, and the bounds of each
objective. Later ones have a capacity with an interval (`capacities`)."""

from __future__ import annotations

from collections.abc import Sequence

from bench_format.schemas import Edge, Run, Search, SearchFound

from . import search_cells, wording
from .cells import NONE, NOTHING, Cell, Column, Table, Tone

_EDGES = {
    Edge.LATENCY: Cell("latency", "too slow, and nothing lost"),
    Edge.ERRORS: Cell("errors", "messages, sessions or the service failed", Tone.WARN),
}


def brackets(run: Run) -> Table | None:
    """One row for each search; `None` when the run has none."""
    if not run.searches:
        return None
    cpus = run.plan.cpu.service.cpus
    columns = [Column("service", number=False), Column("confirmed"), Column("borderline"), Column("first solid fail")]
    columns += [Column(title, number=False) for title in ("what failed", "edge", "bound by")]
    columns += [Column("conditional throughput")]
    rows = tuple(map(_row, run.searches))
    title = f"The largest load inside the objective, on {cpus:g} CPU"
    return Table(title, tuple(columns), rows, tuple(search_cells.ended_early(run)))


def _row(search: Search) -> tuple[Cell, ...]:
    head, found = search_cells.head(search), search.found
    if found is None:
        return (head, Cell("not finished", tone=Tone.WARN), *[NOTHING] * 6)
    cells = [head, _confirmed(found), _loads(found.borderline), _loads(_some(found.first_solid_fail))]
    cells += [search_cells.gates(found), _EDGES[found.edge] if found.edge else NONE, search_cells.bound(found.bound_by)]
    throughput = found.conditional_throughput
    return (*cells, NOTHING if throughput is None else Cell(wording.rate(throughput)))


def _some(load: int | None) -> list[int]:
    return [] if load is None else [load]


def _loads(loads: Sequence[int]) -> Cell:
    return Cell(", ".join(map(wording.count, loads))) if loads else NONE


def _confirmed(found: SearchFound) -> Cell:
    if found.confirmed is None:
        return Cell("nothing", tone=Tone.BAD)
    return Cell(search_cells.at_least(found) + wording.count(found.confirmed), tone=Tone.GOOD)


def bounds(run: Run) -> Table | None:
    """The bounds of each objective, before confirmation."""
    rows = [
        (
            Cell(search.service),
            Cell(wording.objective(goal.objective)),
            _loads(_some(goal.lower)),
            _loads(_some(goal.upper)),
            NOTHING if goal.conditional_throughput is None else Cell(wording.rate(goal.conditional_throughput)),
        )
        for search in run.searches
        if search.found is not None
        for goal in search.found.goals
    ]
    if not rows:
        return None
    columns = (
        Column("service", number=False),
        Column("objective", number=False),
        Column("largest load that meets it"),
        Column("smallest that doesn't"),
        Column("conditional throughput"),
    )
    return Table("Bounds of each objective, before they were confirmed", columns, tuple(rows))
