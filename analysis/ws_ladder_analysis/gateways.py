"""Speech-to-text gateways side by side: CPU per frame, memory and lines of code. Pure.

CPU per frame falls with the load, because wake-ups are shared. So gateways are compared at the same number of sessions,
as ratios to one of them (the yardstick), and never across loads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from statistics import median

from . import drawing, seeds_gateways, wording
from .cells import NONE, NOTHING, Cell, Column, Table
from .compare import ratio_of
from .drawing import Chart
from .ladders import Getter, Ladder, Percentile, Tier, figure
from .seeds_gateways import YARDSTICK
from .statistics import Ratio, table_level
from .tables import over_repeats

# Seconds per million frames are microseconds per frame; times are printed from nanoseconds.
CPU_PER_FRAME = figure("service_cpu_seconds_per_million")
_NS_PER_US = 1e3
_MEMORY = figure("service_rss_bytes")
_COLUMNS = (
    Column("gateway", number=False),
    Column("CPU per frame"),
    Column(f"relative to {YARDSTICK}"),
    Column("published ratio"),
    Column("newest p50"),
    Column("newest p95"),
    Column("memory"),
    Column("start-up"),
    Column("lines of code"),
    Column("published lines"),
)

# How the caption of a table ends that compares variants at one load.
BY_VARIANT = "sessions, by variant"
# Variants of plans/two-cpus.yaml that use two CPUs.
TWO_CPUS = {"two-threads", "two-replicas"}

At = tuple[Ladder, Tier]
Load = tuple[int, str]
"""Number of sessions, and the variant: the same load on another number of threads is another comparison."""


def side_by_side(
    ladders: Sequence[Ladder], lines: Mapping[str, int], starts: Mapping[str, Sequence[float]]
) -> tuple[Table, ...]:
    """A table for each load at which the yardstick and at least one other gateway were measured; and a table for each
    number of sessions that was measured in several variants. `lines`: lines of code, `starts`: seconds until ready,
    both by service name."""
    groups = _groups(ladders)
    compared = [_table(_load_label(load, groups), group, lines, starts) for load, group in groups.items()]
    return (*compared, *_by_variant(ladders))


def picture(ladders: Sequence[Ladder], lines: Mapping[str, int]) -> Chart | None:
    """CPU per frame against lines of code at the load with the most gateways; a point's area is its memory."""
    groups = _groups(ladders)
    if not groups:
        return None
    load = max(groups, key=lambda key: len(groups[key]))
    rows = [row for one in groups[load] if (row := _point(one, lines)) is not None]
    if len(rows) < 2:
        return None
    text = "; ".join(f"{row['name']}: {row['y']:.2f} µs in {row['x']} lines, {row['size']:.0f} MiB" for row in rows)
    title = f"CPU per frame against lines of code, {_load_label(load, groups)}"
    drawn = drawing.points(rows, "lines of code", "CPU per frame, µs", "MiB of memory")
    return drawing.render("gateways", title, f"{title}. {text}.", drawn)


def differences(ladders: Sequence[Ladder]) -> tuple[str, ...]:
    """A sentence for each pair of gateways whose order by CPU per frame differs from the published one."""
    groups = _groups(ladders)
    if not groups:
        return ()
    load = max(groups, key=lambda key: len(groups[key]))
    ours = {ladder.service: _mean(tier) for ladder, tier in groups[load]}
    known = [name for name in ours if seeds_gateways.ratio(name) is not None]
    return tuple(
        f"{better} needs less CPU per frame than {worse} here, and more in the published figures."
        for one, other in combinations(known, 2)
        for better, worse in [(one, other) if ours[one] < ours[other] else (other, one)]
        if (seeds_gateways.ratio(better) or 0) > (seeds_gateways.ratio(worse) or 0)
    )


def _groups(ladders: Sequence[Ladder]) -> dict[Load, list[At]]:
    """Gateways with a valid figure, by load, lowest CPU per frame first; only loads that the yardstick has too."""
    found: dict[Load, list[At]] = {}
    for ladder in ladders:
        for tier in _measured(ladder):
            found.setdefault((tier.connections, ladder.variant), []).append((ladder, tier))
    return {
        load: sorted(group, key=lambda at: _mean(at[1]))
        for load, group in sorted(found.items(), key=lambda item: item[0][0])
        if len(group) > 1 and any(ladder.service == YARDSTICK for ladder, _ in group)
    }


def _measured(ladder: Ladder) -> list[Tier]:
    return [tier for tier in ladder.tiers if ladder.is_sessions and tier.spread(CPU_PER_FRAME) is not None]


def _load_label(load: Load, groups: Mapping[Load, object]) -> str:
    """A load as text; with its variant only when several variants have that number of sessions."""
    sessions, variant = load
    alone = sum(other == sessions for other, _ in groups) == 1
    return f"{wording.count(sessions)} sessions" + ("" if alone else f", {variant}")


def _by_variant(ladders: Sequence[Ladder]) -> list[Table]:
    """CPU per frame of each gateway in several variants at the same load, such as one thread and two threads."""
    found: dict[int, dict[str, dict[str, Tier]]] = {}
    for ladder in ladders:
        for tier in _measured(ladder):
            found.setdefault(tier.connections, {}).setdefault(ladder.service, {})[ladder.variant] = tier
    tables = []
    for sessions, services in sorted(found.items()):
        variants = list(dict.fromkeys(variant for tiers in services.values() for variant in tiers))
        several = {name: tiers for name, tiers in services.items() if len(tiers) > 1}
        if several:
            tables.append(_variants_table(sessions, variants, several))
    return tables


