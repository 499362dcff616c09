"""Two load generators of other projects and ours, for some seconds each: their counts, and how a freeze shows."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import generator_tools
import generator_trials
import generators
import pytest
from generator_trials import DELAY, FLOOD, FREEZE, QUICK

IN_CI = [*generators.CI, generator_tools.OURS]
# Behaviour only, and no figures.
SHORT = replace(QUICK, warm_up_seconds=0.5, window_seconds=1, paced_seconds=3)
# Installing them, on a machine that has nothing yet.
BUILD_SECONDS = 240


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    assert generators.build(list(generators.CI)) == 0


@functools.cache
def found(name: str, scenario: str) -> dict[str, Any]:
    trial = generator_trials.run(generator_tools.load()[name], scenario, SHORT)
    assert "error" not in trial
    return trial


@pytest.mark.timeout(BUILD_SECONDS)
@pytest.mark.parametrize("name", IN_CI)
def test_a_flood_reaches_the_echo_and_costs_cpu_time(name: str) -> None:
    trial = found(name, FLOOD)
    assert trial["connections"] >= SHORT.flood_connections
    assert trial["messages"] > SHORT.flood_connections
    assert 0 < trial["cpu_seconds"] < 1.5 * trial["seconds"]


@pytest.mark.timeout(BUILD_SECONDS)
@pytest.mark.parametrize("name", IN_CI)
def test_a_tool_counts_the_messages_that_the_echo_got(name: str) -> None:
    trial = found(name, DELAY)
    assert trial["counted"] == trial["served"] == SHORT.paced.messages * SHORT.paced_connections


@pytest.mark.timeout(BUILD_SECONDS)
def test_a_freeze_shows_in_ours_as_clients_see_it_and_in_a_tool_that_waits_as_a_few_messages() -> None:
    ours, waiting = found(generator_tools.OURS, FREEZE), found("locust", FREEZE)
    assert ours["reported_ms"]["p99"] == pytest.approx(ours["true_ms"]["p99"], rel=0.1)
    assert ours["reported_ms"]["max"] == pytest.approx(ours["true_ms"]["max"], rel=0.1)
    # A user of Locust had at most one message in the freeze, of some fifty.
    assert waiting["reported_ms"]["max"] > 800
    assert waiting["reported_ms"]["mean"] < ours["true_ms"]["mean"] / 2


@pytest.mark.timeout(BUILD_SECONDS)
def test_our_percentiles_are_a_known_delay() -> None:
    trial = found(generator_tools.OURS, DELAY)
    for name in ("p50", "p99"):
        assert trial["reported_ms"][name] == pytest.approx(trial["true_ms"][name], abs=10)
