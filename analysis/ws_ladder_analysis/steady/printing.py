"""Prints what pilots show as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .. import wording
from ..columns import aligned
from .pilots import WARM_UP_STARTS, Pilot, PilotedLadder, State
from .rule import Level

_HEAD = ("service", "steady from", "what it shows")


def text(found: Sequence[PilotedLadder]) -> str:
    """All ladders as text for a terminal."""
    return wording.plain("\n\n".join("\n".join(_lines(one)) for one in found) + "\n")


def _lines(ladder: PilotedLadder) -> Iterator[str]:
    figure = f": {ladder.figure.name}" if ladder.figure else ""
    yield f"{ladder.workload}/{ladder.variant}/{ladder.tier}{figure}"
    yield from aligned([_HEAD, *map(_cells, ladder.pilots)])
    yield from _conclusion(ladder)


def _cells(pilot: Pilot) -> tuple[str, str, str]:
    service = pilot.trial.id.service
    if pilot.steadiness is None or pilot.figure is None:
        known = {State.ENDED_BY_ITSELF: "none needed"}
        return service, known.get(pilot.state, "not measured"), pilot.reason
    share, levels = pilot.steadiness.share, pilot.steadiness.levels
    of_all = f"{pilot.steadiness.seconds} s"
    if share is None:
        return service, "not steady", f"{of_all}: {', '.join(_level(pilot, level) for level in levels)}"
    steady = [level for level in levels if level.start >= (pilot.start or 0)]
    return service, f"{pilot.start} s", f"{wording.share(share)} of {of_all}, at {_mean(pilot, steady)}"


def _level(pilot: Pilot, level: Level) -> str:
    return f"{_mean(pilot, [level])} for {level.seconds} s"


def _mean(pilot: Pilot, levels: Sequence[Level]) -> str:
    """The geometric mean over the seconds of these levels."""
    total = sum(level.seconds for level in levels)
    mean = math.exp(sum(level.seconds * math.log(level.mean) for level in levels) / total)
    return pilot.figure.shown(mean) if pilot.figure else wording.NOT_AVAILABLE


def _conclusion(ladder: PilotedLadder) -> Iterator[str]:
    needed, planned = ladder.needed_seconds, ladder.planned_seconds
    unsteady = [pilot.trial.id.service for pilot in ladder.pilots if pilot.state is State.NOT_STEADY]
    if unsteady:
        yield f"never steady: {', '.join(unsteady)}; no warm-up helps, and no figure of theirs may be in a claim"
    if needed is None:
        return
    if needed > planned:
        yield (
            f"warm-up of all trials: {needed:g} s ({WARM_UP_STARTS:g} times the latest start); set"
            f" warmup_seconds: {needed:g}, the plan has {planned:g}"
        )
    else:
        yield f"warm-up of all trials: {needed:g} s, as the plan has it"


def as_json(run: str, found: Sequence[PilotedLadder]) -> dict[str, object]:
    """All ladders as a JSON value; times are in seconds, means in messages per second or nanoseconds."""
    return {
        "run": run,
        "ladders": [
            {
                "workload": one.workload,
                "variant": one.variant,
                "tier": one.tier,
                "figure": one.figure.name if one.figure else None,
                "planned_warmup_seconds": one.planned_seconds,
                "warmup_seconds": one.needed_seconds,
                "pilots": [_pilot(pilot) for pilot in one.pilots],
            }
            for one in found
        ],
    }


def _pilot(pilot: Pilot) -> dict[str, object]:
    found = pilot.steadiness
    return {
        "service": pilot.trial.id.service,
        "trial": pilot.trial.name,
        "state": pilot.state.value,
        "reason": pilot.reason or None,
        "seconds": found.seconds if found else None,
        "start_seconds": pilot.start,
        "share": found.share if found else None,
        "levels": [
            {"start_seconds": level.start, "seconds": level.seconds, "mean": level.mean}
            for level in (found.levels if found else ())
        ],
    }
