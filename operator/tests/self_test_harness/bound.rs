//! What holds a service back is named, also where its CPU share doesn't show it.

use bench_format::result::{BoundBy, BoundCheck, BoundMeasure, BoundSide, TrialResult};

use crate::{
    run::{Attempts, Checked, ensure, run},
    slow_generator::assert_possible,
};

/// What was looked at on the service.
fn of_service(result: &TrialResult, measure: BoundMeasure) -> Result<&BoundCheck, String> {
    let checks = result.bound_checks.as_deref().unwrap_or_default();
    let found = checks.iter().find(|check| (check.side, check.measure) == (BoundSide::Service, measure));
    found.ok_or_else(|| format!("{measure:?} of the service was not looked at: {checks:?}"))
}

/// The CPUs of the service were not used up.
fn check_idle_cpu(result: &TrialResult) -> Checked {
    let cpu = of_service(result, BoundMeasure::Cpu)?;
    ensure(!cpu.reached(), || format!("its CPU was used up, which proves nothing: {cpu:?}"))
}

/// One thread of the service was busy and is named as what bound it. Where other programs use its CPU, it has work all
/// the same and waits; then the machine is named.
fn check_thread(result: &TrialResult) -> Checked {
    check_idle_cpu(result)?;
    let thread = of_service(result, BoundMeasure::Thread)?;
    ensure(thread.reached() && thread.thread.as_deref() == Some("busy"), || format!("no busy thread: {thread:?}"))?;
    let waited = of_service(result, BoundMeasure::Waiting).is_ok_and(BoundCheck::reached);
    let expected = if waited { BoundBy::Machine } else { BoundBy::Service };
    ensure(result.bound_by == Some(expected), || format!("bound by {:?}, not {expected:?}", result.bound_by))
}

/// The service was held back by its quota.
fn check_quota(result: &TrialResult) -> Checked {
    check_idle_cpu(result)?;
    let quota = of_service(result, BoundMeasure::Quota)?;
    ensure(quota.reached(), || format!("its quota didn't hold it back: {quota:?}"))?;
    ensure(result.bound_by == Some(BoundBy::Service), || format!("bound by {:?}", result.bound_by))
}

#[test]
fn a_single_busy_thread_is_seen_on_a_machine_with_idle_cpus() {
    let busy = |result: &TrialResult| check_thread(result);
    let mut attempts = Attempts::of("one-thread");
    // The generator shares a CPU here, so another program may keep either thread from it.
    let run = attempts.until(|run| busy(&run.trial("self-test-busy", "standard")).is_ok());
    assert_eq!(busy(&run.trial("self-test-busy", "standard")), Ok(()), "\n{}", run.output);
    assert!(run.output.contains("thread busy of the service"), "\n{}", run.output);

    // Must be refused: the same load on a service without such a thread.
    assert!(busy(&run.trial("self-test-none", "standard")).is_err(), "\n{}", run.output);
}

#[test]
fn a_service_that_its_quota_holds_back_is_seen() {
    let mut attempts = Attempts::with(|| assert_possible(run("throttled")));
    // Where other programs use its CPU, a burst may not reach the quota.
    let run = attempts.until(|run| check_quota(&run.trial("self-test-bursts", "standard")).is_ok());
    assert_eq!(check_quota(&run.trial("self-test-bursts", "standard")), Ok(()), "\n{}", run.output);
    assert!(run.output.contains("the service throttled in"), "\n{}", run.output);

    // Must be refused: the same quota on a service that hardly works.
    assert!(check_quota(&run.trial("self-test-none", "standard")).is_err(), "\n{}", run.output);
}
