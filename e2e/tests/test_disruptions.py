"""The cluster takes a worker away, for a pod of a higher priority or because a client asks: the trial is repeated."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, Object, hardened_pod, name_of
from release import Release
from repeated import is_repeated

IMAGE = "ghcr.io/ws-ladder/wse-server:0.1.0"
IMPORTANT = "ws-ladder-e2e-important"
TIER = 10
# Long enough to disturb the middle of the window.
WINDOW_SECONDS = 8
PLAN = {
    "window_seconds": WINDOW_SECONDS,
    "ladders": [
        {
            "workload": "throughput",
            "variant": "batch",
            "tiers": [TIER],
            "load": {"model": "open", "rate_per_second": 200},
            "service_env": {"DELIVERY": "batch"},
        }
    ],
}


def millicpus(quantity: str) -> int:
    """CPUs as Kubernetes writes them."""
    return int(quantity[:-1]) if quantity.endswith("m") else round(float(quantity) * 1000)


def free_millicpus(cluster: Cluster, pod: Object) -> int:
    """What no pod has requested of the CPUs of a pod's node."""
    node = pod["spec"]["nodeName"]
    everywhere = json.loads(cluster.kubectl("get", "pods", "--all-namespaces", "-o", "json"))["items"]
    held = [one for one in everywhere if one["spec"].get("nodeName") == node and is_held(one)]
    containers = [container for one in held for container in one["spec"]["containers"]]
    requests = [container["resources"].get("requests", {}).get("cpu", "0") for container in containers]
    return millicpus(cluster.get("node", node)["status"]["allocatable"]["cpu"]) - sum(map(millicpus, requests))


def is_held(pod: Object) -> bool:
    """Whether the requests of a pod still count."""
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


@pytest.fixture
def priority(cluster: Cluster) -> Iterator[str]:
    """The name of a priority above that of all pods of the release. The pod that has it goes with it."""
    metadata = {"name": IMPORTANT}
    cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 1000})
    yield IMPORTANT
    cluster.kubectl("delete", "pod", IMPORTANT, "--ignore-not-found", "--grace-period=0", "--force")
    cluster.kubectl("delete", "priorityclass", IMPORTANT)


def test_a_worker_that_is_preempted_costs_only_its_trial(release: Release, priority: str, tmp_path: Path) -> None:
    cluster = release.cluster
    release.upgrade({"run": {"id": "preempted"}, "plan": PLAN})
    release.until_loaded("preempted", TIER)
    # One more than is free: the scheduler takes the place of the youngest pods, which are the workers.
    requests = {"cpu": f"{free_millicpus(cluster, release.ready_pod('worker')) + 1}m"}
    container = {"name": "important", "image": IMAGE, "command": ["sleep", "600"], "resources": {"requests": requests}}
    cluster.apply(hardened_pod(IMPORTANT, container, priorityClassName=priority))
    is_interrupted_by(release, "PreemptionByScheduler")
    cluster.kubectl("delete", "pod", IMPORTANT, "--grace-period=0", "--force")
    is_repeated(release, "preempted", tmp_path)


@pytest.mark.long
def test_a_worker_that_is_evicted_costs_only_its_trial(release: Release, tmp_path: Path) -> None:
    cluster = release.cluster
    release.upgrade({"run": {"id": "evicted"}, "plan": PLAN})
    release.until_loaded("evicted", TIER)
    name = name_of(release.ready_pod("worker"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    is_interrupted_by(release, "EvictionByEvictionAPI")
    is_repeated(release, "evicted", tmp_path)


def is_interrupted_by(release: Release, reason: str) -> None:
    """Waits for an interruption, and checks that it is that of a worker for this reason of Kubernetes."""
    told = release.until_status("an interruption", lambda status: status["interruptions"] >= 1)
    description = told["last_problem"]["description"]
    assert "worker" in description
    assert reason in description
