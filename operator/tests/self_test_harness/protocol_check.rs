//! A service that breaks its protocol gets no figures, an honest one is not accused, and the check does not affect the
//! figures of the load.

use bench_format::result::{ReasonKind, TrialResult, Validity};

use crate::run::{Attempts, Checked, Run, ensure, reasons, sound};

/// Number of connections of the load in the plan.
const TIER: u64 = 5;
/// The variants of the plan's two ladders.
const VARIANTS: [&str; 2] = ["standard", "storm"];

/// The check ran and found nothing. Its two connections are in the books, but in no count of the load.
fn check_honest(result: &TrialResult, run: &Run) -> Checked {
    sound(result)?;
    let counts = &result.connections;
    ensure((counts.attempted, counts.open) == (TIER, TIER), || format!("counted as load: {counts:?}"))?;
    if result.trial.variant == "storm" {
        // The check ends before the window, so that the cost of closing its connections is not measured in the window.
        let open = result.service.window_end.as_ref().map(|reading| reading.stats.connections.open);
        ensure(open == Some(TIER), || format!("at the window's end {open:?} connections were open"))?;
    }
    let worker = run.workers(&result.trial.service, &result.trial.variant).remove(0);
    let check = worker.conformance.ok_or("worker 0 made no check")?;
    ensure(check.before.is_empty() && check.after.is_empty(), || format!("accused: {check:?}"))?;
    ensure(check.opened == 2, || format!("not one connection before and one after: {check:?}"))?;
    let compared = result.books.connections.as_ref().map(|books| books.compared);
    ensure(compared == Some(TIER + 2), || format!("not all connections in the books: {:?}", result.books))
}

/// Only the protocol is wrong, and both checks found it.
fn check_gullible(result: &TrialResult) -> Checked {
    ensure(reasons(result) == [ReasonKind::Conformance], || format!("{:?}", result.validity))?;
    ensure(result.verdict.is_none(), || "an invalid trial was judged".into())?;
    let Validity::Invalid { reasons } = &result.validity else { return Err("valid".into()) };
    let description = &reasons[0].detail;
    let both = description.contains("before the load: with a token of another secret: expected an error AUTH_FAILED")
        && description.contains("after the load: with a token of another secret");
    ensure(both, || format!("not the bad token, twice: {description}"))
}

#[test]
fn only_a_service_that_refuses_a_bad_token_has_figures() {
    let mut attempts = Attempts::of("protocol-check");
    for variant in VARIANTS {
        let (honest, run) = attempts.trial("self-test-none", variant);
        assert_eq!(check_honest(&honest, run), Ok(()), "{variant}\n{}", run.output);
        assert!(check_gullible(&honest).is_err());
        assert_eq!(run.exit, Some(2), "a trial is invalid, so the exit code is 2:\n{}", run.output);
        let (gullible, run) = attempts.trial("self-test-gullible", variant);
        assert_eq!(check_gullible(&gullible), Ok(()), "{variant}\n{}", run.output);
        assert!(check_honest(&gullible, run).is_err());
    }
}

#[test]
fn a_service_without_a_protocol_is_not_checked() {
    let mut attempts = Attempts::of("protocol-check");
    let (null, run) = attempts.trial("self-test-null", "standard");
    assert_eq!(sound(&null), Ok(()), "\n{}", run.output);
    let worker = run.workers("self-test-null", "standard").remove(0);
    assert_eq!(worker.conformance, None);
}
