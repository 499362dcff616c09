"""Histograms of the whole window and of each second, from 1 ns to ten minutes with three significant digits."""

from bench_format.histogram import HIGHEST_NS, SIGNIFICANT_DIGITS
from bench_format.schemas import Histogram, Interval
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from .clock import NS_PER_SECOND


class Recorder:
    """A histogram that is being recorded."""

    def __init__(self) -> None:
        self.values = HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
        self.overflow = 0

    def record(self, value_ns: int) -> None:
        """Counts a value; 0 counts as 1 ns, values above ten minutes count as overflow."""
        if value_ns > HIGHEST_NS:
            self.overflow += 1
        else:
            self.values.record_value(max(1, value_ns))

    def encode(self) -> Histogram:
        """Encodes the histogram for a result file."""
        return Histogram(self.values.encode().decode(), self.values.get_total_count(), self.overflow)


class WindowRecorder:
    """The histograms of one worker's window, whole and per second."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.intervals: list[Interval] = []
        self._window: dict[str, Recorder] = {}
        self._interval: dict[str, Recorder] = {}
        self._current = 0

    def record(self, name: str, value_ns: int, at_ns: int) -> None:
        """Counts a value that was measured at `at_ns` of the monotonic clock."""
        second = max(0, (at_ns - self.start_ns) // NS_PER_SECOND)
        if second > self._current:
            self._close_interval(second)
        for recorders in (self._window, self._interval):
            recorders.setdefault(name, Recorder()).record(value_ns)

    def finish(self) -> dict[str, Histogram]:
        """Closes the last interval and returns the histograms of the whole window by name."""
        self._close_interval(self._current + 1)
        return {name: recorder.encode() for name, recorder in self._window.items()}

    def _close_interval(self, second: int) -> None:
        if self._interval:
            histograms = {name: recorder.encode() for name, recorder in self._interval.items()}
            start = self._current * NS_PER_SECOND
            self.intervals.append(Interval(start, NS_PER_SECOND, histograms))
        self._interval = {}
        self._current = second
