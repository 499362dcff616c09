"""Services side by side within one run: the ratio of their figures with an interval. Pure.

A ratio whose interval contains 1 shows no difference. All intervals of one figure in one table have the same level,
which rises with the number of rows (`statistics.table_level`). A rate that the generator bound is only a lower bound,
and so is a ratio computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from bench_format.meaning import is_scheduled

from . import wording
from .ladders import Getter, Ladder, Percentile, Tier, figure
from .statistics import CONFIDENCE, PAIRS_NEEDED, Ratio, percentile_ratio, ratio, table_level

# Computes the ratio of a figure of two tiers; `None` where there is none.
RatioReader = Callable[[Tier, Tier, Getter], Ratio | None]


@dataclass(frozen=True)
class Compared:
    """A figure that is compared between services."""

    name: str
    getter: Getter
    shown: Callable[[float | None], str]
    more_is_better: bool
    # Whether the generator can limit the figure, which makes it a lower bound.
    is_rate: bool = False


FIGURES = (
    Compared("delivered per second", figure("delivered_per_second"), wording.rate, True, is_rate=True),
    Compared("received per second", figure("received_per_second"), wording.rate, True, is_rate=True),
    Compared("accepted per second", figure("accepted_per_second"), wording.rate, True, is_rate=True),
    Compared("p50 of response", Percentile("response_ns", 50), wording.duration, False),
    Compared("p99 of response", Percentile("response_ns", 99), wording.duration, False),
    Compared("p50 of newest", Percentile("newest_ns", 50), wording.duration, False),
    Compared("p95 of newest", Percentile("newest_ns", 95), wording.duration, False),
    Compared("p50 of handshake", Percentile("handshake_ns", 50), wording.duration, False),
    Compared("p99 of handshake", Percentile("handshake_ns", 99), wording.duration, False),
    Compared("CPU per million messages", figure("service_cpu_seconds_per_million"), wording.seconds, False),
    Compared("memory per connection", figure("service_bytes_per_connection"), wording.memory, False),
)


@dataclass(frozen=True)
class Comparison:
    """One figure of two services at one tier."""

    ladder: Ladder
    connections: int
    figure: Compared
    service: str
    other: str
    # The figure of each side: over the pairs where there is a ratio.
    left: float
    right: float
    ratio: Ratio | None
    left_at_least: bool
    right_at_least: bool
    # Level of the interval (0 to 1).
    level: float = CONFIDENCE

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ratio's interval at the table's level; `None` with too few pairs."""
        return self.ratio.interval(self.level) if self.ratio else None

    @property
    def sign(self) -> str:
        """`>=` or `<=` when one side is only a lower bound; else empty."""
        sign = {(True, False): ">=", (False, True): "<="}.get((self.left_at_least, self.right_at_least))
        return sign + wording.GAP if sign else ""

    @property
    def conclusion(self) -> str:
        """The conclusion as text: `service` is better or worse, no difference, or why there is no conclusion."""
        found = self.ratio
        if found is None:
            return "n/a: one side is 0, or no two trials are a pair"
        if self.left_at_least and self.right_at_least:
            return "n/a: the generator bound both"
        if found.error is None:
            return _without_interval(found)
        if not found.shows_difference(self.level):
            return "no difference shown"
        more = found.ratio > 1
        if (more and self.right_at_least) or (not more and self.left_at_least):
            return "n/a: the generator bound the smaller figure"
        return f"{self.service} is {'better' if more == self.figure.more_is_better else 'worse'}"


def compare(ladders: Sequence[Ladder]) -> tuple[Comparison, ...]:
    """Compares the first service of each ladder with every other one, tier by tier."""

    def key(ladder: Ladder) -> tuple[str, str]:
        return ladder.workload, ladder.variant

    found: list[Comparison] = []
    for _, group in groupby(ladders, key=key):
        first, *others = group
        for other in others:
            found.extend(_between(first, other))
    return with_levels(found)


def between(first: Ladder, other: Ladder) -> tuple[Comparison, ...]:
    """Compares two ladders at every tier that both have."""
    return with_levels(list(_between(first, other)))


def with_levels(found: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Sets the level of each comparison from all that share its figure and its table (one workload and variant)."""

    def family(one: Comparison) -> tuple[str, str, str]:
        return one.ladder.workload, one.ladder.variant, one.figure.name

    families: dict[tuple[str, str, str], list[float | None]] = {}
    for one in found:
        families.setdefault(family(one), []).append(one.ratio.p_value if one.ratio else None)
    levels = {name: table_level(values) for name, values in families.items()}
    return tuple(replace(one, level=levels[family(one)]) for one in found)


def _without_interval(found: Ratio) -> str:
    if min(found.processes) >= PAIRS_NEEDED:
        return "no interval: a process has too few samples for the percentile"
    if not found.paired:
        return (
            f"no interval: {found.processes[0]} and {found.processes[1]} processes, {PAIRS_NEEDED} of each are needed"
        )
    return f"no interval: {found.processes[0]} pairs of processes, {PAIRS_NEEDED} are needed"


def _between(first: Ladder, other: Ladder) -> Iterator[Comparison]:
    """Compares two ladders at every tier that both have."""
    theirs = {tier.connections: tier for tier in other.tiers}
    for tier in first.tiers:
        against = theirs.get(tier.connections)
        if against is not None and tier.valid and against.valid:
            yield from compare_tiers(first, other, tier, against)


def compare_tiers(
    first: Ladder, other: Ladder, tier: Tier, against: Tier, read: RatioReader | None = None
) -> Iterator[Comparison]:
    """Compares two tiers figure by figure; `read` computes a ratio, by default over processes with the same number."""
    scheduled = any(is_scheduled(result.load) for result in (*tier.results, *against.results))
    for one in FIGURES:
        # The schedule sets the rate of an open loop, so there is nothing to compare.
        if one.is_rate and scheduled:
            continue
        left, right = tier.spread(one.getter), against.spread(one.getter)
        if left is None or right is None:
            continue
        found = (read or ratio_of)(tier, against, one.getter)
        yield Comparison(
            first,
            tier.connections,
            one,
            first.service,
            other.service,
            found.above if found else left.mean,
            found.below if found else right.mean,
            found,
            one.is_rate and tier.at_least,
            one.is_rate and against.at_least,
        )


def ratio_of(tier: Tier, against: Tier, getter: Getter) -> Ratio | None:
    """The ratio of a figure of two tiers over the processes that both have."""
    if isinstance(getter, Percentile):
        name = getter.histogram
        return percentile_ratio(tier.histograms_by_process(name), against.histograms_by_process(name), getter.at)
    return ratio(tier.by_process(getter), against.by_process(getter))
