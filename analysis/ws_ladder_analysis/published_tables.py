"""Published figures with what they counted, beside the figures of this bundle for the same load. Pure.

There are no ratios here, by design: the published figures were measured on another machine, can't be repeated, and
mostly count something else. What a client wrote and what an application got are never combined into one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from . import bounds, seeds, seeds_fanout, wording
from .cells import NONE, NOTHING, Cell, Column, Table, Tone
from .clients import FLOODS
from .counterparts import (
    Counterpart,
    accepted,
    all_lasted,
    delivered,
    grown,
    growth,
    is_closed,
    is_of,
    lasted,
    program,
    reached,
    received,
    waited,
)
from .fanout import PATHS
from .ladders import Ladder, Tier
from .published import Count, Held, Memory, Most, Percentiles, Rates, Series, Source
from .tables import validity_cell

S = TypeVar("S", bound=Series[Any])

PROGRAMS = (seeds.WSE_BENCH, seeds.TS_BENCH, seeds.PY_BENCH)
# Services with this prefix test the harness itself; none of them is a WSE service.
_OWN_SERVICES = "self-test-"
# Workloads in the order of how little memory a service needs for a connection besides the connection itself.
_BY_CALM = ("connection-limit", "sustained-hold", "ping-latency", "connection-storm")
_PER_CORE = "per core; ours per CPU of the service"


@dataclass(frozen=True)
class _Level(Generic[S]):
    """Published figures for a number of connections, and our tiers with as many, from the same kind of client."""

    connections: int
    published: tuple[S, ...]
    ours: tuple[tuple[Ladder, Tier], ...]


@dataclass(frozen=True)
class _Kind(Generic[S]):
    """A kind of figure: the caption and column titles of its table, and functions that read each side's figures."""

    caption: str
    titles: tuple[str, ...]
    theirs: Callable[[S, int], tuple[Cell, ...]]
    ours: Callable[[Tier], Counterpart]


@dataclass(frozen=True)
class _Part:
    """A table and the sources of its published figures."""

    table: Table
    sources: tuple[Source, ...]


def published_tables(ladders: Sequence[Ladder]) -> tuple[Table, ...]:
    """The published documents and a table for each kind of figure; empty when no valid trial corresponds to any."""
    known = [one for one in ladders if program(one) in PROGRAMS and not one.service.startswith(_OWN_SERVICES)]
    parts = (*_floods(known), *_fanout(known))
    parts += (_storms(known), _pings(known), _holds(known), _most_connections(known), _memory(known))
    found = [part for part in parts if part is not None]
    documents = _documents(source for part in found for source in part.sources)
    return (documents, *(part.table for part in found)) if found else ()


def comparability(theirs: Iterable[Count], ours: Count, reasons: Sequence[str] = ()) -> Cell:
    """Whether our figure is comparable with the published ones, as text with the reasons why not."""
    different = [one for one in dict.fromkeys(theirs) if one is not ours]
    why = [f"theirs is {' or '.join(different)}, ours {ours}"] * bool(different) + list(reasons)
    return Cell(f"not comparable, because {'; and '.join(why)}" if why else "counted alike, on another machine")


def _floods(ladders: Sequence[Ladder]) -> list[_Part | None]:
    """A table for each message format and size that was published."""
    parts = []
    for message in dict.fromkeys((one.format, one.size_bytes) for one in seeds.FLOODS):
        caption = f"Floods: {message[0]}, {wording.count(message[1])} bytes"
        series = [one for one in seeds.FLOODS if (one.format, one.size_bytes) == message]
        own = [one for one in ladders if one.workload in FLOODS and is_closed(one) and _message(one) == message]
        parts.append(_part(_Kind(caption, ("messages/s", _PER_CORE), _rate, delivered), _levels(series, own)))
    return parts


