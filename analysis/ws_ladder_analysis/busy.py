"""What others used of the trials' CPUs."""

from __future__ import annotations

from collections.abc import Sequence

from bench_format.schemas import CpuGroup, MachineUse, TrialResult

from . import wording

# Shares from which others, and the hypervisor, are remarked.
_BUSY_SHARE, _STEAL_SHARE = 0.02, 0.01


def busy_share(use: MachineUse) -> float:
    """The largest share of the CPUs of a group that others used."""
    return max((_share(use, group, _others_ns(group)) for group in use.groups), default=0.0)


def steal_share(use: MachineUse) -> float:
    """The largest share of the CPUs of a group that the hypervisor took."""
    return max((_share(use, group, group.steal_ns) for group in use.groups), default=0.0)


def remark(results: Sequence[TrialResult]) -> str:
    """How busy the machine was in the worst of these trials, with the process that used most; empty if it was quiet."""
    uses = [result.machine for result in results if result.machine is not None]
    if not uses:
        return ""
    worst = max(uses, key=busy_share)
    parts = []
    if busy_share(worst) > _BUSY_SHARE:
        most = f" ({worst.busiest[0].name})" if worst.busiest else ""
        parts.append(f"others used up to {wording.share(busy_share(worst))} of its CPUs{most}")
    stolen = max(map(steal_share, uses))
    if stolen > _STEAL_SHARE:
        parts.append(f"the hypervisor took up to {wording.share(stolen)}")
    return "; ".join(parts)


def _others_ns(group: CpuGroup) -> int:
    return max(group.busy_ns - group.own_ns - group.kernel_ns, 0)


def _share(use: MachineUse, group: CpuGroup, ns: int) -> float:
    available = use.seconds * len(group.cpus)
    return ns / 1e9 / available if available else 0.0
