"""Writes the page of a history: one self-contained HTML file with a chart for each series."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import __version__, drawing, pages, wording
from ..cells import Cell, Column, Table, Tone
from ..compare import Compared
from ..drawing import Chart
from ..ladders import Percentile
from .changes import FEWEST_RUNS
from .printing import commit, step
from .trend import CONFIRM, Found, History, Standing, Trend

# How a change is marked: colour of its line in the chart, tone of its row in the table.
_COLOURS = {Standing.WORSE: "red", Standing.BETTER: "green", Standing.ACKNOWLEDGED: "grey"}
_TONES = {Standing.WORSE: Tone.BAD, Standing.BETTER: Tone.GOOD, Standing.ACKNOWLEDGED: Tone.MUTED}
_TEXTS = ("series", "figure", "between commits", "what it is")
NS_PER_MS, BYTES_PER_KIB = 1e6, 1024


@dataclass(frozen=True)
class Section:
    """The charts of one ladder of a plan on one machine."""

    title: str
    anchor: str
    machine: str
    charts: tuple[Chart, ...]
    runs: Table


@dataclass(frozen=True)
class Page:
    """All data that the template prints."""

    title: str
    lede: str
    confirm: str
    is_worse: bool
    changes: Table | None
    short: Table | None
    left_out: tuple[str, ...]
    unmatched: tuple[str, ...]
    sections: tuple[Section, ...]
    program: str = f"ws-ladder-analysis {__version__}"


def write_page(found: History, title: str, output: Path) -> Path:
    """Writes `history.html` into `output` and returns its path."""
    output.mkdir(parents=True, exist_ok=True)
    file = output / "history.html"
    pages.write_atomically(file, pages.render("history.html.j2", page=build(found, title)).encode())
    return file


def build(found: History, title: str) -> Page:
    """Builds the page as data for the template."""
    long = [trend for trend in found.trends if not trend.too_few]
    groups: dict[tuple[str, ...], list[Trend]] = {}
    for trend in long:
        place = trend.series.place
        key = (place.plan, place.workload, place.variant, place.machine, place.definition)
        groups.setdefault(key, []).append(trend)
    again = Counter(key[:3] for key in groups)
    unmatched = tuple(f"{one.figure}, {one.first}..{one.last} (plan {one.plan}): {one.why}" for one in found.unmatched)
    return Page(
        title=title,
        lede=_lede(found, long),
        confirm=f"Every change is {CONFIRM.replace('`', '')}",
        is_worse=found.is_worse,
        changes=_changes(long),
        short=_short([trend for trend in found.trends if trend.too_few]),
        left_out=found.left_out,
        unmatched=unmatched,
        sections=tuple(
            _section(number, group, again[key[:3]] > 1) for number, (key, group) in enumerate(groups.items(), 1)
        ),
    )


def _lede(found: History, long: Sequence[Trend]) -> str:
    worse = sum(one.standing is Standing.WORSE for trend in long for one in trend.changes)
    result = f"{wording.number_of(worse, 'changes')} for the worse" if worse else "No new change for the worse"
    return (
        f"{result} in {wording.number_of(len(long), 'figures')} over {wording.number_of(found.runs, 'runs')}. "
        "A change is what two detectors agree on within three runs, by 2 % or more."
    )


def _changes(trends: Sequence[Trend]) -> Table | None:
    rows = [_row(trend, one) for trend in trends for one in trend.changes]
    if not rows:
        return None
    columns = tuple(Column(title, number=False) for title in _TEXTS[:2])
    columns += (Column("step"), Column("before"), Column("after"))
    columns += tuple(Column(title, number=False) for title in _TEXTS[2:])
    return Table("Changes", columns, tuple(rows))


def _row(trend: Trend, found: Found) -> tuple[Cell, ...]:
    place, shown = trend.series.place, trend.series.figure.shown
    return (
        Cell(place.name, f"plan {place.plan}"),
        Cell(place.figure),
        Cell(step(found), tone=_TONES[found.standing]),
        Cell(shown(found.change.before)),
        Cell(shown(found.change.after)),
        Cell(
            f"{commit(found.last_before.commit)}..{commit(found.first_after.commit)}",
            f"before run {found.first_after.run}",
        ),
        Cell(str(found.standing), found.why, _TONES[found.standing]),
    )


def _short(trends: Sequence[Trend]) -> Table | None:
    if not trends:
        return None
    rows = tuple(
        (Cell(one.place.plan), Cell(one.place.name), Cell(one.place.figure), Cell(wording.count(len(one.points))))
        for one in (trend.series for trend in trends)
    )
    columns = (*(Column(title, number=False) for title in ("plan", "series", "figure")), Column("runs"))
    return Table(f"Too few runs: a series needs {FEWEST_RUNS}", columns, rows)


def _section(number: int, trends: Sequence[Trend], again: bool) -> Section:
    """The section of one ladder; `again` says that the ladder has several, on other machines or of other plans."""
    of = trends[0].series.place
    ladder = of.workload if of.variant == "standard" else f"{of.workload} · {of.variant}"
    # Series with news first.
    ordered = sorted(trends, key=lambda trend: (not trend.is_worse, not trend.changes))
    return Section(
        title=f"{of.plan}: {ladder}" + (f" (plan as of {trends[0].series.points[0].run})" if again else ""),
        anchor=f"ladder-{number}",
        machine=of.machine,
        charts=tuple(_chart(trend, f"series-{number}-{place}") for place, trend in enumerate(ordered, 1)),
        runs=_runs(trends),
    )


def _runs(trends: Sequence[Trend]) -> Table:
    """The runs of the longest series, newest last: the number on the charts' axis, with the commit."""
    longest = max(trends, key=lambda trend: len(trend.series.points)).series
    rows = tuple(
        (Cell(wording.count(number)), Cell(point.run), Cell(point.started_at), Cell(commit(point.commit)))
        for number, point in enumerate(longest.points, 1)
    )
    columns = (Column("run"), *(Column(title, number=False) for title in ("id", "started", "commit")))
    return Table("Runs", columns, rows)


