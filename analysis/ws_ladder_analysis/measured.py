"""The comparison of a run that measured two sides in pairs until it was decided: as a table, from `run.json`. Pure."""

from __future__ import annotations

from bench_format.schemas import (
    ComparedFigure,
    ComparedSide,
    Comparison,
    ComparisonEndNotComparable,
    ComparisonEndPairsAtMost,
    ComparisonVerdict,
    FigureLook,
    SideSourceCheckout,
    SideSourceCommit,
)

from . import wording
from .cells import NOTHING, Cell, Column, Table, Tone
from .compare import FIGURES, Compared
from .sequential import ALPHA

_NAMES = {
    ComparedFigure.CPU_PER_MILLION: "CPU per million messages",
    ComparedFigure.MEMORY_PER_CONNECTION: "memory per connection",
}
_SHORT_COMMIT = 12


def figure_of(figure: ComparedFigure) -> Compared:
    """How the analysis reads and prints a figure."""
    name = _NAMES.get(figure, figure.value.replace("-", " "))
    return next(one for one in FIGURES if one.name == name)


def table(comparison: Comparison) -> Table:
    """One row for each deciding figure, with the verdict of its always-valid interval."""
    looks = comparison.progress.looks
    columns = [Column("figure", number=False), Column("A"), Column("B"), Column("A/B"), Column("interval")]
    columns += [Column("pairs"), Column("what it shows", number=False)]
    rows = tuple(_row(one) for one in (looks[-1].figures if looks else ()))
    ladder = f"{comparison.workload}/{comparison.variant}/{comparison.tier}"
    caption = f"A, {_side(comparison.a)}, compared with B, {_side(comparison.b)}, on {ladder}"
    return Table(caption, tuple(columns), rows, _notes(comparison))


def _row(look: FigureLook) -> tuple[Cell, ...]:
    figure = figure_of(look.figure)
    sides = [Cell(figure.shown(value)) for value in (look.a, look.b)]
    interval = look.interval
    ends = NOTHING if interval is None else Cell(f"{wording.digits(interval.low)}–{wording.digits(interval.high)}")
    ratio = Cell(f"{wording.digits(look.ratio)}{wording.GAP}×")
    return (Cell(figure.name), *sides, ratio, ends, Cell(wording.count(look.pairs)), _shown(look, figure))


def _shown(look: FigureLook, figure: Compared) -> Cell:
    match look.verdict:
        case ComparisonVerdict.DIFFERS:
            better = (look.ratio > 1) == figure.more_is_better
            return Cell(f"differs: {'A' if better else 'B'} is better", tone=Tone.BAD if better else Tone.GOOD)
        case ComparisonVerdict.SAME:
            return Cell("same within 5 %")
        case ComparisonVerdict.NOT_SHOWN:
            needed = "too many" if look.pairs_needed is None else wording.count(look.pairs_needed)
            return Cell("no difference shown", f"5 % would take {needed} pairs", Tone.MUTED)
        case ComparisonVerdict.GENERATOR_BOUND:
            return Cell("n/a: the generator limited the rate", tone=Tone.MUTED)
        case _:
            return Cell("undecided", tone=Tone.MUTED)


def _side(side: ComparedSide) -> str:
    place = ""
    if isinstance(side.source, SideSourceCheckout):
        place = f" of {side.source.path}"
    elif isinstance(side.source, SideSourceCommit):
        place = f" of {side.source.revision}"
    commit, plus, changes = side.commit.partition("+")
    shown = f" (commit {commit[:_SHORT_COMMIT]}{plus}{changes})" if commit else ""
    return f"{side.registered}{place}{shown}"


def _notes(comparison: Comparison) -> tuple[str, ...]:
    progress = comparison.progress
    figures = max(len(progress.figures), 1)
    each, together = wording.level(1 - ALPHA / figures), wording.level(1 - ALPHA)
    notes = [
        f"Pairs of fresh processes were measured until the always-valid interval decided, at most"
        f" {comparison.pairs_at_most}. Each interval is at {each}, so that all hold together at {together}."
    ]
    if isinstance(progress.end, ComparisonEndNotComparable):
        notes.append(f"They can't be compared: {progress.end.reason}.")
    elif isinstance(progress.end, ComparisonEndPairsAtMost):
        notes.append("The largest number of pairs was measured.")
    elif progress.end is None:
        notes.append("The comparison is not finished.")
    if progress.dropped:
        number = wording.number_of(len(progress.dropped), "pairs")
        notes.append(f"{number} with an invalid trial were measured again and don't count.")
    return tuple(notes)
