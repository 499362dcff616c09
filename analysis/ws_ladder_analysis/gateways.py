"""Speech-to-text gateways side by side: what a frame costs each of them, in CPU, memory and code. Pure.

CPU per frame falls with the load, because wake-ups are shared, so gateways are compared at one number of sessions and
as ratios to one of them, and never across loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from . import drawing, seeds_gateways, wording
from .cells import NONE, NOTHING, Cell, Column, Table
from .drawing import Chart
from .ladders import Getter, Ladder, Tier, figure, percentile
from .seeds_gateways import YARDSTICK
from .statistics import Ratio, ratio
from .tables import over_repeats

# Seconds for a million frames are microseconds for one; times are printed from nanoseconds.
CPU_PER_FRAME = figure("service_cpu_seconds_per_million")
_NS_PER_US = 1e3
_MEMORY = figure("service_bytes_per_connection")
_COLUMNS = (
    Column("gateway", number=False),
    Column("CPU per frame"),
    Column(f"beside {YARDSTICK}"),
    Column("published"),
    Column("newest p50"),
    Column("newest p95"),
    Column("memory per session"),
    Column("lines of code"),
    Column("published"),
)

At = tuple[Ladder, Tier]


def side_by_side(ladders: Sequence[Ladder], lines: Mapping[str, int]) -> tuple[Table, ...]:
    """A table for each number of sessions at which several gateways were measured, the yardstick among them."""
    return tuple(_table(sessions, group, lines) for sessions, group in _groups(ladders).items())


def picture(ladders: Sequence[Ladder], lines: Mapping[str, int]) -> Chart | None:
    """CPU per frame against lines of code, at the load at which most gateways have a figure; memory is the area."""
    groups = _groups(ladders)
    if not groups:
        return None
    sessions = max(groups, key=lambda key: len(groups[key]))
    rows = [row for one in groups[sessions] if (row := _point(one, lines)) is not None]
    if len(rows) < 2:
        return None
    words = "; ".join(f"{row['name']}: {row['y']:.2f} µs in {row['x']} lines, {row['size']:.0f} KiB" for row in rows)
    title = f"CPU per frame against lines of code, {wording.count(sessions)} sessions"
    drawn = drawing.points(rows, "lines of code", "CPU per frame, µs", "KiB per session")
    return drawing.render("gateways", title, f"{title}. {words}.", drawn)


def differences(ladders: Sequence[Ladder]) -> tuple[str, ...]:
    """Where the order of gateways by CPU per frame isn't the published one, a sentence for each pair."""
    groups = _groups(ladders)
    if not groups:
        return ()
    sessions = max(groups, key=lambda key: len(groups[key]))
    ours = {ladder.service: _median(tier) for ladder, tier in groups[sessions]}
    known = [name for name in ours if seeds_gateways.ratio(name) is not None]
    return tuple(
        f"{better} needs less CPU per frame than {worse} here, and more in the published figures."
        for one, other in combinations(known, 2)
        for better, worse in [(one, other) if ours[one] < ours[other] else (other, one)]
        if (seeds_gateways.ratio(better) or 0) > (seeds_gateways.ratio(worse) or 0)
    )


def _groups(ladders: Sequence[Ladder]) -> dict[int, list[At]]:
    """Gateways with a valid figure by number of sessions, cheapest first; only where the yardstick has one too."""
    found: dict[int, list[At]] = {}
    for ladder in ladders:
        for tier in ladder.tiers if ladder.is_sessions else ():
            if tier.spread(CPU_PER_FRAME) is not None:
                found.setdefault(tier.connections, []).append((ladder, tier))
    return {
        sessions: sorted(group, key=lambda at: _median(at[1]))
        for sessions, group in sorted(found.items())
        if len(group) > 1 and any(ladder.service == YARDSTICK for ladder, _ in group)
    }


def _median(tier: Tier) -> float:
    found = tier.spread(CPU_PER_FRAME)
    assert found is not None, "groups hold only tiers with a figure"
    return found.median


def _table(sessions: int, group: Sequence[At], lines: Mapping[str, int]) -> Table:
    yardstick = next(tier for ladder, tier in group if ladder.service == YARDSTICK)
    rows = tuple(_row(ladder.service, tier, yardstick, lines) for ladder, tier in group)
    return Table(f"{wording.count(sessions)} sessions", _COLUMNS, rows)


def _row(service: str, tier: Tier, yardstick: Tier, lines: Mapping[str, int]) -> tuple[Cell, ...]:
    published = seeds_gateways.GATEWAYS.get(service)
    code = lines.get(service)
    return (
        Cell(service),
        _time(tier, CPU_PER_FRAME, _NS_PER_US),
        _beside(ratio(_by_process(tier), _by_process(yardstick))),
        _published(service),
        _time(tier, percentile("newest_ns", 50)),
        _time(tier, percentile("newest_ns", 95)),
        _memory(tier),
        Cell(wording.count(code)) if code else NOTHING,
        Cell(wording.count(published.lines)) if published else NONE,
    )


def _time(tier: Tier, getter: Getter, scale: float = 1.0) -> Cell:
    """A time with its range; `scale` makes nanoseconds of it."""
    found = tier.spread(getter)
    if found is None:
        return NOTHING

    def shown(value: float | None) -> str:
        return wording.duration(None if value is None else value * scale)

    return Cell(shown(found.median), over_repeats(found, shown))


def _memory(tier: Tier) -> Cell:
    found = tier.spread(_MEMORY)
    return Cell(wording.memory(found.median), over_repeats(found, wording.memory)) if found else NOTHING


def _beside(found: Ratio | None) -> Cell:
    """A ratio with its interval, where there were processes enough."""
    if found is None:
        return NOTHING
    detail = "" if found.low is None else f"{wording.digits(found.low)} to {wording.digits(found.high or 0)}"
    return Cell(wording.digits(found.ratio), detail)


def _published(service: str) -> Cell:
    found, value = seeds_gateways.GATEWAYS.get(service), seeds_gateways.ratio(service)
    if found is None or value is None:
        return NONE
    return Cell(wording.digits(value), "measured" if found.measured else "from sessions per CPU")


def _by_process(tier: Tier) -> dict[int, list[float]]:
    """CPU per frame of each process's repeats."""
    values: dict[int, list[float]] = {}
    for trial in tier.valid:
        if (value := CPU_PER_FRAME(trial)) is not None:
            values.setdefault(trial.id.process, []).append(value)
    return values


def _point(at: At, lines: Mapping[str, int]) -> dict[str, object] | None:
    ladder, tier = at
    memory, code = tier.spread(_MEMORY), lines.get(ladder.service)
    if memory is None or not code:
        return None
    return {"name": ladder.service, "x": code, "y": _median(tier), "size": memory.median / 1024}
