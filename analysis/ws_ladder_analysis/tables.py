"""The tables of one ladder: tiers, percentiles, trials, failures and books. HTML and Markdown use the same tables.

A column that doesn't apply to a workload is left out; a missing figure is printed as `n/a`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench_format import histogram
from bench_format.meaning import holds, reasons
from bench_format.schemas import (
    BoundBy,
    Equation,
    LoadSessions,
    Shown,
    TrialStateCrashed,
    TrialStateFailed,
    TrialStateFinished,
    TrialStateStarted,
    Witness,
)

from . import bounds, busy, wording
from .cells import NONE, NOTHING, Cell, Column, Table, Tone
from .frames import PERCENTILES
from .ladders import Getter, Ladder, Percentile, Tier, figure
from .load import Trial
from .statistics import Spread


@dataclass(frozen=True)
class _Figure:
    """A column of the tier table: its title, how its figure is read and how it is formatted."""

    title: str
    getter: Getter
    shown: Callable[[float | None], str]
    # Whether the generator can limit the figure, which makes it a lower bound.
    is_rate: bool = False
    # `True`: only for sessions; `False`: only for other loads; `None`: for all.
    sessions: bool | None = None
    # The histogram that the figure is read from: when it has too few samples, the column prints `n/a`.
    histogram: str = ""


def _errors(trial: Trial) -> float | None:
    """Failures per 100 000 replies, the unit in which objectives of sessions are written."""
    found = figure("error_share")(trial)
    return None if found is None else found * 1e5


def _lost(trial: Trial) -> float | None:
    """Publications in the whole trial that a receiver didn't get and that the service didn't count as dropped."""
    result = trial.result
    return float(result.messages.lost) if result is not None and result.witness is Witness.RECEIVER else None


def cpu_per_session(trial: Trial) -> float | None:
    """CPU time of the service per session and second, in nanoseconds."""
    used, result = figure("service_cpu_seconds")(trial), trial.result
    if used is None or result is None or not isinstance(result.load, LoadSessions):
        return None
    return used * 1e9 / (result.figures.window_seconds * trial.id.tier)


def both_sides(trial: Trial) -> float | None:
    """CPU seconds per million messages of both sides: on loopback the kernel charges the sender for the receiver."""
    costs = [figure(f"{side}_cpu_seconds_per_million")(trial) for side in ("service", "worker")]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


# Prefix of a rate that the generator limited.
AT_LEAST = ">=" + wording.GAP
# The sign before what a service needs at most, where it carries at least so much.
AT_MOST = "<=" + wording.GAP


def _percentile(name: str, at: float, sessions: bool) -> _Figure:
    title = f"{wording.percentile_name(at)} {wording.histogram(name)}"
    return _Figure(title, Percentile(name, at), wording.duration, sessions=sessions, histogram=name)


_FIGURES = (
    _Figure("written/s", figure("written_per_second"), wording.rate, sessions=False),
    _Figure("delivered/s", figure("delivered_per_second"), wording.rate, is_rate=True),
    _Figure("published/s", figure("published_per_second"), wording.rate),
    _Figure("messages per read", figure("messages_per_read"), wording.plain_number),
    _Figure("dropped/s", figure("dropped_per_second"), wording.rate),
    _Figure("accepted/s", figure("accepted_per_second"), wording.rate, is_rate=True),
    *(_percentile(name, at, False) for name in ("response_ns", "handshake_ns", "age_ns") for at in (50.0, 99.0, 99.9)),
    *(_percentile(name, at, True) for name in ("newest_ns", "oldest_ns") for at in (50.0, 95.0)),
    _percentile("frame_ns", 95.0, True),
    _Figure("late", figure("late_share"), wording.share, sessions=True),
    _Figure("answers per session·s", figure("answers_per_session_second"), wording.plain_number, sessions=True),
    _percentile("flush_lateness_ns", 95.0, True),
    _Figure("errors per 100k replies", _errors, wording.plain_number, sessions=True),
    _Figure("service CPU per session", cpu_per_session, wording.per_second, sessions=True),
    _Figure("service CPU per million", figure("service_cpu_seconds_per_million"), wording.seconds),
    _Figure("with generator", both_sides, wording.seconds),
    _Figure("service CPU", figure("service_cpu_share"), wording.share),
    _Figure("generator CPU", figure("worker_cpu_share"), wording.share),
    _Figure("inference CPU", figure("inference_cpu_share"), wording.share, sessions=True),
    _Figure("memory per connection", figure("service_bytes_per_connection"), wording.memory, sessions=False),
    _Figure("memory per session", figure("service_bytes_per_connection"), wording.memory, sessions=True),
    _Figure("lost", _lost, wording.plain_number),
    _Figure("failed", figure("failed_share"), wording.share, sessions=False),
)


def tiers(ladder: Ladder) -> Table:
    """One row for each tier of a ladder."""
    shown = [one for one in _FIGURES if _applies(ladder, one)]
    bound = any(tier.bounds for tier in ladder.tiers)
    judged = any(tier.verdicts for tier in ladder.tiers)
    columns = [Column(ladder.unit), Column("valid trials", number=False)]
    columns += [Column("verdict", number=False)] * judged + [Column("bound by", number=False)] * bound
    columns += [Column(one.title) for one in shown]
    rows = []
    for tier in ladder.tiers:
        row = [Cell(wording.count(tier.connections)), validity_cell(tier)]
        row += [verdict_cell(tier)] * judged + [bounds.cell(tier)] * bound
        rows.append((*row, *(_figure(tier, one) for one in shown)))
    return Table(f"{ladder.service}: {ladder.name}", tuple(columns), tuple(rows), bounds.notes(ladder))


def _applies(ladder: Ladder, one: _Figure) -> bool:
    """Whether the column applies: a trial has the figure, or has the histogram with too few samples for it."""
    if one.sessions not in (None, ladder.is_sessions):
        return False
    if one.histogram in {key for trial in ladder.trials for key in trial.histograms}:
        return True
    return any(one.getter(trial) is not None for trial in ladder.trials)


def _figure(tier: Tier, one: _Figure) -> Cell:
    found = tier.spread(one.getter)
    if found is None:
        return NOTHING
    sign = AT_LEAST if one.is_rate and tier.at_least else ""
    return Cell(sign + one.shown(found.mean), over_repeats(found, one.shown))


def rate_cell(tier: Tier) -> Cell:
    """The tier's rate that its workload is about, with the rate's name."""
    for one in _FIGURES:
        if one.is_rate and (cell := _figure(tier, one)) is not NOTHING:
            return replace(cell, text=f"{cell.text} {one.title}")
    return NOTHING


def over_repeats(found: Spread, shown: Callable[[float | None], str]) -> str:
    """The range over repeats as text; empty when it would only repeat the median."""
    low, high = shown(found.low), shown(found.high)
    if found.samples < 2 or low == high == shown(found.mean):
        return ""
    number, _, unit = low.rpartition(wording.GAP)
    # Print the unit once when both ends have the same.
    return f"{number}–{high}" if number and high.endswith(wording.GAP + unit) else f"{low}–{high}"


def verdict_cell(tier: Tier) -> Cell:
    """`pass`, `fail`, `borderline` when the tier's trials disagree, or what its errors show over all trials."""
    passed = sum(tier.verdicts)
    if not tier.verdicts:
        return NONE
    if passed == len(tier.verdicts):
        return _unless_errors(tier, Cell("pass", _of(passed, tier.verdicts), Tone.GOOD))
    if passed == 0:
        return Cell("fail", _of(0, tier.verdicts), Tone.BAD)
    return Cell("borderline", _of(passed, tier.verdicts), Tone.WARN)


