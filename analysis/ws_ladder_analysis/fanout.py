"""The paths of a publication side by side: within one instance, over Redis, over a cluster. Pure.

They are different workloads, so no other section compares them. A flood shows the most that each path delivers; an open
load shows what a path adds to the latency and cost of a delivery.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import overview, wording
from .cells import NOTHING, Cell, Column, Table
from .compare import between
from .counterparts import is_closed
from .ladders import Getter, Ladder, Tier, figure
from .load import Trial
from .tables import AT_LEAST, over_repeats

REDIS, CLUSTER = "fanout-redis", "fanout-cluster"
PATHS = {"fanout-broadcast": "one instance", REDIS: "Redis", CLUSTER: "cluster"}
_DELIVERED = figure("delivered_per_second")


def fanout_paths(ladders: Sequence[Ladder]) -> tuple[Table, ...]:
    """The tables of all paths; empty when the run has only one of them."""
    known = [one for one in ladders if one.workload in PATHS]
    if len({one.workload for one in known}) < 2:
        return ()
    return tuple(filter(None, (_peaks(known), *_against_redis(known), *_processes(known))))


def _peaks(ladders: Sequence[Ladder]) -> Table | None:
    """The highest rate that each path delivered in a flood, with its number of connections."""
    rows = []
    for ladder in filter(is_closed, ladders):
        measured = [(tier, found) for tier in ladder.tiers if (found := tier.spread(_DELIVERED)) is not None]
        if not measured:
            continue
        best, most = max(measured, key=lambda pair: pair[1].mean)
        missing = sum(
            result.messages.lost + sum(result.messages.dropped.values())
            for tier in ladder.tiers
            for result in tier.results
        )
        sign = AT_LEAST if best.at_least else ""
        read = best.spread(figure("bytes_read_per_second"))
        rows.append(
            (
                Cell(PATHS[ladder.workload], f"{ladder.service} · {ladder.variant}"),
                Cell(sign + wording.rate(most.mean), over_repeats(most, wording.rate)),
                Cell(wording.count(best.connections)),
                Cell(f"{wording.rate(read.mean)}B/s") if read else NOTHING,
                Cell(wording.count(missing)),
            )
        )
    if not rows:
        return None
    columns = (
        Column("path", number=False),
        Column("most delivered/s"),
        Column("to so many connections"),
        Column("read, headers included"),
        Column("dropped or lost, all tiers"),
    )
    return Table("Floods by path: the most that was delivered", columns, tuple(rows))


def _against_redis(ladders: Sequence[Ladder]) -> Iterator[Table]:
    """The cluster compared with Redis, tier by tier, for each variant that both have."""
    for cluster in (one for one in ladders if one.workload == CLUSTER):
        for redis in (one for one in ladders if (one.workload, one.variant) == (REDIS, cluster.variant)):
            table = overview.comparisons(tuple(between(cluster, redis)))
            if table is not None:
                caption = f"{cluster.variant}: {cluster.service} compared with {redis.service}"
                yield Table(caption, table.columns, table.rows, table.notes)


def _processes(ladders: Sequence[Ladder]) -> Iterator[Table]:
    """CPU per million deliveries of each process, for services that consist of several."""
    for ladder in ladders:
        names = list(dict.fromkeys(name for trial in ladder.trials for name in _names(trial)))
        if not names:
            continue
        columns = (Column(ladder.unit), Column("service"), *map(Column, names))
        rows = tuple(
            (Cell(wording.count(tier.connections)), *(_cost(tier, getter) for getter in _getters(names)))
            for tier in ladder.tiers
        )
        yield Table(f"{ladder.service}: {ladder.name}: CPU per million deliveries, by process", columns, rows)


def _getters(names: Sequence[str]) -> list[Getter]:
    return [figure("service_cpu_seconds_per_million"), *map(_cpu_per_million, names)]


def _cost(tier: Tier, getter: Getter) -> Cell:
    found = tier.spread(getter)
    return Cell(wording.seconds(found.mean), over_repeats(found, wording.seconds)) if found else NOTHING


def _names(trial: Trial) -> list[str]:
    end = trial.result.service.window_end if trial.result is not None else None
    return [] if end is None else list(end.processes)


def _cpu_per_million(name: str) -> Getter:
    """Returns a getter for a process's CPU seconds per million deliveries, from the readings at the window's edges."""

    def read(trial: Trial) -> float | None:
        if trial.result is None:
            return None
        start, end = trial.result.service.window_start, trial.result.service.window_end
        if start is None or end is None or name not in start.processes or name not in end.processes:
            return None
        delivered = _DELIVERED(trial)
        used = end.processes[name].cpu_ns - start.processes[name].cpu_ns
        messages = (delivered or 0) * (end.unix_ns - start.unix_ns) / 1e9
        return used / 1e9 / messages * 1e6 if messages > 0 else None

    return read
