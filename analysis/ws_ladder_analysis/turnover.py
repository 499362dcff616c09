"""Connections that come and go under load: their times and counts, recomputed and shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bench_format.histogram import at_rank
from bench_format.schemas import TrialResult, Turnover

from . import wording
from .cells import NOTHING, Cell, Column, Table, Tone
from .claims import Claims, close
from .ladders import Ladder, Tier
from .load import Trial

# Relative difference of two times that one histogram can give.
_DIGITS = 2e-3
# The figures of a reconnect by the share of connections, in percent.
TIMES = {
    0.0: "reconnected_first_ms",
    50.0: "reconnected_half_ms",
    99.0: "reconnected_99_percent_ms",
    100.0: "reconnected_all_ms",
}


def reconnected_ms(trial: Trial, percent: float) -> float | None:
    """Milliseconds until this share of the connections was back; `None` if fewer came back."""
    values = trial.histograms.get("reconnected_ns")
    if values is None or not values.count:
        return None
    rank = max(math.ceil(percent / 100 * values.total), 1)
    return at_rank(values, rank) / 1e6 if rank <= values.count else None


def of_trial(trial: Trial, result: TrialResult) -> Claims:
    """Recomputes the sums over the workers, the outcomes of attempts and connections, and the times."""
    claimed = result.turnover
    parts = [worker.turnover for worker in trial.workers if worker.turnover is not None]
    if claimed is None:
        yield "workers report connections that come and go, the result doesn't", not parts
        return
    if trial.workers:
        for name in ("due", "ready", "not_made", "closed", "unanswered_closes", "unanswered_messages", "open_at_end"):
            whole, added = getattr(claimed, name), sum(getattr(part, name) for part in parts)
            yield f"turnover.{name}: {whole} in the result, {added} over the workers", whole == added
    ended = claimed.ready + _sum(claimed.refused) + _sum(claimed.failed) + claimed.not_made
    yield f"{claimed.due} attempts were due but {ended} have an outcome", claimed.due == ended
    gone = claimed.closed + _sum(result.connections.closed_early) + claimed.open_at_end
    yield f"{result.connections.open} connections were open but {gone} went", result.connections.open == gone
    for percent, name in TIMES.items():
        seen, recomputed = getattr(result.figures, name), reconnected_ms(trial, percent)
        yield f"{name} is {seen} but the histogram says {recomputed}", close(seen, recomputed, _DIGITS)


def _sum(counts: Mapping[str, int]) -> int:
    return sum(counts.values())


def table(ladder: Ladder) -> Table | None:
    """The outcomes of the attempts at each tier, summed over its valid trials; `None` for other loads."""
    tiers = [(tier, found) for tier in ladder.tiers if (found := _turnovers(tier))]
    if not tiers:
        return None
    cut = any("reconnected_ns" in tier.histograms for tier, _ in tiers)
    columns = [Column(ladder.unit), Column("attempts due"), Column("ready"), Column("refused"), Column("failed")]
    columns += [Column(wording.reconnected(percent)) for percent in TIMES] if cut else []
    columns += [] if cut else [Column("closed as planned"), Column("messages unanswered then"), Column("ended early")]
    rows = []
    for tier, found in tiers:
        row = [Cell(wording.count(tier.connections)), _count(sum(one.due for one in found), alarm=False)]
        row.append(_count(sum(one.ready for one in found), alarm=False))
        row += [_reasons([one.refused for one in found]), _reasons([one.failed for one in found])]
        row += [_time(tier, name) for name in TIMES.values()] if cut else _gone(tier, found)
        rows.append(tuple(row))
    return Table(f"{ladder.service}: connections that came and went", tuple(columns), tuple(rows))


def _turnovers(tier: Tier) -> list[Turnover]:
    return [result.turnover for result in tier.results if result.turnover is not None]


def _gone(tier: Tier, found: Sequence[Turnover]) -> list[Cell]:
    early = sum(_sum(result.connections.closed_early) for result in tier.results)
    unanswered = sum(one.unanswered_messages for one in found)
    return [_count(sum(one.closed for one in found), alarm=False), _count(unanswered), _count(early)]


def _count(count: int, alarm: bool = True) -> Cell:
    return Cell(wording.count(count), tone=Tone.WARN if alarm and count else Tone.PLAIN)


def _reasons(counts: Sequence[Mapping[str, int]]) -> Cell:
    """A number of attempts, with the reasons in the smaller line."""
    reasons = sorted({reason for one in counts for reason in one})
    by_reason = {reason: sum(one.get(reason, 0) for one in counts) for reason in reasons}
    text = ", ".join(f"{wording.count(count)} {reason}" for reason, count in by_reason.items())
    whole = _sum(by_reason)
    return Cell(wording.count(whole), text, tone=Tone.WARN if whole else Tone.PLAIN)


def _time(tier: Tier, name: str) -> Cell:
    """The mean over the tier's trials; none if the connections didn't come back in one of them."""
    times = [getattr(result.figures, name) for result in tier.results]
    if not times:
        return NOTHING
    known = [time for time in times if time is not None]
    if len(known) < len(times):
        return Cell(
            "never", f"in {len(times) - len(known)} of {wording.number_of(len(times), 'trials')}", tone=Tone.WARN
        )
    return Cell(wording.duration(sum(known) / len(known) * 1e6))