def _unless_errors(tier: Tier, passed: Cell) -> Cell:
    """The cell of a tier whose trials all pass; another one if their errors together don't show the budget."""
    if tier.errors is None:
        return passed
    errors, budget = tier.errors
    detail = f"{wording.count(errors.failures)} of {wording.count(errors.messages)}: at most {errors.upper_bound:.1e}"
    match errors.shown(budget):
        case Shown.MET:
            return passed
        case Shown.MISSED:
            return Cell("fail", f"errors {detail}", Tone.BAD)
        case Shown.NOT_SHOWN:
            return Cell("errors not shown", detail, Tone.WARN)


def _of(passed: int, verdicts: Sequence[bool]) -> str:
    return f"{passed} of {len(verdicts)}" if len(verdicts) > 1 else ""


def validity_cell(tier: Tier) -> Cell:
    """The number of a tier's valid trials, highlighted unless all are valid, and whether the machine was busy."""
    valid, made = len(tier.valid), len(tier.trials)
    tone = Tone.GOOD if valid == made else Tone.WARN if valid else Tone.BAD
    return Cell(f"{valid} of {made}", busy.remark(tier.results, tier.work_medians), tone)


def percentiles(ladder: Ladder) -> Table | None:
    """Percentiles of each histogram at each tier, merged over all valid trials."""
    columns = [Column(ladder.unit), Column("of", number=False)]
    columns += [Column("max" if at == 100 else wording.percentile_name(at)) for at in PERCENTILES]
    columns += [Column("samples")]
    rows = []
    for tier in ladder.tiers:
        for name, values in tier.histograms.items():
            row = [Cell(wording.count(tier.connections)), Cell(wording.histogram(name))]
            for at in PERCENTILES:
                value = histogram.percentile_ns(values, at)
                row.append(_beyond(values, at) if value is None else Cell(wording.duration(value)))
            beyond = f"{wording.count(values.overflow)} without an end" if values.overflow else ""
            row.append(Cell(wording.count(values.total), beyond))
            rows.append(tuple(row))
    if not rows:
        return None
    return Table(f"{ladder.service}: percentiles, all valid trials merged", tuple(columns), tuple(rows))


