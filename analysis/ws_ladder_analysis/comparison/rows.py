"""Two sides compared, tier by tier and figure by figure. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..compare import Comparison, compare_tiers, with_levels
from ..ladders import Ladder, Tier
from ..load import Bundle
from ..sequential import Verdict, pairs_needed, verdict_of
from ..statistics import Ratio
from . import refusals
from .pairing import Pairing, of_one_run, of_two_runs
from .sides import ComparisonError, Side, sides

# The figure that is a cost: it stands beside every other one.
COST = "CPU per million messages"


@dataclass(frozen=True)
class Row:
    """One figure at one tier of two sides."""

    comparison: Comparison
    pairing: Pairing

    @property
    def verdict(self) -> Verdict | None:
        """What the interval says; `None` where there is no interval, or where the generator hides the answer."""
        found = self.comparison.ratio
        if found is None or self.comparison.interval is None:
            return None
        if found.shows_difference(self.comparison.level):
            return None if self.comparison.conclusion.startswith("n/a") else Verdict.DIFFERS
        if self.comparison.left_at_least or self.comparison.right_at_least:
            return None
        verdict = verdict_of(*self.comparison.interval)
        # An interval may leave out 1 while a typical pair doesn't.
        return Verdict.NOT_SHOWN if verdict is Verdict.DIFFERS else verdict

    @property
    def pairs_needed(self) -> int | None:
        """Pairs that it takes to show a difference of 5 % with this noise; `None` unless no difference was shown."""
        found = self.comparison.ratio
        if self.verdict is not Verdict.NOT_SHOWN or found is None:
            return None
        return pairs_needed(_deviation(found))

    @property
    def is_worse(self) -> bool:
        """Whether B is shown to be worse than A."""
        return self.verdict is Verdict.DIFFERS and self.comparison.conclusion == "A is better"


@dataclass(frozen=True)
class Compared:
    """Two sides with all that was compared, and why the rest wasn't."""

    left: Side
    right: Side
    rows: tuple[Row, ...]
    # Why single ladders or tiers are left out.
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]


def compare_bundles(bundles: Sequence[Bundle], services: Sequence[str] = ()) -> tuple[Compared, ...]:
    """Compares one bundle's two services, or two bundles. Raises `ComparisonError` with all reasons against it."""
    chosen = sides(bundles, services)
    reasons = refusals.of_bundles(bundles[0], bundles[-1])
    if reasons:
        raise ComparisonError("\n".join(reasons))
    found = tuple(_compare(left, right) for left, right in chosen)
    if not any(one.rows for one in found):
        reasons = tuple(dict.fromkeys(why for one in found for why in one.left_out))
        raise ComparisonError("\n".join(reasons) or "no figure is in valid trials of both sides")
    return found


def _compare(left: Side, right: Side) -> Compared:
    rows: list[Row] = []
    left_out: list[str] = []
    theirs = {(one.workload, one.variant): one for one in right.ladders}
    for ladder in left.ladders:
        other = theirs.get((ladder.workload, ladder.variant))
        if other is None:
            left_out.append(f"{ladder.name}: B has no such ladder")
            continue
        reasons = refusals.of_ladders(left, right, ladder)
        left_out += [f"{ladder.name}: {why}" for why in reasons]
        if not reasons:
            rows += _rows(left, right, ladder, other, left_out)
    leveled = with_levels([row.comparison for row in rows])
    found = tuple(replace(row, comparison=one) for row, one in zip(rows, leveled, strict=True))
    return Compared(left, right, found, tuple(left_out), tuple(_warnings(left, right, found)))


def _rows(left: Side, right: Side, ladder: Ladder, other: Ladder, left_out: list[str]) -> Iterator[Row]:
    theirs = {tier.connections: tier for tier in other.tiers}
    for tier in ladder.tiers:
        where = f"{ladder.name} at {ladder.load_of(tier)}"
        against = theirs.get(tier.connections)
        why = _missing(tier, against)
        if why or against is None:
            left_out.append(f"{where}: {why}")
            continue
        reasons = refusals.of_tiers(tier, against)
        left_out += [f"{where}: {one}" for one in reasons]
        if reasons:
            continue
        pairing = (of_one_run if left.bundle is right.bundle else of_two_runs)(tier, against)
        # A and B name the sides, because both may be the same service.
        sides_of = replace(ladder, service="A"), replace(other, service="B")
        for comparison in compare_tiers(*sides_of, tier, against, pairing.reader):
            yield Row(comparison, pairing)


def _missing(tier: Tier, against: Tier | None) -> str:
    if against is None:
        return "B has no such tier"
    if not tier.valid or not against.valid:
        return f"{'B' if tier.valid else 'A'} has no valid trial there"
    return ""


def _warnings(left: Side, right: Side, rows: Sequence[Row]) -> Iterator[str]:
    yield from dict.fromkeys(row.pairing.warning for row in rows if row.pairing.warning)
    for side in (left,) if left.bundle is right.bundle else (left, right):
        if side.bundle.run.commit.endswith("+changes"):
            yield f"{side.letter} was built with changes that no commit has, so it can't be built again"


def _deviation(found: Ratio) -> float:
    """The standard deviation of a pair's log ratio; for sides without pairs, that of a process of each."""
    error = found.error or 0.0
    if found.paired:
        return error * math.sqrt(found.processes[0])
    # Two processes of a pair would be as far apart as two that aren't one.
    return error * math.sqrt(2 * found.processes[0] * found.processes[1] / sum(found.processes))
