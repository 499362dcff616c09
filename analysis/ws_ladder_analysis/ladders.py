"""Groups trials into ladders of tiers, each tier with its repeats. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TypeVar

from bench_format import histogram
from bench_format.histogram import Values
from bench_format.meaning import is_valid
from bench_format.schemas import BoundBy, LoadSessions, Objective, TrialResult, WirePlan, Witness

from . import wording
from .busy import Medians, work_medians
from .error_budget import Errors, budget_of
from .load import Bundle, Trial
from .statistics import Spread, spread

# Reads one figure of a trial; `None` where the trial has none.
Getter = Callable[[Trial], float | None]
Read = TypeVar("Read")


@dataclass(frozen=True)
class Percentile:
    """Reads a percentile (`at`, 0 to 100) of a trial's histogram, in nanoseconds. Over several trials it is read from
    their merged histogram: percentiles are never averaged."""

    histogram: str
    at: float

    def __call__(self, trial: Trial) -> float | None:
        """The percentile of one trial; `None` with too few samples."""
        values = trial.histograms.get(self.histogram)
        return None if values is None else histogram.percentile_ns(values, self.at)


@dataclass(frozen=True)
class Tier:
    """One load level of a ladder with its trials."""

    connections: int
    trials: tuple[Trial, ...]
    # The speed of the machine over the whole run, to which these trials are compared.
    work_medians: Medians = field(default_factory=dict)

    @cached_property
    def valid(self) -> tuple[Trial, ...]:
        """The tier's valid trials."""
        return tuple(trial for trial in self.trials if trial.valid)

    @cached_property
    def results(self) -> tuple[TrialResult, ...]:
        """The results of the valid trials."""
        return tuple(trial.result for trial in self.valid if trial.result is not None)

    def spread(self, getter: Getter) -> Spread | None:
        """Mean over processes and range of a figure over the valid trials; `None` when a trial has no such figure. A
        percentile is that of all their values together; it has a range where each trial has enough samples."""
        if isinstance(getter, Percentile):
            return self._percentile(getter)
        return spread(self._each_process(getter))

    def _percentile(self, getter: Percentile) -> Spread | None:
        values = self.histograms.get(getter.histogram)
        merged = None if values is None else histogram.percentile_ns(values, getter.at)
        if merged is None:
            return None
        each = [getter(trial) for trial in self.valid]
        known = [value for value in each if value is not None]
        if len(known) < len(each):
            return Spread(merged, merged, merged, 1)
        return Spread(merged, min(known), max(known), len(known))

    def by_process(self, getter: Getter) -> dict[int, list[float]]:
        """The figure's values in the valid trials, keyed by service process; without those that lack it."""
        return _known(self._each_process(getter))

    def histograms_by_process(self, name: str) -> dict[int, Values]:
        """A histogram of the valid trials, merged for each service process that has it."""
        known = _known(self._each_process(lambda trial: trial.histograms.get(name)))
        return {process: histogram.merge(parts) for process, parts in known.items()}

    def _each_process(self, read: Callable[[Trial], Read]) -> dict[int, list[Read]]:
        """What is read from each valid trial, keyed by service process."""
        processes: dict[int, list[Read]] = {}
        for trial in self.valid:
            processes.setdefault(trial.id.process, []).append(read(trial))
        return processes

    @cached_property
    def bounds(self) -> tuple[BoundBy, ...]:
        """What limited the valid trials, without duplicates."""
        return tuple(dict.fromkeys(result.bound_by for result in self.results if result.bound_by is not None))

    @property
    def at_least(self) -> bool:
        """Whether rates are lower bounds, because the generator limited at least one trial."""
        return BoundBy.GENERATOR in self.bounds

    @cached_property
    def witnesses(self) -> tuple[Witness, ...]:
        """The witnesses of the valid trials, without duplicates."""
        return tuple(dict.fromkeys(result.witness for result in self.results))

    @cached_property
    def verdicts(self) -> tuple[bool, ...]:
        """Verdicts of the valid trials that have one."""
        return tuple(result.verdict.passed for result in self.results if result.verdict is not None)

    @cached_property
    def errors(self) -> tuple[Errors, float] | None:
        """The errors of all valid trials together with their budget; `None` without a budget that counts can show."""
        judged = [one for result in self.results if result.verdict for one in result.verdict.objectives]
        budgets = [one.budget for one in judged if one.budget is not None]
        allowed = [budget_of(one.objective) for one in judged if one.budget is not None]
        if not budgets or allowed[0] is None:
            return None
        return Errors.of(budgets), allowed[0]

    @cached_property
    def histograms(self) -> dict[str, Values]:
        """The histograms of the valid trials, merged by name."""
        names = dict.fromkeys(name for trial in self.valid for name in trial.histograms)
        return {
            name: histogram.merge(trial.histograms[name] for trial in self.valid if name in trial.histograms)
            for name in names
        }


