"""The history of a folder of bundles: its series, the changes that both detectors name, and what is acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.bundles import Json, TrialSpec, bundle, edit
from tests.bundles.workers import environment
from ws_ladder_analysis.__main__ import main
from ws_ladder_analysis.history import acknowledged, detectors
from ws_ladder_analysis.history.acknowledged import AcknowledgementError
from ws_ladder_analysis.history.changes import Change, agreed
from ws_ladder_analysis.history.points import Folder, Place, read_folder
from ws_ladder_analysis.history.trend import Found, History, Standing, detected, history, judged
from ws_ladder_analysis.load import BundleError

SPEC = TrialSpec(service="gateway")
RUNS, STEP_AT = 24, 14


def name_of(number: int) -> str:
    return f"run-{number:02}"


def commit_of(number: int) -> str:
    return f"{number:02x}" * 20


def write_run(folder: Path, number: int, specs: Sequence[TrialSpec], **overrides: object) -> Path:
    """The bundle of one run: an hour and a commit after the one before it."""
    moment = f"2026-11-{1 + number // 24:02}T{number % 24:02}:00:00Z"
    fields = {"id": name_of(number), "started_at": moment, "commit": commit_of(number)}
    return bundle(folder, list(specs), **(fields | overrides))


def write_runs(folder: Path, step: float = 0.0, spec: TrialSpec = SPEC, runs: int = RUNS, **overrides: object) -> Path:
    """Runs whose rate varies by 1 %, with a step before the run number `STEP_AT`."""
    draw = np.random.default_rng(1)
    for number in range(runs):
        level = (1 + step if number >= STEP_AT else 1) * draw.normal(1, 0.01)
        write_run(folder, number, [replace(spec, due=round(20_000 * level))], **overrides)
    return folder


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs whose rate drops by 8 %; nothing is written into it."""
    return write_runs(tmp_path_factory.mktemp("stepped"), -0.08)


Read = tuple[Folder, Mapping[Place, tuple[Change, ...]]]


@pytest.fixture(scope="module")
def read(stepped: Path) -> Read:
    """The same folder, and the changes that both detectors find in it."""
    folder = read_folder(stepped)
    return folder, detected(folder)


def rate(found: History) -> tuple[Found, ...]:
    (trend,) = [one for one in found.trends if one.series.place.figure == "delivered per second"]
    return trend.changes


def test_a_run_is_one_point_with_the_geometric_mean_of_its_processes(tmp_path: Path) -> None:
    specs = [replace(SPEC, process=process, due=due) for process, due in ((1, 10_000), (2, 40_000))]
    write_run(tmp_path, 0, specs)
    (series,) = [one for one in read_folder(tmp_path).series if one.place.figure == "delivered per second"]
    (point,) = series.points
    assert point.value == pytest.approx(10_000)
    assert (point.run, point.commit) == (name_of(0), commit_of(0))
    assert series.place.name == "gateway/throughput/standard/100"


def test_points_are_in_the_order_of_their_start(tmp_path: Path) -> None:
    for number, start in ((0, "2026-11-03T00:00:00Z"), (1, "2026-11-01T00:00:00Z"), (2, "2026-11-02T00:00:00Z")):
        write_run(tmp_path, number, [SPEC], started_at=start)
    series = read_folder(tmp_path).series[0]
    assert [point.run for point in series.points] == ["run-01", "run-02", "run-00"]


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run["plan"].update(warmup_seconds=3.0),
        lambda run: run["plan"].update(name="another"),
        lambda run: run["cpu_roles"].update(service="0-1"),
        lambda run: run["machines"][0].update(host="elsewhere"),
    ],
)
def test_another_plan_and_another_machine_are_another_series(tmp_path: Path, change: Callable[[Json], object]) -> None:
    write_run(tmp_path, 0, [SPEC])
    edit(write_run(tmp_path, 1, [SPEC]) / "run.json", change)
    assert {len(series.points) for series in read_folder(tmp_path).series} == {1}


def test_a_change_of_the_plan_outside_the_ladder_starts_no_other_series(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [SPEC])
    other = write_run(tmp_path, 1, [SPEC, replace(SPEC, variant="batch"), replace(SPEC, tier=500)])
    edit(other / "run.json", lambda run: run["plan"].update(why="another reason", repeats=7))
    series = [one for one in read_folder(tmp_path).series if one.place.name == "gateway/throughput/standard/100"]
    assert {len(one.points) for one in series} == {2}


def test_machines_of_one_kind_are_one_machine_on_request(tmp_path: Path) -> None:
    for number in range(2):
        write_run(tmp_path, number, [SPEC], machines=[environment() | {"host": f"runner-{number}"}])
    assert {len(series.points) for series in read_folder(tmp_path, host=False).series} == {2}
    assert {len(series.points) for series in read_folder(tmp_path).series} == {1}


