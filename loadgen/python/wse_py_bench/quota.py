"""The CPU quota of this process: what its cgroup, and those above it, allow."""

from collections.abc import Iterator
from pathlib import Path

# Where the controller is mounted, by its version: one tree for all, or one per controller.
UNIFIED = (Path("/sys/fs/cgroup"),)
OF_CPU = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct"))


def quota(membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """CPUs of the tightest quota in force; none where there is none or it can't be seen."""
    try:
        groups = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return None
    return min((found for _, controllers, path in groups for found in _quotas(controllers, path)), default=None)


def _quotas(controllers: str, path: str) -> Iterator[float]:
    """The quotas of a group and of those above it."""
    roots = UNIFIED if controllers == "" else OF_CPU if "cpu" in controllers.split(",") else ()
    root = next((root for root in roots if root.is_dir()), None)
    if root is None:
        return
    # In a container the path may not exist below the root that is mounted: then the root itself is ours.
    own = root / path.lstrip("/")
    folder = own if own.is_dir() else root
    for group in (folder, *folder.parents):
        if group.is_relative_to(root) and (found := quota_of(group)) is not None:
            yield found


def quota_of(group: Path) -> float | None:
    """CPUs of one group's own quota; none where it has none."""
    try:
        if (file := group / "cpu.max").is_file():
            used, period = file.read_text().split()
        else:
            used, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        # Version 2 says "max" and version 1 says -1 where there is none.
        return int(used) / int(period) if used != "max" and int(used) > 0 else None
    except (OSError, ValueError):
        return None
