"""Services side by side within one run: the ratio of their figures with an interval. Pure.

A ratio whose interval contains 1 shows no difference. A rate that the generator bound is only a lower bound, and so is
a ratio computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from bench_format.meaning import is_scheduled

from . import wording
from .ladders import Getter, Ladder, Tier, figure, percentile
from .statistics import PROCESSES_NEEDED, Ratio, Spread, ratio


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
    Compared("p50 of response", percentile("response_ns", 50), wording.duration, False),
    Compared("p99 of response", percentile("response_ns", 99), wording.duration, False),
    Compared("p50 of newest", percentile("newest_ns", 50), wording.duration, False),
    Compared("p95 of newest", percentile("newest_ns", 95), wording.duration, False),
    Compared("p50 of handshake", percentile("handshake_ns", 50), wording.duration, False),
    Compared("p99 of handshake", percentile("handshake_ns", 99), wording.duration, False),
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
    left: Spread
    right: Spread
    ratio: Ratio | None
    left_at_least: bool
    right_at_least: bool

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
            return "n/a: one side is 0"
        if self.left_at_least and self.right_at_least:
            return "n/a: the generator bound both"
        if found.low is None:
            few = " and ".join(map(str, found.processes))
            return f"no interval: {few} processes, {PROCESSES_NEEDED} each are needed"
        if not found.shows_difference:
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
            found.extend(between(first, other))
    return tuple(found)


def between(first: Ladder, other: Ladder) -> Iterator[Comparison]:
    """Compares two ladders at every tier that both have."""
    theirs = {tier.connections: tier for tier in other.tiers}
    for tier in first.tiers:
        against = theirs.get(tier.connections)
        if against is not None and tier.valid and against.valid:
            yield from _tiers(first, other, tier, against)


def _tiers(first: Ladder, other: Ladder, tier: Tier, against: Tier) -> Iterator[Comparison]:
    scheduled = any(is_scheduled(result.load) for result in (*tier.results, *against.results))
    for one in FIGURES:
        # The schedule sets the rate of an open loop, so there is nothing to compare.
        if one.is_rate and scheduled:
            continue
        left, right = tier.spread(one.getter), against.spread(one.getter)
        if left is None or right is None:
            continue
        yield Comparison(
            first,
            tier.connections,
            one,
            first.service,
            other.service,
            left,
            right,
            ratio(_by_process(tier, one.getter), _by_process(against, one.getter)),
            one.is_rate and tier.at_least,
            one.is_rate and against.at_least,
        )


def _by_process(tier: Tier, getter: Getter) -> dict[int, list[float]]:
    """The figure's values over repeats, keyed by service process."""
    processes: dict[int, list[float]] = {}
    for trial in tier.valid:
        value = getter(trial)
        if value is not None:
            processes.setdefault(trial.id.process, []).append(value)
    return processes
