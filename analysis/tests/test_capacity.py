"""The capacity of a search, computed a second time: against ladder's own posterior, and from the trials of a bundle."""

from __future__ import annotations

import json
import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_format.schemas import (
    CapacityEstimate,
    CpuShape,
    Objective,
    PlainFigure,
    Reason,
    ReasonKind,
    Run,
    SearchStep,
    SearchTrial,
    TrialStateFinished,
    ValidityInvalid,
)

from tests.bundles import bundle, edit
from tests.bundles.histograms import Json
from tests.test_brackets import FOUND as FOUND_2
from tests.test_sessions import OBJECTIVE, SESSIONS
from ws_ladder_analysis.capacities import capacities
from ws_ladder_analysis.capacity import Outcome, estimate, replay
from ws_ladder_analysis.checks import check
from ws_ladder_analysis.load import Trial, read_bundle
from ws_ladder_analysis.report import write_report

PROGRAM = Path(__file__).parents[2] / os.environ.get("TESTS_BUILT", "target/debug") / "examples/search_posterior"
P50: Json = {"figure": {"percentile_ms": {"histogram": "newest", "percentile": 50}}, "at_most": 200}
# Loads and outcomes of a search's trials on fresh processes: twelve rounds, a test that passes and one that doesn't.
ROUNDS = [(620, True), (640, False), (600, True), (618, True), (636, False), (604, True)] * 2
CONFIRM = [(602, True)] * 5
FAIL = [(640, False)] * 3 + [(640, True)] + [(640, False)] * 5


def test_capacity_agrees_with_ladder() -> None:
    assert PROGRAM.exists(), f"no {PROGRAM}; run: cargo build -p operator --example search_posterior"
    searches = [made(seed) for seed in range(40)]
    lines = "".join(json.dumps({"start": start, "trials": trials}) + "\n" for start, trials in searches)
    written = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, check=True).stdout
    for (start, trials), line in zip(searches, written.splitlines(), strict=True):
        theirs, ours = CapacityEstimate(**json.loads(line)), estimate(start, [Outcome(*one) for one in trials])
        assert ours.load == pytest.approx(theirs.load, rel=1e-9)
        assert ours.spread == pytest.approx(theirs.spread, rel=1e-9)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-9)
        assert ours.trials == theirs.trials


def made(seed: int) -> tuple[float, list[tuple[int, bool]]]:
    """A start and trials near a capacity that may be far from it, so that grids move."""
    chance = random.Random(seed)
    capacity = chance.uniform(50, 5000)
    start, spread = capacity * chance.uniform(0.6, 1.6), chance.uniform(0.002, 0.06)
    loads = [max(1, round(capacity * chance.gauss(1, 0.04))) for _ in range(chance.randint(1, 40))]
    return start, [(load, load < capacity * chance.gauss(1, spread)) for load in loads]


def searched(folder: Path, *, in_turn: int = 6, cpus: float = 1.0, **changes: object) -> Path:
    """A bundle of one search whose record agrees with its trials."""
    found = FOUND_2 | {"borderline": [], "confirmed": 602, "first_solid_fail": 640}
    start = (620 * 640) ** 0.5
    ours = estimate(start, [Outcome(*one) for one in ROUNDS])
    capacity: Json = {
        "start": start,
        "estimate": vars(ours),
        "confirm": {"load": 602, "passed": 5, "failed": 0, "succeeded": True},
        "fail": {"load": 640, "passed": 1, "failed": 8, "succeeded": True},
        "in_turn": in_turn,
    }
    found = found | {"capacity": capacity} | changes
    search = {"service": "rust-sync", "workload": "sessions", "variant": "standard", "found": found}
    root = bundle(folder, [SESSIONS], searches=[search])
    steps = [("round", ROUNDS), ("confirm", CONFIRM), ("fail", FAIL)]
    trials = [(step, load, passed) for step, made in steps for load, passed in made]
    edit(root / "run.json", lambda run: run.update(trials=[_entry(number, *one) for number, one in enumerate(trials)]))
    edit(root / "run.json", lambda run: run["plan"]["cpu"]["service"].update(cpus=cpus))
    return root


