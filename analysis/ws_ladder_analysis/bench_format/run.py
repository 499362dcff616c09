"""`run.json`: what a run was told, and how far it is (`run.rs`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .environment import Environment
from .plan import Plan
from .result import TrialId, Validity
from .wire import FormatError, decode, tagged


class RunState(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    SUPERSEDED = "superseded"


@dataclass(frozen=True)
class Pending:
    """Not started."""


@dataclass(frozen=True)
class Started:
    """Started; after a crash it is run again."""

    attempt: int


@dataclass(frozen=True)
class Finished:
    """`result.json` is there."""

    validity: Validity
    passed: bool | None


@dataclass(frozen=True)
class Failed:
    """It could not be measured."""

    reason: str


@dataclass(frozen=True)
class TrialState:
    """How a trial stands."""

    now: Pending | Started | Finished | Failed

    @classmethod
    def from_wire(cls, value: object, where: str) -> TrialState:
        """From `{"state": "finished", …}` and its like."""
        name, fields = tagged(value, "state", where)
        kinds: dict[str, type[Pending | Started | Finished | Failed]] = {
            "pending": Pending,
            "started": Started,
            "finished": Finished,
            "failed": Failed,
        }
        if name not in kinds:
            raise FormatError(f"{where}.state is {name!r}; known are {', '.join(kinds)}")
        return cls(decode(kinds[name], fields, where))


@dataclass(frozen=True)
class TrialEntry:
    """One trial of the run."""

    trial: TrialId
    state: TrialState


@dataclass(frozen=True)
class Run:
    """A run and the state of each of its trials."""

    schema: int
    id: str
    started_at: str
    finished_at: str | None
    state: RunState
    plan: Plan
    command: str
    version: str
    commit: str
    versions: dict[str, str]
    machines: list[Environment]
    cpu_roles: dict[str, str]
    trials: list[TrialEntry]
