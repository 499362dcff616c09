"""The chart's network policies, enforced: what a run needs goes through, and nothing else does."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bundle import Bundle
from cluster import Cluster, Object, hardened_pod
from kill import processes_of
from policies import Enforcement, can_connect, named
from release import Release
from waiting import until

TIERS = [10, 20]
# Long enough for all connections that are tried; one that is blocked takes two seconds.
WINDOW_SECONDS = 12
STRANGER = "stranger"
# Who may open a connection to which port of whom, while no monitor is enabled.
ALLOWED = {
    ("worker", "service", "ws"),
    ("worker", "operator", "coordinator"),
    ("operator", "service", "ws"),
    ("operator", "service", "metrics"),
    ("operator", "service", "evidence"),
}
PORTS = {"service": ["ws", "metrics", "evidence"], "operator": ["coordinator", "web", "metrics"]}


@pytest.fixture
def stranger(cluster: Cluster) -> Iterator[Object]:
    """A pod of the same namespace that doesn't belong to the release."""
    container = {"name": STRANGER, "image": "registry.k8s.io/pause:3.10", "imagePullPolicy": "IfNotPresent"}
    cluster.apply(hardened_pod(STRANGER, container))
    is_running = lambda: cluster.get("pod", STRANGER)["status"].get("phase") == "Running"  # noqa: E731
    until("the stranger to run", is_running, 60)
    yield cluster.get("pod", STRANGER)
    cluster.kubectl("delete", "pod", STRANGER, "--grace-period=0", "--force")


def process_of(pod: Object) -> int:
    """A process of the pod's first container, in whose network namespace connections are opened."""
    return min(processes_of(pod, pod["status"]["containerStatuses"][0]["name"]))


@pytest.fixture
def enforcement(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Enforcement | None]:
    """The policies are enforced: by our rules, or where E2E_POLICIES says so by the cluster's own network plugin."""
    if os.environ.get("E2E_POLICIES") == "enforced":
        yield None
        return
    with Enforcement(cluster, request.getfixturevalue("own_cluster")) as ours:
        yield ours


def test_only_what_a_run_needs_can_connect_and_the_run_passes(
    release: Release, tmp_path: Path, stranger: Object, enforcement: Enforcement | None
) -> None:
    release.upgrade({"run": {"id": "policed"}, "plan": {"window_seconds": WINDOW_SECONDS}})
    release.until_trial("policed", TIERS[0])
    pods = {role: release.ready_pod(role) for role in ("service", "operator", "worker")} | {STRANGER: stranger}
    if enforcement:
        enforcement.update()
    assert reachable(pods) == ALLOWED
    release.until_run_ends("policed", 240)
    release.until_restored()
    bundle = Bundle(release.fetch("policed", tmp_path))
    assert (bundle.valid(), bundle.attempts()) == (len(TIERS), [1, 1])


def reachable(pods: dict[str, Object]) -> set[tuple[str, str, str]]:
    """Which of the pods can connect to which port of which other one; all are tried at once."""
    ways = [(caller, called, name) for caller in pods for called in PORTS for name in PORTS[called] if caller != called]

    def is_open(way: tuple[str, str, str]) -> bool:
        caller, called, name = way
        [port] = named(pods[called], name)
        return can_connect(process_of(pods[caller]), pods[called]["status"]["podIP"], port)

    with ThreadPoolExecutor(len(ways)) as pool:
        return {way for way, found in zip(ways, pool.map(is_open, ways), strict=True) if found}


@pytest.mark.usefixtures("own_cluster")
def test_without_enforcement_the_stranger_can_connect(release: Release, stranger: Object) -> None:
    operator = release.ready_pod("operator")
    [port] = named(operator, "web")
    assert can_connect(process_of(stranger), operator["status"]["podIP"], port)
