"""Which processes of two tiers are pairs, by their start times, and the ratio over them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from ..compare import RatioReader, ratio_of
from ..ladders import Getter, Percentile, Tier
from ..statistics import Ratio, percentile_ratio, ratio, unpaired_percentile_ratio, unpaired_ratio


class Order(StrEnum):
    """How the processes of two sides followed each other."""

    # A B, B A, A B: a steady drift of the machine cancels out.
    TURNED = "in pairs whose order turned"
    # A B, A B: a steady drift counts as a difference.
    FIXED = "in pairs of one order"
    # One side after the other, or mixed.
    APART = "not in pairs"


@dataclass(frozen=True)
class Pairing:
    """How the processes of a tier belong to those of another."""

    order: Order
    # The process of the other side by the process of this one; empty without pairs.
    partners: Mapping[int, int]
    reader: RatioReader

    @property
    def warning(self) -> str:
        """What this order does to a ratio; empty where it does nothing."""
        if self.order is Order.APART:
            return (
                "the two were not measured in turns, so a drift of the machine between them counts as a difference;"
                " intervals are Welch's"
            )
        if self.order is Order.FIXED:
            return "every pair has the same order, so a steady drift of the machine counts as a difference"
        return ""


def of_one_run(tier: Tier, against: Tier) -> Pairing:
    """The pairs of two services of one run: processes with the same number, as the run measured them."""
    starts = _starts(tier), _starts(against)
    both = [number for number in starts[0] if number in starts[1]]
    firsts = [starts[0][number] < starts[1][number] for number in both]
    order = Order.TURNED if len(both) < 2 or all(one != next_ for one, next_ in pairwise(firsts)) else Order.FIXED
    return Pairing(order, {number: number for number in both}, ratio_of)


def of_two_runs(tier: Tier, against: Tier) -> Pairing:
    """The pairs of two runs: one process of each, one after the other, from the first to the last of both."""
    starts = [(start, 0, number) for number, start in _starts(tier).items()]
    starts += [(start, 1, number) for number, start in _starts(against).items()]
    starts.sort()
    pairs = list(zip(starts[::2], starts[1::2], strict=False))
    if len(starts) % 2 or not pairs or any(one[1] == other[1] for one, other in pairs):
        return Pairing(Order.APART, {}, _unpaired)
    ordered = [sorted(pair, key=lambda one: one[1]) for pair in pairs]
    partners = {left[2]: right[2] for left, right in ordered}
    turned = all(one[0][1] != other[0][1] for one, other in pairwise(pairs))
    order = Order.TURNED if turned else Order.FIXED

    def paired(one: Tier, other: Tier, getter: Getter) -> Ratio | None:
        return _paired(one, other, getter, partners)

    return Pairing(order, partners, paired)


def _starts(tier: Tier) -> dict[int, int]:
    """When the first trial on each process started, in nanoseconds since the Unix epoch; invalid trials, too."""
    starts: dict[int, int] = {}
    for trial in tier.trials:
        if trial.result is not None:
            start = trial.result.started_at_unix_ns
            starts[trial.id.process] = min(start, starts.get(trial.id.process, start))
    return starts


def _paired(tier: Tier, against: Tier, getter: Getter, partners: Mapping[int, int]) -> Ratio | None:
    if isinstance(getter, Percentile):
        theirs = against.histograms_by_process(getter.histogram)
        renamed = {number: theirs[partner] for number, partner in partners.items() if partner in theirs}
        return percentile_ratio(tier.histograms_by_process(getter.histogram), renamed, getter.at)
    figures = against.by_process(getter)
    moved = {number: figures[partner] for number, partner in partners.items() if partner in figures}
    return ratio(tier.by_process(getter), moved)


def _unpaired(tier: Tier, against: Tier, getter: Getter) -> Ratio | None:
    if isinstance(getter, Percentile):
        sides = [list(one.histograms_by_process(getter.histogram).values()) for one in (tier, against)]
        return unpaired_percentile_ratio(sides[0], sides[1], getter.at)
    means = [[sum(values) / len(values) for values in one.by_process(getter).values()] for one in (tier, against)]
    return unpaired_ratio(means[0], means[1])
