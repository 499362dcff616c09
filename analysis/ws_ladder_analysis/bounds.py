"""What bound the trials of a tier, and why, as text."""

from __future__ import annotations

from collections.abc import Iterator

from bench_format.schemas import BoundBy, BoundCheck, BoundMeasure, BoundSide, LoadClosed, TrialResult

from . import wording
from .cells import NONE, Cell, Tone
from .ladders import Ladder, Tier, figure

_SIDES = {
    BoundSide.SERVICE: "the service",
    BoundSide.GENERATOR: "the generator",
    BoundSide.INFERENCE: "inference",
}

_NAMED = {
    BoundBy.SERVICE: (BoundSide.SERVICE,),
    BoundBy.GENERATOR: (BoundSide.GENERATOR,),
    BoundBy.BOTH: (BoundSide.SERVICE, BoundSide.GENERATOR),
    BoundBy.INFERENCE: (BoundSide.INFERENCE,),
}


def cell(tier: Tier) -> Cell:
    """What limited the trials of a tier, highlighted unless it was the service alone, with what was used up."""
    if not tier.bounds:
        return NONE
    tone = Tone.GOOD if set(tier.bounds) == {BoundBy.SERVICE} else Tone.WARN
    used_up = (measure for result in tier.results for measure in _used_up(result))
    return Cell(", ".join(tier.bounds), ", ".join(dict.fromkeys(used_up)), tone)


def notes(ladder: Ladder) -> tuple[str, ...]:
    """A sentence for each tier that was limited by something other than the service, or by one of its parts."""
    sentences = []
    for tier in ladder.tiers:
        for bound in tier.bounds:
            reasons = why(next(result for result in tier.results if result.bound_by is bound))
            if bound is BoundBy.SERVICE and not any(_used_up(result) for result in tier.results):
                continue
            if _round_trips(tier, bound):
                sentences.append(f"{ladder.load_of(tier)}: {wording.ROUND_TRIPS}.")
                continue
            # Threads were not looked at in older bundles.
            because = f" ({reasons})" if reasons else " or a single-threaded stage" * (bound is BoundBy.NEITHER)
            sentence = f"{wording.BOUNDS[bound]}{because}"
            sentences.append(f"{ladder.load_of(tier)}: {sentence}.{_missing_cpu(tier, bound)}")
    return tuple(sentences)


def why(result: TrialResult) -> str:
    """What was used up, or for `neither` all that was looked at; empty in older bundles."""
    return ", ".join(_words(check) for check in _named(result))


def _used_up(result: TrialResult) -> Iterator[str]:
    """The measures that were used up, unless the CPU of the whole side was."""
    named = [] if result.bound_by is BoundBy.NEITHER else _named(result)
    if all(check.measure is not BoundMeasure.CPU for check in named):
        yield from dict.fromkeys(check.measure for check in named)


def _named(result: TrialResult) -> list[BoundCheck]:
    """The checks that are reasons for what bound a trial."""
    checks = result.bound_checks or ()
    reached = [check for check in checks if check.share >= check.limit]
    match result.bound_by:
        case None:
            return []
        case BoundBy.NEITHER:
            return list(checks)
        case BoundBy.MACHINE:
            busy = {check.side for check in reached if check.measure is BoundMeasure.THREAD}
            return [check for check in reached if check.measure is BoundMeasure.WAITING and check.side in busy]
        case bound:
            sides = _NAMED[bound]
            return [check for check in reached if check.side in sides and check.measure is not BoundMeasure.WAITING]


def _words(check: BoundCheck) -> str:
    side, share = _SIDES[check.side], wording.share(check.share)
    match check.measure:
        case BoundMeasure.CPU:
            return f"CPU of {side} {share}"
        case BoundMeasure.QUOTA:
            return f"{side} throttled in {share} of periods"
        case BoundMeasure.THREAD:
            return f"thread {check.thread} of {side} {share}"
        case BoundMeasure.WAITING:
            return f"thread {check.thread} of {side} waited for a CPU {share}"
        case BoundMeasure.LATE:
            return f"results of {side} late {share}"


def _round_trips(tier: Tier, bound: BoundBy) -> bool:
    """Whether neither side was busy because every connection waited for its replies."""
    models = [result.load for result in tier.results]
    waited = any(isinstance(model, LoadClosed) and model.messages_per_connection is not None for model in models)
    return waited and bound is BoundBy.NEITHER


def _missing_cpu(tier: Tier, bound: BoundBy) -> str:
    """How much CPU the generator would have needed to reach the service's capacity; empty when it wasn't the limit."""
    used = tier.spread(figure("service_cpu_share"))
    own = tier.spread(figure("worker_cpu_share"))
    seconds = tier.spread(figure("worker_cpu_seconds"))
    if bound is not BoundBy.GENERATOR or used is None or own is None:
        return ""
    sentence = f" The generator used {wording.share(own.mean)} of its CPU and the service {wording.share(used.mean)}."
    if seconds is None or used.mean <= 0 or used.mean >= 1:
        return sentence
    windows = [result.figures.window_seconds for result in tier.results]
    more = 1 / used.mean
    cpus = seconds.mean / (sum(windows) / len(windows))
    return (
        f"{sentence} To use up the service's CPU at the same cost per message, the generator would have needed about"
        f" {wording.digits(more)} times its CPU: {wording.digits(cpus * more)} CPUs instead of {wording.digits(cpus)}."
    )