def _variants_table(sessions: int, variants: Sequence[str], services: Mapping[str, Mapping[str, Tier]]) -> Table:
    """A row for each gateway with a cell for each variant; the ratios to the first variant share their level."""
    first = {name: next(variant for variant in variants if variant in tiers) for name, tiers in services.items()}
    ratios = {
        (name, variant): ratio_of(tier, tiers[first[name]], CPU_PER_FRAME)
        for name, tiers in services.items()
        for variant, tier in tiers.items()
        if variant != first[name]
    }
    level, notes = _level(ratios.values())
    columns = [Column("gateway", number=False), *(Column(f"CPU per frame, {name}") for name in variants)]
    rows = []
    for name, tiers in services.items():
        cells = [Cell(name)]
        for variant in variants:
            cell = _time(tiers[variant], CPU_PER_FRAME, _NS_PER_US) if variant in tiers else NONE
            one = ratios.get((name, variant))
            cells.append(Cell(cell.text, _compared(one, first[name], level)) if one else cell)
        rows.append(cells)
    if set(variants) & TWO_CPUS:
        columns.append(Column("published sessions on two CPUs, times those on one"))
        for row in rows:
            row.append(_published_gain(row[0].text))
    return Table(f"{wording.count(sessions)} {BY_VARIANT}", tuple(columns), tuple(map(tuple, rows)), notes)


def _compared(found: Ratio, first: str, level: float) -> str:
    """A ratio to the first variant with its interval, or with the range of its pairs where they are too few for one."""
    text = f"{wording.digits(found.ratio)} of {first}"
    if interval := found.interval(level):
        return f"{text}, {' to '.join(map(wording.digits, interval))}"
    if len(found.pairs) < 2:
        return text
    low, high = (wording.digits(pick(found.pairs)) for pick in (min, max))
    return f"{text}, {low} to {high} in {len(found.pairs)} pairs"


def _published_gain(gateway: str) -> Cell:
    gain = seeds_gateways.second_cpu(gateway)
    return Cell(f"{gain:.2f}") if gain else NONE


def _mean(tier: Tier) -> float:
    found = tier.spread(CPU_PER_FRAME)
    assert found is not None, "groups hold only tiers with a figure"
    return found.mean


def _table(title: str, group: Sequence[At], lines: Mapping[str, int], starts: Mapping[str, Sequence[float]]) -> Table:
    yardstick = next(tier for ladder, tier in group if ladder.service == YARDSTICK)
    ratios = {
        ladder.service: ratio_of(tier, yardstick, CPU_PER_FRAME)
        for ladder, tier in group
        if ladder.service != YARDSTICK
    }
    level, notes = _level(ratios.values())
    rows = tuple(
        _row(
            ladder.service,
            tier,
            _relative(ladder.service, ratios, level),
            lines.get(ladder.service),
            starts.get(ladder.service, ()),
        )
        for ladder, tier in group
    )
    return Table(title, _COLUMNS, rows, notes)


def _level(ratios: Collection[Ratio | None]) -> tuple[float, tuple[str, ...]]:
    """The level of the intervals of a table's ratios, and the note that names it if there is an interval."""
    found = [one for one in ratios if one]
    level = table_level([one.p_value for one in found])
    has_intervals = any(one.error is not None for one in found)
    return level, (wording.interval_level(wording.level(level)),) if has_intervals else ()


def _row(service: str, tier: Tier, relative: Cell, code: int | None, starts: Sequence[float]) -> tuple[Cell, ...]:
    published = seeds_gateways.GATEWAYS.get(service)
    return (
        Cell(service),
        _time(tier, CPU_PER_FRAME, _NS_PER_US),
        relative,
        _published(service),
        _time(tier, Percentile("newest_ns", 50)),
        _time(tier, Percentile("newest_ns", 95)),
        _memory(tier),
        Cell(wording.duration(median(starts) * 1e9)) if starts else NOTHING,
        Cell(wording.count(code)) if code else NOTHING,
        Cell(wording.count(published.lines)) if published else NONE,
    )


def _time(tier: Tier, getter: Getter, scale: float = 1.0) -> Cell:
    """A time with its range; `scale` converts the figure to nanoseconds."""
    found = tier.spread(getter)
    if found is None:
        return NOTHING

    def shown(value: float | None) -> str:
        return wording.duration(None if value is None else value * scale)

    return Cell(shown(found.mean), over_repeats(found, shown))


def _memory(tier: Tier) -> Cell:
    found = tier.spread(_MEMORY)
    return Cell(wording.memory(found.mean), over_repeats(found, wording.memory)) if found else NOTHING


def _relative(service: str, ratios: Mapping[str, Ratio | None], level: float) -> Cell:
    """A ratio to the yardstick with its interval; without an interval when there are too few pairs of processes."""
    if service == YARDSTICK:
        return Cell("1")
    found = ratios[service]
    if found is None:
        return NOTHING
    interval = found.interval(level)
    return Cell(wording.digits(found.ratio), " to ".join(map(wording.digits, interval)) if interval else "")


def _published(service: str) -> Cell:
    found, value = seeds_gateways.GATEWAYS.get(service), seeds_gateways.ratio(service)
    if found is None or value is None:
        return NONE
    return Cell(wording.digits(value), "measured" if found.measured else "from sessions per CPU")


def _point(at: At, lines: Mapping[str, int]) -> dict[str, object] | None:
    ladder, tier = at
    memory, code = tier.spread(_MEMORY), lines.get(ladder.service)
    if memory is None or not code:
        return None
    return {"name": ladder.service, "x": code, "y": _mean(tier), "size": memory.mean / 2**20}