def _fanout(ladders: Sequence[Ladder]) -> list[_Part | None]:
    """A table for each path of a publication: one instance, Redis, cluster."""
    parts = []
    for workload, deliveries in seeds_fanout.DELIVERIES.items():
        own = [one for one in ladders if one.workload == workload and is_closed(one)]
        kind = _Kind(f"Floods of a publisher: {PATHS[workload]}", ("delivered/s", _PER_CORE), _rate, received)
        parts.append(_part(kind, _levels([deliveries], own)))
    return parts


def _message(ladder: Ladder) -> tuple[str, int] | None:
    message = ladder.sample.message if ladder.sample else None
    return (message.format, message.size_bytes) if message else None


def _storms(ladders: Sequence[Ladder]) -> _Part | None:
    own = [one for one in ladders if one.workload == "connection-storm" and is_closed(one)]
    kind = _Kind("Connections accepted", ("accepted/s", _PER_CORE), _rate, accepted)
    return _part(kind, _levels(seeds.STORMS, own))


def _pings(ladders: Sequence[Ladder]) -> _Part | None:
    own = [one for one in ladders if one.workload == "ping-latency" and is_closed(one)]
    kind = _Kind("Pings in a closed loop", tuple(map(wording.percentile_name, seeds.PERCENTILES)), _times, waited)
    return _part(kind, _levels(seeds.PINGS, own))


def _holds(ladders: Sequence[Ladder]) -> _Part | None:
    own = [one for one in ladders if one.workload == "sustained-hold"]
    return _part(_Kind("Connections held", ("lasted", "for"), _unbroken, lasted), _levels(seeds.HOLDS, own))


def _most_connections(ladders: Sequence[Ladder]) -> _Part | None:
    """Published limits, and our highest tier at which all connections lasted."""
    own = [one for one in ladders if one.workload == "connection-limit"]
    tiers = [(ladder, tier) for ladder in own for tier in reversed(ladder.tiers) if all_lasted(tier)]
    return _part(_Kind("The most connections", ("no more, because",), _held_off, reached), _apart(seeds.LIMITS, tiers))


def _memory(ladders: Sequence[Ladder]) -> _Part | None:
    """Published memory per connection, and ours: of each service the highest tier (there shared memory weighs least).

    Of several workloads with that tier, the first of `_BY_CALM` is used.
    """

    def order(pair: tuple[Ladder, Tier]) -> tuple[int, int]:
        calm = _BY_CALM.index(pair[0].workload) if pair[0].workload in _BY_CALM else len(_BY_CALM)
        return -pair[1].connections, calm

    tiers = [(ladder, tier) for ladder in ladders for tier in ladder.tiers if tier.spread(growth) is not None]
    kind = _Kind("Memory of a connection", ("for each connection",), _bytes, grown)
    return _part(kind, _apart(seeds.MEMORY, sorted(tiers, key=order)))


def _levels(series: Sequence[S], ladders: Sequence[Ladder]) -> list[_Level[S]]:
    """Both sides by number of connections; empty when none of our tiers has a valid trial."""
    found = []
    for connections in sorted({level for one in series for level in one.figures}):
        tiers = [(ladder, tier) for ladder in ladders for tier in ladder.tiers if tier.connections == connections]
        known = [one for one in series if connections in one.figures]
        published = tuple(one for one in known if any(is_of(one.source, *pair) for pair in tiers))
        ours = tuple(pair for pair in tiers if any(is_of(one.source, *pair) for one in published))
        if ours:
            found.append(_Level(connections, published, ours))
    return found if any(tier.valid for level in found for _, tier in level.ours) else []


def _apart(series: Sequence[S], tiers: Sequence[tuple[Ladder, Tier]]) -> list[_Level[S]]:
    """Both sides where the numbers of connections differ: the first valid tier in `tiers` of each service."""
    first: dict[str, tuple[Ladder, Tier]] = {}
    for ladder, tier in tiers:
        if tier.valid and any(is_of(one.source, ladder, tier) for one in series):
            first.setdefault(ladder.service, (ladder, tier))
    matching = [one for one in series if any(is_of(one.source, *pair) for pair in first.values())]
    published = [_Level(connections, (one,), ()) for one in matching for connections in one.figures]
    return [*published, *(_Level[S](pair[1].connections, (), (pair,)) for pair in first.values())]


