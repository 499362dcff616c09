//! A program that uses the trial's CPUs is seen and named.

use std::{
    process::{Child, Command},
    thread,
    time::Instant,
};

use bench_format::result::{MachineUse, Reason, ReasonKind, TrialResult, Validity};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

use crate::run::{Run, run};

/// The limit in `plans/self-test/busy-machine.yaml`.
const LIMIT: f64 = 0.2;

/// A process that spins on one CPU until it is dropped.
struct Spinner {
    child: Child,
    since: Instant,
}

impl Spinner {
    fn on(cpu: usize) -> Self {
        let child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(Pid::from_raw(child.id() as i32), &set).unwrap();
        Self { child, since: Instant::now() }
    }

    /// CPU time that it used so far, as a share of one CPU.
    fn share(&self) -> f64 {
        let cpu_ns = process_usage::cpu_ns(self.child.id()).unwrap();
        cpu_ns as f64 / 1e9 / self.since.elapsed().as_secs_f64()
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn used(result: &TrialResult) -> &MachineUse {
    result.machine.as_ref().expect("the CPU time of this machine can be read")
}

fn busy(result: &TrialResult) -> Option<&Reason> {
    match &result.validity {
        Validity::Valid => None,
        Validity::Invalid { reasons } => reasons.iter().find(|reason| reason.kind == ReasonKind::MachineBusy),
    }
}

fn assert_named(run: &Run, spinners: &[Spinner]) {
    let result = run.trial("self-test-none", "standard");
    let reason = busy(&result).unwrap_or_else(|| panic!("not called busy: {:?}\n{}", result.machine, run.output));
    assert!(reason.detail.starts_with("others used "), "{reason:?}");
    let used = used(&result);
    for spinner in spinners {
        let pid = spinner.child.id();
        let named = used.busiest.iter().any(|process| process.pid == Some(pid));
        // Three are named. On a machine with so much other work, the third may have used as much as the spinner.
        let third = used.busiest.get(2).map_or(0.0, |process| process.cpu_ns as f64 / 1e9 / used.seconds);
        assert!(named || third > spinner.share() / 2.0, "process {pid} isn't named: {used:?}");
    }
    assert!(result.verdict.is_none(), "it was judged");
}

#[test]
fn a_process_that_spins_on_one_cpu_or_on_both_makes_a_trial_invalid() {
    let cpus = thread::available_parallelism().unwrap().get();
    for on in [vec![0], (0..cpus.min(2)).collect()] {
        let spinners: Vec<Spinner> = on.into_iter().map(Spinner::on).collect();
        assert_named(&run("busy-machine"), &spinners);
    }
}

#[test]
fn a_machine_is_called_busy_if_and_only_if_others_used_more_than_the_limit() {
    // Other programs may run here, so the rule is compared with what was measured, in which no spinner is.
    let run = run("busy-machine");
    let result = run.trial("self-test-none", "standard");
    let (share, _) = used(&result).busy().unwrap();
    assert_eq!(busy(&result).is_some(), share > LIMIT, "{:?}\n{}", result.machine, run.output);
    let named: u64 = used(&result).busiest.iter().map(|process| process.cpu_ns).sum();
    assert!(
        named as f64 / 1e9 < used(&result).seconds * 3.0,
        "more than three processes can use: {:?}",
        result.machine
    );
    for group in &used(&result).groups {
        let most = used(&result).seconds * group.cpus.len() as f64 * 1.05;
        assert!(group.busy_ns as f64 / 1e9 < most, "more than {most} s of {:?} is impossible", group.cpus);
        assert!(group.own_ns > 0, "the trial's own processes used nothing: {:?}", result.machine);
    }
}