def test_unfinished_runs_and_files_that_disagree_are_left_out_by_name(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [SPEC])
    write_run(tmp_path, 1, [SPEC], state="running")
    wrong = write_run(tmp_path, 2, [SPEC]) / "trials" / SPEC.folder / "result.json"
    edit(wrong, lambda result: result["messages"].update(delivered=1))
    found = read_folder(tmp_path)
    assert {len(series.points) for series in found.series} == {1}
    assert [text.partition(":")[0] for text in found.left_out] == ["run-01", "run-02"]


def test_a_rate_that_the_generator_bound_is_not_a_point(tmp_path: Path) -> None:
    write_run(tmp_path, 0, [replace(SPEC, bound_by="generator", service_share=0.5, worker_share=0.99)])
    found = read_folder(tmp_path)
    assert "delivered per second" not in {series.place.figure for series in found.series}
    assert "the generator bound it" in found.left_out[0]


def test_a_folder_without_bundles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="holds no bundles"):
        read_folder(tmp_path)
    with pytest.raises(BundleError, match="is one bundle"):
        read_folder(write_run(tmp_path, 0, [SPEC]))


def test_a_drop_of_the_rate_is_found_between_its_commits(read: Read) -> None:
    (found,) = rate(judged(*read))
    assert found.standing is Standing.WORSE
    assert found.change.index == STEP_AT
    assert found.change.step == pytest.approx(-0.08, abs=0.01)
    assert (found.last_before.commit, found.first_after.commit) == (commit_of(STEP_AT - 1), commit_of(STEP_AT))


def test_a_lower_cost_is_for_the_better(read: Read) -> None:
    # The same CPU for fewer messages: the cost rises. Read backwards it falls.
    folder, _ = read
    backwards = [replace(series, points=series.points[::-1]) for series in folder.series]
    found = history(Folder(tuple(backwards), folder.runs))
    assert {one.standing for trend in found.trends for one in trend.changes} == {Standing.BETTER}
    assert not found.is_worse


def test_below_twenty_runs_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTAVA_PYTHON", "/nowhere")
    found = history(read_folder(write_runs(tmp_path, -0.5, runs=19)))
    assert all(trend.too_few and not trend.changes for trend in found.trends)


LEVELS = [10.0] * 12 + [9.0] * 12


def test_a_change_needs_both_detectors_at_most_three_runs_apart() -> None:
    assert [one.index for one in agreed(LEVELS, [12], [15])] == [12]
    assert agreed(LEVELS, [12], [16]) == agreed(LEVELS, [12], []) == agreed(LEVELS, [], [12]) == ()


def test_one_point_of_a_detector_counts_for_one_change() -> None:
    values = [10.0] * 12 + [9.0] * 3 + [8.0] * 9
    assert [one.index for one in agreed(values, [12, 15], [13])] == [12]


def test_a_change_needs_three_points_on_each_side() -> None:
    values = [10.0] * 22 + [5.0] * 2
    assert agreed(values, [22], [22]) == ()
    assert agreed(values[::-1], [2], [2]) == ()


def test_a_step_below_2_percent_is_not_reported() -> None:
    small = [10.0] * 12 + [9.85] * 12
    assert agreed(small, [12], [12]) == ()
    # Without it, its two sides are one level, from which the next step counts.
    both = [10.0] * 10 + [9.9] * 10 + [8.0] * 10
    (one,) = agreed(both, [10, 20], [10, 20])
    assert one.index == 20
    assert one.before == pytest.approx(9.95, abs=0.001)


def test_equal_values_have_no_change_for_pelt() -> None:
    assert detectors.pelt([5.0] * 30) == []
    assert detectors.pelt([5.0, 6.0]) == []
    assert detectors.pelt(LEVELS) == [12]