def _entry(number: int, step: str, load: int, passed: bool) -> Json:
    """A trial on a fresh process whose files are not in the bundle."""
    trial = SESSIONS.id | {"tier": load, "process": number + 2}
    state = {"state": "finished", "validity": {"state": "valid"}, "passed": passed}
    return {"trial": trial, "state": state, "search": {"step": step, "window_seconds": 20.0}}


def disagreements(folder: Path) -> list[str]:
    """What the search's own check finds; the trials' files are missing, which other checks report."""
    found = check(read_bundle(folder)).disagreements
    return [one.description for one in found if one.where.startswith("search of")]


def test_a_search_is_recomputed_from_its_trials(tmp_path: Path) -> None:
    assert disagreements(searched(tmp_path)) == []


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("estimate", "load"), 700.0, "its capacity is 700"),
        (("estimate", "trials"), 13, "13 trials, but its trials say"),
        (("estimate", "high"), 660.0, "but its trials say"),
        (("start",), 610.0, "it began at 610, but its bounds say 629.921"),
        (("confirm", "passed"), 8, "its last test to confirm is"),
    ],
)
def test_a_record_that_the_trials_do_not_show_is_found(
    tmp_path: Path, path: tuple[str, ...], value: object, text: str
) -> None:
    def change(run: Json) -> None:
        place = run["searches"][0]["found"]["capacity"]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value

    root = searched(tmp_path)
    edit(root / "run.json", change)
    assert any(text in one for one in disagreements(root)), disagreements(root)


def test_trials_of_a_test_that_did_not_succeed_are_evidence(tmp_path: Path) -> None:
    def fail_twice(run: Json) -> None:
        for entry in run["trials"][12:14]:
            entry["state"]["passed"] = False
        del run["trials"][14:]

    root = searched(tmp_path)
    edit(root / "run.json", fail_twice)
    assert any("14 trials" in one for one in disagreements(root))


@pytest.mark.parametrize(
    ("kinds", "figures", "evidence"),
    [
        (["reading_late"], {"service_cpu_share": 0.99}, [Outcome(100, False)]),
        (["conformance", "window_short"], {"service_cpu_share": 0.99}, [Outcome(100, False)]),
        (["unaccounted", "generator_late"], {"service_cpu_share": 0.99}, [Outcome(100, False)]),
        (["send_rate", "generator_late"], {"service_cpu_share": 0.99}, [Outcome(100, False)]),
        (["reading_late"], {"service_cpu_share": 0.5}, []),
        (["reading_late"], {"service_cpu_share": None}, []),
        (["reading_late", "machine_busy"], {"service_cpu_share": 0.99}, []),
        (["generator_late"], {"service_cpu_share": 0.99}, []),
        (["window_short"], {"late_share": 0.2}, [Outcome(100, False)]),
        (["window_short"], {"late_share": 0.001, "error_share": 0.2}, []),
        (["window_short", "clock_step"], {"late_share": 0.2}, []),
    ],
)
def test_a_trial_that_its_service_made_invalid_has_failed(
    tmp_path: Path, kinds: list[str], figures: dict[str, Any], evidence: list[Outcome]
) -> None:
    [trial] = read_bundle(bundle(tmp_path, [SESSIONS])).trials
    assert trial.result is not None
    result = replace(trial.result, figures=replace(trial.result.figures, service_cpu_share=None, late_share=0.0))
    result = replace(result, figures=replace(result.figures, **figures))
    made = round_of(replace(trial, result=result), kinds)
    plain = [(PlainFigure.LATE_SHARE, 0.01), (PlainFigure.ERROR_SHARE, 1e-5)]
    objectives = [Objective(figure, at_most=most) for figure, most in plain]
    assert list(replay([made], objectives, 0.9, complete=True).evidence) == evidence


@pytest.mark.parametrize(
    ("kinds", "ended", "evidence"),
    [
        (["unaccounted"], "send_timeout", [Outcome(100, False)]),
        (["unaccounted", "window_short", "conformance"], "send_timeout", [Outcome(100, False)]),
        (["unaccounted"], "reset", []),
        (["unaccounted", "machine_busy"], "send_timeout", []),
    ],
)
def test_a_trial_whose_connections_the_generator_gave_up_has_failed(
    tmp_path: Path, kinds: list[str], ended: str, evidence: list[Outcome]
) -> None:
    [trial] = read_bundle(bundle(tmp_path, [SESSIONS])).trials
    assert trial.result is not None
    connections = replace(trial.result.connections, closed_early={ended: 1})
    result = replace(trial.result, connections=connections)
    made = round_of(replace(trial, result=result), kinds)
    assert list(replay([made], [], 0.9, complete=True).evidence) == evidence


