"""A busy machine is said beside the trials that it disturbed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench_format.schemas import CpuGroup, FixedWork, FixedWorkTime, ForeignProcess, MachineUse, TrialResult

from tests.bundles import TrialSpec, bundle
from ws_ladder_analysis import busy, wording
from ws_ladder_analysis.ladders import ladders
from ws_ladder_analysis.load import read_bundle


def use(busy_ns: int, steal_ns: int = 0) -> MachineUse:
    """Two seconds in which one group was quiet, and everything together used so much of another."""
    quiet = CpuGroup(cpus=[0], busy_ns=7, own_ns=9, kernel_ns=0, steal_ns=0)
    disturbed = CpuGroup(cpus=[1, 2], busy_ns=busy_ns, own_ns=900_000_000, kernel_ns=100_000_000, steal_ns=steal_ns)
    return MachineUse(2.0, "cpuacct", [quiet, disturbed], [ForeignProcess("rustc", 5, pid=71)])


def test_others_are_what_is_left_of_a_group_of_cpus() -> None:
    assert busy.busy_share(use(1_400_000_000)) == 0.1
    assert busy.busy_share(use(900_000_000)) == 0.0
    assert busy.steal_share(use(0, 40_000_000)) == 0.01


def test_the_worst_of_several_trials_is_remarked_with_its_process(tmp_path: Path) -> None:
    (ladder,) = ladders(read_bundle(bundle(tmp_path, [TrialSpec()])))
    (result,) = ladder.tiers[0].results

    def remark(*uses: MachineUse | None) -> str:
        trials: list[TrialResult] = [replace(result, machine=one) for one in uses]
        return busy.remark(trials, {}).replace(wording.GAP, " ")

    assert remark(None, use(1_000_000_000)) == ""
    assert remark(use(1_080_000_000)) == "", "the limit itself is quiet"
    assert remark(use(1_400_000_000), use(1_800_000_000)) == "others used up to 20 % of its CPUs (rustc)"
    assert remark(use(0, 80_000_000)) == "the hypervisor took up to 2.00 %"


def worked(rounds: int, *times: tuple[int, int, int]) -> MachineUse:
    """A quiet machine with the CPU, and the times of its fixed work before and after a trial."""
    cpus = [FixedWorkTime(cpu, before, after) for cpu, before, after in times]
    return replace(use(0), fixed_work=FixedWork(rounds, cpus))


def test_the_first_trials_are_compared_with_the_median_of_the_whole_run(tmp_path: Path) -> None:
    (ladder,) = ladders(read_bundle(bundle(tmp_path, [TrialSpec()])))
    (result,) = ladder.tiers[0].results
    slow, usual = worked(100, (0, 5_300, 5_000), (1, 1, 1)), worked(200, (0, 10_000, 10_000))
    run = [replace(result, machine=one) for one in (slow, usual, usual)]
    medians = busy.work_medians(run)
    assert medians == {0: 50}, "CPU 1 was timed twice only; times are per round"
    text = busy.remark(run, medians).replace(wording.GAP, " ")
    assert text == "fixed work took up to 6.00 % longer than the run's median"
    assert busy.remark(run[1:], medians) == ""


def test_a_faster_machine_is_remarked_too(tmp_path: Path) -> None:
    (ladder,) = ladders(read_bundle(bundle(tmp_path, [TrialSpec()])))
    fast = replace(ladder.tiers[0].results[0], machine=worked(100, (0, 4_400, 5_000)))
    assert "12 % shorter" in busy.remark([fast], {0: 50}).replace(wording.GAP, " ")