def _chart(trend: Trend, name: str) -> Chart:
    place = trend.series.place
    scale, unit = _unit(trend.series.figure)
    values = [value / scale for value in trend.series.values]
    rows = [{"run": number, "value": value} for number, value in enumerate(values, 1)]
    ends = [0, *(one.change.index for one in trend.changes), len(values)]
    means = [trend.changes[0].change.before, *(one.change.after for one in trend.changes)] if trend.changes else []
    levels = [
        {"start": start + 0.5, "end": end + 0.5, "value": level / scale}
        for start, end, level in zip(ends[:-1], ends[1:], means or [_level(trend)], strict=True)
    ]
    marks = [
        {
            "run": one.change.index + 0.5,
            "name": f"{wording.plain(step(one))} {commit(one.first_after.commit)[:8]}",
            "colour": _COLOURS[one.standing],
        }
        for one in trend.changes
    ]
    title = f"{place.service}, {wording.count(place.tier)}: {place.figure}"
    seen = "; ".join(f"{step(one)} before run {one.first_after.run}, {one.standing}" for one in trend.changes)
    description = f"{title} over {len(values)} runs: {seen or 'no change'}."
    return drawing.render(re.sub(r"[^\w-]+", "-", name), title, description, drawing.trend(rows, levels, marks, unit))


def _level(trend: Trend) -> float:
    values = trend.series.values
    return sum(values) / len(values)


def _unit(figure: Compared) -> tuple[float, str]:
    """What a figure's values are divided by, and the unit on the axis."""
    if isinstance(figure.getter, Percentile):
        return NS_PER_MS, "milliseconds"
    if figure.shown is wording.memory:
        return BYTES_PER_KIB, "KiB"
    return 1.0, "CPU seconds per million" if figure.shown is wording.seconds else "per second"