def test_otava_s_missing_environment_says_how_to_make_it(stepped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTAVA_PYTHON", "/nowhere/python")
    with pytest.raises(detectors.DetectorError, match="no /nowhere/python; make it with"):
        history(read_folder(stepped))


ENTRY = {
    "plan": "example",
    "figure": "delivered per second",
    "commits": f"{commit_of(STEP_AT - 1)[:12]}..{commit_of(STEP_AT)[:12]}",
    "why": "each message is checked twice",
}


def acknowledging(tmp_path: Path, *entries: object) -> tuple[acknowledged.Acknowledged, ...]:
    file = tmp_path / "acknowledged.yaml"
    # JSON is YAML.
    file.write_text(json.dumps(entries))
    return acknowledged.read(file)


def test_an_acknowledged_change_is_none_that_fails(tmp_path: Path, read: Read) -> None:
    found = judged(*read, acknowledging(tmp_path, ENTRY))
    (change,) = rate(found)
    assert (change.standing, change.why) == (Standing.ACKNOWLEDGED, "each message is checked twice")
    assert found.unmatched == ()
    assert found.is_worse, "the other figures changed, too"


@pytest.mark.parametrize(
    "changed",
    [
        {"plan": "other"},
        {"figure": "received per second"},
        {"commits": f"{commit_of(1)}..{commit_of(4)}"},
        {"commits": "0000000..ffffff0"},
        {"series": "gateway/throughput/standard/500"},
    ],
)
def test_an_entry_about_something_else_acknowledges_nothing(tmp_path: Path, read: Read, changed: Json) -> None:
    found = judged(*read, acknowledging(tmp_path, ENTRY | changed))
    assert rate(found)[0].standing is Standing.WORSE


def test_an_entry_that_names_no_change_is_reported(tmp_path: Path, read: Read) -> None:
    found = judged(*read, acknowledging(tmp_path, ENTRY | {"plan": "other"}))
    assert [one.plan for one in found.unmatched] == ["other"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("text", "entry 1 has no keys"),
        ({**ENTRY, "reason": "x"}, "entry 1: no key reason"),
        ({**ENTRY, "why": " "}, "entry 1: why must be a text"),
        ({**ENTRY, "commits": 8_123_456}, "entry 1: commits must be a text"),
        ({**ENTRY, "commits": "abc..def"}, "entry 1: commits must be BEFORE..AFTER"),
        ({**ENTRY, "series": 3}, "entry 1: series must be a text"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, entry: object, message: str) -> None:
    with pytest.raises(AcknowledgementError, match=message):
        acknowledging(tmp_path, entry)


def test_an_acknowledgement_file_may_be_empty_and_must_be_a_list_in_yaml(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("# nothing yet\n")
    assert acknowledged.read(file) == ()
    for text, message in (("plan: x", "must be a list"), ("- [", "is not YAML")):
        file.write_text(text)
        with pytest.raises(AcknowledgementError, match=message):
            acknowledged.read(file)
    with pytest.raises(AcknowledgementError, match="failed to read"):
        acknowledged.read(tmp_path / "missing")


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["history", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_prints_changes_and_an_entry_to_paste(
    tmp_path: Path, stepped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, _ = run_command(capsys, stepped, "--output", tmp_path)
    assert code == 1
    assert "suspected; confirm with `ladder compare`" in printed
    assert f"  commits: {commit_of(STEP_AT - 1)[:12]}..{commit_of(STEP_AT)[:12]}\n" in printed
    assert printed.endswith(f"{tmp_path / 'history.html'}\n")
    # What it prints acknowledges what it found.
    entries = printed[printed.index("- plan: ") : printed.rindex(str(tmp_path))].replace("why: ", "why: known")
    (tmp_path / "file.yaml").write_text(entries)
    assert run_command(capsys, stepped, "--output", tmp_path, "--acknowledged", tmp_path / "file.yaml")[0] == 0


def test_the_page_has_a_chart_for_each_series_and_says_what_to_do(
    tmp_path: Path, stepped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(capsys, stepped, "--output", tmp_path)
    page = (tmp_path / "history.html").read_text()
    assert page.count("<figure>") == len(read_folder(stepped).series)
    assert "suspected; confirm with ladder compare" in page
    assert commit_of(STEP_AT)[:12] in page
    assert "http" not in page


def test_the_command_prints_json_and_the_page_s_path_apart(
    tmp_path: Path, stepped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, other = run_command(capsys, stepped, "--output", tmp_path, "--format", "json")
    found = json.loads(printed)
    assert (code, found["is_worse"], found["runs"]) == (1, True, RUNS)
    series = next(one for one in found["series"] if one["figure"] == "delivered per second")
    assert len(series["points"]) == RUNS
    assert series["changes"][0]["standing"] == "worse"
    assert other == f"{tmp_path / 'history.html'}\n"


def test_a_series_is_a_test_case_in_junit(tmp_path: Path, stepped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, printed, _ = run_command(capsys, stepped, "--output", tmp_path, "--format", "junit")
    (suite,) = ElementTree.fromstring(printed)
    failed = {case.get("name") for case in suite if case.find("failure") is not None}
    assert int(suite.get("failures", "")) == len(failed)
    assert "delivered per second" in failed
    assert "memory per connection" not in failed


def test_bencher_gets_the_newest_run(tmp_path: Path, stepped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, printed, _ = run_command(capsys, stepped, "--output", tmp_path, "--format", "bencher")
    measures = json.loads(printed)["gateway/throughput/standard/100"]
    series = next(one for one in read_folder(stepped).series if one.place.figure == "delivered per second")
    assert measures["delivered-per-second"] == {"value": pytest.approx(series.values[-1])}


def test_bad_input_is_exit_code_2_and_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, error = run_command(capsys, tmp_path)
    assert (code, printed, error.count("\n")) == (2, "", 1)


def test_no_change_and_too_few_runs_are_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(tmp_path, runs=2)
    code, printed, _ = run_command(capsys, tmp_path)
    assert code == 0
    assert "too few runs (20 are needed)" in printed
    assert (tmp_path / "history" / "history.html").is_file()
