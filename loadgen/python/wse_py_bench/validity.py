"""Whether a trial may be used at all: the rules of docs/METHODOLOGY.md, "Validity", as a run by hand has them. Pure.

Each reason says what was seen against what is allowed.
"""

import itertools
from collections.abc import Iterator

from bench_format import histogram
from bench_format.meaning import holds, is_scheduled
from bench_format.schemas import (
    Books,
    Figures,
    Reason,
    ReasonKind,
    Thresholds,
    Validity,
    ValidityInvalid,
    ValidityValid,
)

from .clock import NS_PER_MS
from .figures import Measured, ended_early
from .merge import Merged
from .service import seconds

# Largest drift between wall clock and monotonic clock during a trial: beyond slewing, a step.
CLOCK_STEP_NS = 10_000_000
READING_SHARE = 0.05
READING_FLOOR_NS = 100_000_000

Found = Iterator[tuple[ReasonKind, str]]


def validity(measured: Measured, merged: Merged, books: Books, figures: Figures, limits: Thresholds) -> Validity:
    """Judges a trial by every rule."""
    found = [*_unaccounted(books), *_start_skew(measured, limits)]
    if is_scheduled(measured.load):
        found += [*_generator_late(merged, limits), *_generator_cpu(figures, limits), *_send_rate(merged, limits)]
    found += [*_service_restarted(measured), *_clock_step(measured), *_reading_late(measured, merged)]
    if merged.window.duration_ns <= 0:
        found.append((ReasonKind.WINDOW_SHORT, "the load ended before the window began; give --warmup 0"))
    reasons = [Reason(kind, detail) for kind, detail in found]
    return ValidityInvalid(reasons) if reasons else ValidityValid()


def _unaccounted(books: Books) -> Found:
    words = [
        f"{one.name}: {one.left} against {one.right} ({', '.join(f'{name} {count}' for name, count in one.terms)})"
        for one in books.equations
        if not holds(one)
    ]
    check = books.connections
    if check and check.mismatched:
        words.append(f"{check.mismatched} of {check.compared} connections differ, for example {check.examples[0]}")
    if words:
        yield ReasonKind.UNACCOUNTED, "; ".join(words)


def _start_skew(measured: Measured, limits: Thresholds) -> Found:
    """Spread of the starts, the planned moment included: the service's readings border the window by it."""
    skews = [0, *(result.evidence.start_skew_ns for result in measured.results)]
    apart_ms = (max(skews) - min(skews)) / NS_PER_MS
    if apart_ms > limits.start_skew_ms:
        words = f"workers started {apart_ms:.1f} ms apart, allowed {limits.start_skew_ms:g} ms"
        yield ReasonKind.START_SKEW, words


def _generator_late(merged: Merged, limits: Thresholds) -> Found:
    wire = merged.histograms.get("delay_ns")
    if wire is None:
        if merged.window.sent:
            yield ReasonKind.GENERATOR_LATE, "no worker recorded its delay"
        return
    values = histogram.decode(wire, "delay_ns")
    # Judged on few samples too: a wrong acquittal is worse than a rank that is off by one.
    seen_ns = histogram.percentile_ns(values, 99) or histogram.percentile_ns(values, 100) or 0
    if seen_ns / NS_PER_MS > limits.delay_p99_ms:
        words = f"p99 of delay {seen_ns / NS_PER_MS:.1f} ms, allowed {limits.delay_p99_ms:g} ms"
        yield ReasonKind.GENERATOR_LATE, f"the generator was late: {words}"


def _generator_cpu(figures: Figures, limits: Thresholds) -> Found:
    share = figures.worker_cpu_share
    if share is not None and share > limits.worker_cpu_share:
        words = f"the workers used {share:.1%} of the CPU that they could have had"
        yield ReasonKind.GENERATOR_CPU, f"{words}, allowed {limits.worker_cpu_share:.0%}"


def _send_rate(merged: Merged, limits: Thresholds) -> Found:
    sent, due = merged.window.sent, merged.window.due
    if sent < due * limits.send_share:
        words = f"{sent} of {due} messages that were due were sent, allowed at least {limits.send_share:.1%}"
        yield ReasonKind.SEND_RATE, words


def _service_restarted(measured: Measured) -> Found:
    readings = measured.readings
    order = (readings.before, readings.window_start, readings.window_end, readings.after)
    present = [reading for reading in order if reading]
    for earlier, later in itertools.pairwise(present):
        if earlier.pid != later.pid:
            yield ReasonKind.SERVICE_RESTARTED, f"process {earlier.pid} became process {later.pid}"
            return
        if later.stats.uptime_seconds < earlier.stats.uptime_seconds:
            yield ReasonKind.SERVICE_RESTARTED, f"its uptime fell to {later.stats.uptime_seconds:.1f} s"
            return


def _clock_step(measured: Measured) -> Found:
    for result in measured.results:
        step_ns = result.evidence.clock_step_ns
        if abs(step_ns) > CLOCK_STEP_NS:
            words = f"the clock of worker {result.worker} jumped by {step_ns / NS_PER_MS:.1f} ms, allowed 10 ms"
            yield ReasonKind.CLOCK_STEP, words
            return


def _reading_late(measured: Measured, merged: Merged) -> Found:
    start, end = measured.readings.window_start, measured.readings.window_end
    if start is None or end is None or ended_early(measured, merged):
        return
    apart_ns = end.unix_ns - start.unix_ns
    if abs(apart_ns - measured.window_ns) > max(measured.window_ns * READING_SHARE, READING_FLOOR_NS):
        window = seconds(measured.window_ns)
        words = f"the service's counters were read {seconds(apart_ns):.2f} s apart for a window of {window:g} s"
        yield ReasonKind.READING_LATE, words
