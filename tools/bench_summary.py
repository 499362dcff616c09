"""The summary of `just bench`: our figures beside the reference's and the floor's, from bundles and JSON. Pure.

A figure has one value per process. A row has the geometric means over processes, and their ratio with its 95 % interval
as in reports: over pairs where services take turns, and Welch's to the floor and to another part, which are not pairs.
A missing figure is null, with the reason in `why`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench_format.meaning import reasons
from bench_format.schemas import TrialStateCrashed, TrialStateFailed
from bench_rows import PARTS, ROWS, Part, RowDefinition
from ws_ladder_analysis import wording
from ws_ladder_analysis.ladders import Getter, ladders
from ws_ladder_analysis.load import Bundle, Trial
from ws_ladder_analysis.statistics import PAIRS_NEEDED, mean, ratio, unpaired_ratio

# The side whose runs take no turns with the services, so that they are not pairs.
FLOOR = "floor"
# The parsed output of `floor`.
Floor = Mapping[str, Any]


@dataclass(frozen=True)
class Evidence:
    """The output of a part: its bundle, if it was climbed, and the report of each run of the floor's program."""

    bundle: Bundle | None = None
    floor: Sequence[Floor] = ()
    commands: Sequence[str] = ()


@dataclass(frozen=True)
class Row:
    """A row of `summary.json`; the fields have the order of the file."""

    name: str
    unit: str
    ours: float | None
    reference: float | None
    floor: float | None
    ratio: float | None
    interval: tuple[float, float] | None
    # Numerator and denominator of the ratio.
    ratio_of: str
    # What limited each side of a closed load, by side.
    bound_by: Mapping[str, str] | None
    command: str
    why: str | None


@dataclass
class Sides:
    """The values of a row's sides by process (of the floor, by run), and the reasons for missing ones."""

    values: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    bounds: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def mean(self, side: str) -> float | None:
        """The mean of a side over processes; `None` without values."""
        known = self.all(side)
        return mean(known) if known else None

    def add(self, side: str, values: Mapping[int, list[float]]) -> None:
        """Adds values by process; processes of another bundle are others."""
        known = self.values.setdefault(side, {})
        before = max(known, default=0)
        known.update({before + process: found for process, found in values.items()})

    def all(self, side: str) -> list[float]:
        """All values of a side; empty without any."""
        return [value for values in self.values.get(side, {}).values() for value in values]


def summary(evidence: Mapping[str, Evidence]) -> list[Row]:
    """All rows in order; rows of a part that didn't run have no figures and say why."""
    return [row(definition, evidence) for definition in ROWS]


def row(definition: RowDefinition, evidence: Mapping[str, Evidence]) -> Row:
    """Fills one row from the output of its parts."""
    sides = Sides()
    sources = [("ours", definition.ours, definition.part)]
    if definition.again:
        sources.append(("ours", definition.ours, definition.again))
    if definition.reference:
        sources.append(("reference", definition.reference, definition.reference_part or definition.part))
    for side, service, name in sources:
        part = next(part for part in PARTS if part.name == name)
        read_service(sides, side, service, definition.getter, part, evidence.get(name, Evidence()).bundle)
    if definition.floor is not None:
        read_floor(sides, *definition.floor, evidence.get(definition.part, Evidence()).floor)
    above, below = "ours", FLOOR if definition.floor else "reference"
    # The ratio to the reference says how many times better we are; the ratio to the floor or to another part, how many
    # times costlier.
    if below == "reference" and not definition.more_is_better and not definition.reference_part:
        above, below = below, above
    mean_ratio, interval = compared(sides, above, below, is_paired=definition.reference_part is None)
    commands = [one for _, _, name in sources for one in evidence.get(name, Evidence()).commands]
    return Row(
        definition.name,
        definition.unit,
        sides.mean("ours"),
        sides.mean("reference"),
        sides.mean(FLOOR),
        mean_ratio,
        interval,
        f"{above} / {below}",
        sides.bounds or None,
        "; ".join(dict.fromkeys(commands)),
        "; ".join(sides.missing) or None,
    )


