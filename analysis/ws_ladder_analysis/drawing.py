"""Draws charts: colours, kinds of chart, and SVG that can be embedded in a page. Knows nothing of bundles.

Each colour has one meaning in all charts (`COLOURS`). The page's style sheet overrides each by its value for dark
screens, so the SVG needs no script and no second copy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import altair as alt
import polars as pl
import vl_convert as vlc

from . import point_names

COLOURS = {
    "ink": "#1f2328",
    "muted": "#59636e",
    "grid": "#d8dee4",
    "blue": "#0b62c4",
    "orange": "#b3540a",
    "green": "#1a7f4b",
    "red": "#c0262d",
    "grey": "#8c959f",
    "violet": "#7c4dbe",
    "teal": "#0f7b83",
    "pink": "#b8328a",
    "olive": "#6b6b00",
    "brown": "#7a4a21",
}
# The same colours for a dark screen.
DARK = {
    "ink": "#e6edf3",
    "muted": "#a3adb8",
    "grid": "#363d46",
    "blue": "#58a6ff",
    "orange": "#f0924c",
    "green": "#4ac27a",
    "red": "#ff7b72",
    "grey": "#8b949e",
    "violet": "#bc8cff",
    "teal": "#3cc7d1",
    "pink": "#f27bc0",
    "olive": "#c9c94b",
    "brown": "#c99267",
}
# In CSS pixels: charts are drawn at the width of a phone and scaled up.
WIDTH, HEIGHT = 340, 240
PNG_SCALE = 2

# Charts of named points are higher: room for names that stand close together.
_NAMED_HEIGHT = 330
# What axes and legend take of a chart's width and height.
_AXES = (50, 90)
# Margin left and right of the points, as a share of the distance between the outermost ones: room for names.
_ROOM = 0.32
# Areas of points: of one that is nothing, and of the largest one.
_AREAS = (12, 300)
# Any of altair's charts; it has no common type that can be both layered and sized.
Drawing = Any

# Vega expressions for axis labels: plain numbers below 1 000, then with a scale letter; and percentiles.
_NUMBER = "datum.value >= 1000 ? format(datum.value, '~s') : format(datum.value, ',~r')"
_PERCENT = "datum.value <= 1 ? '0 %' : format(100 - 100 / datum.value, '.6~f') + ' %'"


@dataclass(frozen=True)
class Chart:
    """A rendered chart with its name, title and description."""

    # File name without extension.
    name: str
    title: str
    # Description for screen readers.
    description: str
    svg: str
    png: bytes


def bars(
    rows: Sequence[Mapping[str, object]],
    tiers: list[str],
    colours: dict[str, str],
    title: str,
    domain: tuple[float, float],
    unit: str = "connections",
) -> Drawing:
    """Grouped bars over tiers with the range over repeats. Rows have tier, series, value, low and high.

    `unit` is what a tier counts; it is the title of the x axis.
    """
    axis = alt.Axis(tickCount=5, labelExpr=_NUMBER)
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=list(domain), nice=True), axis=axis)
    base = alt.Chart(pl.DataFrame(rows)).encode(
        x=_tiers(tiers, unit), xOffset=alt.XOffset("series:N", sort=list(colours))
    )
    drawn = base.mark_bar().encode(y=y, color=_colour(colours))
    ranges = base.mark_rule(color=COLOURS["ink"], strokeWidth=1.2).encode(y="low:Q", y2="high:Q")
    return alt.layer(drawn, ranges)


def lines(
    rows: Sequence[Mapping[str, object]],
    tiers: list[str],
    colours: dict[str, str],
    title: str,
    domain: tuple[float, float],
    marks: Mapping[str, tuple[float, str]] | None = None,
    unit: str = "connections",
) -> Drawing:
    """Lines over tiers on a logarithmic axis, with the range over repeats. Rows as for `bars`.

    `marks` are bounds by label, as value and colour name: each is a dashed line with its label above it.
    """
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(values=_steps(*domain), labelExpr=_NUMBER))
    base = alt.Chart(pl.DataFrame(rows)).encode(x=_tiers(tiers, unit), color=_colour(colours))
    drawn = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=34, filled=True)).encode(y=y)
    ranges = base.mark_rule(strokeWidth=1.2).encode(y="low:Q", y2="high:Q")
    return alt.layer(ranges, drawn, *(layer for one in (marks or {}).items() for layer in _bound(*one)))


def _bound(label: str, mark: tuple[float, str]) -> tuple[Drawing, Drawing]:
    """A dashed line at a bound, with its text above the left end."""
    value, colour = mark
    base = alt.Chart(pl.DataFrame([{"value": value, "words": f"{label} ≤ {value:g}"}])).encode(y="value:Q")
    line = base.mark_rule(strokeDash=[5, 4], strokeWidth=1.2, color=COLOURS[colour])
    description = base.mark_text(align="left", dx=4, dy=-6, fontSize=10, color=COLOURS[colour])
    return line, description.encode(text="words:N", x=alt.value(0))


def curves(rows: Sequence[Mapping[str, object]], colours: dict[str, str], title: str, farthest: float) -> Drawing:
    """Percentile curves. Rows have series, inverse (1 / (1 - q)), value and supported; unsupported parts are dotted."""
    ticks = [10**power for power in range(8) if 10**power <= farthest * 1.01]
    x = alt.X(
        "inverse:Q",
        title="percentile",
        scale=alt.Scale(type="log", domain=[1, farthest], nice=False),
        axis=alt.Axis(values=ticks, labelExpr=_PERCENT, labelOverlap=True),
    )
    low, high = (extreme(float(str(row["value"])) for row in rows) for extreme in (min, max))
    scale = alt.Scale(type="log", domain=[low * 0.8, high * 1.25], nice=False)
    y = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(values=_steps(low, high), labelExpr=_NUMBER))
    dash = alt.StrokeDash(
        "supported:N", scale=alt.Scale(domain=["true", "false"], range=[[1, 0], [1.5, 2.5]]), legend=None
    )
    return (
        alt.Chart(pl.DataFrame(rows)).mark_line(strokeWidth=2).encode(x=x, y=y, color=_colour(colours), strokeDash=dash)
    )


def points(rows: Sequence[Mapping[str, object]], x: str, y: str, size: str) -> Drawing:
    """Named points with a logarithmic y axis; a point's area is a third figure. Rows have name, x, y and size."""
    low, high = (extreme(float(str(row["y"])) for row in rows) for extreme in (min, max))
    left, right = (extreme(float(str(row["x"])) for row in rows) for extreme in (min, max))
    room = max(right - left, 1.0) * _ROOM
    across, up = (left - room, right + room), (low * 0.7, high * 1.5)
    scale = alt.Scale(type="log", domain=list(up), nice=False)
    base = alt.Chart(pl.DataFrame(rows)).encode(
        x=alt.X("x:Q", title=x, scale=alt.Scale(domain=list(across), nice=False), axis=alt.Axis(tickCount=5)),
        y=alt.Y("y:Q", title=y, scale=scale, axis=alt.Axis(values=_steps(low, high), labelExpr=_NUMBER)),
    )
    largest = max(float(str(row["size"])) for row in rows) or 1.0
    areas = alt.Scale(domain=[0, largest], range=list(_AREAS), nice=False)
    area = alt.Size("size:Q", title=size, scale=areas, legend=alt.Legend(orient="top", tickCount=3))
    drawn = base.mark_circle(color=COLOURS["blue"], opacity=0.55).encode(size=area)
    return alt.layer(drawn, *_names(rows, across, up, largest)).properties(height=_NAMED_HEIGHT)


