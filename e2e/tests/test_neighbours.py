"""A pod that has nothing to do with the run takes CPU of its node: the trial is invalid, and the pod is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bundle import Bundle, read
from cluster import Cluster, Object, hardened_pod
from release import HELM_4, Release
from waiting import until

# The agent mounts a folder of the node, which the shared namespace refuses.
NAMESPACE = "ws-ladder-e2e-node"
IMAGE = "ghcr.io/ws-ladder/wse-server:0.1.0"
SPINNER = "spinner"
TIER = 10
BUSY_SHARE = 0.05
VALUES = {
    "run": {"id": "noisy"},
    "nodeEvidence": {"enabled": True},
    "plan": {
        "validity": {"busy_share": BUSY_SHARE},
        "ladders": [
            {
                "workload": "throughput",
                "variant": "batch",
                "tiers": [TIER],
                "load": {"model": "open", "rate_per_second": 200},
            }
        ],
    },
}


@pytest.fixture
def own(cluster: Cluster, tmp_path: Path) -> Iterator[Release]:
    """A release in a namespace that admits the agents of nodes."""
    own = cluster.beside(NAMESPACE)
    own.kubectl("create", "namespace", NAMESPACE)
    release = Release(own, "node", HELM_4, tmp_path)
    yield release
    release.uninstall()
    own.kubectl("delete", "namespace", NAMESPACE, seconds=120)


@pytest.fixture
def spinner(cluster: Cluster) -> Iterator[Object]:
    """A pod of the shared namespace that uses 0.6 CPUs."""
    command = ["sh", "-c", "while :; do :; done"]
    container = {"name": SPINNER, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": command}
    cluster.apply(hardened_pod(SPINNER, {**container, "resources": {"limits": {"cpu": "600m", "memory": "64Mi"}}}))
    is_running = lambda: cluster.get("pod", SPINNER)["status"].get("phase") == "Running"  # noqa: E731
    until("the spinner to run", is_running, 60)
    yield cluster.get("pod", SPINNER)
    cluster.kubectl("delete", "pod", SPINNER, "--grace-period=0", "--force")


def test_a_noisy_pod_makes_the_trial_invalid_and_is_named(own: Release, spinner: Object, tmp_path: Path) -> None:
    own.install(VALUES)
    own.until_run_ends("noisy")
    own.until_restored()
    bundle = Bundle(own.fetch("noisy", tmp_path))
    [trial] = bundle.trials()
    result = read(trial / "result.json")
    reasons = {reason["kind"]: reason["detail"] for reason in result["validity"]["reasons"]}
    node = spinner["spec"]["nodeName"]
    [machine_of_node] = bundle.run()["machines"]
    facts = machine_of_node["node"]
    assert f"{spinner['metadata']['namespace']}/{SPINNER}" in facts["neighbours"]
    assert facts["kubelet"].startswith("v1.")
    assert facts["container_runtime"].startswith("containerd://")
    assert f"of the CPUs of node {node}" in reasons["machine_busy"], reasons
    machine = result["machine"]
    assert machine["source"] == "nodes"
    [group] = machine["groups"]
    assert group["node"] == node
    assert group["busy_ns"] > group["own_ns"] > 0
    named = {one["name"]: one["cpu_ns"] for one in machine["busiest"]}
    used = named[f"pod {spinner['metadata']['namespace']}/{SPINNER}"] / 1e9 / machine["seconds"]
    assert used > BUSY_SHARE, named