def read_service(sides: Sides, side: str, service: str, getter: Getter, part: Part, bundle: Bundle | None) -> None:
    """Reads a figure of one service over the valid trials of the part's ladder into `sides`."""
    if bundle is None:
        sides.missing.append(f"{side}: {part.plan} {part.only} was not climbed")
        return
    tiers = [
        tier
        for one in ladders(bundle)
        if (one.service, one.workload, one.variant) == (service, *part.ladder)
        for tier in one.tiers
    ]
    if not tiers:
        sides.missing.append(f"{side}: the bundle has no trial of {service}")
        return
    tier = tiers[-1]
    bad = [f"{trial.name}: {unusable(trial)}" for trial in tier.trials if not trial.valid]
    if bad:
        sides.missing.append(f"{side}: {len(bad)} of {len(tier.trials)} trials can't be used ({bad[0]})")
    values = tier.by_process(getter)
    sides.add(side, values)
    if tier.valid and not values:
        sides.missing.append(f"{side}: its trials have no such figure")
    if tier.bounds:
        sides.bounds[side] = ", ".join(tier.bounds)


def unusable(trial: Trial) -> str:
    """The reason why a trial has no usable figure."""
    if trial.result is not None:
        return wording.plain(wording.reasons(reasons(trial.result.validity)))
    state = trial.entry.state
    return state.reason if isinstance(state, TrialStateCrashed | TrialStateFailed) else "it was not measured"


def read_floor(sides: Sides, name: str, factor: float, reports: Sequence[Floor]) -> None:
    """Reads a figure of the floor's program over all its runs into `sides`; `factor` converts its unit."""
    figures = [one for report in reports for one in report["figures"] if one["name"] == name]
    values = [value * factor for one in figures for value in one["values"] if value is not None]
    sides.values[FLOOR] = {run: [value] for run, value in enumerate(values)}
    if not reports:
        sides.missing.append("floor: it was not run")
    elif not values:
        sides.missing.append(f"floor: it has no {name}")


def compared(
    sides: Sides, above: str, below: str, *, is_paired: bool = True
) -> tuple[float | None, tuple[float, float] | None]:
    """The ratio of two sides and its interval; `None` where there are too few processes."""
    if is_paired and FLOOR not in (above, below):
        estimate = ratio(sides.values.get(above, {}), sides.values.get(below, {}))
    else:
        estimate = unpaired_ratio(sides.all(above), sides.all(below))
    if estimate is None:
        return None, None
    interval = estimate.interval()
    if interval is None:
        few = " and ".join(map(str, estimate.processes))
        sides.missing.append(f"no interval: {few} processes, {PAIRS_NEEDED} each are needed")
    return estimate.ratio, interval


def wire(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as written to `summary.json`."""
    return [asdict(one) for one in rows]


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, followed by what is missing."""
    lines = [
        "| what | unit | ours | reference | floor | ratio | 95 % interval | bound by |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | --- |",
    ]
    for one in rows:
        interval = " to ".join(map(number, one.interval)) if one.interval else number(None)
        bounds = ", ".join(f"{side}: {bound}" for side, bound in (one.bound_by or {}).items())
        ratio_text = f"{number(one.ratio)} ({one.ratio_of})" if one.ratio is not None else number(None)
        cells = [
            one.name,
            one.unit,
            number(one.ours),
            number(one.reference),
            number(one.floor),
            ratio_text,
            interval,
            bounds or number(None),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    missing: dict[str, list[str]] = {}
    for one in rows:
        if one.why:
            missing.setdefault(one.why, []).append(one.name)
    notes = [f"- {'; '.join(names)}: {why}" for why, names in missing.items()]
    return "\n".join([*lines, *([""] if notes else []), *notes, ""])


def number(value: float | None) -> str:
    """Formats a number for print; a dash for `None`."""
    if value is None:
        return "—"
    return wording.plain(wording.count(value) if abs(value) >= 1000 else wording.digits(value))
