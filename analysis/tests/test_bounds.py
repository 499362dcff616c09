"""What bound a load is said with what was used up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench_format.schemas import BoundBy, BoundCheck, BoundMeasure, BoundSide, TrialResult

from tests.bundles import TrialSpec, bundle
from ws_ladder_analysis import bounds, wording
from ws_ladder_analysis.ladders import ladders
from ws_ladder_analysis.load import read_bundle

QUOTA = BoundCheck(BoundSide.SERVICE, BoundMeasure.QUOTA, 0.25, 0.1)
THREAD = BoundCheck(BoundSide.SERVICE, BoundMeasure.THREAD, 0.96, 0.9, thread="rx-0")
WAITING = BoundCheck(BoundSide.SERVICE, BoundMeasure.WAITING, 0.3, 0.1, thread="rx-0")
LATE = BoundCheck(BoundSide.INFERENCE, BoundMeasure.LATE, 0.07, 0.05)
CPU = BoundCheck(BoundSide.GENERATOR, BoundMeasure.CPU, 0.4, 0.9)


def result(tmp_path: Path) -> TrialResult:
    """A trial as a bundle has it."""
    (ladder,) = ladders(read_bundle(bundle(tmp_path, [TrialSpec()])))
    (found,) = ladder.tiers[0].results
    return found


def test_what_was_used_up_is_named_and_for_neither_all_that_was_looked_at(tmp_path: Path) -> None:
    trial = result(tmp_path)

    def why(bound: BoundBy | None) -> str:
        found = bounds.why(replace(trial, bound_by=bound, bound_checks=[QUOTA, THREAD, WAITING, LATE, CPU]))
        return found.replace(wording.GAP, " ")

    assert why(BoundBy.SERVICE) == "the service throttled in 25 % of periods, thread rx-0 of the service 96 %"
    assert why(BoundBy.MACHINE) == "thread rx-0 of the service waited for a CPU 30 %"
    assert why(BoundBy.INFERENCE) == "results of inference late 7.00 %"
    assert why(BoundBy.NEITHER).endswith("CPU of the generator 40 %")
    assert why(BoundBy.NEITHER).count(", ") == 4
    assert (why(BoundBy.GENERATOR), why(None)) == ("", "")
    assert bounds.why(replace(trial, bound_by=BoundBy.SERVICE, bound_checks=None)) == ""
