"""A plan with two services that can't be measured and one that can: failures have reasons, the third is measured."""

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


@pytest.fixture(scope="module")
def ended(release: Release) -> Any:
    """The status after a run of all three services."""
    plan = {"services": ["ghost", "deaf", "wse-server"], "ladders": [LADDER]}
    release.upgrade({"run": {"id": "broken"}, "plan": plan, "services": {"ghost": WITHOUT_IMAGE, "deaf": UNREACHABLE}})
    status = release.until_run_ends("broken", 240)
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
def test_the_working_service_is_measured(release: Release, tmp_path: Path) -> None:
    trials = Bundle(release.fetch("broken", tmp_path)).run()["trials"]
    states = {entry["trial"]["service"]: entry["state"]["state"] for entry in trials}
    assert states == {"ghost": "failed", "deaf": "failed", "wse-server": "finished"}


def failure(release: Release, service: str, work: Path) -> str:
    """The reason in the bundle why a service's trial failed."""
    trials = Bundle(release.fetch("broken", work)).run()["trials"]
    [state] = [entry["state"] for entry in trials if entry["trial"]["service"] == service]
    reason: str = state["reason"]
    return reason