def intervals(rows: Sequence[Mapping[str, object]], x: str, y: str) -> Drawing:
    """Named points with a logarithmic y axis and a vertical line over the interval of each. Rows have name, x, y, low
    and high."""
    low, high = min(float(str(row["low"])) for row in rows), max(float(str(row["high"])) for row in rows)
    left, right = (extreme(float(str(row["x"])) for row in rows) for extreme in (min, max))
    room = max(right - left, 1.0) * _ROOM
    across, up = (left - room, right + room), (low * 0.7, high * 1.5)
    scale = alt.Scale(type="log", domain=list(up), nice=False)
    axis = alt.Axis(values=_steps(low, high), labelExpr=_NUMBER)
    base = alt.Chart(pl.DataFrame(rows)).encode(
        x=alt.X("x:Q", title=x, scale=alt.Scale(domain=list(across), nice=False), axis=alt.Axis(tickCount=5)),
    )
    points = base.mark_circle(color=COLOURS["blue"], size=22).encode(y=alt.Y("y:Q", title=y, scale=scale, axis=axis))
    bars = base.mark_rule(color=COLOURS["blue"], strokeWidth=2).encode(
        y=alt.Y("low:Q", title=y, scale=scale, axis=axis), y2="high:Q"
    )
    return alt.layer(bars, points, *_names(rows, across, up, 1)).properties(height=_NAMED_HEIGHT)


