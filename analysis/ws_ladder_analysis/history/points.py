"""Reads a folder of bundles into series: one point for each run, figure, machine and plan.

Input: `<folder>/*/run.json` with the results of the trials. Runs that can't be used are listed with their reasons.
Trials of a search are in no series, because a search chooses other loads each time, and neither are pilots, which have
no warm-up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench_format.meaning import is_scheduled

from .. import conditions
from ..compare import FIGURES, Compared
from ..ladders import Ladder, Tier, ladders
from ..load import Bundle, BundleError, read_bundle


@dataclass(frozen=True)
class Point:
    """The value of a figure in one run."""

    run: str
    # RFC 3339.
    started_at: str
    # Commit of the harness; empty when it ran outside a checkout.
    commit: str
    # The mean over the run's processes, or the percentile of all its values.
    value: float


@dataclass(frozen=True)
class Place:
    """What all points of a series have in common."""

    machine: str
    plan: str
    # A hash of all that the plan says about a trial of this ladder. When it changes, another series begins.
    definition: str
    service: str
    workload: str
    variant: str
    tier: int
    figure: str

    @property
    def name(self) -> str:
        """Service, workload, variant and tier, as in the name of a trial."""
        return f"{self.service}/{self.workload}/{self.variant}/{self.tier}"


@dataclass(frozen=True)
class Series:
    """The points of one figure in the order of their runs."""

    place: Place
    figure: Compared
    points: tuple[Point, ...]

    @property
    def values(self) -> list[float]:
        """The values of the points, in the order of their runs."""
        return [point.value for point in self.points]


@dataclass
class Folder:
    """All series of a folder, and the reasons why runs or figures are in none of them."""

    series: tuple[Series, ...]
    # Number of bundles, whether they are in a series or not.
    runs: int
    left_out: list[str] = field(default_factory=list)


def read_folder(folder: Path, host: bool = True) -> Folder:
    """Reads every bundle in `folder`. `host=False` treats all machines of one kind as one machine.

    Raises `BundleError` when there is none, or when one can't be read.
    """
    if (folder / "run.json").is_file():
        raise BundleError(f"{folder} is one bundle; name the folder that holds the bundles, such as results")
    files = sorted(folder.glob("*/run.json"))
    if not files:
        raise BundleError(f"{folder} holds no bundles: no folder in it has a run.json")
    found: dict[Place, tuple[Compared, list[tuple[datetime, Point]]]] = {}
    left_out: list[str] = []
    for file in files:
        bundle = read_bundle(file.parent)
        reasons = conditions.why_unusable(bundle)
        left_out += [f"{bundle.run.id}: {why}" for why in reasons]
        if reasons:
            continue
        for place, figure, value in _figures(bundle, host, left_out):
            point = Point(bundle.run.id, bundle.run.started_at, bundle.run.commit, value)
            found.setdefault(place, (figure, []))[1].append((_started_at(bundle), point))
    series = [
        Series(place, figure, tuple(point for _, point in sorted(points, key=lambda one: (one[0], one[1].run))))
        for place, (figure, points) in found.items()
    ]
    return Folder(tuple(series), len(files), list(dict.fromkeys(left_out)))


def _started_at(bundle: Bundle) -> datetime:
    try:
        moment = datetime.fromisoformat(bundle.run.started_at)
    except ValueError as error:
        raise BundleError(
            f"{bundle.folder / 'run.json'}: started_at is not an RFC 3339 time: {bundle.run.started_at}"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _figures(bundle: Bundle, host: bool, left_out: list[str]) -> Iterator[tuple[Place, Compared, float]]:
    run = bundle.run
    others = {trial.name for trial in bundle.trials if not trial.of_tier}
    machine = conditions.machine_name(run, host)
    for ladder in ladders(bundle):
        if any(trial.name in others for trial in ladder.trials):
            # A search chooses other loads each time, and pilots are cold: they form no series.
            continue
        definition = _definition(bundle, ladder)
        for tier in ladder.tiers:
            for figure, value in _of_tier(bundle, ladder, tier, left_out):
                names = (ladder.service, ladder.workload, ladder.variant, tier.connections, figure.name)
                yield Place(machine, run.plan.name, definition, *names), figure, value


def _of_tier(bundle: Bundle, ladder: Ladder, tier: Tier, left_out: list[str]) -> Iterator[tuple[Compared, float]]:
    scheduled = any(is_scheduled(result.load) for result in tier.results)
    for one in FIGURES:
        found = None if one.is_rate and scheduled else tier.spread(one.getter)
        if found is None or found.mean <= 0:
            continue
        if one.is_rate and tier.at_least:
            left_out.append(f"{bundle.run.id}: {one.name} of {ladder.service}, {ladder.name}: the generator bound it")
            continue
        yield one, found.mean


def _definition(bundle: Bundle, ladder: Ladder) -> str:
    """A short hash of the limits and of what the plan says about a ladder's trials."""
    own = conditions.ladder(bundle.run.plan, ladder.workload, ladder.variant) or {}
    whole = json.dumps([dict(own), dict(conditions.limits(bundle.run))], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:8]
