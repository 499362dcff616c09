//! A generator that lacks CPU time must accuse itself.

use bench_format::result::{BoundBy, ReasonKind, TrialResult, Validity};

use crate::run::{Attempts, Checked, Run, ensure, reasons, run};

/// Least delay at the 99th percentile of a generator that gets only a small part of the CPU time that it needs, in
/// nanoseconds.
pub(crate) const STARVED_NS: u64 = 100_000_000;

/// An open loop is invalid because of the generator, and has no verdict.
fn check_open(result: &TrialResult) -> Checked {
    let reasons = reasons(result);
    let own_fault = |kind: &ReasonKind| matches!(kind, ReasonKind::GeneratorLate | ReasonKind::GeneratorCpu);
    ensure(reasons.iter().any(own_fault), || format!("the generator isn't accused: {:?}", result.validity))?;
    // Noise delays a generator by milliseconds, which would prove nothing about the rule.
    let p99 = result.percentiles.get("delay_ns").and_then(|delay| *delay.get("p99")?);
    ensure(p99.is_some_and(|ns| ns > STARVED_NS), || format!("p99 of delay is {p99:?} ns: it wasn't starved"))?;
    ensure(!reasons.contains(&ReasonKind::Unaccounted), || "slowness is no reason to lose messages".into())?;
    ensure(result.verdict.is_none(), || format!("its latency was judged: {:?}", result.verdict))
}

/// A flood is bound by the generator: the figure is the generator's, not the service's.
fn check_flood(result: &TrialResult) -> Checked {
    ensure(result.bound_by == Some(BoundBy::Generator), || format!("bound by {:?}", result.bound_by))
}

/// Asserts that the run was possible. A fraction of a CPU needs a cgroup; where none can be created, the test must not
/// pass.
pub(crate) fn assert_possible(run: Run) -> Run {
    let refused = run.output.contains("is a fraction of a CPU, which needs a cgroup");
    assert!(!refused, "a slow generator can't be made here, because no cgroup can be written:\n{}", run.output);
    run
}

#[test]
fn only_a_slow_generator_accuses_itself() {
    let slow = assert_possible(run("slow-generator"));
    assert_eq!(check_open(&slow.trial("self-test-none", "open")), Ok(()), "\n{}", slow.output);
    assert_eq!(check_flood(&slow.trial("self-test-null", "flood")), Ok(()), "\n{}", slow.output);
    assert_eq!(slow.exit, Some(2), "\n{}", slow.output);

    // Must be refused: the same load from a generator with a whole CPU.
    let mut attempts = Attempts::of("fast-generator");
    let (open, fast) = attempts.trial("self-test-none", "open");
    assert!(check_open(&open).is_err(), "\n{}", fast.output);
    assert_eq!(open.validity, Validity::Valid, "\n{}", fast.output);
    assert!(open.verdict.as_ref().is_some_and(|verdict| verdict.passed), "\n{}", fast.output);
    let (flood, fast) = attempts.trial("self-test-none", "flood");
    assert!(check_flood(&flood).is_err(), "\n{}", fast.output);
}
