//! A harness that lacks CPU time, in the workers or in the inference service, must accuse itself.

use bench_format::result::{BoundBy, ReasonKind, TrialResult, Validity};

use crate::{
    run::{Attempts, Checked, ensure, reasons, run},
    slow_generator::{STARVED_NS, assert_possible},
};

/// Sessions are invalid because of the generator, and have no verdict.
fn check_generator(result: &TrialResult) -> Checked {
    let reasons = reasons(result);
    let own_fault = |kind: &ReasonKind| matches!(kind, ReasonKind::GeneratorLate | ReasonKind::GeneratorCpu);
    ensure(reasons.iter().any(own_fault), || format!("the generator isn't accused: {:?}", result.validity))?;
    let p99 = result.percentiles.get("delay_ns").and_then(|delay| *delay.get("p99")?);
    ensure(p99.is_some_and(|ns| ns > STARVED_NS), || format!("p99 of delay is {p99:?} ns: it wasn't starved"))?;
    ensure(result.verdict.is_none(), || format!("its latency was judged: {:?}", result.verdict))
}

/// Inference that ran out of CPU time: the gateway has no verdict.
fn check_inference(result: &TrialResult) -> Checked {
    let reasons = reasons(result);
    ensure(reasons.contains(&ReasonKind::InferenceCpu), || format!("it isn't accused: {:?}", result.validity))?;
    ensure(result.bound_by == Some(BoundBy::Inference), || format!("bound by {:?}", result.bound_by))?;
    ensure(result.verdict.is_none(), || format!("the gateway was judged: {:?}", result.verdict))
}

#[test]
fn only_a_harness_without_enough_cpu_accuses_itself() {
    let gateway = "self-test-gateway-none";
    let slow = assert_possible(run("stt-slow-generator"));
    assert_eq!(check_generator(&slow.trial(gateway, "standard")), Ok(()), "\n{}", slow.output);
    assert_eq!(slow.exit, Some(2), "\n{}", slow.output);
    let mut starved = Attempts::of("stt-slow-inference");
    let accused = starved.until(|run| reasons(&run.trial(gateway, "standard")).contains(&ReasonKind::InferenceCpu));
    assert_eq!(check_inference(&accused.trial(gateway, "standard")), Ok(()), "\n{}", accused.output);

    // Must be refused: the same load from a harness with whole CPUs.
    let mut attempts = Attempts::of("stt-fast");
    let (result, fast) = attempts.trial(gateway, "standard");
    assert!(check_generator(&result).is_err() && check_inference(&result).is_err(), "\n{}", fast.output);
    assert_eq!(result.validity, Validity::Valid, "\n{}", fast.output);
    assert!(result.verdict.as_ref().is_some_and(|verdict| verdict.passed), "\n{}", fast.output);
}
