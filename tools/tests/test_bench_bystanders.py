"""The rows of bystanders beside a flood: what their figures say, and that the programs measure what they should."""

from __future__ import annotations

from typing import Any

import pytest
from bench_bystanders import CASES, QUIET, Report, row, run

_, KEEPS_UP, STANDS_STILL = CASES


def report(p99: float, **counts: int) -> Report:
    counters: dict[str, Any] = {"unanswered": 0, "disconnected": 0} | counts
    return counters | {"p99_us": p99}


def test_a_row_says_how_many_times_the_quiet_case_it_is() -> None:
    reports = {
        QUIET.name: [report(p99) for p99 in (100, 110, 90, 105, 95)],
        KEEPS_UP.name: [report(1.5 * p99) for p99 in (100, 110, 90, 105, 95)],
    }
    measured = row(KEEPS_UP, reports)
    assert (measured.ratio_of, measured.why) == (f"{KEEPS_UP.name} / quiet", None)
    assert measured.ours == pytest.approx(150, rel=0.01)
    assert measured.ratio == pytest.approx(1.5)
    assert measured.interval == pytest.approx((1.5, 1.5))
    quiet = row(QUIET, reports)
    assert (quiet.ratio, quiet.why) == (None, None)
    assert quiet.ours == pytest.approx(100, rel=0.01)


def test_a_row_says_when_it_is_beyond_its_limit() -> None:
    reports = {QUIET.name: [report(100)] * 5, KEEPS_UP.name: [report(210)] * 5, STANDS_STILL.name: [report(490)] * 5}
    assert row(KEEPS_UP, reports).why == "beyond the bar of 2 times the quiet case"
    assert row(STANDS_STILL, reports).why is None


def test_a_process_with_unanswered_pings_has_no_figure() -> None:
    reports = {QUIET.name: [report(100)] * 3, STANDS_STILL.name: [report(100, unanswered=7, disconnected=1)] * 3}
    measured = row(STANDS_STILL, reports)
    assert (measured.ours, measured.ratio) == (None, None)
    assert "21 pings unanswered; 3 clients disconnected" in str(measured.why)


def test_every_bystander_is_answered_while_the_application_stands_still() -> None:
    reports = run(STANDS_STILL, 1)
    assert (reports["answered"], reports["unanswered"], reports["disconnected"]) == (1000, 0, 0)
    assert reports["flooder"]["disconnected"] == 0
    assert reports["flooder"]["bytes"] > 0
