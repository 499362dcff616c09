"""The results' volume is full or read-only: the operator reports it and restores what it changed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, Object, hardened_pod
from nodes import inside_first_node
from release import HELM_4, Release
from waiting import until

CLAIM = "small"
IMAGE = "ghcr.io/ws-ladder/wse-server:0.1.0"


@pytest.fixture
def small(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A release with a results' volume of a few megabytes."""
    folder = os.environ.get("E2E_SMALL_VOLUME")
    if not folder:
        pytest.skip("E2E_SMALL_VOLUME names no folder of the node that holds but a few megabytes")
    cluster.apply(*volume(folder, cluster.namespace))
    release = Release(cluster, "small", HELM_4, tmp_path_factory.mktemp("small"))
    release.install({"results": {"existingClaim": CLAIM}})
    yield release
    release.uninstall()
    cluster.kubectl("delete", f"persistentvolumeclaim/{CLAIM}", f"persistentvolume/{CLAIM}")


def volume(folder: str, namespace: str) -> list[Object]:
    """A volume in a folder of the node, and a claim bound to it."""
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": CLAIM},
            "spec": {
                **spec,
                "capacity": {"storage": "8Mi"},
                "hostPath": {"path": folder},
                "claimRef": {"name": CLAIM, "namespace": namespace},
            },
        },
        {**claim, "spec": {**spec, "volumeName": CLAIM, "resources": {"requests": {"storage": "8Mi"}}}},
    ]


FILL = (
    "while head -c 4096 /dev/zero >> /results/ballast 2>/dev/null; do :; done; ! echo more > /results/more 2>/dev/null"
)
EMPTY = "rm -f /results/ballast /results/more"


def run_on_volume(cluster: Cluster, name: str, script: str) -> None:
    """Runs a script in a pod that mounts the volume."""
    container = {
        "name": "script",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "results", "mountPath": "/results"}],
    }
    volumes = [{"name": "results", "persistentVolumeClaim": {"claimName": CLAIM}}]
    cluster.apply(hardened_pod(name, container, restartPolicy="Never", volumes=volumes))
    until(f"pod {name} to end", lambda: phase(cluster, name) in ("Succeeded", "Failed"), 60)
    assert phase(cluster, name) == "Succeeded", cluster.kubectl("logs", name)
    cluster.kubectl("delete", "pod", name, "--wait=false")


def phase(cluster: Cluster, pod: str) -> str:
    """The pod's `status.phase`."""
    phase: str = cluster.get("pod", pod)["status"]["phase"]
    return phase


@pytest.mark.long
def test_a_read_only_volume_is_reported_and_the_run_is_made_once_it_is_mounted_for_writing(
    small: Release, own_cluster: Path
) -> None:
    folder = os.environ["E2E_SMALL_VOLUME"]
    remount = [*inside_first_node(own_cluster, "mount"), "mount", "-o"]
    small.cluster.run(*remount, "remount,ro", folder)
    try:
        request(small, "read-only")
        small.until_status_prints("the results volume can't be written")
        small.until_restored()
    finally:
        small.cluster.run(*remount, "remount,rw", folder)
    # A pod keeps the mount with which it was started.
    small.cluster.kubectl("delete", "pods", "--selector", small.component("operator"))
    status = small.until_run_ends("read-only")
    assert [trial["standing"] for trial in status["trials"]] == ["pass", "pass"]


def request(small: Release, run: str) -> None:
    """Requests a run. The operator can't become ready while it can't write, so helm must not wait."""
    values = {"run": {"id": run}, "results": {"existingClaim": CLAIM}}
    command = [part for part in small.helm_command("upgrade", values) if part != small.wait]
    small.cluster.run(*command, seconds=120)


def test_a_full_volume_is_reported_and_the_run_continues_when_there_is_space(small: Release) -> None:
    run_on_volume(small.cluster, "fill", FILL)
    request(small, "full")
    small.until_status_prints("the results volume is full")
    small.until_restored()
    run_on_volume(small.cluster, "empty", EMPTY)
    status = small.until_run_ends("full")
    assert [trial["standing"] for trial in status["trials"]] == ["pass", "pass"]