def _part(kind: _Kind[S], levels: Sequence[_Level[S]]) -> _Part | None:
    """A table with the rows of both sides, the published ones first at each level; `None` without levels."""
    if not levels:
        return None
    columns = [Column("connections"), Column("whose", number=False), *map(Column, kind.titles)]
    columns += [Column(title, number=False) for title in ("what it counts", "valid trials", "bound by", "comparable")]
    everything = [one for level in levels for one in level.published]
    rows: list[tuple[Cell, ...]] = []
    for level in levels:
        at = Cell(wording.count(level.connections))
        rows += [(at, *_published(kind, one, level.connections)) for one in level.published]
        rows += [(at, *_own(kind, level.published or everything, *pair)) for pair in level.ours]
    sources = tuple(one.source for one in everything)
    notes = tuple(dict.fromkeys(caveat for source in sources for caveat in source.caveats))
    return _Part(Table(kind.caption, tuple(columns), tuple(rows), notes), sources)


def _published(kind: _Kind[S], one: S, connections: int) -> tuple[Cell, ...]:
    whose, counted = Cell("published", one.source.place), Cell(one.source.counted, one.source.fate)
    # The published figures don't say what bound them.
    return whose, *kind.theirs(one, connections), counted, NONE, NOTHING, NONE


def _own(kind: _Kind[S], published: Sequence[S], ladder: Ladder, tier: Tier) -> tuple[Cell, ...]:
    whose = Cell(ladder.service, ladder.name)
    if not tier.valid:
        nothing = (Cell("no valid trial", tone=Tone.BAD), *[NONE] * (len(kind.titles) - 1))
        return whose, *nothing, NONE, validity_cell(tier), NONE, NONE
    ours = kind.ours(tier)
    comparable = comparability((one.source.counted for one in published), ours.counted, ours.reasons)
    return whose, *ours.figures, Cell(ours.counted, ours.witness), validity_cell(tier), bounds.cell(tier), comparable


def _documents(sources: Iterable[Source]) -> Table:
    titles = ("document", "tested", "names version", "its figures are of")
    rows = tuple(
        (Cell(one.title, f"below: {one.name}"), Cell(one.tested), Cell(one.named), Cell(one.really))
        for one in dict.fromkeys(source.document for source in sources)
    )
    machine = f"{seeds.MACHINE}, {seeds.CORES} cores, {seeds.THREADS} hardware threads"
    caption = f"Published documents, all of one machine for client and server: {machine}"
    return Table(caption, tuple(Column(title, number=False) for title in titles), rows)


def _rate(one: Rates, connections: int) -> tuple[Cell, ...]:
    value = one.figures[connections]
    threads = f"{wording.rate(value / seeds.THREADS)} per hardware thread"
    # A client with one thread can't use the other cores.
    detail = threads if one.cores == seeds.CORES else "of one client thread"
    return Cell(wording.rate(value)), Cell(wording.rate(value / one.cores), detail)


def _times(one: Percentiles, connections: int) -> tuple[Cell, ...]:
    found = [one.figures[connections].get(at) for at in seeds.PERCENTILES]
    return tuple(NOTHING if value is None else Cell(wording.duration(value * 1e6)) for value in found)


def _unbroken(one: Held, connections: int) -> tuple[Cell, ...]:
    return Cell(wording.share(one.figures[connections])), Cell(wording.duration(one.seconds * 1e9))


def _held_off(one: Most, connections: int) -> tuple[Cell, ...]:
    return (Cell(one.figures[connections]),)


def _bytes(one: Memory, connections: int) -> tuple[Cell, ...]:
    return (Cell(wording.memory(one.figures[connections]), one.total),)
