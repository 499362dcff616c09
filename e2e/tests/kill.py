"""Kills a container's process from outside with SIGKILL, as the kernel or a user would."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from cluster import Cluster, Object


def kill_container(cluster: Cluster, pod: Object, container: str) -> tuple[str, ...]:
    """Kills a container's first process when the node is this machine, else the pod; returns the possible reasons."""
    processes = processes_of(pod, container)
    # Only root may kill processes of a node.
    if processes and os.geteuid() == 0:
        # The lowest process id is that of the first process: its children started later.
        os.kill(min(processes), signal.SIGKILL)
        return "SIGKILL", "137"
    # With a grace period of 0 the kubelet sends SIGKILL at once.
    cluster.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
    return "deleted", "removed", "SIGKILL", "137"


def processes_of(pod: Object, container: str) -> list[int]:
    """Ids of this machine's processes whose cgroup is the container's."""
    statuses = pod["status"]["containerStatuses"]
    container_id = next(status["containerID"] for status in statuses if status["name"] == container).rpartition("/")[2]
    process_ids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            cgroup = (entry / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if container_id in cgroup:
            process_ids.append(int(entry.name))
    return process_ids


def fill_memory(pod: Object, container: str, file: Path) -> None:
    """Fills the memory of a container from outside, until the kernel kills its largest process."""
    processes = processes_of(pod, container)
    if not processes or os.geteuid() != 0:
        pytest.skip("only root on the node can use a container's memory")
    cgroups = Path(f"/proc/{processes[0]}/cgroup").read_text().splitlines()
    by_controller = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in cgroups}
    folder = Path("/sys/fs/cgroup") / ("memory" if "memory" in by_controller else "")
    tasks = folder / by_controller.get("memory", by_controller.get("", "")).lstrip("/") / "cgroup.procs"
    # Small blocks: the writer must not be the largest process.
    script = f"echo $$ > {tasks} && exec dd if=/dev/zero of={file} bs=64k count=4096"
    # The kernel may kill it, too.
    subprocess.run(["sh", "-c", script], capture_output=True, check=False, timeout=60)
