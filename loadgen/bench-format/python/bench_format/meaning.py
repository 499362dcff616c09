"""Rules on the types of `schemas` that several programs need: names, equations, validity, objectives."""

from __future__ import annotations

from .schemas import (
    Books,
    Equation,
    Load,
    LoadClosed,
    LoadReconnect,
    Objective,
    Reason,
    ReasonKind,
    TrialId,
    Validity,
    ValidityInvalid,
)

# Reasons that a busy machine may cause. Books must balance on any machine.
OF_BUSY_MACHINES = frozenset(
    {
        ReasonKind.START_SKEW,
        ReasonKind.GENERATOR_LATE,
        ReasonKind.GENERATOR_CPU,
        ReasonKind.READING_LATE,
        ReasonKind.SEND_RATE,
        ReasonKind.CLOCK_STEP,
    }
)
# Sums of sequence numbers wrap at 2^64, as in the programs that count them.
WRAP = 2**64


def trial_name(trial: TrialId) -> str:
    """Name of a trial, which is also its folder inside `trials/`."""
    return f"{trial.service}/{trial.workload}/{trial.variant}/{trial.tier}-p{trial.process}-r{trial.repeat}"


def is_scheduled(load: Load) -> bool:
    """Whether a schedule fixes when each message is due."""
    return not isinstance(load, LoadClosed | LoadReconnect)


def summed(equation: Equation) -> int:
    """Sum of the terms of the right side, modulo 2^64."""
    return sum(count for _, count in equation.terms) % WRAP


def holds(equation: Equation) -> bool:
    """Whether both sides are equal and the right side is the sum of its terms."""
    return equation.left == equation.right == summed(equation)


def balance(books: Books) -> bool:
    """Whether every equation that is not a remark holds, for the trial and for each connection."""
    per_connection = books.connections is None or books.connections.mismatched == 0
    return per_connection and all(equation.is_remark or holds(equation) for equation in books.equations)


def reasons(validity: Validity) -> list[Reason]:
    """Why a trial may not be used; empty for a valid one."""
    return validity.reasons if isinstance(validity, ValidityInvalid) else []


def is_valid(validity: Validity) -> bool:
    """Whether the result of a trial may be used."""
    return not isinstance(validity, ValidityInvalid)


def meets(objective: Objective, seen: float | None) -> bool:
    """Whether a figure meets an objective; `None`, a figure that could not be computed, doesn't."""
    if seen is None:
        return False
    at_most, at_least = objective.at_most, objective.at_least
    return (at_most is None or seen <= at_most) and (at_least is None or seen >= at_least)
