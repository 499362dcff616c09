"""An undisturbed run: its order, its figures, and what remains afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle, read
from cluster import Object, name_of
from release import Release
from releases import Releases
from waiting import until

TIERS = [10, 20]
WORKERS = 2
REASONS = ["RunBegan", "RunEnded", "TrialInvalid", "TrialFailed", "ServiceEnded", "TrialInterrupted", "NotPutBack"]


@dataclass
class Climbed:
    """A finished run with its observations."""

    release: Release
    releases: Releases
    jobs: list[Object]
    waited: str
    bundle: Bundle


@pytest.fixture(scope="module")
def climbed(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Climbed:
    """Climbs the run `first`."""
    with Releases(release.cluster, release.instance) as releases:
        release.upgrade({"run": {"id": "first"}})
        jobs = release.cluster.list("jobs", f"{release.instance},!ws-ladder.dev/spare")
        waited = release.wait_for_verdict()
        release.until_restored()
    bundle = Bundle(release.fetch("first", tmp_path_factory.mktemp("results")))
    return Climbed(release, releases, jobs, waited, bundle)


def tier(job: Object) -> int:
    return int(job["metadata"]["labels"]["ws-ladder.dev/tier"])


def test_each_tier_has_one_job_and_they_are_released_one_at_a_time_in_order(climbed: Climbed) -> None:
    tiers = {name_of(job): tier(job) for job in climbed.jobs}
    released = [tiers[name] for name in climbed.releases.released if name in tiers]
    assert released == TIERS
    assert climbed.releases.max_concurrent == 1


def test_every_trial_is_valid_and_passes(climbed: Climbed) -> None:
    run = climbed.bundle.run()
    assert run["state"] == "finished"
    assert [entry["trial"]["tier"] for entry in run["trials"]] == TIERS
    for entry in run["trials"]:
        assert entry["state"] == {"state": "finished", "validity": {"state": "valid"}, "passed": True}


def test_two_workers_are_merged_into_one_result_whose_counts_are_their_sum(climbed: Climbed) -> None:
    for trial in climbed.bundle.trials():
        result = read(trial / "result.json")
        workers = [read(path) for path in sorted((trial / "workers").glob("*.json"))]
        assert len(workers) == WORKERS
        assert all(worker["messages"]["sent"] > 0 for worker in workers)
        for count in ("due", "sent", "bytes_sent"):
            assert result["messages"][count] == total(workers, "messages", count)
        for count in ("attempted", "open"):
            assert result["connections"][count] == total(workers, "connections", count)
        assert result["connections"]["open"] == result["trial"]["tier"]
        assert result["messages"]["delivered"] == result["messages"]["sent"]


def total(workers: list[Any], group: str, count: str) -> int:
    return sum(worker[group][count] for worker in workers)


def test_assert_and_status_report_that_the_run_passed(climbed: Climbed) -> None:
    assert "run first has ended: pass" in climbed.release.ladder("status")
    climbed.release.ladder("assert")


def test_a_waiting_client_gets_each_trial_as_it_ends_and_the_final_standing(climbed: Climbed) -> None:
    lines = climbed.waited.splitlines()
    trials = [f"wse-server/throughput/batch/{tier}-p1-r1" for tier in TIERS]
    ended = [line.partition(": ")[0] for line in lines if ": passed, " in line]
    assert ended == trials
    assert lines[-1] == "run first: pass"


def test_a_run_leaves_events_about_the_operators_pod(climbed: Climbed) -> None:
    # The operator's pod of this run: the next test replaces it.
    notes = [(event["type"], event["note"]) for reason in REASONS for event in climbed.release.events(reason)]
    assert notes == [("Normal", "climbing run first"), ("Normal", "run first has ended: pass")]


def test_results_outlive_every_pod(climbed: Climbed, tmp_path: Path) -> None:
    release = climbed.release
    [operator] = release.cluster.list("deployments", release.component("operator"))
    release.cluster.kubectl("scale", f"deployment/{name_of(operator)}", "--replicas=0")
    all_removed = lambda: not release.cluster.list("pods", release.instance)  # noqa: E731
    until("all pods of the release to be gone", all_removed, 60, release.describe)
    release.cluster.kubectl("scale", f"deployment/{name_of(operator)}", "--replicas=1")
    release.ready_pod("operator")
    assert Bundle(release.fetch("first", tmp_path)).files() == climbed.bundle.files()


def test_the_metrics_have_the_figures_of_each_trial(climbed: Climbed) -> None:
    text = climbed.release.metrics()
    for trial in (f"wse-server/throughput/batch/{tier}-p1-r1" for tier in TIERS):
        assert f'ladder_trial_standing{{trial="{trial}",standing="pass"}} 1' in text
        assert f'ladder_trial_delivered_per_second{{trial="{trial}"}}' in text


def test_a_second_run_is_watched_and_keeps_the_first_bundle(climbed: Climbed, tmp_path: Path) -> None:
    release = climbed.release
    release.upgrade({"run": {"id": "second"}})
    release.until_status("the run second", lambda status: bool(status["run_id"] == "second"))
    with release.seconds() as seconds:
        watched = release.ladder("watch", "--quiet").splitlines()
    ended = [line.partition(": ")[0] for line in watched if ": passed, " in line]
    assert ended == [f"wse-server/throughput/batch/{tier}-p1-r1" for tier in TIERS], watched
    assert watched[-1] == "run second has ended: pass"
    shown = [second["trial"] for second in seconds if second["trial"]]
    assert {trial["connections"] for trial in shown} == set(TIERS)
    assert any(trial["open"] == trial["connections"] for trial in shown), shown
    assert all(one["objective"] == "failed_share <= 0" for trial in shown for one in trial["objectives"])
    assert Bundle(release.fetch("second", tmp_path)).valid() == len(TIERS)
    assert Bundle(release.fetch("first", tmp_path)).files() == climbed.bundle.files()


def test_bundles_of_older_runs_are_removed_where_the_release_asks_for_it(climbed: Climbed) -> None:
    release = climbed.release
    assert {"first", "second"} <= {run["id"] for run in release.web("/api/runs")}
    release.upgrade({"run": {"id": "second"}, "results": {"keep": {"runs": 1}}})
    is_alone: Callable[[], bool] = lambda: [run["id"] for run in release.answer("runs") or []] == ["second"]  # noqa: E731
    until("the bundle of the second run to be alone", is_alone, 60, release.describe)
