"""A search in the cluster: one Job serves all its loads, and an operator that is killed goes on with it."""

from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle
from cluster import name_of
from kill import fill_memory, kill_container
from release import LADDER, Release

RUN = "search"
SEARCH = "wse-server/throughput/batch"
LARGEST = 6
# The service carries all of it, so that few trials confirm the largest load.
PLAN: dict[str, Any] = {
    "services": ["wse-server"],
    "warmup_seconds": 0.5,
    "ladders": [
        {
            "workload": "throughput",
            "variant": "batch",
            "load": {"model": "open", "rate_per_second": 100},
            "service_env": {"DELIVERY": "batch"},
            "objectives": [{"figure": "failed_share", "at_most": 0.5}],
            "search": {
                "from": 2,
                "to": LARGEST,
                "final_trial_seconds": 0.5,
                "duration_sum_seconds": 0.5,
                "width": 0.5,
                "rounds": {"window_seconds": 3},
            },
        }
    ],
}
# Each trial after the short ones has a fresh process and fresh workers.
SEARCH_SECONDS = 240
REPORT_SECONDS = 120


def of_step(run: Any, step: str) -> list[Any]:
    """The trials of a step of the search, in order."""
    return [entry for entry in run["trials"] if entry["search"]["step"] == step]


def until_confirming(release: Release, run: str) -> Any:
    """Waits until a trial that confirms a load is measured, and returns the status."""

    def is_confirming(status: Any) -> bool:
        [search] = status["searches"] or [{"description": ""}]
        measuring = (status["step"] or {"step": ""})["step"] == "trial"
        return bool(status["run_id"] == run and measuring and search["description"].startswith("a load is confirmed"))

    return release.until_status("a confirming trial", is_confirming, SEARCH_SECONDS)


@pytest.fixture(scope="module")
def jobs_before(release: Release) -> set[str]:
    """The Jobs of the run, which is begun and whose operator is killed in a confirming trial."""
    release.upgrade({"run": {"id": RUN}, "plan": PLAN})
    jobs = {name_of(job) for job in release.cluster.list("jobs", release.instance)}
    [search] = until_confirming(release, RUN)["searches"]
    assert search["search"] == SEARCH
    # The bracket so far.
    assert (search["standing"], search["passed"], search["failed"]) == (None, LARGEST, None), search
    kill_container(release.cluster, release.ready_pod("operator"), "operator")
    return jobs


@pytest.fixture(scope="module")
def bundle(release: Release, jobs_before: set[str], tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The bundle of the search."""
    assert jobs_before
    release.until_run_ends(RUN, SEARCH_SECONDS)
    release.until_restored()
    return Bundle(release.fetch(RUN, tmp_path_factory.mktemp("search")))


def test_one_job_and_its_spare_serve_all_loads(release: Release, jobs_before: set[str], bundle: Bundle) -> None:
    job = min(jobs_before, key=len)
    assert jobs_before == {job, f"{job}-2"}
    assert {name_of(job) for job in release.cluster.list("jobs", release.instance)} == jobs_before
    loads = {entry["trial"]["tier"] for entry in bundle.run()["trials"]}
    assert {2, LARGEST} <= loads


def test_the_largest_load_is_confirmed_after_the_operator_was_killed(bundle: Bundle) -> None:
    run = bundle.run()
    assert run["state"] == "finished"
    [search] = run["searches"]
    found = search["found"]
    assert (found["confirmed"], found["at_least"], found["given_up_at"]) == (LARGEST, True, None), found
    confirming = of_step(run, "confirm")
    assert [entry["trial"]["process"] for entry in confirming] == list(range(2, len(confirming) + 2))
    results = [trial.name for trial in bundle.trials() if "-p1-" not in trial.name]
    assert len(results) == len(confirming)


def test_no_trial_but_the_one_in_flight_was_repeated(bundle: Bundle) -> None:
    attempts = bundle.attempts()
    assert set(attempts) <= {1, 2}
    # None where the operator was killed just after a trial.
    assert attempts.count(2) <= 1


def test_the_result_is_told_by_status_assert_and_metrics(release: Release, bundle: Bundle) -> None:
    assert f"{SEARCH}: confirmed >= {LARGEST} (5 of" in release.ladder("status")
    assert f"pass    {SEARCH}/{LARGEST}-p0-r0: confirmed >= {LARGEST}" in release.wait_for_verdict()
    metrics = release.metrics()
    assert f'ladder_confirmed_load{{search="{SEARCH}"}} {LARGEST}' in metrics
    assert f'ladder_search_standing{{search="{SEARCH}",standing="pass"}} 1' in metrics
    [event] = release.events("SearchEnded")
    assert event["type"] == "Normal"
    assert bundle.run()["searches"][0]["service"] in event["note"]


def test_the_bundle_has_the_form_of_a_local_search(release: Release, bundle: Bundle) -> None:
    verified = release.cluster.run(str(LADDER), "verify", str(bundle.folder))
    assert "ok      searches   1 decided again" in verified


def test_its_report_has_the_capacity_and_its_files_agree(release: Release, bundle: Bundle, tmp_path: Path) -> None:
    run = bundle.run()["id"]
    command = release.ladder_command("fetch", run, "--results", str(tmp_path))
    fetched = release.cluster.attempt(*command, seconds=REPORT_SECONDS)
    assert fetched.returncode == 0, fetched.stderr
    assert "disagree" not in fetched.stderr, fetched.stderr
    assert "Capacity inside the objective, on 0.3 CPU" in (tmp_path / run / "report/report.html").read_text()


@pytest.mark.long
def test_a_service_that_is_killed_for_memory_fails_a_trial_of_the_search_and_costs_no_job(
    release: Release, tmp_path: Path, ballast: Path
) -> None:
    [ladder] = PLAN["ladders"]
    plan = {**PLAN, "ladders": [{**ladder, "search": {**ladder["search"], "rounds": {"window_seconds": 8}}}]}
    services = {"wse-server": {"resources": {"memory": "64Mi"}}}
    release.upgrade({"run": {"id": "search-oom"}, "plan": plan, "services": services})
    until_confirming(release, "search-oom")
    fill_memory(release.ready_pod("service"), "service", ballast)
    status = release.until_run_ends("search-oom", SEARCH_SECONDS)
    release.until_restored()
    assert status["interruptions"] == 0
    jobs = release.cluster.list("jobs", release.instance)
    conditions = [condition["type"] for job in jobs for condition in job["status"].get("conditions", [])]
    assert "Failed" not in conditions, conditions
    [search] = Bundle(release.fetch("search-oom", tmp_path)).run()["searches"]
    found = search["found"]
    assert found["crash"] == {"load": LARGEST, "cause": "service_oom"}, found
    # One trial of nine may fail.
    assert found["capacity"]["confirm"] == {"load": LARGEST, "passed": 8, "failed": 1, "succeeded": True}, found
