"""What counted errors show about a bound on their share, computed with scipy and independent of the judge.

A budget is met when the exact upper bound of the share is within it, missed when the lower one is above it (one-sided,
95 %; Clopper & Pearson 1934), and otherwise not shown. Errors of one connection come together: where one has several,
connections with errors are the events, each as large as the largest (Korn & Graubard 1998).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench_format.schemas import ErrorBudget, Objective, Shown
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Errors:
    """Errors among replies, over one trial or several."""

    failures: int
    messages: int
    # Connections with a failure, and the most failures of one; `None` if they aren't counted by connection.
    failing_connections: int | None = None
    most_failures: int | None = None

    @classmethod
    def of(cls, budgets: Iterable[ErrorBudget]) -> Errors:
        """The sum over trials, whose connections are different ones."""
        each = list(budgets)
        connections = [one.failing_connections for one in each]
        most = [one.most_failures for one in each]
        return cls(
            sum(one.failures for one in each),
            sum(one.messages for one in each),
            None if None in connections else sum(one for one in connections if one is not None),
            None if None in most else max((one for one in most if one is not None), default=0),
        )

    @property
    def _clusters(self) -> tuple[int, int] | None:
        if self.failing_connections is None or self.most_failures is None or self.most_failures <= 1:
            return None
        return self.failing_connections, self.most_failures

    @property
    def upper_bound(self) -> float:
        """The share is at most this, 0 to 1."""
        if self._clusters is not None:
            connections, most = self._clusters
            return min(1.0, float(stats.gamma.ppf(CONFIDENCE, connections + 1)) * most / self.messages)
        if self.failures >= self.messages:
            return 1.0
        return float(stats.beta.ppf(CONFIDENCE, self.failures + 1, self.messages - self.failures))

    @property
    def lower_bound(self) -> float:
        """The share is at least this, 0 to 1."""
        events, chances = self.failures, self.messages
        if self._clusters is not None:
            events, chances = self._clusters[0], self.messages // self._clusters[1]
        if events == 0:
            return 0.0
        return float(stats.beta.ppf(1 - CONFIDENCE, events, max(0, chances - events) + 1))

    def shown(self, budget: float) -> Shown:
        """What these errors show about a share of at most `budget`."""
        if self.upper_bound <= budget:
            return Shown.MET
        return Shown.MISSED if self.lower_bound > budget else Shown.NOT_SHOWN


def budget_of(objective: Objective) -> float | None:
    """The budget of an objective on the error share that counts can show; `None` for others and for a budget of 0."""
    most = objective.at_most
    return most if objective.figure == "error_share" and most is not None and 0 < most < 1 else None
