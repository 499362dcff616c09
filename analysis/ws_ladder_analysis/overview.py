"""The tables over all ladders: the headline figures, the unusable trials, and the comparisons of services.

Input: ladders and comparisons, already computed. This module chooses rows and words; it computes no figures.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench_format.schemas import LoadClosed, TrialResult, Witness

from . import bounds, wording
from .cells import NONE, NOTHING, Cell, Column, Table, Tone
from .compare import Comparison
from .ladders import Ladder, Percentile, Tier, figure
from .statistics import PAIRS_FOR_OUTLIERS, Ratio
from .tables import AT_LEAST, ended, rate_cell, verdict_cell


def headlines(ladders: Sequence[Ladder]) -> Table:
    """One row for each ladder: its most informative tier (see `most_informative`)."""
    titles = ("carries", "latency", "verdict", "bound by", "valid trials", "load", "witness")
    units = dict.fromkeys(ladder.unit for ladder in ladders) or ["connections"]
    columns = [Column("ladder", number=False), Column(" or ".join(units))]
    columns += [Column(title, number=False) for title in titles]
    return Table("The most informative tier of each ladder", tuple(columns), tuple(_headline(one) for one in ladders))


def _headline(ladder: Ladder) -> tuple[Cell, ...]:
    sample, best = ladder.sample, most_informative(ladder)
    made, valid = len(ladder.trials), sum(trial.valid for trial in ladder.trials)
    trials = Cell(f"{valid} of {made}", tone=Tone.GOOD if valid == made else Tone.WARN if valid else Tone.BAD)
    head = Cell(ladder.service, ladder.name)
    tail = (trials, *((_load(sample), _witness(sample)) if sample else (NOTHING, NOTHING)))
    if best is None:
        return (head, NOTHING, Cell("no valid trial", tone=Tone.BAD), NOTHING, NONE, NONE, *tail)
    at = Cell(wording.count(best.connections))
    return (head, at, rate_cell(best), _latency(best), verdict_cell(best), bounds.cell(best), *tail)


def _load(result: TrialResult) -> Cell:
    model, _, rest = wording.load(result.load).partition(", ")
    return Cell(model, rest)


def _witness(result: TrialResult) -> Cell:
    return Cell(result.witness, tone=Tone.WARN if result.witness is Witness.NONE else Tone.PLAIN)


def most_informative(ladder: Ladder) -> Tier | None:
    """The most informative tier: of those that pass (all without objectives), a flood's fastest, else the highest."""
    usable = [tier for tier in ladder.tiers if tier.valid]
    judged = any(tier.verdicts for tier in usable)
    passing = [tier for tier in usable if all(tier.verdicts)] if judged else usable
    if not passing:
        return usable[0] if usable else None
    rates = [(found.mean, tier) for tier in passing if (found := tier.spread(figure("delivered_per_second")))]
    if rates and all(_is_flood(result) for tier in passing for result in tier.results):
        return max(rates, key=lambda pair: pair[0])[1]
    return passing[-1]


def _is_flood(result: TrialResult) -> bool:
    """Whether the load was a flood: a closed loop without a fixed number of messages per connection."""
    return isinstance(result.load, LoadClosed) and result.load.messages_per_connection is None


def _latency(tier: Tier) -> Cell:
    for name, at in (("response", 99.0), ("newest", 95.0), ("handshake", 99.0)):
        if f"{name}_ns" in tier.histograms:
            found = tier.spread(Percentile(f"{name}_ns", at))
            return Cell(
                f"{wording.percentile_name(at)} {name} {wording.duration(found.mean if found else None)}",
                tone=Tone.PLAIN if found else Tone.MUTED,
            )
    return NOTHING


def unusable(ladders: Sequence[Ladder]) -> Table | None:
    """The trials that aren't valid, with the reasons; `None` when all are valid."""
    rows = [(Cell(trial.name), ended(trial)) for ladder in ladders for trial in ladder.trials if not trial.valid]
    if not rows:
        return None
    columns = (Column("trial", number=False), Column("why it doesn't count", number=False))
    return Table("Trials that are in no figure of this report", columns, tuple(rows))


def comparisons(found: Sequence[Comparison]) -> Table | None:
    """Services side by side, as ratios with intervals; `None` without comparisons."""
    if not found:
        return None
    first = found[0]
    several = len({one.other for one in found}) > 1
    columns = [Column(first.ladder.unit), Column("figure", number=False)]
    columns += [Column("against", number=False)] * several
    columns += [Column(first.service), Column("other" if several else first.other), Column("ratio")]
    columns += [Column("interval"), Column("what it shows", number=False)]
    rows = []
    for one in found:
        row = [Cell(wording.count(one.connections)), Cell(one.figure.name)] + [Cell(one.other)] * several
        row += [_side(one, one.left, one.left_at_least), _side(one, one.right, one.right_at_least)]
        rows.append((*row, *_ratio(one)))
    caption = f"{first.service} compared with {'the others' if several else first.other}"
    return Table(caption, tuple(columns), tuple(rows), _levels(found))


def _levels(found: Sequence[Comparison]) -> tuple[str, ...]:
    """Notes about the levels of the intervals, and about uneven rows."""
    levels: dict[str, dict[str, None]] = {}
    for one in found:
        if one.interval:
            levels.setdefault(wording.level(one.level), {})[one.figure.name] = None
    if not levels:
        return ()
    shown = "; ".join(f"{level} ({', '.join(names)})" if len(levels) > 1 else level for level, names in levels.items())
    claims = "Of the rows that claim a difference, at most 1 in 20 is expected to be wrong."
    notes = [f"{wording.interval_level(shown)} {claims}"]
    if any(one.ratio and one.ratio.is_uneven for one in found):
        notes.append(
            "Uneven: a pair of processes lies far from the others. The smaller line has the ratio of a typical pair,"
            " and only a difference that both show is claimed."
        )
    return tuple(notes)


def _side(one: Comparison, value: float, at_least: bool) -> Cell:
    return Cell((AT_LEAST if at_least else "") + one.figure.shown(value))


def _ratio(one: Comparison) -> tuple[Cell, Cell, Cell]:
    found = one.ratio
    undecided = one.conclusion.startswith(("n/a", "no "))
    tone = Tone.MUTED if undecided else Tone.GOOD if one.conclusion.endswith("better") else Tone.BAD
    conclusion = Cell(one.conclusion, tone=tone)
    if found is None:
        return NOTHING, NOTHING, conclusion
    ratio = Cell(f"{one.sign}{wording.digits(found.ratio)}{wording.GAP}×", _pairs(found))
    if one.interval is None:
        return ratio, NOTHING, conclusion
    low, high = one.interval
    return ratio, Cell(f"{wording.digits(low)}–{wording.digits(high)}", _typical(one)), conclusion


def _pairs(found: Ratio) -> str:
    """The ratio of each pair, where there are too few pairs to detect an outlier."""
    if not 1 < len(found.pairs) < PAIRS_FOR_OUTLIERS:
        return ""
    return "pairs: " + ", ".join(map(wording.digits, found.pairs))


def _typical(one: Comparison) -> str:
    """The ratio of a typical pair, for uneven pairs."""
    if one.ratio is None or not one.ratio.is_uneven:
        return ""
    low, middle, high = map(wording.digits, one.ratio.typical(one.level))
    return f"uneven; typical pair {middle}: {low}–{high}"
