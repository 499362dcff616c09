"""Error budgets: what counted errors show about a bound on their share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench_format.schemas import Shown

from tests.bundles import TrialSpec, bundle
from tests.test_sessions import SESSIONS, row
from ws_ladder_analysis.checks import check
from ws_ladder_analysis.error_budget import Errors
from ws_ladder_analysis.ladders import Ladder, ladders
from ws_ladder_analysis.load import read_bundle

BUDGET = {"figure": "error_share", "at_most": 1e-3, "at_least": None}
SEED = 20


@pytest.mark.parametrize(
    ("failures", "messages", "shown"),
    [
        (0, 45_000, Shown.NOT_SHOWN),
        (0, 299_572, Shown.MET),
        (0, 299_571, Shown.NOT_SHOWN),
        (1, 45_000, Shown.NOT_SHOWN),
        (1, 4_000, Shown.MISSED),
        (20, 300_000, Shown.MISSED),
        (5, 5, Shown.MISSED),
    ],
)
def test_a_share_of_1e_5_is_shown_by_enough_messages_alone(failures: int, messages: int, shown: Shown) -> None:
    assert Errors(failures, messages).shown(1e-5) is shown


def covered(clusters: float, size: float, runs: int = 2_000, messages: int = 1_000_000) -> float:
    """The share of runs whose upper bound holds the truth; errors come in clusters of geometric sizes."""
    random = np.random.default_rng(SEED)
    truth = clusters * size / messages
    held = 0
    for _ in range(runs):
        sizes = random.geometric(1 / size, random.poisson(clusters))
        found = Errors(int(sizes.sum()), messages, len(sizes), int(max(sizes, default=0)))
        held += found.upper_bound >= truth
    return held / runs


@pytest.mark.parametrize(
    ("clusters", "size", "least"),
    # By the table in docs/METHODOLOGY.md, less two points; with few clusters too few are seen to tell their size.
    [(3, 1, 0.93), (10, 1, 0.93), (3, 5, 0.82), (10, 5, 0.96), (3, 50, 0.81), (10, 50, 0.95)],
)
def test_the_upper_bound_holds_the_truth_as_often_as_the_methodology_says(
    clusters: float, size: float, least: float
) -> None:
    assert covered(clusters, size) >= least


def with_budget(folder: Path, counts: list[tuple[int, int]], shown: str, **change: object) -> Path:
    """A bundle with a trial for each pair of failures and replies, whose budgets claim what they show."""
    specs = [
        replace(SESSIONS, repeat=number, objectives=(BUDGET,), failures=({"session/closed": failures}, {}))
        for number, (failures, _) in enumerate(counts, 1)
    ]
    written = bundle(folder, [_without_failures(one) for one in specs])
    for path, (failures, messages) in zip(sorted(written.rglob("result.json")), counts, strict=True):
        content = json.loads(path.read_text())
        errors = Errors(failures, messages, failures, min(failures, 1))
        budget = {
            "failures": failures,
            "messages": messages,
            "failing_connections": failures,
            "most_failures": min(failures, 1),
            "upper_bound": errors.upper_bound,
            "shown": shown,
            "messages_needed": None,
        }
        content["verdict"]["objectives"][0]["budget"] = budget | change
        path.write_text(json.dumps(content))
    return written


def _without_failures(spec: TrialSpec) -> TrialSpec:
    return spec if spec.failures[0]["session/closed"] else replace(spec, failures=({}, {}))


def only(folder: Path) -> Ladder:
    """The only ladder of a bundle."""
    (found,) = ladders(read_bundle(folder))
    return found


def test_a_tier_passes_when_the_errors_of_all_its_trials_show_the_budget(tmp_path: Path) -> None:
    one = only(with_budget(tmp_path / "one", [(0, 1_000)], "not-shown"))
    assert row(one)["verdict"] == "errors not shown"
    assert row(only(with_budget(tmp_path / "all", [(0, 1_000)] * 3, "not-shown")))["verdict"] == "pass"


def test_a_claim_that_the_counts_do_not_bear_out_is_a_disagreement(tmp_path: Path) -> None:
    honest = check(read_bundle(with_budget(tmp_path / "honest", [(0, 1_000)], "not-shown")))
    assert not honest.disagreements
    called = check(read_bundle(with_budget(tmp_path / "called", [(0, 1_000)], "met")))
    assert ["not-shown" in one.description for one in called.disagreements] == [True]
    smaller = check(read_bundle(with_budget(tmp_path / "smaller", [(0, 1_000)], "not-shown", upper_bound=1e-9)))
    assert ["recomputed" in one.description for one in smaller.disagreements] == [True]
