"""The results of searches: the capacity of each service with its interval, the loads that were tested, and the cost.

A capacity is that of the share of a CPU on which it was searched. A whole CPU is fitted from two shares (`whole_cpu`),
never multiplied from one.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from bench_format.schemas import CapacityEstimate, Edge, LoadTest, Run, Search, SearchFound, SearchStep

from . import search_cells, wording
from .cells import NONE, NOTHING, Cell, Column, Table, Tone
from .ladders import figure
from .load import Trial
from .tables import AT_MOST

# What a CPU of the service costs for an hour, in any currency; about the price of a virtual CPU in public clouds.
PRICE_PER_CPU_HOUR = 0.04
# Number of searches in turn below which an interval holds within its run only.
ENOUGH_IN_TURN = 6
_MEMORY = figure("service_rss_bytes")
_EDGES = {
    Edge.LATENCY: Cell("latency", "too slow before anything failed"),
    Edge.ERRORS: Cell("errors", "messages, sessions or the service failed first", Tone.WARN),
}


def capacities(run: Run, trials: Sequence[Trial] = ()) -> Table:
    """One row for each search of a run of schema 3 or later, with the memory of its `trials`."""
    cpus = run.plan.cpu.service.cpus
    columns = [Column("service", number=False), Column("P ≥ 0.5 at (95 %)"), Column("spread"), Column("trials")]
    columns += [Column("confirmed"), Column("first solid fail")]
    columns += [Column(title, number=False) for title in ("what failed first", "edge", "bound by")]
    columns += [Column("CPU per session"), Column("1 000 session-hours"), Column("memory per session")]
    rows = tuple((*_row(search, cpus), _memory(search, trials)) for search in run.searches)
    return Table(f"Capacity inside the objective, on {cpus:g} CPU", tuple(columns), rows, _notes(run, cpus))


def _row(search: Search, cpus: float) -> tuple[Cell, ...]:
    head, found = search_cells.head(search), search.found
    if found is None:
        return (head, Cell("not finished", tone=Tone.WARN), *[NOTHING] * 9)
    capacity = found.capacity
    estimate = capacity.estimate if capacity else None
    cells = [head, *_estimate(estimate, capacity.in_turn if capacity else 0)]
    cells += [_confirmed(found), _fail(capacity.fail if capacity else None)]
    cells += [search_cells.gates(found), _EDGES[found.edge] if found.edge else NONE, search_cells.bound(found.bound_by)]
    if estimate is not None:
        return (*cells, *_cost(estimate.load, cpus))
    return (*cells, *_cost(found.confirmed, cpus, AT_MOST if found.at_least else ""))


def _cost(load: float | None, cpus: float, sign: str = "") -> tuple[Cell, Cell]:
    """CPU time and money of a session at this load, when the service's whole share is paid for: an upper limit where
    the service carries at least this load."""
    if not load:
        return NONE, NONE
    per_second = Cell(f"{sign}{wording.digits(1000 * cpus / load)}{wording.GAP}ms/s")
    return per_second, Cell(sign + wording.digits(1000 * cpus * PRICE_PER_CPU_HOUR / load))


def memory_per_session(search: Search, trials: Sequence[Trial]) -> float | None:
    """Bytes of the service for each session of the confirmed load, the process itself included: the mean of the valid
    trials that confirmed it. `None` without any."""
    confirmed = search.found.confirmed if search.found else None
    values = [
        value / confirmed
        for trial in trials
        if confirmed
        and (trial.id.service, trial.id.workload, trial.id.variant) == (search.service, search.workload, search.variant)
        and trial.entry.search is not None
        and (trial.entry.search.step, trial.id.tier) == (SearchStep.CONFIRM, confirmed)
        and trial.valid
        and (value := _MEMORY(trial)) is not None
    ]
    return fmean(values) if values else None


def _memory(search: Search, trials: Sequence[Trial]) -> Cell:
    found = memory_per_session(search, trials)
    return NONE if found is None else Cell(wording.memory(found))


def _estimate(estimate: CapacityEstimate | None, in_turn: int) -> tuple[Cell, Cell, Cell]:
    if estimate is None:
        return NONE, NONE, NONE
    within = "within this run" if in_turn < ENOUGH_IN_TURN else ""
    loads = Cell(interval(estimate), within)
    return loads, Cell(wording.share(estimate.spread)), Cell(wording.count(estimate.trials))


def interval(estimate: CapacityEstimate) -> str:
    """The capacity and its 95 % interval as text: `203 [199, 208]`."""
    return f"{load_text(estimate.load)} [{load_text(estimate.low)}, {load_text(estimate.high)}]"


def load_text(load: float) -> str:
    """A load as text, with three digits at least."""
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
    return Cell(search_cells.at_least(found) + wording.count(test.load), passed, Tone.GOOD)


def _fail(test: LoadTest | None) -> Cell:
    if test is None:
        return NONE
    failed = f"{_tally(test.failed, test)} failed"
    return Cell(wording.count(test.load), failed) if test.succeeded else Cell("none", f"{failed} at {test.load}")


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
    notes.append(
        f"CPU per session is the service's share divided by its capacity, and its cost that at {PRICE_PER_CPU_HOUR:g}"
        " per CPU-hour (in any currency; another price scales it). Memory per session is that of the service at the"
        " confirmed load, its process included."
    )
    if cpus < 1:
        notes.append(
            f"These hold for {cpus:g} CPU and don't scale: a second search on another share shows how the capacity"
            " grows."
        )
    return (*notes, *search_cells.ended_early(run))