def _beyond(values: histogram.Values, at: float) -> Cell:
    """The cell of a percentile without a value: beyond the largest one if it falls among values without an end."""
    if not values.counts or values.total < histogram.samples_needed(at):
        return NOTHING
    return Cell(">" + wording.GAP + wording.duration(max(values.counts)), "among those without an end", Tone.WARN)


def trials(ladder: Ladder) -> Table:
    """All trials of a ladder, including invalid and failed ones."""
    shown = [one for one in _FIGURES if _applies(ladder, one)]
    columns = [Column("trial", number=False), Column("how it ended", number=False)]
    columns += [Column(one.title) for one in shown]
    rows = []
    for trial in ladder.trials:
        one = trial.id
        head = Cell(f"{wording.count(one.tier)} · process {one.process} · repeat {one.repeat}")
        cells = [_single(trial, each) for each in shown]
        if not trial.valid:
            cells = [replace(cell, tone=Tone.MUTED) for cell in cells]
        rows.append((head, ended(trial), *cells))
    return Table(f"{ladder.service}: every trial", tuple(columns), tuple(rows))


def _single(trial: Trial, one: _Figure) -> Cell:
    value = one.getter(trial)
    if value is None:
        return NOTHING
    bound = one.is_rate and trial.result is not None and trial.result.bound_by is BoundBy.GENERATOR
    return Cell((AT_LEAST if bound else "") + one.shown(value))


def ended(trial: Trial) -> Cell:
    """How a trial ended: valid, the reasons why it is invalid, or why it has no result."""
    state = trial.entry.state
    if isinstance(state, TrialStateFailed):
        return Cell(f"not measured: {state.reason}", tone=Tone.BAD)
    if isinstance(state, TrialStateCrashed):
        return Cell(f"failed: {state.cause}", state.reason, Tone.BAD)
    if isinstance(state, TrialStateStarted):
        return Cell(f"interrupted in attempt {state.attempt}", tone=Tone.WARN)
    if not isinstance(state, TrialStateFinished):
        return Cell("not started", tone=Tone.MUTED)
    if trial.result is None:
        return Cell("its result is missing", tone=Tone.BAD)
    sentence = wording.reasons(reasons(trial.result.validity))
    return Cell(sentence, tone=Tone.GOOD if trial.valid else Tone.BAD)


def failures(ladder: Ladder) -> Table | None:
    """Failures at each tier by kind, in the window and outside it; `None` without failures."""
    rows = []
    for tier in ladder.tiers:
        results = [trial.result for trial in tier.trials if trial.result is not None]
        kinds = dict.fromkeys(kind for one in results for kind in sorted({*one.failures.window, *one.failures.outside}))
        for kind in kinds:
            sums = (
                sum(one.failures.window.get(kind, 0) for one in results),
                sum(one.failures.outside.get(kind, 0) for one in results),
            )
            counts = (Cell(wording.count(number), tone=Tone.BAD if number else Tone.MUTED) for number in sums)
            rows.append((Cell(wording.count(tier.connections)), Cell(kind), *counts))
    if not rows:
        return None
    columns = (Column(ladder.unit), Column("what failed", number=False), Column("in the window"), Column("outside it"))
    return Table(f"{ladder.service}: failures, all trials together", columns, tuple(rows))


def _tick(equation: Equation) -> Cell:
    if holds(equation):
        return Cell("✓ holds", tone=Tone.GOOD)
    if equation.is_remark:
        return Cell("differs, a remark", "the service's own counters, which the plan doesn't call exact", Tone.WARN)
    return Cell("✗ differs", tone=Tone.BAD)


def books(ladder: Ladder) -> Table:
    """All equations of all trials with both sides."""
    rows = []
    for trial in ladder.trials:
        if trial.result is None:
            continue
        head = Cell(f"{wording.count(trial.id.tier)} · process {trial.id.process} · repeat {trial.id.repeat}")
        for equation in trial.result.books.equations:
            terms = " + ".join(f"{name} {wording.count(count)}" for name, count in equation.terms)
            sides = (Cell(wording.count(equation.left)), Cell(wording.count(equation.right)))
            rows.append((head, Cell(equation.name), *sides, Cell(terms), _tick(equation)))
        check = trial.result.books.connections
        if check is not None:
            good = check.mismatched == 0
            tick = Cell("✓ holds" if good else "✗ differs", "; ".join(check.examples), Tone.GOOD if good else Tone.BAD)
            agree = check.compared - min(check.compared, check.mismatched)
            sides = (Cell(wording.count(check.compared)), Cell(wording.count(agree)))
            rows.append((head, Cell("each connection: both sides' books agree"), *sides, Cell(""), tick))
    columns = (
        Column("trial", number=False),
        Column("equation", number=False),
        Column("left"),
        Column("right"),
        Column("terms of the right side", number=False),
        Column("", number=False),
    )
    return Table(f"{ladder.service}: books of {ladder.name}", columns, tuple(rows))