def trend(
    rows: Sequence[Mapping[str, object]],
    levels: Sequence[Mapping[str, object]],
    marks: Sequence[Mapping[str, object]],
    title: str,
) -> Drawing:
    """A figure over runs with its levels, and a named vertical line at each change. Rows have run (a number) and value;
    levels start, end and value; marks run, name and colour (a name of `COLOURS`)."""
    values = [float(str(row["value"])) for row in (*rows, *levels)]
    room = (max(values) - min(values)) * 0.25 or max(values) * 0.05
    domain = [max(min(values) - room, 0), max(values) + room]
    y = alt.Scale(domain=domain, nice=False, zero=False)
    x = alt.Scale(domain=[0, len(rows) + 1], nice=False)
    # A fixed extent, because layers whose labels differ in width would let the title overlap them.
    axis = alt.Axis(tickCount=5, labelExpr=_NUMBER, minExtent=40)
    base = alt.Chart(pl.DataFrame(rows)).encode(
        x=alt.X("run:Q", title="run", scale=x, axis=alt.Axis(tickCount=6, format="d")),
        y=alt.Y("value:Q", title=title, scale=y, axis=axis),
    )
    steps = alt.Chart(pl.DataFrame(levels)).mark_rule(color=COLOURS["ink"], strokeWidth=1.6)
    drawn = [
        base.mark_circle(color=COLOURS["blue"], size=22, opacity=0.75),
        steps.encode(x=alt.X("start:Q", title="run"), x2="end:Q", y=alt.Y("value:Q", title=title)),
    ]
    for mark in marks:
        colour = COLOURS[str(mark["colour"])]
        one = alt.Chart(pl.DataFrame([mark])).encode(x=alt.X("run:Q", title="run"))
        drawn.append(one.mark_rule(color=colour, strokeWidth=1.4, strokeDash=[4, 3]))
        # The name stands left of the line where there is no room to its right.
        late = float(str(mark["run"])) > 0.6 * len(rows)
        align: point_names.Side = "right" if late else "left"
        drawn.append(
            one.mark_text(align=align, dx=-4 if late else 4, fontSize=10, color=colour).encode(
                y=alt.value(6), text="name:N"
            )
        )
    return alt.layer(*drawn)


def _names(
    rows: Sequence[Mapping[str, object]], across: tuple[float, float], up: tuple[float, float], largest: float
) -> list[Drawing]:
    """The points' names. `across` and `up` are the ends of the x and y axis, `largest` is the largest size."""
    width, height = WIDTH - _AXES[0], _NAMED_HEIGHT - _AXES[1]
    spots = [
        point_names.Spot(
            str(row["name"]),
            (float(str(row["x"])) - across[0]) / (across[1] - across[0]) * width,
            math.log(float(str(row["y"])) / up[0]) / math.log(up[1] / up[0]) * height,
            _radius(float(str(row.get("size", 0))), largest),
        )
        for row in rows
    ]
    layers = []
    for row, place in zip(rows, point_names.places(spots, width, height), strict=True):
        one = alt.Chart(pl.DataFrame([row])).encode(x="x:Q", y="y:Q", text="name:N")
        layers.append(
            one.mark_text(
                fontSize=point_names.FONT_SIZE, align=place.align, dx=place.dx, dy=place.dy, color=COLOURS["ink"]
            )
        )
    return layers


