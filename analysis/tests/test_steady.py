"""The pilots of a bundle: the values of each second, what they show, the warm-up, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]

from tests.bundles import Json, TrialSpec, bundle, edit, histogram, open_load
from tests.bundles.histograms import HIGHEST_NS
from ws_ladder_analysis.__main__ import main
from ws_ladder_analysis.comparison.sides import ComparisonError, sides
from ws_ladder_analysis.history.points import read_folder
from ws_ladder_analysis.load import Trial, read_bundle
from ws_ladder_analysis.steady.pilots import PilotedLadder, State, ladders
from ws_ladder_analysis.steady.rule import Level, steadiness
from ws_ladder_analysis.steady.seconds import seconds

NS = 1_000_000_000
FLOOD = TrialSpec(service="cold", due=6_000)
OPEN = TrialSpec(
    service="cold", workload="ping-latency", witness="reply", load=open_load(100), latencies={"response_ns": (1e6, 0.1)}
)
# A service that is slow for its first 20 s, one that is steady, and one whose level changes late.
COLD, EVEN, LATE = ([80] * 20 + [100] * 40, [100] * 60, [100] * 40 + [80] * 20)

Intervals = list[Json]


def sent(counts: Sequence[int]) -> Intervals:
    """A worker's intervals of a load without replies."""
    return [
        {"start_ns": second * NS, "duration_ns": NS, "failed": 0, "sent": count, "histograms": {}}
        for second, count in enumerate(counts)
        if count
    ]


def answered(name: str, values_ms: Sequence[float | None], each: int = 20) -> Intervals:
    """A worker's intervals with `each` equal values a second; a second that is `None` has no answers."""
    found = []
    for second, value in enumerate(values_ms):
        values = HdrHistogram(1, HIGHEST_NS, 3)
        values.record_value(int((value or 0) * 1e6), each)
        histograms = {} if value is None else {name: histogram(values)}
        found.append({"start_ns": second * NS, "duration_ns": NS, "failed": 0, "histograms": histograms})
    return found


def write(folder: Path, *pilots: tuple[TrialSpec, Intervals]) -> Path:
    """A bundle with these pilots; all workers of one have the same intervals."""
    specs = [replace(spec, seconds=60.0 * 2 ** (spec.process - 1)) for spec, _ in pilots]
    root = bundle(folder, specs)
    for spec, (_, intervals) in zip(specs, pilots, strict=True):
        for worker in (root / "trials" / spec.folder / "workers").glob("*.json"):
            edit(worker, lambda value, intervals=intervals: value.update(intervals=intervals))  # type: ignore[misc]

    def make_pilots(run: Json) -> None:
        for entry, spec in zip(run["trials"], specs, strict=True):
            entry["pilot"] = {"window_seconds": spec.seconds}

    edit(root / "run.json", make_pilots)
    return root


def only(root: Path) -> PilotedLadder:
    (ladder,) = ladders(read_bundle(root))
    return ladder


def trial(root: Path) -> Trial:
    (found,) = read_bundle(root).trials
    return found


def printed(root: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    code = main(["steady", *options, str(root)])
    return code, capsys.readouterr().out


def named(service: str, spec: TrialSpec = FLOOD, process: int = 1) -> TrialSpec:
    return replace(spec, service=service, process=process)


def test_steady_state_begins_after_the_last_change() -> None:
    found = steadiness([float(value) for value in COLD])
    assert found.levels == (Level(0, 20, 80), Level(20, 40, 100))
    assert (found.start, found.seconds) == (20, 60)
    assert found.share == pytest.approx(2 / 3)


def test_levels_within_2_percent_of_the_last_one_are_part_of_it() -> None:
    near = steadiness([99.0] * 20 + [100.0] * 40)
    assert (len(near.levels), near.start) == (2, 0)


def test_a_last_level_of_less_than_half_is_no_steady_state() -> None:
    found = steadiness([float(value) for value in LATE])
    assert (found.start, found.share) == (None, None)
    assert [level.mean for level in found.levels] == [100, 80]


def test_the_rate_of_a_flood_is_what_the_sockets_of_all_workers_took(tmp_path: Path) -> None:
    found = seconds(trial(write(tmp_path, (FLOOD, sent([7, 0, 9] + [8] * 57)))))
    assert found is not None
    assert found.figure.name == "messages per second"
    assert found.values == (14, 1, 18, *[16] * 57), "there are two workers, and a silent second counts as one message"


def test_the_rate_of_a_closed_loop_is_that_of_its_answers(tmp_path: Path) -> None:
    closed = replace(OPEN, load={"model": "closed"})
    found = seconds(trial(write(tmp_path, (closed, answered("response_ns", [2.0] * 60, each=20)))))
    assert found is not None
    assert found.values == (40,) * 60


def test_an_open_load_has_medians_and_a_second_without_answers_that_of_the_next_one(tmp_path: Path) -> None:
    values = [2.0, None, None, 50.0, *[2.0] * 54, None, None]
    found = seconds(trial(write(tmp_path, (OPEN, answered("response_ns", values, each=1)))))
    assert found is not None
    assert found.figure.name == "p50 of response in each second"
    expected = [2e6, 50e6, 50e6, 50e6, *[2e6] * 56]
    assert found.values == pytest.approx(expected, rel=0.001)


def test_sessions_have_the_age_of_the_newest_audio(tmp_path: Path) -> None:
    load = {"model": "sessions", "ramp_seconds": 1.0, "spread_ms": 0.0, "in_flight": 256}
    sessions = replace(OPEN, load=load, latencies={"newest_ns": (1e8, 0.1)})
    found = seconds(trial(write(tmp_path, (sessions, answered("newest_ns", [120.0] * 60)))))
    assert found is not None
    assert found.values == pytest.approx([120e6] * 60, rel=0.001)


def test_the_warm_up_of_a_ladder_is_that_of_the_latest_start_for_every_service(tmp_path: Path) -> None:
    found = only(write(tmp_path, (named("cold"), sent(COLD)), (named("even"), sent(EVEN))))
    assert [pilot.start for pilot in found.pilots] == [20, 0]
    assert (found.planned_seconds, found.needed_seconds, found.is_sufficient) == (0.5, 30, False)


def test_the_warm_up_is_never_shorter_than_the_plans(tmp_path: Path) -> None:
    root = write(tmp_path, (named("cold"), sent(COLD)))
    edit(root / "run.json", lambda run: run["plan"]["ladders"][0].update(warmup_seconds=31))
    found = only(root)
    assert (found.needed_seconds, found.is_sufficient) == (31, True)


def test_the_longest_pilot_of_a_service_counts(tmp_path: Path) -> None:
    longer = [100] * 40 + [80] * 80
    found = only(write(tmp_path, (named("cold"), sent(LATE)), (named("cold", process=2), sent(longer))))
    (pilot,) = found.pilots
    assert (pilot.trial.id.process, pilot.state, pilot.start) == (2, State.STEADY, 40)


def test_a_load_that_ends_by_itself_needs_no_warm_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path, (FLOOD, sent([100] * 3)))
    for worker in root.glob("trials/**/workers/*.json"):
        edit(worker, lambda value: value["window"].update(duration_ns=3 * NS))
    assert [pilot.state for pilot in only(root).pilots] == [State.ENDED_BY_ITSELF]
    code, out = printed(root, capsys)
    assert code == 0
    assert "none needed  its load was over after 3 s" in out


