"""When enough pairs are measured: the always-valid interval of a mean log ratio, and what it decides. Pure.

The interval may be looked at after every pair, and it holds the truth at all looks together with the stated level
(Wang & Ramdas 2023, the t-test of an unknown deviation under a flat prior). Student's interval at every look would be
wrong in a fifth to a quarter of all comparisons of equal services.
`tests/test_sequential.py` simulates how many pairs it takes and how often it errs.
"""

from __future__ import annotations

import math
import statistics as stdlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from scipy import optimize, stats

# Pairs before the first decision, and at which a comparison gives up by default.
FIRST_LOOK, MOST_PAIRS = 5, 60
# Probability of a wrong "differs" over all looks together.
ALPHA = 0.05
# Logarithm of the difference within which two services count as the same: 5 %.
SAME_WITHIN = -math.log(0.95)
# Probability with which a fixed number of pairs shows a difference of 5 %.
POWER = 0.9
# More pairs than this are not named: the noise must be reduced first.
MOST_NAMED = 100_000


class Verdict(StrEnum):
    """What the interval of a ratio says about two sides."""

    # The interval leaves out 1.
    DIFFERS = "differs"
    # The interval lies within 5 % of 1.
    SAME = "same within 5 %"
    # Neither, and no more pairs are measured.
    NOT_SHOWN = "no difference shown"
    # Neither, and more pairs may decide.
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Decision:
    """The state of a comparison after some pairs."""

    verdict: Verdict
    # Geometric mean of the pairs' ratios, with the always-valid interval; the ends are 0 and infinity while it is
    # unbounded.
    ratio: float
    low: float
    high: float
    pairs: int
    # Pairs that a plan with a fixed number would need to show a difference of 5 %; `None` unless none was shown.
    pairs_needed: int | None


def half_width(logs: Sequence[float], alpha: float = ALPHA) -> float:
    """Half of the always-valid interval of the mean of log ratios, at level 1 - `alpha` over all looks together.

    Infinite as long as there are too few pairs for any bound.
    """
    count = len(logs)
    if count < 2:
        return math.inf
    bound = (math.sqrt(1 + count) / alpha) ** (2 / count)
    if bound >= 1 + count:
        return math.inf
    scale = math.sqrt((count - 1) * (bound - 1) / (1 - bound / (1 + count)))
    return stdlib.stdev(logs) / math.sqrt(count) * scale


def verdict_of(low: float, high: float) -> Verdict:
    """What an interval of a ratio says; `NOT_SHOWN` where it is too wide for either statement."""
    if low > 1 or high < 1:
        return Verdict.DIFFERS
    if low > math.exp(-SAME_WITHIN) and high < math.exp(SAME_WITHIN):
        return Verdict.SAME
    return Verdict.NOT_SHOWN


def decide(logs: Sequence[float], most_pairs: int = MOST_PAIRS, alpha: float = ALPHA) -> Decision:
    """Decides on the log ratios of the pairs so far. Raises `ValueError` without any.

    `alpha` is the share of wrong "differs" that is accepted; a comparison of several rows divides it among them.
    """
    if not logs:
        raise ValueError("a comparison needs a pair")
    mean, half = stdlib.fmean(logs), half_width(logs, alpha)
    low, high = math.exp(mean - half), math.exp(mean + half) if half < math.inf else math.inf
    verdict = verdict_of(low, high) if len(logs) >= FIRST_LOOK else Verdict.NOT_SHOWN
    if verdict is Verdict.NOT_SHOWN and len(logs) < most_pairs:
        verdict = Verdict.UNDECIDED
    needed = pairs_needed(stdlib.stdev(logs)) if verdict is Verdict.NOT_SHOWN and len(logs) > 1 else None
    return Decision(verdict, math.exp(mean), low, high, len(logs), needed)


def power(pairs: float, deviation: float, alpha: float = ALPHA) -> float:
    """Probability that Student's two-sided test on `pairs` log ratios with this standard deviation shows a difference
    of 5 %."""
    freedom = pairs - 1
    shift = SAME_WITHIN / deviation * math.sqrt(pairs)
    critical = stats.t.ppf(1 - alpha / 2, freedom)
    # Without the other tail: a difference in the wrong direction is shown with a probability far below 1e-6.
    return float(stats.nct.sf(critical, freedom, shift))


def pairs_needed(deviation: float, wanted: float = POWER) -> int | None:
    """The fixed number of pairs that shows a difference of 5 % with the probability `wanted`.

    `deviation` is the standard deviation of the pairs' log ratios. `None` where it takes more than `MOST_NAMED` pairs.
    """
    fewest = 2
    if deviation <= 0 or power(fewest, deviation) >= wanted:
        return fewest
    # Beyond this the normal approximation is exact enough, and the non-central t loses digits.
    most = 4 * ((stats.norm.ppf(0.975) + stats.norm.ppf(wanted)) * deviation / SAME_WITHIN) ** 2 + 10
    if most > 4 * MOST_NAMED:
        return None
    found = optimize.brentq(lambda pairs: power(pairs, deviation) - wanted, fewest, most)
    return math.ceil(float(found))
