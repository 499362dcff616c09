"""Services side by side: which conclusions a comparison allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bundles import Json, TrialSpec, bundle, open_load
from ws_ladder_analysis.compare import Comparison, compare
from ws_ladder_analysis.ladders import ladders
from ws_ladder_analysis.load import Bundle, read_bundle

LEFT = TrialSpec(service="left")
RIGHT = TrialSpec(service="right")
GENERATOR: Json = {"bound_by": "generator", "service_share": 0.5, "worker_share": 0.99}


def compared(folder: Path, left: list[TrialSpec], right: list[TrialSpec]) -> dict[str, Comparison]:
    """The comparisons of two services with these trials, keyed by figure."""
    specs = [replace(spec, process=process) for side in (left, right) for process, spec in enumerate(side, 1)]
    return {one.figure.name: one for one in compare(ladders(read_bundle(bundle(folder, specs))))}


def delivering(spec: TrialSpec, *rates: int) -> list[TrialSpec]:
    return [replace(spec, due=2 * rate) for rate in rates]


def test_twice_the_rate_is_better(tmp_path: Path) -> None:
    one = compared(
        tmp_path, delivering(LEFT, 2000, 2010, 1990, 2005, 1995), delivering(RIGHT, 1000, 1010, 990, 1005, 995)
    )["delivered per second"]
    assert one.conclusion == "left is better"
    assert one.ratio is not None
    assert one.ratio.ratio == pytest.approx(2, rel=1e-4)


def test_twice_the_memory_is_worse(tmp_path: Path) -> None:
    left = [replace(LEFT, bytes_per_connection=8_000 + step) for step in (0, 5, 9, 2, 7)]
    right = [replace(RIGHT, bytes_per_connection=4_000 + step) for step in (0, 5, 9, 2, 7)]
    assert compared(tmp_path, left, right)["memory per connection"].conclusion == "left is worse"


def test_an_interval_that_holds_1_shows_no_difference(tmp_path: Path) -> None:
    sides = delivering(LEFT, 1000, 1100, 900, 1050, 960), delivering(RIGHT, 1010, 1080, 930, 1060, 940)
    assert compared(tmp_path, *sides)["delivered per second"].conclusion == "no difference shown"


def test_too_few_processes_have_a_ratio_but_no_interval(tmp_path: Path) -> None:
    one = compared(tmp_path, delivering(LEFT, 2000), delivering(RIGHT, 1000))["delivered per second"]
    assert one.conclusion == "no interval: 1 pairs of processes, 5 are needed"
    assert one.ratio is not None
    assert one.ratio.ratio == 2


def test_a_rate_that_the_generator_bound_makes_the_ratio_a_bound(tmp_path: Path) -> None:
    left = [replace(spec, **GENERATOR) for spec in delivering(LEFT, 2000, 2010, 1990, 2005, 1995)]
    one = compared(tmp_path, left, delivering(RIGHT, 1000, 1010, 990, 1005, 995))["delivered per second"]
    assert (one.sign, one.conclusion) == (">=\u00a0", "left is better")


def test_a_rate_bound_by_the_generator_is_no_finding_about_the_service(tmp_path: Path) -> None:
    left = [replace(spec, **GENERATOR) for spec in delivering(LEFT, 1000, 1010, 990, 1005, 995)]
    right = [replace(spec, **GENERATOR) for spec in delivering(RIGHT, 2000, 2010, 1990, 2005, 1995)]
    slower = compared(tmp_path / "a", left, delivering(RIGHT, 2000, 2010, 1990, 2005, 1995))["delivered per second"]
    assert slower.conclusion == "n/a: the generator bound the smaller figure"
    both = compared(tmp_path / "b", left, right)["delivered per second"]
    assert (both.sign, both.conclusion) == ("", "n/a: the generator bound both")


def test_cpu_cost_is_compared_independent_of_the_bound(tmp_path: Path) -> None:
    left = [replace(spec, **GENERATOR) for spec in delivering(LEFT, 2000, 2010, 1990, 2005, 1995)]
    one = compared(tmp_path, left, delivering(RIGHT, 1000, 1010, 990, 1005, 995))["CPU per million messages"]
    assert (one.sign, one.conclusion) == ("", "left is better")


def test_the_rate_of_a_schedule_is_not_compared(tmp_path: Path) -> None:
    scheduled: Json = {"load": open_load(1_000), "latencies": {"response_ns": (1e6, 0.5)}}
    left = [replace(LEFT, **scheduled)] * 5
    right = [replace(RIGHT, **scheduled)] * 5
    found = compared(tmp_path, left, right)
    assert "delivered per second" not in found
    assert "p99 of response" in found


def test_invalid_trials_are_in_no_ratio(tmp_path: Path) -> None:
    bad = replace(LEFT, reasons=(("start_skew", "90 ms apart"),), due=90_000)
    sides = [*delivering(LEFT, 1000, 1001, 1002), bad], delivering(RIGHT, 1000, 1001, 1002, 80_000)
    one = compared(tmp_path, *sides)["delivered per second"]
    # Its counterpart is left out with it.
    assert one.ratio is not None
    assert (one.ratio.ratio, one.ratio.processes) == (1, (3, 3))
    assert one.left == one.right == pytest.approx(1001, rel=1e-3)
    assert compared(tmp_path / "all", [bad], delivering(RIGHT, 1000)) == {}


def test_a_single_service_has_no_comparison(tmp_path: Path) -> None:
    assert compare(ladders(read_bundle(bundle(tmp_path, [LEFT])))) == ()


def test_the_first_service_of_the_plan_is_compared_with_every_other(example_bundle: Bundle) -> None:
    found = compare(ladders(example_bundle))
    assert {(one.service, one.other) for one in found} == {("wse-server", "wse-reference")}
