"""The edge of a service's capacity is a result, and a cause outside it is waited for."""

import json
from pathlib import Path

import pytest
from bundle import Bundle
from cluster import name_of
from kill import fill_memory
from release import Release
from waiting import until

TIERS = [10, 20]
# Long enough for a disturbance in the middle of the window.
WINDOW_SECONDS = 8
IMAGES = "ghcr.io/ws-ladder"
VERSION = "0.1.0"


def test_a_service_that_is_killed_for_memory_has_failed_its_trial(
    release: Release, tmp_path: Path, ballast: Path
) -> None:
    services = {"wse-server": {"resources": {"memory": "64Mi"}}}
    release.upgrade({"run": {"id": "oom"}, "plan": {"window_seconds": WINDOW_SECONDS}, "services": services})
    release.until_trial("oom", TIERS[1])
    fill_memory(release.ready_pod("service"), "service", ballast)
    status = release.until_run_ends("oom")
    release.until_restored()
    assert status["interruptions"] == 0
    first, second = (trial["state"] for trial in Bundle(release.fetch("oom", tmp_path)).run()["trials"])
    assert first["state"] == "finished"
    assert (second["state"], second["cause"]) == ("crashed", "service_oom"), second
    assert "OOMKilled" in second["reason"]
    asserted = release.cluster.attempt(*release.ladder_command("assert"))
    assert asserted.returncode == 1, asserted.stdout
    assert "service_oom" in asserted.stdout
    [event] = release.events("ServiceEnded")
    assert "service_oom" in event["note"]


@pytest.mark.long
def test_a_registry_that_comes_back_costs_no_trial(release: Release, tmp_path: Path, own_cluster: Path) -> None:
    late = {"repository": "late-image"}
    release.upgrade({"run": {"id": "late"}, "services": {"wse-server": {"image": late}}})
    # No registry can be reached from the node.
    release.until_status_prints("late-image", 120)
    release.until_status("an interruption", lambda status: status["interruptions"] >= 1)
    ctr = ["ctr", "--address", str(own_cluster / "containerd.sock"), "--namespace", "k8s.io", "images"]
    tag = f"{IMAGES}/late-image:{VERSION}"
    release.cluster.run(*ctr, "tag", f"{IMAGES}/wse-server:{VERSION}", tag)
    try:
        release.until_run_ends("late")
        release.until_restored()
        assert Bundle(release.fetch("late", tmp_path)).valid() == len(TIERS)
    finally:
        release.cluster.run(*ctr, "rm", tag)


def test_a_deleted_job_is_named_and_the_run_goes_on_when_it_is_back(release: Release, tmp_path: Path) -> None:
    values = {"run": {"id": "jobless"}, "plan": {"window_seconds": WINDOW_SECONDS}}
    release.upgrade(values)
    release.until_trial("jobless", TIERS[0])
    [job] = release.cluster.list("jobs", f"{release.instance},ws-ladder.dev/tier={TIERS[1]},!ws-ladder.dev/spare")
    release.cluster.kubectl("delete", "job", name_of(job))
    release.until_status_prints(f"Job {name_of(job)} was deleted", 120)
    # As Flux or Argo CD do: the object that is missing is created.
    manifest = release.cluster.run(
        release.helm,
        "get",
        "manifest",
        release.name,
        "-n",
        release.cluster.namespace,
        "--kubeconfig",
        str(release.cluster.kubeconfig),
    )
    [missing] = [
        part for part in manifest.split("\n---\n") if f'name: "{name_of(job)}"\n' in part and "kind: Job" in part
    ]
    release.cluster.kubectl("create", "-f", "-", stdin=missing)
    release.until_run_ends("jobless")
    release.until_restored()
    assert Bundle(release.fetch("jobless", tmp_path)).valid() == len(TIERS)


@pytest.mark.long
def test_failed_trials_are_measured_again_under_the_same_id(release: Release, tmp_path: Path) -> None:
    # The image is on no node, and interruptions are not waited for.
    late = {"wse-server": {"image": {"repository": "late-image"}}}
    release.upgrade({"run": {"id": "again", "retrySeconds": 0}, "services": late})
    release.until_run_ends("again", 240)
    trials = Bundle(release.fetch("again", tmp_path / "failed")).run()["trials"]
    assert [trial["state"]["state"] for trial in trials] == ["failed"] * len(TIERS)
    release.upgrade({"run": {"id": "again", "retry": "failed"}})
    until("all trials to be measured", lambda: measured(release), 150, release.describe)
    release.until_run_ends("again")
    release.until_restored()
    bundle = Bundle(release.fetch("again", tmp_path / "measured"))
    assert bundle.valid() == len(TIERS), json.dumps(bundle.run()["trials"])
    assert bundle.run()["retries"] == ["failed"]


def measured(release: Release) -> bool:
    """Whether every trial of the run is finished."""
    status = release.status()
    return bool(status) and all(trial["state"] == "finished" for trial in status["trials"])
