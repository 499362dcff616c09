"""What the pilots of a bundle show, ladder by ladder, and the warm-up that follows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from bench_format.meaning import reasons
from bench_format.schemas import TrialStateCrashed, TrialStateFailed, TrialStateFinished, WirePlan

from .. import wording
from ..load import Bundle, Trial
from .rule import FEWEST_SECONDS, Steadiness, steadiness
from .seconds import Figure, length, seconds

# The warm-up in latest starts: the next process may take longer than the one that was looked at.
WARM_UP_STARTS = 1.5


class State(StrEnum):
    """What a pilot shows."""

    STEADY = "steady"
    NOT_STEADY = "not-steady"
    # The load was over before the planned window, as that of a connection storm. Such a load has no warm-up.
    ENDED_BY_ITSELF = "ended-by-itself"
    NOT_MEASURED = "not-measured"


@dataclass(frozen=True)
class Pilot:
    """The last, that is longest, pilot of a service on a ladder."""

    trial: Trial
    state: State
    # `None` if nothing was measured by the second.
    figure: Figure | None = None
    steadiness: Steadiness | None = None
    # Why nothing can be said; empty otherwise.
    reason: str = ""

    @property
    def start(self) -> int | None:
        """The second in which steady state begins; `None` without one."""
        return self.steadiness.start if self.steadiness is not None else None


@dataclass(frozen=True)
class PilotedLadder:
    """The pilots of all services on one ladder."""

    workload: str
    variant: str
    tier: int
    pilots: tuple[Pilot, ...]
    # The warm-up of the plan, without the ramp before it.
    planned_seconds: float

    @property
    def figure(self) -> Figure | None:
        """What was looked at; `None` if no pilot was measured."""
        return next((pilot.figure for pilot in self.pilots if pilot.figure is not None), None)

    @property
    def needed_seconds(self) -> float | None:
        """The warm-up that all trials should have, of every service alike; `None` if no service is steady."""
        starts = [pilot.start for pilot in self.pilots if pilot.start is not None]
        return max(WARM_UP_STARTS * max(starts), self.planned_seconds) if starts else None

    @property
    def is_sufficient(self) -> bool:
        """Whether everything is steady and the plan's warm-up is long enough."""
        longer = self.needed_seconds is not None and self.needed_seconds > self.planned_seconds
        return not longer and all(pilot.state is not State.NOT_STEADY for pilot in self.pilots)


def ladders(bundle: Bundle) -> tuple[PilotedLadder, ...]:
    """The ladders with pilots, in the order in which they were made; empty for a bundle without pilots."""
    plan = bundle.run.plan
    order = {(ladder.workload, ladder.variant): place for place, ladder in enumerate(plan.ladders)}

    def key(trial: Trial) -> tuple[int, str, str]:
        names = (trial.id.workload, trial.id.variant)
        return order.get(names, len(order)), *names

    found = sorted((trial for trial in bundle.trials if trial.entry.pilot is not None), key=key)
    return tuple(_ladder(plan, tuple(trials)) for _, trials in groupby(found, key=key))


def _ladder(plan: WirePlan, trials: tuple[Trial, ...]) -> PilotedLadder:
    longest: dict[str, Trial] = {}
    for trial in trials:
        known = longest.get(trial.id.service)
        if known is None or trial.id.process > known.id.process:
            longest[trial.id.service] = trial
    one = trials[0].id
    own = [ladder for ladder in plan.ladders if (ladder.workload, ladder.variant) == (one.workload, one.variant)]
    warmups = [ladder.warmup_seconds for ladder in own if ladder.warmup_seconds is not None]
    planned = warmups[0] if warmups else plan.warmup_seconds
    return PilotedLadder(one.workload, one.variant, one.tier, tuple(map(pilot, longest.values())), planned)


def pilot(trial: Trial) -> Pilot:
    """What one trial shows."""
    state = trial.entry.state
    if isinstance(state, TrialStateCrashed | TrialStateFailed):
        return Pilot(trial, State.NOT_MEASURED, reason=state.reason)
    if trial.result is None or not isinstance(state, TrialStateFinished):
        return Pilot(trial, State.NOT_MEASURED, reason="it has not ended")
    if not trial.valid:
        kinds = dict.fromkeys(wording.REASONS[reason.kind] for reason in reasons(trial.result.validity))
        return Pilot(trial, State.NOT_MEASURED, reason=f"invalid: {', '.join(kinds)}")
    measured, planned = length(trial), trial.entry.pilot.window_seconds if trial.entry.pilot else 0
    if measured < int(planned):
        return Pilot(trial, State.ENDED_BY_ITSELF, reason=f"its load was over after {measured} s")
    values = seconds(trial)
    if values is None or len(values.values) < FEWEST_SECONDS:
        return Pilot(trial, State.NOT_MEASURED, reason="its workers recorded nothing by the second")
    found = steadiness(values.values)
    return Pilot(trial, State.NOT_STEADY if found.start is None else State.STEADY, values.figure, found)
