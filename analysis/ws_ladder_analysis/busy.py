"""What others used of the trials' CPUs, and how fast these were."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench_format.schemas import CpuGroup, FixedWork, MachineUse, TrialResult

from . import wording

# Shares from which others, and the hypervisor, are remarked.
_BUSY_SHARE, _STEAL_SHARE = 0.02, 0.01
# Deviation of the fixed work from the run's median from which it is remarked.
_WORK_SHARE = 0.02
# Fewest times of a CPU that have a median: those of three trials.
_FEWEST_TIMES = 6

# The median of a run, by CPU, in nanoseconds per round of the fixed work.
Medians = Mapping[int, float]


def busy_share(use: MachineUse) -> float:
    """The largest share of the CPUs of a group that others used."""
    return max((_share(use, group, _others_ns(group)) for group in use.groups), default=0.0)


def steal_share(use: MachineUse) -> float:
    """The largest share of the CPUs of a group that the hypervisor took."""
    return max((_share(use, group, group.steal_ns) for group in use.groups), default=0.0)


def work_medians(results: Iterable[TrialResult]) -> Medians:
    """The medians over all trials of a run. The first ones, which had no earlier trials to be compared with, are so
    compared with the later ones."""
    times: dict[int, list[float]] = {}
    for result in results:
        work = result.machine.fixed_work if result.machine is not None else None
        for cpu, time in _times(work):
            times.setdefault(cpu, []).append(time)
    return {cpu: statistics.median(found) for cpu, found in times.items() if len(found) >= _FEWEST_TIMES}


def work_deviation(use: MachineUse, medians: Medians) -> float:
    """The largest deviation of the fixed work from the median of its CPU, as a share of it; negative where it took less
    time, 0 without medians."""
    shares = [time / medians[cpu] - 1 for cpu, time in _times(use.fixed_work) if medians.get(cpu)]
    return max(shares, key=abs, default=0.0)


def _times(work: FixedWork | None) -> Iterator[tuple[int, float]]:
    """Each time of the work with its CPU, in nanoseconds per round."""
    if work is not None and work.rounds:
        for one in work.cpus:
            yield one.cpu, one.before_ns / work.rounds
            yield one.cpu, one.after_ns / work.rounds


def remark(results: Sequence[TrialResult], medians: Medians) -> str:
    """How busy the machine was in the worst of these trials, with the process that used most, and how far its speed was
    off the run's medians; empty if it was quiet."""
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
    off = max((work_deviation(use, medians) for use in uses), key=abs)
    if abs(off) > _WORK_SHARE:
        direction = "longer" if off > 0 else "shorter"
        parts.append(f"fixed work took up to {wording.share(abs(off))} {direction} than the run's median")
    return "; ".join(parts)


def _others_ns(group: CpuGroup) -> int:
    return max(group.busy_ns - group.own_ns - group.kernel_ns, 0)


def _share(use: MachineUse, group: CpuGroup, ns: int) -> float:
    available = use.seconds * len(group.cpus)
    return ns / 1e9 / available if available else 0.0
