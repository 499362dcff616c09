"""The two sides of a comparison: a service of a bundle each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ladders import Ladder, ladders
from ..load import Bundle


class ComparisonError(Exception):
    """The two can't be compared; the text says why and what to do. There may be several reasons, one a line."""


@dataclass(frozen=True)
class Side:
    """One service of one bundle, and its ladders."""

    # `A` or `B`.
    letter: str
    bundle: Bundle
    service: str
    ladders: tuple[Ladder, ...]

    @property
    def description(self) -> str:
        """The service, its version, the run and the commit."""
        run = self.bundle.run
        version = run.versions.get(self.service, "")
        parts = [
            f"{self.service} {version}".strip(),
            f"run {run.id}",
            f"commit {run.commit[:12]}" if run.commit else "",
        ]
        return ", ".join(filter(None, parts))


def sides(bundles: Sequence[Bundle], services: Sequence[str] = ()) -> tuple[tuple[Side, Side], ...]:
    """The pairs of sides: the services named, or each service that both bundles have, or the only one of each.

    Of a single bundle, two services are compared. Raises `ComparisonError` when it isn't clear what to compare.
    """
    left, right = bundles[0], bundles[-1]
    if left is right and left.run.comparison is not None:
        raise ComparisonError(
            f"the pairs of {left.run.id} were measured until they decided, so that intervals for a fixed number don't"
            f" hold; ladder compare {left.run.id} without --service prints what they show"
        )
    if services:
        if len(services) != 2:
            raise ComparisonError("name both services: --service of A and --service of B, in this order")
        chosen = [(services[0], services[1])]
    else:
        chosen = _matching(left, right)
    return tuple((_side("A", left, one), _side("B", right, other)) for one, other in chosen)


def _matching(left: Bundle, right: Bundle) -> list[tuple[str, str]]:
    ours, theirs = _services(left), _services(right)
    if left is right:
        if len(ours) != 2:
            raise ComparisonError(f"{left.run.id} has {_names(ours)}; name two of them with --service, first A, then B")
        return [(ours[0], ours[1])]
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    both = [one for one in ours if one in theirs]
    if not both:
        raise ComparisonError(
            f"no service is in both: {left.run.id} has {_names(ours)}, {right.run.id} has {_names(theirs)};"
            " name one of each with --service"
        )
    return [(one, one) for one in both]


def _names(services: Sequence[str]) -> str:
    return ", ".join(services) or "no service"


def _services(bundle: Bundle) -> list[str]:
    return list(dict.fromkeys(trial.id.service for trial in bundle.trials if trial.of_tier))


def _side(letter: str, bundle: Bundle, service: str) -> Side:
    known = _services(bundle)
    if not known:
        raise ComparisonError(
            f"{bundle.run.id} has no trials of tiers; the capacities of a search stand in its report, and a pilot has"
            " no warm-up, so that its figures are not the plan's"
        )
    if service not in known:
        raise ComparisonError(f"{bundle.run.id} has no service {service}; it has {_names(known)}")
    own = tuple(trial for trial in bundle.trials if trial.of_tier and trial.id.service == service)
    return Side(letter, bundle, service, ladders(replace(bundle, trials=own)))
