"""The CPU quota of this process, from its cgroup and the cgroups above it."""

from collections.abc import Iterator
from pathlib import Path

# Mount points of the CPU controller: version 2 has one tree for all controllers, version 1 one per controller.
UNIFIED_ROOTS = (Path("/sys/fs/cgroup"),)
CPU_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct"))


def quota(membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """The lowest quota that applies, in CPUs; `None` without one or when it can't be read."""
    try:
        groups = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return None
    return min((found for _, controllers, path in groups for found in _quotas(controllers, path)), default=None)


def _quotas(controllers: str, path: str) -> Iterator[float]:
    """The quotas of a cgroup and of those above it."""
    roots = UNIFIED_ROOTS if controllers == "" else CPU_ROOTS if "cpu" in controllers.split(",") else ()
    root = next((root for root in roots if root.is_dir()), None)
    if root is None:
        return
    # In a container the path may not exist below the mounted root; then the root is this process's cgroup.
    own = root / path.lstrip("/")
    folder = own if own.is_dir() else root
    for group in (folder, *folder.parents):
        if group.is_relative_to(root) and (found := quota_of(group)) is not None:
            yield found


def quota_of(group: Path) -> float | None:
    """The quota of one cgroup in CPUs; `None` without one."""
    try:
        if (file := group / "cpu.max").is_file():
            limit, period = file.read_text().split()
        else:
            limit, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        # Without a quota, version 2 has "max" and version 1 has -1.
        return int(limit) / int(period) if limit != "max" and int(limit) > 0 else None
    except (OSError, ValueError):
        return None
