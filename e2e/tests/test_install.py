"""A new installation becomes ready and then does nothing."""

from cluster import is_ready
from release import Release

PLAIN_POD = """
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: plain, image: registry.k8s.io/pause:3.10}]}
"""


def test_the_namespace_admits_only_pods_that_are_restricted(release: Release) -> None:
    command = release.cluster.kubectl_command("apply", "-f", "-")
    refused = release.cluster.attempt(*command, stdin=PLAIN_POD)
    assert refused.returncode != 0
    assert "violates PodSecurity" in refused.stderr, refused.stderr


def test_helm_waits_until_the_operator_is_ready_and_its_claim_is_bound(release: Release) -> None:
    # The fixture installed with --wait, so no further wait is needed.
    [operator] = release.pods("operator")
    assert is_ready(operator)
    [claim] = release.cluster.list("persistentvolumeclaims", release.instance)
    assert claim["status"]["phase"] == "Bound"


def test_nothing_is_loaded_until_a_run_is_named(release: Release) -> None:
    assert release.status()["run_id"] == ""
    # One for each tier, and a second one of each for when a worker crashes.
    assert len(release.cluster.list("jobs", release.instance)) == 4
    assert release.is_restored()
    assert release.web("/api/runs") == []


def test_the_status_can_be_read_from_a_laptop(release: Release) -> None:
    assert "run.id" in release.ladder("status")
