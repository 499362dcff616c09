"""Recomputes what the pairs of a comparison show from their trials."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bench_format.schemas import Comparison, ComparisonVerdict, FigureLook

from .claims import Claims, close
from .ladders import Getter
from .load import Bundle, Trial
from .measured import figure_of
from .sequential import ALPHA, Decision, Verdict, decide

# Relative tolerance: both programs sum in another order.
_ROUNDING = 1e-6
_VERDICTS = {
    Verdict.DIFFERS: ComparisonVerdict.DIFFERS,
    Verdict.SAME: ComparisonVerdict.SAME,
    Verdict.NOT_SHOWN: ComparisonVerdict.NOT_SHOWN,
    Verdict.UNDECIDED: ComparisonVerdict.UNDECIDED,
}


def of_comparison(bundle: Bundle, comparison: Comparison) -> Claims:
    """The columns, the ratio, the interval and the verdict of each deciding figure at the last look."""
    progress = comparison.progress
    if not progress.looks:
        return
    pairs = [look.pair for look in progress.looks]
    for look in progress.looks[-1].figures:
        getter = figure_of(look.figure).getter
        a, b = (_logs(bundle, side.service, getter) for side in (comparison.a, comparison.b))
        counted = pairs[: look.pairs]
        if any(pair not in a or pair not in b for pair in counted):
            yield f"{look.figure} is missing in a trial of its pairs {counted}", False
            continue
        logs = [a[pair] - b[pair] for pair in counted]
        found = decide(logs, comparison.pairs_at_most, ALPHA / len(progress.figures))
        description = f"{look.figure} is {_text(look)}, but its trials say {found}"
        yield description, _agree(look, found) and _columns(look, a, b, counted)


def _logs(bundle: Bundle, service: str, getter: Getter) -> Mapping[int, float]:
    """The logarithm of a figure by pair, over the valid trials of a side that have it."""

    def value(trial: Trial) -> float:
        return getter(trial) or 0.0

    own = [trial for trial in bundle.trials if trial.id.service == service and trial.valid]
    return {trial.id.process: math.log(value(trial)) for trial in own if value(trial) > 0}


def _agree(look: FigureLook, found: Decision) -> bool:
    bounded = look.interval is not None
    if bounded != (found.high < math.inf) or not close(look.ratio, found.ratio, _ROUNDING):
        return False
    if look.interval is not None:
        ends = close(look.interval.low, found.low, _ROUNDING) and close(look.interval.high, found.high, _ROUNDING)
        if not ends:
            return False
    # The generator's limit is not a matter of the interval.
    return look.verdict is ComparisonVerdict.GENERATOR_BOUND or look.verdict is _VERDICTS[found.verdict]


def _columns(look: FigureLook, a: Mapping[int, float], b: Mapping[int, float], counted: list[int]) -> bool:
    means = [math.exp(math.fsum(side[pair] for pair in counted) / len(counted)) for side in (a, b)]
    return close(look.a, means[0], _ROUNDING) and close(look.b, means[1], _ROUNDING)


def _text(look: FigureLook) -> str:
    ends = "unbounded" if look.interval is None else f"[{look.interval.low:g}, {look.interval.high:g}]"
    return f"{look.ratio:g} {ends}, {look.verdict}, after {look.pairs} pairs (A {look.a:g}, B {look.b:g})"
