"""Two operators at once, and a release that is uninstalled in the middle of its run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bundle import Bundle
from cluster import Cluster, is_ready, name_of
from release import HELM_4, Release
from waiting import until

TIERS = [10, 20]
# Long enough for a second operator to start in the middle of the window.
WINDOW_SECONDS = 8


def test_a_second_operator_waits_for_the_lease_and_takes_no_part(release: Release, tmp_path: Path) -> None:
    release.upgrade({"run": {"id": "twice"}, "plan": {"window_seconds": WINDOW_SECONDS}})
    release.until_trial("twice", TIERS[0])
    [first] = release.pods("operator")
    [deployment] = [name_of(found) for found in release.cluster.list("deployments", release.component("operator"))]
    release.cluster.kubectl("scale", f"deployment/{deployment}", "--replicas=2")
    try:

        def waits() -> bool:
            others = [name_of(pod) for pod in release.pods("operator") if name_of(pod) != name_of(first)]
            # A container that has not started has no log.
            logs = [release.cluster.attempt(*release.cluster.kubectl_command("logs", name)).stdout for name in others]
            return any("only one operator climbs" in log for log in logs)

        until("the second operator to wait for the Lease", waits, 60, release.describe)
        release.until_run_ends("twice")
        ready = [name_of(pod) for pod in release.pods("operator") if is_ready(pod)]
        assert ready == [name_of(first)], "only the operator that climbs is reached through the Service"
    finally:
        release.cluster.kubectl("scale", f"deployment/{deployment}", "--replicas=1")
    release.until_restored()
    bundle = Bundle(release.fetch("twice", tmp_path))
    assert (bundle.valid(), bundle.attempts()) == (len(TIERS), [1, 1])


@pytest.fixture
def own(cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """A release of its own, which the test uninstalls and installs again."""
    own = Release(cluster, "again", HELM_4, tmp_path)
    own.install()
    yield own
    own.uninstall()


@pytest.mark.long
def test_a_release_that_is_uninstalled_in_a_run_leaves_no_pod_and_goes_on_when_it_is_back(
    own: Release, tmp_path: Path
) -> None:
    values = {"run": {"id": "gone"}, "plan": {"window_seconds": WINDOW_SECONDS}}
    own.upgrade(values)
    own.until_trial("gone", TIERS[1])
    own.uninstall()
    until("all pods to be gone", lambda: not own.cluster.list("pods", own.instance), 60)
    [claim] = own.cluster.list("persistentvolumeclaims", own.instance)
    assert claim["status"]["phase"] == "Bound", "results outlive the release"
    own.install(values)
    own.until_run_ends("gone")
    own.until_restored()
    bundle = Bundle(own.fetch("gone", tmp_path))
    assert (bundle.valid(), bundle.attempts()) == (len(TIERS), [1, 2])
