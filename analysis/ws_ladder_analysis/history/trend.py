"""The trend of each series: its changes, and which of them are new, known or for the better. Pure but for Otava."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from .acknowledged import Acknowledged, unmatched
from .changes import FEWEST_RUNS, Change, agreed
from .detectors import otava, pelt
from .points import Folder, Place, Point, Series

CONFIRM = "suspected; confirm with `ladder compare`"


class Standing(StrEnum):
    """What a change means for the exit code."""

    BETTER = "better"
    # For the worse, and the acknowledgement file doesn't name it: exit code 1.
    WORSE = "worse"
    ACKNOWLEDGED = "worse, acknowledged"


@dataclass(frozen=True)
class Found:
    """A change of a series with its standing."""

    change: Change
    standing: Standing
    # The last run before the change and the first after it; each detector may place it up to three runs beside.
    last_before: Point
    first_after: Point
    # Why the change is accepted; empty unless it is acknowledged.
    why: str = ""


@dataclass(frozen=True)
class Trend:
    """A series with its changes."""

    series: Series
    changes: tuple[Found, ...]

    @property
    def too_few(self) -> bool:
        """Whether the series has too few runs for a statement."""
        return len(self.series.points) < FEWEST_RUNS

    @property
    def is_worse(self) -> bool:
        """Whether a change for the worse is not acknowledged."""
        return any(one.standing is Standing.WORSE for one in self.changes)


@dataclass(frozen=True)
class History:
    """All trends of a folder."""

    trends: tuple[Trend, ...]
    runs: int
    left_out: tuple[str, ...]
    # Entries of the acknowledgement file that name no change.
    unmatched: tuple[Acknowledged, ...]

    @property
    def is_worse(self) -> bool:
        """Whether any change for the worse is not acknowledged."""
        return any(trend.is_worse for trend in self.trends)


def history(folder: Folder, entries: Sequence[Acknowledged] = ()) -> History:
    """Finds the changes of all series and compares them with the acknowledgement file. Raises `DetectorError` if Otava
    can't run; it isn't needed for short series."""
    return judged(folder, detected(folder), entries)


def detected(folder: Folder) -> Mapping[Place, tuple[Change, ...]]:
    """The changes of each series that is long enough."""
    long = [series for series in folder.series if len(series.points) >= FEWEST_RUNS]
    named = otava([series.values for series in long])
    return {
        series.place: agreed(series.values, pelt(series.values), other)
        for series, other in zip(long, named, strict=True)
    }


def judged(
    folder: Folder, changes: Mapping[Place, tuple[Change, ...]], entries: Sequence[Acknowledged] = ()
) -> History:
    """The standing of each change."""
    used: list[Acknowledged] = []
    trends = tuple(
        Trend(series, _standings(series, changes.get(series.place, ()), entries, used)) for series in folder.series
    )
    return History(trends, folder.runs, tuple(folder.left_out), unmatched(entries, used))


def _standings(
    series: Series, changes: Sequence[Change], entries: Sequence[Acknowledged], used: list[Acknowledged]
) -> tuple[Found, ...]:
    """Each change with its standing; an entry accepts one change of a series. Adds the entries that do to `used`."""
    free = list(entries)
    found = []
    for change in changes:
        standing, why = Standing.BETTER, ""
        if (change.after > change.before) != series.figure.more_is_better:
            entry = next((one for one in free if one.names(series, change)), None)
            standing, why = (Standing.ACKNOWLEDGED, entry.why) if entry else (Standing.WORSE, "")
            if entry:
                free.remove(entry)
                used.append(entry)
        found.append(Found(change, standing, series.points[change.index - 1], series.points[change.index], why))
    return tuple(found)
