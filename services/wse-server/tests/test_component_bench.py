"""The component benchmark (`tools/bench_components.py`): both sides return equal results, and a run prints a table."""

import json
from pathlib import Path

import bench_components
import component_baselines as plain
import pytest
from component_tasks import Task, same, tasks

TASKS = tasks()


@pytest.mark.parametrize("task", TASKS, ids=[f"{task.component.name}, {task.component.baseline}" for task in TASKS])
def test_both_sides_give_the_same_results_and_can_be_run_again(task: Task) -> None:
    task.check()
    for side in (task.ours, task.plain):
        for count in (1, 100):
            side.run(count)
            side.restore()
    task.check()


def test_results_that_differ_stop_the_benchmark() -> None:
    with pytest.raises(AssertionError, match="name: answer 1 differs: Rust gives 2, Python 3"):
        same("name", [(1, 1), (2, 3)])


def test_every_published_component_is_measured() -> None:
    assert len({task.component.name for task in TASKS}) == 9


def test_a_run_leaves_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_components, "FILE", tmp_path / "bench/components.json")
    monkeypatch.setattr(bench_components, "ROOT", tmp_path)
    assert bench_components.main(["--processes", "2", "--batches", "3", "--batch-ms", "0.05"]) == 0
    written = json.loads((tmp_path / "bench/components.json").read_text())
    assert len(written["components"]) == len(TASKS)
    assert all(one["processes"] == 2 and one["ratio"]["value"] > 0 for one in written["components"])
    printed = capsys.readouterr().out
    assert all(task.component.name in printed for task in TASKS)


def test_bad_usage_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench_components.main(["--batches", "0"])
    assert ended.value.code == 2
    assert "must be above 0" in capsys.readouterr().err


def test_the_plain_ids_are_of_version_7_and_rise_with_time() -> None:
    ids = [plain.new_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert {name[14] for name in ids} == {"7"}
    assert {name[19] for name in ids} <= set("89ab")
    assert ids[0][:8] <= ids[-1][:8]
