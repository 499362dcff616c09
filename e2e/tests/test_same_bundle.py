"""The same plan climbed in the cluster and on this machine leaves bundles with the same files and fields."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle, read
from release import LADDER, ROOT, Release

# Fields that depend on the place: only a cluster has pods, only a CPU quota has periods, only `ladder run` reads what
# others use of the machine.
ENVIRONMENT_FIELDS = (
    "pods",
    "throttled_periods",
    "throttled_ns",
    "periods",
    "isolation",
    "throttling",
    "machine",
    "rest",
    "counts",
)
# Seconds; each of the plan's two trials takes a few.
CLIMB_SECONDS = 120
# Most runs in each place: a busy machine makes trials invalid.
MAX_RUNS = 3
# Exit codes of `ladder run`.
PASSED, INVALID = 0, 2


@pytest.fixture(scope="module")
def bundles(release: Release, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Bundle]:
    """The bundles of the cluster and of this machine; the second uses the plan of the first."""
    results = tmp_path_factory.mktemp("there")
    in_cluster = undisturbed(lambda run_id: climb_in_cluster(release, run_id, results))
    plan = in_cluster.run()["plan"]
    folder = tmp_path_factory.mktemp("here")
    return in_cluster, undisturbed(lambda run_id: climb_locally(plan, run_id, folder))


def undisturbed(climb: Callable[[str], Bundle]) -> Bundle:
    """Climbs until all trials are valid, because an invalid trial has additional fields in either place."""
    for attempt in range(1, MAX_RUNS + 1):
        bundle = climb(f"here-{attempt}")
        if bundle.valid() == len(bundle.run()["trials"]):
            return bundle
    pytest.fail(f"none of {MAX_RUNS} runs was valid; the last: {json.dumps(bundle.run()['trials'], indent=2)}")


def climb_in_cluster(release: Release, run_id: str, results: Path) -> Bundle:
    """Climbs in the cluster and fetches the bundle."""
    release.upgrade({"run": {"id": run_id}})
    release.until_run_ends(run_id)
    release.until_restored()
    return Bundle(release.fetch(run_id, results))


def climb_locally(plan: Any, run_id: str, results: Path) -> Bundle:
    """Climbs a plan on this machine with `ladder run`."""
    file = results / "plan.yaml"
    # A JSON document is also a YAML document.
    file.write_text(json.dumps(plan))
    climb = [str(LADDER), "run", str(file), "--results", str(results), "--run-id", run_id, "--no-report"]
    done = subprocess.run(climb, cwd=ROOT, capture_output=True, text=True, timeout=CLIMB_SECONDS, check=False)
    assert done.returncode in (PASSED, INVALID), done.stdout + done.stderr
    return Bundle(results / run_id)


def fields(value: Any, path: str = "") -> set[str]:
    """The paths of all fields in a JSON value, without those that depend on the place."""
    if isinstance(value, list):
        return set().union(*(fields(item, path + "[]") for item in value))
    if not isinstance(value, dict):
        return set()
    named = {f"{path}/{name}": inner for name, inner in value.items() if name not in ENVIRONMENT_FIELDS}
    return set(named).union(*(fields(inner, name) for name, inner in named.items()))


def test_both_bundles_have_the_same_files(bundles: tuple[Bundle, Bundle]) -> None:
    # Files whose name begins with a dot, such as the store's lock, are not part of a bundle.
    in_cluster, local = ({name for name in bundle.files() if not name.startswith(".")} for bundle in bundles)
    assert in_cluster == local


def test_run_and_results_have_the_same_fields_and_the_same_plan(bundles: tuple[Bundle, Bundle]) -> None:
    in_cluster, local = bundles
    assert in_cluster.run()["plan"] == local.run()["plan"]
    # Lines of code are counted only where the sources are.
    without = ("machines", "versions", "cpu_roles", "lines")
    runs = [{name: value for name, value in bundle.run().items() if name not in without} for bundle in bundles]
    assert fields(runs[0]) == fields(runs[1])
    for trial in local.trials():
        other = in_cluster.folder / trial.relative_to(local.folder)
        assert fields(read(trial / "result.json")) == fields(read(other / "result.json"))


def test_one_command_verifies_both(bundles: tuple[Bundle, Bundle]) -> None:
    for bundle in bundles:
        verify = [str(LADDER), "verify", str(bundle.folder)]
        done = subprocess.run(verify, capture_output=True, text=True, timeout=CLIMB_SECONDS, check=False)
        assert done.returncode == PASSED, done.stdout + done.stderr


def test_one_report_opens_both(bundles: tuple[Bundle, Bundle]) -> None:
    for bundle in bundles:
        command = [str(ROOT / ".venv/bin/python"), "-m", "ws_ladder_analysis", str(bundle.folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        report = (bundle.folder / "report/report.md").read_text()
        assert "throughput" in report
        assert (bundle.folder / "report/report.html").stat().st_size > 0