def round_of(trial: Trial, kinds: list[str]) -> Trial:
    """A trial of a round at a load of 100 that is invalid for these reasons."""
    state = TrialStateFinished(ValidityInvalid([Reason(ReasonKind(kind), "") for kind in kinds]))
    purpose = SearchTrial(SearchStep.ROUND, 20.0)
    entry = replace(trial.entry, trial=replace(trial.id, tier=100), state=state, search=purpose)
    return replace(trial, entry=entry)


def cells(run: Run) -> dict[str, str]:
    """The first row, keyed by column title."""
    table = capacities(run)
    return {column.title: cell.text for column, cell in zip(table.columns, table.rows[0], strict=True)}


def test_a_capacity_has_its_interval_spread_and_tests(tmp_path: Path) -> None:
    run = read_bundle(searched(tmp_path)).run
    found = cells(run)
    assert found["P ≥ 0.5 at (95 %)"].startswith("62")
    assert found["P ≥ 0.5 at (95 %)"].endswith("]")
    assert (found["trials"], found["confirmed"], found["first solid fail"]) == ("12", "602", "640")
    assert (found["what failed first"], found["edge"]) == ("p95 of newest ≤ 350 ms", "latency")
    assert [cell.detail for cell in capacities(run).rows[0][4:6]] == ["5 of 5 passed", "8 of 9 failed"]
    assert not any("within this run" in note for note in capacities(run).notes)


@pytest.mark.parametrize(
    ("others", "printed"), [([], ""), ([P50], "p50 of newest ≤ 200 ms"), ([P50, OBJECTIVE, P50], "and 3 others")]
)
def test_one_objective_that_failed_first_is_named_and_further_ones_are_counted(
    others: list[Json], printed: str, tmp_path: Path
) -> None:
    run = read_bundle(searched(tmp_path, gates=[OBJECTIVE, *others])).run
    cell = capacities(run).rows[0][6]
    assert (cell.text, cell.detail) == ("p95 of newest ≤ 350 ms", printed)


def test_few_services_in_turn_say_within_this_run(tmp_path: Path) -> None:
    table = capacities(read_bundle(searched(tmp_path, in_turn=5)).run)
    assert table.rows[0][1].detail == "within this run"
    assert "took turns" in table.notes[1]


def test_a_search_without_a_confirmed_load_says_so(tmp_path: Path) -> None:
    run = read_bundle(searched(tmp_path, capacity=None, confirmed=None, given_up_at=90)).run
    found = cells(run)
    assert (found["confirmed"], found["P ≥ 0.5 at (95 %)"]) == ("not confirmed", "—")
    assert "no valid trial at 90" in capacities(run).notes[-1]


def test_a_session_costs_its_share_of_the_cpu_and_a_share_is_never_multiplied(tmp_path: Path) -> None:
    run = read_bundle(searched(tmp_path)).run
    tenth = replace(run, plan=replace(run.plan, cpu=replace(run.plan.cpu, service=CpuShape(0.1))))
    load = float(cells(tenth)["P ≥ 0.5 at (95 %)"].split(" ")[0])
    assert cells(tenth)["CPU per session"] == f"{100 / load:.3f}\u00a0ms/s"
    assert float(cells(tenth)["1 000 session-hours"]) == pytest.approx(4 / load, rel=0.005)
    assert not any("whole CPU" in title for title in cells(tenth))
    assert any("These hold for 0.1 CPU" in note for note in capacities(tenth).notes)
    assert not any("These hold" in note for note in capacities(run).notes)


def test_the_report_of_a_run_of_schema_3_prints_the_capacity_and_no_bounds(tmp_path: Path) -> None:
    root = searched(tmp_path)
    edit(root / "run.json", lambda run: run.update(schema=3))
    text = write_report(root)[0].read_text()
    assert "P ≥ 0.5 at (95 %)" in text
    assert "Bounds of each objective" not in text
    assert OBJECTIVE["figure"]
