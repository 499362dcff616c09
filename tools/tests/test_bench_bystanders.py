"""The rows of bystanders beside a flood: what their figures say, and that the programs measure what they should."""

from __future__ import annotations

from typing import Any

import pytest
from bench_bystanders import CASES, QUIET, Seen, row, run

_, KEEPS_UP, STANDS_STILL = CASES


def seen(p99: float, **counts: int) -> Seen:
    counted: dict[str, Any] = {"unanswered": 0, "disconnected": 0} | counts
    return counted | {"p99_us": p99}


def test_a_row_says_how_many_times_the_quiet_case_it_is() -> None:
    found = {
        QUIET.name: [seen(p99) for p99 in (100, 110, 90, 105, 95)],
        KEEPS_UP.name: [seen(1.5 * p99) for p99 in (100, 110, 90, 105, 95)],
    }
    one = row(KEEPS_UP, found)
    assert (one.ratio_of, one.why) == (f"{KEEPS_UP.name} / quiet", None)
    assert one.ours == pytest.approx(150, rel=0.01)
    assert one.ratio == pytest.approx(1.5)
    assert one.interval == pytest.approx((1.5, 1.5))
    without = row(QUIET, found)
    assert (without.ratio, without.why) == (None, None)
    assert without.ours == pytest.approx(100, rel=0.01)


def test_a_row_says_when_it_is_beyond_its_bar() -> None:
    found = {QUIET.name: [seen(100)] * 5, KEEPS_UP.name: [seen(210)] * 5, STANDS_STILL.name: [seen(490)] * 5}
    assert row(KEEPS_UP, found).why == "beyond the bar of 2 times the quiet case"
    assert row(STANDS_STILL, found).why is None


def test_a_process_with_unanswered_pings_has_no_figure() -> None:
    found = {QUIET.name: [seen(100)] * 3, STANDS_STILL.name: [seen(100, unanswered=7, disconnected=1)] * 3}
    one = row(STANDS_STILL, found)
    assert (one.ours, one.ratio) == (None, None)
    assert "21 pings unanswered; 3 clients disconnected" in str(one.why)


def test_every_bystander_is_answered_while_the_application_stands_still() -> None:
    found = run(STANDS_STILL, 1)
    assert (found["answered"], found["unanswered"], found["disconnected"]) == (1000, 0, 0)
    assert found["flooder"]["disconnected"] == 0
    assert found["flooder"]["bytes"] > 0