def test_an_invalid_or_failed_pilot_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invalid = replace(named("late"), reasons=(("generator_late", "p99 is 9 ms"),))
    root = write(tmp_path, (invalid, sent(EVEN)), (named("even"), sent(EVEN)))
    code, out = printed(root, capsys)
    assert code == 2
    assert "late     not measured  invalid: the generator was late" in out
    failed = replace(named("dead"), state={"state": "failed", "reason": "it never got ready"})
    root = bundle(tmp_path / "failed", [failed])
    edit(root / "run.json", lambda run: run["trials"][0].update(pilot={"window_seconds": 60.0}))
    code, out = printed(root, capsys)
    assert code == 2
    assert "it never got ready" in out


def test_the_table_names_the_warm_up_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = printed(write(tmp_path, (named("cold"), sent(COLD)), (named("even"), sent(EVEN))), capsys)
    assert code == 1
    assert out.splitlines() == [
        "throughput/standard/100: messages per second",
        "service  steady from  what it shows",
        "cold     20 s         67 % of 60 s, at 200",
        "even     0 s          100 % of 60 s, at 200",
        "warm-up of all trials: 30 s (1.5 times the latest start); set warmup_seconds: 30, the plan has 0.5",
    ]


def test_what_is_never_steady_shows_its_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = printed(write(tmp_path, (named("late"), sent(LATE)), (named("even"), sent(EVEN))), capsys)
    assert code == 1
    assert "late     not steady   60 s: 200 for 40 s, 160 for 20 s\n" in out
    assert "never steady: late; no warm-up helps, and no figure of theirs may be in a claim\n" in out
    assert "warm-up of all trials: 0.5 s, as the plan has it\n" in out


def test_a_plan_whose_warm_up_suffices_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(write(tmp_path, (named("even"), sent(EVEN))), capsys)[0] == 0


def test_json_has_the_trial_and_the_state_of_each_pilot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write(tmp_path, (named("late"), sent(LATE)), (named("cold"), sent(COLD)))
    code, out = printed(root, capsys, "--json")
    (ladder,) = json.loads(out)["ladders"]
    late, cold = ladder["pilots"]
    assert code == 1
    assert (late["trial"], late["state"]) == ("late/throughput/standard/100-p1-r1", "not-steady")
    assert (cold["state"], cold["start_seconds"], ladder["warmup_seconds"]) == ("steady", 20, 30)
    assert [level["seconds"] for level in late["levels"]] == [40, 20]


def test_a_bundle_without_pilots_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["steady", str(bundle(tmp_path, [FLOOD]))]) == 2
    assert "has no pilots; ladder pilot makes them" in capsys.readouterr().err


def test_pilots_are_in_no_history_and_in_no_comparison(tmp_path: Path) -> None:
    root = write(tmp_path, (named("cold"), sent(COLD)), (named("even"), sent(EVEN)))
    assert read_folder(tmp_path).series == ()
    with pytest.raises(ComparisonError, match="no trials of tiers"):
        sides([read_bundle(root)], ["cold", "even"])
