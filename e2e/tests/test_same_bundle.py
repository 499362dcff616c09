"""The same plan climbed in the cluster and on this machine: bundles of one kind, that one report opens."""

import json
import subprocess
from typing import Any

import pytest
from bundle import Bundle, read
from release import LADDER, ROOT, Release

# What a place alone can say: a cluster has pods, and a quota has periods.
OF_THE_PLACE = ("pods", "throttled_periods", "periods", "isolation", "throttling")
# Seconds; the plan's two trials take a few each.
CLIMB_SECONDS = 120


@pytest.fixture(scope="module")
def bundles(release: Release, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Bundle]:
    """That of the cluster, and that of this machine, climbed by the plan that the first was climbed by."""
    release.upgrade({"run": {"id": "here"}})
    release.until_run_ends("here")
    release.until_put_back()
    there = Bundle(release.fetch("here", tmp_path_factory.mktemp("there")))
    results = tmp_path_factory.mktemp("here")
    plan = results / "plan.yaml"
    # Every JSON document is a YAML document.
    plan.write_text(json.dumps(there.run()["plan"]))
    climb = [str(LADDER), "run", str(plan), "--results", str(results), "--run-id", "here", "--no-report"]
    done = subprocess.run(climb, cwd=ROOT, capture_output=True, text=True, timeout=CLIMB_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return there, Bundle(results / "here")


def fields(value: Any, path: str = "") -> set[str]:
    """The paths of all fields in a JSON value, without what only one place can say."""
    if isinstance(value, list):
        return set().union(*(fields(item, path + "[]") for item in value))
    if not isinstance(value, dict):
        return set()
    named = {f"{path}/{name}": inner for name, inner in value.items() if name not in OF_THE_PLACE}
    return set(named).union(*(fields(inner, name) for name, inner in named.items()))


def test_both_bundles_have_the_same_files(bundles: tuple[Bundle, Bundle]) -> None:
    # What begins with a dot, such as the lock of the store, is no part of a bundle.
    there, here = ({name for name in bundle.files() if not name.startswith(".")} for bundle in bundles)
    assert there == here


def test_run_and_results_have_the_same_fields_and_the_same_plan(bundles: tuple[Bundle, Bundle]) -> None:
    there, here = bundles
    assert there.run()["plan"] == here.run()["plan"]
    without = ("machines", "versions", "cpu_roles")
    runs = [{name: value for name, value in bundle.run().items() if name not in without} for bundle in bundles]
    assert fields(runs[0]) == fields(runs[1])
    for trial in here.trials():
        other = there.folder / trial.relative_to(here.folder)
        assert fields(read(trial / "result.json")) == fields(read(other / "result.json"))


def test_one_report_opens_both(bundles: tuple[Bundle, Bundle]) -> None:
    for bundle in bundles:
        command = [str(ROOT / ".venv/bin/python"), "-m", "ws_ladder_analysis", str(bundle.folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        report = (bundle.folder / "report/report.md").read_text()
        assert "throughput" in report
        assert (bundle.folder / "report/report.html").stat().st_size > 0
