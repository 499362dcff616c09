"""The published fan-out figures and what they counted: tests 8, 10 and 11 of the page `seeds.FANOUT`.

What each number counted was read in the code of the client that produced it, as in `seeds.py`.
"""

from __future__ import annotations

from dataclasses import replace

from .published import Count, Rates, Source
from .seeds import CORES, FANOUT, WSE_BENCH

_PARSED = (
    "All fan-out: the client counted every message that it could parse as JSON, the server’s greetings and pings with"
    " them, over the time of its window. “Published/s” are these deliveries divided by the connections: nobody asked"
    " the publisher."
)
_BACKLOG = (
    "All fan-out: before its window the client didn’t read for 2 s, so what had piled up in sockets and in the server"
    " by then counts as delivered in the window. Nothing held the publisher back, and nothing was drained between"
    " tiers. “Latency” is the age of that backlog; it is the same to the digit in tests 8 and 11, in all 8 tiers that"
    " both have."
)
_GAPS = (
    "All fan-out: “gaps” are numbers skipped between two messages of a connection. What is missing before the first or"
    " behind the last message isn’t among them, and repeats are not looked for."
)
_LAST = "Test 8: 32 764 of the 50 000 connections of its last tier were open."
_LEAP = (
    "Test 11: the figure for 20 000 connections is five times that for 5 000 and for one instance alone; later versions"
    " of the page don’t have it any more."
)

_BROADCAST = Source(
    FANOUT,
    "test 8",
    "an unreleased build",
    WSE_BENCH,
    None,
    Count.PARSED,
    "published to all connections of one server",
    (_PARSED, _BACKLOG, _GAPS, _LAST),
)
_CLUSTER = replace(
    _BROADCAST, part="test 11", fate="published at another server", caveats=(_PARSED, _BACKLOG, _GAPS, _LEAP)
)
_REDIS = replace(_CLUSTER, part="test 10", fate="published at another server", caveats=(_PARSED, _BACKLOG, _GAPS))


def _tiers(*thousands: float) -> dict[int, float]:
    """Maps thousands of deliveries per second to tiers, starting at the lowest."""
    tiers = (10, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
    return {tier: 1e3 * figure for tier, figure in zip(tiers, thousands, strict=False)}


# Keyed by our workload that offers the same load.
DELIVERIES = {
    "fanout-broadcast": Rates(_BROADCAST, _tiers(4_100, 4_300, 3_500, 2_300, 2_200, 1_900, 1_700, 1_700, 2_700), CORES),
    "fanout-redis": Rates(_REDIS, _tiers(429, 1_600, 1_800, 1_600, 1_500, 1_100, 819, 688), CORES),
    "fanout-cluster": Rates(_CLUSTER, _tiers(517, 1_900, 2_200, 2_000, 1_900, 1_800, 3_400, 9_500), CORES),
}