def _known(processes: Mapping[int, Sequence[Read | None]]) -> dict[int, list[Read]]:
    """The same without what is missing, and without processes that have nothing."""
    known = {process: [one for one in each if one is not None] for process, each in processes.items()}
    return {process: each for process, each in known.items() if each}


@dataclass(frozen=True)
class Ladder:
    """Tiers of one workload in one variant against one service."""

    service: str
    workload: str
    variant: str
    tiers: tuple[Tier, ...]

    @property
    def name(self) -> str:
        """Workload and variant; the variant is left out when it is `standard`."""
        return self.workload if self.variant == "standard" else f"{self.workload} · {self.variant}"

    @property
    def is_sessions(self) -> bool:
        """Whether the load is sessions at their own pace."""
        return self.sample is not None and isinstance(self.sample.load, LoadSessions)

    @property
    def unit(self) -> str:
        """What a tier counts: `sessions` or `connections`."""
        return "sessions" if self.is_sessions else "connections"

    def load_of(self, tier: Tier) -> str:
        """The tier's load as text, such as `1 session` or `1 000 connections`."""
        return wording.number_of(tier.connections, self.unit)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in climbing order."""
        return tuple(trial for tier in self.tiers for trial in tier.trials)

    @cached_property
    def sample(self) -> TrialResult | None:
        """One result, valid if there is one, from which to read what all trials of the ladder share."""
        results = [trial.result for trial in self.trials if trial.result is not None]
        return next((result for result in results if is_valid(result.validity)), results[0] if results else None)


def ladders(bundle: Bundle) -> tuple[Ladder, ...]:
    """The ladders of a run in the plan's order; ladders of one workload are in the plan's order of services."""
    order = {(ladder.workload, ladder.variant): place for place, ladder in enumerate(bundle.run.plan.ladders)}
    services = {name: place for place, name in enumerate(bundle.run.plan.services)}

    def key(trial: Trial) -> tuple[int, str, str, int, str]:
        one = trial.id
        place = order.get((one.workload, one.variant), len(order))
        return place, one.workload, one.variant, services.get(one.service, len(services)), one.service

    grouped = groupby(sorted(bundle.trials, key=key), key=key)
    medians = work_medians(trial.result for trial in bundle.trials if trial.result is not None)
    return tuple(_ladder(tuple(trials), medians) for _, trials in grouped)


def _ladder(trials: tuple[Trial, ...], medians: Medians) -> Ladder:
    first = trials[0].id
    ordered = sorted(trials, key=lambda trial: astuple(trial.id))
    by_tier = groupby(ordered, key=lambda trial: trial.id.tier)
    tiers = tuple(Tier(level, tuple(group), medians) for level, group in by_tier)
    return Ladder(first.service, first.workload, first.variant, tiers)


def objectives(plan: WirePlan, workload: str, variant: str) -> tuple[Objective, ...]:
    """The plan's objectives for a workload and variant."""
    return tuple(
        objective
        for ladder in plan.ladders
        if (ladder.workload, ladder.variant) == (workload, variant)
        for objective in ladder.objectives
    )


def planned_window(plan: WirePlan, trial: Trial) -> float:
    """The planned length of a trial's window in seconds; trials of searches and pilots have their own."""
    own_window = trial.entry.search or trial.entry.pilot
    if own_window is not None:
        return own_window.window_seconds
    of = (trial.id.workload, trial.id.variant)
    own = [ladder.window_seconds for ladder in plan.ladders if (ladder.workload, ladder.variant) == of]
    return next((seconds for seconds in own if seconds is not None), plan.window_seconds)


# Figures that are unknown without a witness.
_WITNESSED = {"delivered_per_second", "failed_share"}


def figure(name: str) -> Getter:
    """Returns a getter for a field of `figures`. Without a witness, what was delivered and what failed is unknown."""

    def read(trial: Trial) -> float | None:
        result = trial.result
        if result is None:
            return None
        if name in _WITNESSED and result.witness is Witness.NONE and result.messages.due > 0:
            return None
        value: float | None = getattr(result.figures, name)
        return value

    return read
