"""Why two bundles, or two ladders of them, can't be compared. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .. import conditions
from ..ladders import Ladder, Tier
from ..load import Bundle
from .sides import Side


def of_bundles(left: Bundle, right: Bundle) -> tuple[str, ...]:
    """Why no figure of the one may stand beside one of the other: unusable files, another machine, other limits."""
    found = [f"{one.run.id}: {why}" for one in _distinct(left, right) for why in conditions.why_unusable(one)]
    if left is right:
        return tuple(found)
    found += _machines(left, right)
    found += [f"other limits: {one}" for one in _differences(conditions.limits(left.run), conditions.limits(right.run))]
    return tuple(found)


def _distinct(left: Bundle, right: Bundle) -> tuple[Bundle, ...]:
    return (left,) if left is right else (left, right)


def _machines(left: Bundle, right: Bundle) -> list[str]:
    ours, theirs = left.run.machines, right.run.machines
    if len(ours) != len(theirs):
        return [f"another machine: {len(ours)} took part in {left.run.id}, {len(theirs)} in {right.run.id}"]
    return [
        f"another machine: {difference}"
        for one, other in zip(ours, theirs, strict=True)
        for difference in _differences(conditions.machine(one), conditions.machine(other))
    ]


def of_ladders(left: Side, right: Side, ladder: Ladder) -> tuple[str, ...]:
    """Why a ladder of both plans can't be compared: the plans say different things about it."""
    names = (ladder.workload, ladder.variant)
    ours = conditions.ladder(left.bundle.run.plan, *names)
    theirs = conditions.ladder(right.bundle.run.plan, *names)
    if ours is None or theirs is None:
        plan = (left if ours is None else right).bundle.run
        return (f"another plan: that of {plan.id} has no such ladder",)
    return tuple(f"another plan: {one}" for one in _differences(ours, theirs))


def of_tiers(tier: Tier, against: Tier) -> tuple[str, ...]:
    """Why two tiers can't be compared: another generator made their load."""
    return tuple(
        f"another generator: {one}" for one in _differences(conditions.generator(tier), conditions.generator(against))
    )


def _differences(left: conditions.Conditions, right: conditions.Conditions) -> Sequence[str]:
    return conditions.differences(left, right)
