"""Kills a container's process with SIGKILL, as the kernel or a person would: from the outside, without a word."""

import os
import signal
from pathlib import Path

from cluster import Cluster, Object


def kill_container(cluster: Cluster, pod: Object, container: str) -> None:
    """Kill the first process of a container, where the node is this machine; else the whole pod."""
    statuses = pod["status"]["containerStatuses"]
    container_id = next(status["containerID"] for status in statuses if status["name"] == container)
    processes = processes_of(container_id.rpartition("/")[2])
    if processes:
        # The lowest number is the first process: those that it started came later.
        os.kill(min(processes), signal.SIGKILL)
        return
    # Without grace the kubelet sends SIGKILL at once.
    cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")


def processes_of(container_id: str) -> list[int]:
    """Processes of this machine whose cgroup is that of the container."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            cgroup = (entry / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if container_id in cgroup:
            found.append(int(entry.name))
    return found
