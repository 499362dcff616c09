"""The results of searches of runs up to schema 2: `confirmed ↔ borderline ↔ first solid fail`, and the bounds of each
objective. Later ones have a capacity with an interval (`capacities`)."""

from __future__ import annotations

from collections.abc import Sequence

from bench_format.schemas import BoundBy, Edge, Run, Search, SearchFound

from . import wording
from .cells import NONE, NOTHING, Cell, Column, Table, Tone
from .tables import AT_LEAST

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
    columns += [Column("on a whole CPU (projection)")] * (cpus < 1)
    rows = tuple(_row(search, cpus) for search in run.searches)
    return Table(f"The largest load inside the objective, on {cpus:g} CPU", tuple(columns), rows, _notes(run, cpus))


def _row(search: Search, cpus: float) -> tuple[Cell, ...]:
    ladder = search.workload if search.variant == "standard" else f"{search.workload} · {search.variant}"
    head, found = Cell(search.service, ladder), search.found
    if found is None:
        return (head, Cell("not finished", tone=Tone.WARN), *[NOTHING] * (7 if cpus < 1 else 6))
    cells = [head, _confirmed(found), _loads(found.borderline), _loads(_some(found.first_solid_fail))]
    cells += [_gates(found), _EDGES[found.edge] if found.edge else NONE, _bound(found.bound_by)]
    throughput = found.conditional_throughput
    cells.append(NOTHING if throughput is None else Cell(wording.rate(throughput)))
    if cpus < 1:
        cells.append(_projected(found, cpus))
    return tuple(cells)


def _some(load: int | None) -> list[int]:
    return [] if load is None else [load]


def _loads(loads: Sequence[int]) -> Cell:
    return Cell(", ".join(map(wording.count, loads))) if loads else NONE


def _confirmed(found: SearchFound) -> Cell:
    if found.confirmed is None:
        return Cell("nothing", tone=Tone.BAD)
    return Cell((AT_LEAST if found.at_least else "") + wording.count(found.confirmed), tone=Tone.GOOD)


def _projected(found: SearchFound, cpus: float) -> Cell:
    """The load on one whole CPU, projected from a fraction under the assumption that cost is linear; not measured."""
    if found.confirmed is None:
        return NOTHING
    sign = AT_LEAST if found.at_least else ""
    return Cell(sign + "about" + wording.GAP + wording.digits(found.confirmed / cpus).split(".")[0], tone=Tone.MUTED)


def _gates(found: SearchFound) -> Cell:
    if not found.gates:
        return NONE
    first, *others = map(wording.objective, found.gates)
    return Cell(first, "; ".join(others))


def _bound(bound: BoundBy | None) -> Cell:
    if bound is None:
        return NONE
    return Cell(bound, tone=Tone.GOOD if bound is BoundBy.SERVICE else Tone.WARN)


def _notes(run: Run, cpus: float) -> tuple[str, ...]:
    notes = []
    for search in run.searches:
        if search.found and search.found.generator_limit is not None:
            load = wording.count(search.found.generator_limit)
            notes.append(f"{search.service}: the generator could not offer {load}; what is above was not searched.")
        if search.found and search.found.given_up_at is not None:
            load = wording.count(search.found.given_up_at)
            notes.append(f"{search.service}: no valid trial at {load}; the search ended there.")
    if cpus < 1:
        notes.append(
            f"The last column divides by {cpus:g}: a projection, not a measurement. A whole CPU has caches, timer"
            " ticks and wake-ups of its own, which a quota neither scales nor shows."
        )
    return tuple(notes)


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
