"""Kills a container's process with SIGKILL, as the kernel or a person would: from the outside, without a word."""

import os
import signal
from pathlib import Path

from cluster import Cluster, Object


def kill_container(cluster: Cluster, pod: Object, container: str) -> tuple[str, ...]:
    """Kill a container's first process, where the node is this machine; else the whole pod. How that may be called."""
    statuses = pod["status"]["containerStatuses"]
    container_id = next(status["containerID"] for status in statuses if status["name"] == container)
    processes = processes_of(container_id.rpartition("/")[2])
    # Only root may kill what a node runs.
    if processes and os.geteuid() == 0:
        # The lowest number is the first process: those that it started came later.
        os.kill(min(processes), signal.SIGKILL)
        return "SIGKILL", "137"
    # Without grace the kubelet sends SIGKILL at once.
    cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
    return "deleted", "gone", "SIGKILL", "137"


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
