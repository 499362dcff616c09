"""The results of searches: the capacity of each service with its interval, and the loads that were tested."""

from __future__ import annotations

from bench_format.schemas import BoundBy, CapacityEstimate, Edge, LoadTest, Run, Search, SearchFound

from . import wording
from .cells import NONE, NOTHING, Cell, Column, Table, Tone
from .tables import AT_LEAST

# Number of searches in turn below which an interval holds within its run only.
ENOUGH_IN_TURN = 6
_EDGES = {
    Edge.LATENCY: Cell("latency", "too slow before anything failed"),
    Edge.ERRORS: Cell("errors", "messages, sessions or the service failed first", Tone.WARN),
}


def capacities(run: Run) -> Table:
    """One row for each search of a run of schema 3 or later."""
    cpus = run.plan.cpu.service.cpus
    columns = [Column("service", number=False), Column("P ≥ 0.5 at (95 %)"), Column("spread"), Column("trials")]
    columns += [Column("confirmed"), Column("first solid fail")]
    columns += [Column(title, number=False) for title in ("what failed first", "edge", "bound by")]
    columns += [Column("on a whole CPU (projection)")] * (cpus < 1)
    rows = tuple(_row(search, cpus) for search in run.searches)
    return Table(f"Capacity inside the objective, on {cpus:g} CPU", tuple(columns), rows, _notes(run, cpus))


def _row(search: Search, cpus: float) -> tuple[Cell, ...]:
    ladder = search.workload if search.variant == "standard" else f"{search.workload} · {search.variant}"
    head, found = Cell(search.service, ladder), search.found
    if found is None:
        return (head, Cell("not finished", tone=Tone.WARN), *[NOTHING] * (8 if cpus < 1 else 7))
    capacity = found.capacity
    estimate = capacity.estimate if capacity else None
    cells = [head, *_estimate(estimate, capacity.in_turn if capacity else 0)]
    cells += [_confirmed(found), _fail(capacity.fail if capacity else None)]
    cells += [_gates(found), _EDGES[found.edge] if found.edge else NONE, _bound(found.bound_by)]
    return (*cells, _projected(found, estimate, cpus)) if cpus < 1 else tuple(cells)


def _estimate(estimate: CapacityEstimate | None, in_turn: int) -> tuple[Cell, Cell, Cell]:
    if estimate is None:
        return NONE, NONE, NONE
    within = "within this run" if in_turn < ENOUGH_IN_TURN else ""
    loads = Cell(interval(estimate), within)
    return loads, Cell(wording.share(estimate.spread)), Cell(wording.count(estimate.trials))


def interval(estimate: CapacityEstimate) -> str:
    """The capacity and its 95 % interval as text: `203 [199, 208]`."""
    return f"{_load(estimate.load)} [{_load(estimate.low)}, {_load(estimate.high)}]"


def _load(load: float) -> str:
    return wording.digits(load) if load < 100 else wording.count(load)


def _tally(agreeing: int, test: LoadTest) -> str:
    return f"{agreeing} of {test.passed + test.failed}"


def _confirmed(found: SearchFound) -> Cell:
    test = found.capacity.confirm if found.capacity else None
    if test is None:
        return Cell("not confirmed", tone=Tone.BAD)
    passed = f"{_tally(test.passed, test)} passed"
    if not test.succeeded:
        return Cell("not confirmed", f"{passed} at {wording.count(test.load)}", Tone.BAD)
    return Cell((AT_LEAST if found.at_least else "") + wording.count(test.load), passed, Tone.GOOD)


def _fail(test: LoadTest | None) -> Cell:
    if test is None:
        return NONE
    failed = f"{_tally(test.failed, test)} failed"
    return Cell(wording.count(test.load), failed) if test.succeeded else Cell("none", f"{failed} at {test.load}")


def _projected(found: SearchFound, estimate: CapacityEstimate | None, cpus: float) -> Cell:
    """The load on one whole CPU, projected from a fraction under the assumption that cost is linear; not measured."""
    load = estimate.load if estimate else found.confirmed
    if load is None:
        return NOTHING
    sign = AT_LEAST if found.at_least else ""
    return Cell(sign + "about" + wording.GAP + wording.digits(load / cpus).split(".")[0], tone=Tone.MUTED)


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
    notes = [
        "A trial on a fresh process meets every objective with a probability of 0.5 or more up to the first load; its"
        " interval is at 95 %. The spread is the standard deviation of the load at which a trial begins to fail, and a"
        " confirmed load passed 5 of 5 or 8 of 9 trials of its own."
    ]
    few = [one.found.capacity.in_turn for one in run.searches if one.found and one.found.capacity]
    if few and min(few) < ENOUGH_IN_TURN:
        notes.append(
            f"Fewer than {ENOUGH_IN_TURN} services took turns, so that the interval holds within this run: a slow drift"
            " of the machine is not in it."
        )
    for search in run.searches:
        found = search.found
        if found and found.generator_limit is not None:
            load = wording.count(found.generator_limit)
            notes.append(f"{search.service}: the generator could not offer {load}; what is above was not searched.")
        if found and found.given_up_at is not None:
            load = wording.count(found.given_up_at)
            notes.append(f"{search.service}: no valid trial at {load}; the search ended there.")
    if cpus < 1:
        notes.append(
            f"The last column divides by {cpus:g}: a projection, not a measurement. A whole CPU has caches, timer"
            " ticks and wake-ups of its own, which a quota neither scales nor shows."
        )
    return tuple(notes)
