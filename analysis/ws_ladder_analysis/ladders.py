"""Trials grouped as people read them: ladders of tiers, each tier with its repeats. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import groupby

from bench_format import histogram
from bench_format.histogram import Values
from bench_format.meaning import is_valid
from bench_format.schemas import BoundBy, LoadSessions, Objective, TrialResult, WirePlan, Witness

from . import wording
from .load import Bundle, Trial
from .statistics import Spread, spread

# Reads one figure off a trial; `None` where the trial has none.
Getter = Callable[[Trial], float | None]


@dataclass(frozen=True)
class Tier:
    """One load level of a ladder with its trials."""

    connections: int
    trials: tuple[Trial, ...]

    @cached_property
    def valid(self) -> tuple[Trial, ...]:
        """The trials that may be used."""
        return tuple(trial for trial in self.trials if trial.valid)

    @cached_property
    def results(self) -> tuple[TrialResult, ...]:
        """Results of the valid trials."""
        return tuple(trial.result for trial in self.valid if trial.result is not None)

    def spread(self, getter: Getter) -> Spread | None:
        """A figure over the valid trials."""
        return spread([getter(trial) for trial in self.valid])

    @cached_property
    def bounds(self) -> tuple[BoundBy, ...]:
        """What limited the valid trials, each once."""
        return tuple(dict.fromkeys(result.bound_by for result in self.results if result.bound_by is not None))

    @property
    def at_least(self) -> bool:
        """Whether rates are lower bounds: in some trial it was the generator that gave out."""
        return BoundBy.GENERATOR in self.bounds

    @cached_property
    def witnesses(self) -> tuple[Witness, ...]:
        """Who says that messages arrived."""
        return tuple(dict.fromkeys(result.witness for result in self.results))

    @cached_property
    def verdicts(self) -> tuple[bool, ...]:
        """Verdicts of the valid trials that have one."""
        return tuple(result.verdict.passed for result in self.results if result.verdict is not None)

    @cached_property
    def histograms(self) -> dict[str, Values]:
        """Histograms of the valid trials, merged."""
        names = dict.fromkeys(name for trial in self.valid for name in trial.histograms)
        return {
            name: histogram.merge(trial.histograms[name] for trial in self.valid if name in trial.histograms)
            for name in names
        }


@dataclass(frozen=True)
class Ladder:
    """Tiers of one workload in one variant against one service."""

    service: str
    workload: str
    variant: str
    tiers: tuple[Tier, ...]

    @property
    def name(self) -> str:
        """What tells it from other ladders of the service."""
        return self.workload if self.variant == "standard" else f"{self.workload} · {self.variant}"

    @property
    def is_sessions(self) -> bool:
        """Whether its load is sessions at their own pace."""
        return self.sample is not None and isinstance(self.sample.load, LoadSessions)

    @property
    def unit(self) -> str:
        """What a tier counts."""
        return "sessions" if self.is_sessions else "connections"

    def load_of(self, tier: Tier) -> str:
        """`1 session`, `1 000 connections`."""
        return wording.number_of(tier.connections, self.unit)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in climbing order."""
        return tuple(trial for tier in self.tiers for trial in tier.trials)

    @cached_property
    def sample(self) -> TrialResult | None:
        """Any result, a valid one first: for what all trials of the ladder share."""
        results = [trial.result for trial in self.trials if trial.result is not None]
        return next((result for result in results if is_valid(result.validity)), results[0] if results else None)


def ladders(bundle: Bundle) -> tuple[Ladder, ...]:
    """The ladders of a run, in the plan's order, services side by side within each."""
    order = {(ladder.workload, ladder.variant): place for place, ladder in enumerate(bundle.run.plan.ladders)}
    services = {name: place for place, name in enumerate(bundle.run.plan.services)}

    def key(trial: Trial) -> tuple[int, str, str, int, str]:
        one = trial.id
        place = order.get((one.workload, one.variant), len(order))
        return place, one.workload, one.variant, services.get(one.service, len(services)), one.service

    grouped = groupby(sorted(bundle.trials, key=key), key=key)
    return tuple(_ladder(tuple(trials)) for _, trials in grouped)


def _ladder(trials: tuple[Trial, ...]) -> Ladder:
    first = trials[0].id
    ordered = sorted(trials, key=lambda trial: astuple(trial.id))
    tiers = tuple(Tier(level, tuple(group)) for level, group in groupby(ordered, key=lambda trial: trial.id.tier))
    return Ladder(first.service, first.workload, first.variant, tiers)


def objectives(plan: WirePlan, workload: str, variant: str) -> tuple[Objective, ...]:
    """What trials of a ladder must reach."""
    return tuple(
        objective
        for ladder in plan.ladders
        if (ladder.workload, ladder.variant) == (workload, variant)
        for objective in ladder.objectives
    )


def planned_window(plan: WirePlan, trial: Trial) -> float:
    """Seconds of a trial's window as it was meant: a search chooses those of its own trials, the plan all others."""
    if trial.entry.search is not None:
        return trial.entry.search.window_seconds
    of = (trial.id.workload, trial.id.variant)
    own = [ladder.window_seconds for ladder in plan.ladders if (ladder.workload, ladder.variant) == of]
    return next((seconds for seconds in own if seconds is not None), plan.window_seconds)


def percentile(name: str, at: float) -> Getter:
    """Reads a percentile of a histogram, in nanoseconds."""

    def read(trial: Trial) -> float | None:
        values = trial.histograms.get(name)
        return None if values is None else histogram.percentile_ns(values, at)

    return read


# Figures that only a witness can give.
_WITNESSED = {"delivered_per_second", "failed_share"}


def figure(name: str) -> Getter:
    """Reads a field of `figures`. Without a witness nobody knows what was delivered or what failed."""

    def read(trial: Trial) -> float | None:
        result = trial.result
        if result is None:
            return None
        if name in _WITNESSED and result.witness is Witness.NONE and result.messages.due > 0:
            return None
        value: float | None = getattr(result.figures, name)
        return value

    return read
