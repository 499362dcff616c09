//! The rule for the machine: whether others used the trial's CPUs, or made them slower. Pure.

use bench_format::result::{Reason, ReasonKind};

use super::{percent, reason};
use crate::case::Case;

/// Compares what others and the hypervisor took, and the time of the fixed work, with the plan's limits; without a limit
/// it is no reason.
pub(super) fn machine_busy(case: &Case<'_>) -> Option<Reason> {
    let (machine, thresholds) = (case.trial.machine.as_ref()?, &case.trial.thresholds);
    let allowed = |limit: f64, description: String| format!("{description}, allowed {}", percent(limit));
    let others = thresholds.busy_share.and_then(|limit| Some(allowed(limit, machine.others(limit)?)));
    let stolen = thresholds.steal_share.and_then(|limit| Some(allowed(limit, machine.stolen(limit)?)));
    let work = machine.fixed_work.as_ref();
    let unusual = thresholds.work_share.and_then(|limit| Some(allowed(limit, work?.unusual(limit)?)));
    let description: Vec<String> = others.into_iter().chain(stolen).chain(unusual).collect();
    (!description.is_empty()).then(|| reason(ReasonKind::MachineBusy, description.join("; ")))
}

#[cfg(test)]
mod tests {
    use bench_format::result::{CpuGroup, FixedWork, FixedWorkTime, ForeignProcess, MachineUse};

    use crate::{fixture::flood, validity::fixture::reasons};

    /// A window of two seconds, in which others used so much of CPU 0 and the hypervisor took so much, in milliseconds.
    fn busy(others_ms: u64, stolen_ms: u64, limits: (Option<f64>, Option<f64>)) -> Vec<String> {
        let ms = 1_000_000;
        let group = CpuGroup {
            node: None,
            cpus: vec![0],
            busy_ns: (1000 + others_ms) * ms,
            own_ns: 1000 * ms,
            kernel_ns: 0,
            steal_ns: stolen_ms * ms,
        };
        let process = ForeignProcess { pid: Some(71), name: "rustc".into(), cpu_ns: others_ms * ms };
        reasons(flood(), |files| {
            (files.trial.thresholds.busy_share, files.trial.thresholds.steal_share) = limits;
            files.trial.machine = Some(MachineUse {
                seconds: 2.0,
                source: "cpuacct".into(),
                groups: vec![group],
                busiest: vec![process],
                fixed_work: None,
            });
        })
    }

    /// A trial on a quiet machine whose fixed work took so long after it, where 1000 ns are usual.
    fn fixed_work(after_ns: u64, work_share: Option<f64>) -> Vec<String> {
        reasons(flood(), |files| {
            files.trial.thresholds.work_share = work_share;
            let time = FixedWorkTime { cpu: 1, before_ns: 1000, after_ns, median_ns: Some(1000) };
            let work = FixedWork { rounds: 9, cpus: vec![time] };
            files.trial.machine = Some(MachineUse { seconds: 2.0, fixed_work: Some(work), ..MachineUse::default() });
        })
    }

    #[test]
    fn others_may_use_as_much_of_the_trials_cpus_as_the_plan_allows() {
        let limits = (Some(0.02), Some(0.01));
        assert_eq!(busy(40, 20, limits), Vec::<String>::new());
        assert_eq!(
            busy(50, 0, limits),
            ["MachineBusy: others used 2.5 % of CPU 0, rustc (process 71) most, allowed 2.0 %"]
        );
        assert_eq!(busy(0, 30, limits), ["MachineBusy: the hypervisor took 1.5 % of CPU 0, allowed 1.0 %"]);
    }

    #[test]
    fn fixed_work_may_take_as_much_more_or_less_than_usual_as_the_plan_allows() {
        assert_eq!(fixed_work(1049, Some(0.05)), Vec::<String>::new());
        let slow = "MachineBusy: fixed work took 6.0 % longer than usual on CPU 1, allowed 5.0 %";
        assert_eq!(fixed_work(1060, Some(0.05)), [slow]);
        assert_eq!(fixed_work(900, Some(0.05)).len(), 1, "a faster clock is another machine, too");
    }

    #[test]
    fn without_a_limit_a_busy_machine_is_no_reason() {
        assert_eq!(busy(2000, 2000, (None, None)), Vec::<String>::new());
        assert_eq!(fixed_work(2000, None), Vec::<String>::new());
    }
}
