"""A plan with four services that can't be measured and one that can: failures have reasons, the last is measured."""

from pathlib import Path
from typing import Any

import pytest
from bundle import Bundle
from release import Release

SERVICE = {
    "enabled": True,
    "protocol": "wse",
    "books": "connections",
    "resources": {"memory": "128Mi"},
    "terminationGracePeriodSeconds": 10,
}
# Listens on loopback only, so that probes can't reach it.
UNREACHABLE = {
    **SERVICE,
    "description": "Never ready: it listens on loopback",
    "image": {"repository": "wse-server"},
    "args": ["--host", "127.0.0.1"],
}
WITHOUT_IMAGE = {
    **SERVICE,
    "description": "Can't be pulled: no registry has its image",
    "image": {"repository": "no-such-image"},
}
CRASHING = {
    **SERVICE,
    "description": "Ends at once: it doesn't know its flag",
    "image": {"repository": "wse-server"},
    "args": ["--no-such-flag"],
}
HUGE = {
    **SERVICE,
    "description": "Fits on no node",
    "image": {"repository": "wse-server"},
    "resources": {"memory": "4Ti"},
}
BROKEN = {"ghost": WITHOUT_IMAGE, "deaf": UNREACHABLE, "crashing": CRASHING, "huge": HUGE}


@pytest.fixture(scope="module")
def ended(release: Release) -> Any:
    """The status after a run of all services."""
    plan = {"services": [*BROKEN, "wse-server"], "ladders": [LADDER]}
    # Two of them use up the time that a pod may take to start. No registry can be reached; that is not waited for.
    operator = {"env": {"LADDER_START_DEADLINE_SECONDS": "30"}}
    release.upgrade(
        {"run": {"id": "broken", "retrySeconds": 0}, "plan": plan, "services": BROKEN, "operator": operator}
    )
    status = release.until_run_ends("broken", 360)
    release.until_restored()
    return status


LADDER = {
    "workload": "throughput",
    "variant": "batch",
    "tiers": [10],
    "load": {"model": "open", "rate_per_second": 200},
}


@pytest.mark.usefixtures("ended")
def test_an_image_that_cannot_be_pulled_is_named(release: Release, tmp_path: Path) -> None:
    reason = failure(release, "ghost", tmp_path)
    assert "no-such-image" in reason
    assert "ImagePull" in reason or "ErrImage" in reason
    assert "no-such-image" in release.ladder("status")


@pytest.mark.usefixtures("ended")
def test_a_service_that_never_becomes_ready_is_named(release: Release, tmp_path: Path) -> None:
    reason = failure(release, "deaf", tmp_path)
    assert "deaf" in reason
    assert "ready" in reason.lower()


@pytest.mark.usefixtures("ended")
def test_a_service_that_ends_again_and_again_is_named_with_its_exit_code(release: Release, tmp_path: Path) -> None:
    reason = failure(release, "crashing", tmp_path)
    assert "container service ended with exit code 2" in reason
    assert "CrashLoopBackOff" in reason


@pytest.mark.usefixtures("ended")
def test_a_service_that_fits_on_no_node_is_named_with_what_is_missing(release: Release, tmp_path: Path) -> None:
    reason = failure(release, "huge", tmp_path)
    assert "can't be scheduled" in reason
    assert "Insufficient memory" in reason


@pytest.mark.usefixtures("ended")
def test_the_working_service_is_measured(release: Release, tmp_path: Path) -> None:
    trials = Bundle(release.fetch("broken", tmp_path)).run()["trials"]
    states = {entry["trial"]["service"]: entry["state"]["state"] for entry in trials}
    assert states == {**dict.fromkeys(BROKEN, "failed"), "wse-server": "finished"}


@pytest.mark.long
def test_an_image_of_a_worker_that_cannot_be_pulled_is_named(release: Release, tmp_path: Path) -> None:
    workers = {"wse": {"image": {"repository": "no-such-worker"}}}
    run = {"id": "no-worker", "retrySeconds": 0}
    release.upgrade({"run": run, "plan": {"ladders": [LADDER]}, "protocols": workers})
    release.until_run_ends("no-worker")
    release.until_restored()
    [entry] = Bundle(release.fetch("no-worker", tmp_path)).run()["trials"]
    assert entry["state"]["state"] == "failed"
    assert "no-such-worker" in entry["state"]["reason"]
    assert "container worker can't be pulled" in entry["state"]["reason"]


def failure(release: Release, service: str, work: Path) -> str:
    """The reason in the bundle why a service's trial failed."""
    trials = Bundle(release.fetch("broken", work)).run()["trials"]
    [state] = [entry["state"] for entry in trials if entry["trial"]["service"] == service]
    reason: str = state["reason"]
    return reason