def _radius(size: float, largest: float) -> float:
    """The radius of a point with a size, in pixels."""
    least, most = _AREAS
    return math.sqrt((least + (most - least) * size / largest) / math.pi)


def render(name: str, title: str, description: str, chart: Drawing) -> Chart:
    """Renders a chart to SVG and PNG, all charts at one width, and at one height unless a chart has its own."""
    spec: dict[str, Any] = chart.properties(width=WIDTH).to_dict()
    height: int = spec.setdefault("height", HEIGHT)
    # Axes and legend count as part of the size, so that all charts have the same size with any labels.
    spec["autosize"] = {"type": "fit", "contains": "padding"}
    spec["config"] = _config()
    drawn = vlc.vegalite_to_svg(spec)
    return Chart(
        name, title, description, _clean(drawn, name), vlc.svg_to_png(_titled(drawn, title, height), scale=PNG_SCALE)
    )


def _titled(svg: str, title: str, height: int) -> str:
    """The chart on a white background with its title, for a PNG that is used outside the page."""
    head = 22
    text = f'x="6" y="16" font-family="sans-serif" font-size="12" font-weight="bold" fill="{COLOURS["ink"]}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height + head}">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f"<text {text}>{escape(title)}</text>"
        f'<g transform="translate(0,{head})">{svg}</g></svg>'
    )


def _tiers(tiers: list[str], unit: str) -> alt.X:
    return alt.X("tier:O", title=unit, sort=tiers, scale=alt.Scale(domain=tiers), axis=alt.Axis(labelAngle=0))


def _steps(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: 1, 2, 5 in each decade, or only powers of ten over more than three decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if last - first <= 3 else (1,)
    return [digit * 10.0**power for power in range(first, last + 1) for digit in digits]


def _colour(colours: dict[str, str]) -> alt.Color:
    scale = alt.Scale(domain=list(colours), range=[COLOURS[colour] for colour in colours.values()])
    return alt.Color("series:N", scale=scale, legend=alt.Legend(title=None, orient="top", columns=3))


def _config() -> dict[str, Any]:
    axis = {
        "labelColor": COLOURS["muted"],
        "titleColor": COLOURS["muted"],
        "gridColor": COLOURS["grid"],
        "domainColor": COLOURS["grid"],
        "tickColor": COLOURS["grid"],
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    }
    return {
        "background": None,
        "font": "sans-serif",
        # No roles and labels on single marks: the figure has one label as a whole.
        "aria": False,
        "view": {"stroke": None},
        "axisX": axis | {"grid": False},
        "axisY": axis | {"domain": False, "ticks": False},
        "legend": {"labelColor": COLOURS["ink"], "labelFontSize": 11, "symbolSize": 70, "offset": 6},
    }


def _clean(svg: str, name: str) -> str:
    """Prepares an SVG for a page with other SVGs: no namespace addresses, unique ids, fewer digits."""
    svg = re.sub(r' (xmlns(:\w+)?|role|aria-[a-z]+|pointer-events|class|stroke-miterlimit)="[^"]*"', "", svg)
    svg = re.sub(r'<path d="[^"]*"( display="none")?/>|<g></g>', "", svg)
    svg = re.sub(r'(id="|url\(#|href="#)(?=[\w-])', rf"\g<1>{name}-", svg)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d+\.\d)\d+", r"\1", tag[0]), svg)
    # The view box keeps the proportions; the page sets the width.
    return re.sub(r'^<svg([^>]*?) width="[^"]*" height="[^"]*"', r"<svg\1", svg, count=1)
