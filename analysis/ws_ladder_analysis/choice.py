"""Which service to choose, from the capacities that a search found and the lines of code. Pure.

The rules have no taste in them. A difference of two capacities is named only where their intervals don't overlap. A
service is outdone when another one carries more sessions with at most as many lines of code; the others are the choice
between running costs and code. A service that carried the largest load of its search carries at least that: no
difference to another such one is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isinf

from bench_format.schemas import Run

from . import drawing, wording
from .capacities import load_text
from .drawing import Chart
from .tables import AT_LEAST


@dataclass(frozen=True)
class Option:
    """A service with its capacity, the ends of its interval, and its lines of code. `high` is infinite where the search
    ended at the largest load, which is then `load` and `low`."""

    name: str
    load: float
    low: float
    high: float
    lines: int

    @property
    def sign(self) -> str:
        """What stands before its load: that it carries at least so much, or nothing."""
        return AT_LEAST if isinf(self.high) else ""

    def more_than(self, other: Option) -> bool:
        """Whether this service carries more: the intervals don't overlap."""
        return self.low > other.high

    def outdoes(self, other: Option) -> bool:
        """Whether this service carries more with at most as much code."""
        return self.more_than(other) and self.lines <= other.lines


def options(run: Run) -> tuple[Option, ...]:
    """The services of a run's searches whose capacity and lines of code are known, largest capacity first."""
    found = []
    for search in run.searches:
        lines, result = run.lines.get(search.service), search.found
        if not lines or result is None:
            continue
        if result.capacity is not None and (one := result.capacity.estimate) is not None:
            found.append(Option(search.service, one.load, one.low, one.high, lines))
        elif result.at_least and result.confirmed is not None:
            found.append(Option(search.service, result.confirmed, result.confirmed, inf, lines))
    return tuple(sorted(found, key=lambda option: (-option.load, option.lines)))


def choices(run: Run) -> tuple[str, ...]:
    """Sentences that say which service carries most, which has the least code, and which are outdone; none for
    fewer than two services."""
    found = options(run)
    if len(found) < 2:
        return ()
    first = found[0]
    least = min(found, key=lambda option: (option.lines, -option.load))
    kept = [one for one in found if not any(other.outdoes(one) for other in found)]
    return (
        _most(first, [one for one in found[1:] if not first.more_than(one)]),
        _least(least, first),
        f"More sessions cost more code among {_listed(one.name for one in kept)}: none of them is outdone in both."
        if len(kept) > 1
        else f"{kept[0].name} is outdone by none in both.",
        *(_outdone(one, found) for one in found if one not in kept),
    )


def picture(run: Run) -> Chart | None:
    """Sessions inside the objective against lines of code, with intervals; `None` for fewer than two services."""
    found = options(run)
    if len(found) < 2:
        return None
    cpus = run.plan.cpu.service.cpus
    title = f"Sessions on {cpus:g} CPU against lines of code"
    rows = [_drawn(one) for one in found]
    text = "; ".join(f"{one.name}: {_carried(one)} in {one.lines} lines" for one in found)
    return drawing.render("capacity", title, f"{title}. {text}.", drawing.intervals(rows, "lines of code", "sessions"))


def _drawn(one: Option) -> dict[str, object]:
    """The point of a service. What is known from below only has no line, and its name says so."""
    name, high = (f"{one.name} (≥)", one.load) if isinf(one.high) else (one.name, one.high)
    return {"name": name, "x": one.lines, "y": one.load, "low": one.low, "high": high}


def _carried(one: Option) -> str:
    interval = "" if isinf(one.high) else f" [{load_text(one.low)}, {load_text(one.high)}]"
    return f"{one.sign}{load_text(one.load)}{interval}"


def _most(first: Option, alike: Sequence[Option]) -> str:
    load = f"{first.sign}{load_text(first.load)}"
    text = f"{first.name} carries most: {load} sessions, {wording.count(first.lines)} lines of code."
    return f"{text} No difference from it is shown for {_listed(one.name for one in alike)}." if alike else text


def _least(least: Option, first: Option) -> str:
    text = f"{least.name} has the least code, {wording.count(least.lines)} lines"
    if least is first:
        return f"{text}, too."
    if not first.more_than(least):
        return f"{text}, and no difference in sessions from {first.name} is shown."
    at_least = "at least " if isinf(first.high) else ""
    times = at_least + wording.digits(first.load / least.load)
    return f"{text}. A session costs {times} times as much CPU in it as in {first.name}."


def _outdone(one: Option, found: Sequence[Option]) -> str:
    """The service with the least code among those that outdo this one."""
    by = min((other for other in found if other.outdoes(one)), key=lambda other: (other.lines, -other.load))
    code = "less code" if by.lines < one.lines else "no more code"
    return f"{one.name} is outdone by {by.name}, which carries more sessions with {code}."


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"
