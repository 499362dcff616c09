"""`run.json`: what a run was told, and how far it is (`run.rs`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .environment import Environment
from .plan import Objective, Plan
from .result import BoundBy, TrialId, Validity
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


class SearchStep(StrEnum):
    """A part of a search."""

    BOUNDS = "bounds"
    CONFIRM = "confirm"


@dataclass(frozen=True)
class SearchTrial:
    """What a search wants a trial for."""

    step: SearchStep
    window_seconds: float
    service_ended: bool = False


@dataclass(frozen=True)
class TrialEntry:
    """One trial of the run."""

    trial: TrialId
    state: TrialState
    search: SearchTrial | None = None


class Edge(StrEnum):
    """What failing an objective looks like."""

    LATENCY = "latency"
    ERRORS = "errors"


@dataclass(frozen=True)
class GoalBounds:
    """The relevant bounds of one objective."""

    objective: Objective
    lower: int | None
    upper: int | None
    conditional_throughput: float | None


@dataclass(frozen=True)
class SearchFound:
    """What a search found: confirmed, borderline, first solid fail."""

    goals: list[GoalBounds]
    conditional_throughput: float | None
    confirmed: int | None
    borderline: list[int]
    first_solid_fail: int | None
    at_least: bool
    gates: list[Objective]
    edge: Edge | None
    bound_by: BoundBy | None
    generator_limit: int | None
    given_up_at: int | None


@dataclass(frozen=True)
class Search:
    """One search: for a service in a ladder."""

    service: str
    workload: str
    variant: str
    found: SearchFound | None


@dataclass(frozen=True)
class Outside:
    """A service that somebody else started."""

    url: str
    metrics_address: str


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
    searches: list[Search] = field(default_factory=list)
    outside: Outside | None = None
