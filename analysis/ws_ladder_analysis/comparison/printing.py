"""Prints a comparison as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from .. import wording
from ..columns import aligned
from ..sequential import Verdict
from .rows import COST, Compared, Row

_HEAD = ("figure", "A", "B", "A/B", "interval", "what it shows")


def text(found: Sequence[Compared]) -> str:
    """All comparisons as text for a terminal."""
    return wording.plain("\n\n".join("\n".join(_lines(one)) for one in found) + "\n")


def _lines(found: Compared) -> Iterator[str]:
    yield f"A: {found.left.description}"
    yield f"B: {found.right.description}"
    yield from (f"warning: {one}" for one in found.warnings)
    yield from (f"not compared: {one}" for one in found.left_out)
    for (name, load), group in groupby(found.rows, key=_place):
        rows = sorted(group, key=lambda row: row.comparison.figure.name == COST)
        yield f"\n{name}, {load}; {_measured(rows[0])}"
        yield from aligned([_HEAD, *map(_cells, rows)])
    levels = dict.fromkeys(wording.level(row.comparison.level) for row in found.rows if row.comparison.interval)
    if levels:
        yield f"\n{wording.interval_level(', '.join(levels))}"


def _place(row: Row) -> tuple[str, str]:
    one = row.comparison
    return one.ladder.name, wording.number_of(one.connections, one.ladder.unit)


def _measured(row: Row) -> str:
    processes = row.comparison.ratio.processes if row.comparison.ratio else (0, 0)
    if row.pairing.partners:
        return f"{processes[0]} pairs of processes, {row.pairing.order}"
    return f"{processes[0]} and {processes[1]} processes, {row.pairing.order}"


def _cells(row: Row) -> tuple[str, ...]:
    one = row.comparison
    left, right = one.figure.shown(one.left), one.figure.shown(one.right)
    name = f"cost: {one.figure.name}" if one.figure.name == COST else one.figure.name
    if one.ratio is None:
        return name, left, right, wording.NOT_AVAILABLE, wording.NOT_AVAILABLE, conclusion(row)
    interval = one.interval
    shown = wording.NOT_AVAILABLE if interval is None else f"{_four(interval[0])} to {_four(interval[1])}"
    return name, left, right, one.sign + _four(one.ratio.ratio), shown, conclusion(row)


def conclusion(row: Row) -> str:
    """What a row shows, as text: which side is better, that both are the same, or what it would take to tell."""
    if row.verdict is None:
        return row.comparison.conclusion
    if row.verdict is Verdict.DIFFERS:
        return f"differs: {row.comparison.conclusion}"
    if row.verdict is Verdict.NOT_SHOWN:
        takes = "too many" if row.pairs_needed is None else wording.count(row.pairs_needed)
        return f"{row.verdict}; 5 % would take {takes} pairs"
    return str(row.verdict)


def _four(value: float) -> str:
    """A ratio with the digits that matter beside an interval: differences below a per cent are of no interest."""
    return f"{value:.3f}" if 0.1 <= value < 10 else wording.digits(value)


def as_json(found: Sequence[Compared]) -> list[dict[str, object]]:
    """All comparisons as JSON values; a ratio is that of A to B, a missing figure is `null`."""
    return [
        {
            "a": _side(one, "left"),
            "b": _side(one, "right"),
            "warnings": list(one.warnings),
            "not_compared": list(one.left_out),
            "rows": [_row(row) for row in one.rows],
        }
        for one in found
    ]


def _side(found: Compared, name: str) -> dict[str, str]:
    side = found.left if name == "left" else found.right
    run = side.bundle.run
    return {
        "service": side.service,
        "version": run.versions.get(side.service, ""),
        "run": run.id,
        "commit": run.commit,
    }


def _row(row: Row) -> dict[str, object]:
    one, found = row.comparison, row.comparison.ratio
    low, high = one.interval or (None, None)
    return {
        "workload": one.ladder.workload,
        "variant": one.ladder.variant,
        "tier": one.connections,
        "figure": one.figure.name,
        "is_cost": one.figure.name == COST,
        "a": one.left,
        "b": one.right,
        "a_at_least": one.left_at_least,
        "b_at_least": one.right_at_least,
        "ratio": found.ratio if found else None,
        "ratio_low": low,
        "ratio_high": high,
        "level": one.level,
        "pairs": found.processes[0] if found and found.paired else None,
        "processes": list(found.processes) if found else [0, 0],
        "order": row.pairing.order.value,
        "verdict": row.verdict.value if row.verdict else None,
        "pairs_needed": row.pairs_needed,
        "conclusion": conclusion(row),
    }
