"""The equations that make a number publishable (`books.rs`)."""

from __future__ import annotations

from dataclasses import dataclass

# Sums of sequence numbers wrap, as in the programs that count them.
WRAP = 2**64


@dataclass(frozen=True)
class Equation:
    """One equation with both sides as counted."""

    name: str
    left: int
    right: int
    terms: list[tuple[str, int]]

    @property
    def holds(self) -> bool:
        """Whether both sides are equal and the right one is the sum of its terms."""
        return self.left == self.right == self.summed

    @property
    def summed(self) -> int:
        """The terms of the right side, added again."""
        return sum(count for _, count in self.terms) % WRAP


@dataclass(frozen=True)
class ConnectionCheck:
    """The per-connection comparison."""

    compared: int
    mismatched: int
    examples: list[str]


@dataclass(frozen=True)
class Books:
    """All equations of a trial."""

    equations: list[Equation]
    connections: ConnectionCheck | None

    @property
    def balance(self) -> bool:
        """Whether every equation holds, for the trial and for each connection."""
        per_connection = self.connections is None or self.connections.mismatched == 0
        return per_connection and all(equation.holds for equation in self.equations)
