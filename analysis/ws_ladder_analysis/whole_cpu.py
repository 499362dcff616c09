"""The capacity of a whole CPU, fitted from searches on fractions of one. Pure.

A capacity isn't proportional to the share: ticks, collectors and wake-ups cost the same on a small share. So a figure
of one share is never multiplied. Two shares or more show how the capacity grows, as a power of the share:
ln C = ln a + b · ln share. The fit weighs each by its posterior, and so has an interval, which doesn't say how
well a power describes the growth beyond the largest share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from bench_format.schemas import CapacityEstimate
from scipy.special import ndtri

# Standard deviations from the centre of a 95 % interval to its ends.
_DEVIATIONS = float(ndtri(0.975))
# Smallest standard deviation of ln C: half a step of the posterior's grid.
_LEAST_DEVIATION = 0.00125


class WholeCpu(NamedTuple):
    """The load at which a trial on one CPU is expected to pass with a probability of 0.5, and its 95 % interval."""

    load: float
    low: float
    high: float
    # The power of the share with which the capacity grows; 1 is proportional.
    power: float


def whole_cpu(searches: Sequence[tuple[float, CapacityEstimate]]) -> WholeCpu | None:
    """The fit of searches of one service, each with its share of a CPU; `None` with fewer than two different shares."""
    if len({share for share, _ in searches}) < 2:
        return None
    shares = [math.log(share) for share, _ in searches]
    loads = [math.log(found.load) for _, found in searches]
    deviations = [max(math.log(found.high / found.low) / (2 * _DEVIATIONS), _LEAST_DEVIATION) for _, found in searches]
    (power, at_one), covariance = np.polyfit(shares, loads, 1, w=1 / np.array(deviations), cov="unscaled")
    # ln 1 = 0, so the intercept is the logarithm of the load on one CPU.
    half = _DEVIATIONS * math.sqrt(covariance[1, 1])
    load, low, high = (float(np.exp(at_one + sign * half)) for sign in (0, -1, 1))
    return WholeCpu(load, low, high, float(power))
