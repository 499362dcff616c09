//! Every kind of audio loss must show in the books, and an honest gateway must not be accused.

use bench_format::result::{ReasonKind, TrialResult, WorkerResult};

use crate::run::{Attempts, Checked, Run, ensure, reasons, sound};

/// The gateway of the registry that omits frames omits one in this many.
const EVERY: u64 = 100;

type Check = fn(&TrialResult, &[WorkerResult]) -> Checked;

/// Each gateway and variant with the check that only its own result may pass.
const CHECKS: [(&str, &str, Check); 4] = [
    ("self-test-gateway-none", "standard", check_honest),
    ("self-test-gateway-none", "overflow", check_overflow),
    ("self-test-gateway-silent-drop", "standard", check_silent_drop),
    ("self-test-gateway-lost-batch", "standard", check_lost_batch),
];

fn check_honest(result: &TrialResult, _: &[WorkerResult]) -> Checked {
    sound(result)?;
    let messages = &result.messages;
    ensure(messages.sent > 0 && messages.delivered == messages.sent, || format!("not all arrived: {messages:?}"))?;
    ensure(result.failures == Default::default(), || format!("{:?}", result.failures))?;
    ensure(result.figures.error_share == Some(0.0), || format!("{:?}", result.figures.error_share))
}

/// A drop that the gateway reports is an outcome. Each error frame is a failure, and the books list it.
fn check_overflow(result: &TrialResult, _: &[WorkerResult]) -> Checked {
    sound(result)?;
    let messages = &result.messages;
    let dropped = messages.dropped.get("overflow").copied().unwrap_or(0);
    let share = dropped as f64 / messages.sent as f64;
    ensure((0.1..0.3).contains(&share), || format!("{share} of all frames found no room: {messages:?}"))?;
    ensure(messages.delivered == messages.sent - dropped, || format!("not the rest: {messages:?}"))?;
    let named = |name: &str, left: u64| name.starts_with("dropped(overflow)") && left == dropped;
    let equations = &result.books.equations;
    ensure(equations.iter().any(|equation| named(&equation.name, equation.left)), || format!("{equations:?}"))?;
    let failures = result.failures.window.get("websocket_receive/overflow").copied().unwrap_or(0);
    ensure(failures > 0 && result.figures.error_share > Some(0.0), || format!("{:?}", result.failures))
}

/// Exactly one frame in `EVERY` of each session is missing, in the workers' books and in the gateway's.
fn check_silent_drop(result: &TrialResult, workers: &[WorkerResult]) -> Checked {
    check_unaccounted(result)?;
    let sent = workers.iter().flat_map(|worker| &worker.books).map(|book| book.sent);
    let lost: u64 = sent.map(|sent| sent / EVERY).sum();
    ensure(lost > 0 && result.messages.lost == lost, || format!("not one in {EVERY}: {:?}", result.messages))?;
    let missing = result.books.equations.iter().any(|equation| equation.left.abs_diff(equation.right) == lost);
    ensure(missing, || format!("no equation misses {lost} frames: {:?}", result.books))
}

/// All of the gateway's own counts agree; only the workers know that one batch of each session never arrived.
fn check_lost_batch(result: &TrialResult, _: &[WorkerResult]) -> Checked {
    check_unaccounted(result)?;
    let broken: Vec<_> = result.books.equations.iter().filter(|equation| !equation.holds()).collect();
    let [only] = broken[..] else { return Err(format!("not one equation is broken: {broken:?}")) };
    ensure(only.name == "delivered (service) = answered (workers)", || format!("{only:?}"))?;
    ensure(only.left - only.right == result.messages.lost, || format!("{only:?}: {:?}", result.messages))
}

fn check_unaccounted(result: &TrialResult) -> Checked {
    ensure(reasons(result) == [ReasonKind::Unaccounted], || format!("{:?}", result.validity))?;
    ensure(result.verdict.is_none(), || "an invalid trial was judged".into())?;
    ensure(!result.books.balance(), || "the books balance".into())?;
    ensure(result.messages.lost > 0, || "nothing is lost".into())
}

#[test]
fn every_kind_of_audio_loss_is_distinguished() {
    let mut attempts = Attempts::of("stt-books");
    for (gateway, variant, _) in CHECKS {
        let (result, run) = attempts.trial(gateway, variant);
        assert_eq!(run.exit, Some(2), "a trial is invalid, so the exit code is 2:\n{}", run.output);
        let workers = run.workers(gateway, variant);
        for (other, other_variant, check) in CHECKS {
            let checked = check(&result, &workers);
            assert_eq!(
                checked.is_ok(),
                (other, other_variant) == (gateway, variant),
                "{gateway}/{variant} under the check of {other}/{other_variant}: {checked:?}\n{}",
                run.output
            );
        }
        if (gateway, variant) == ("self-test-gateway-none", "standard") {
            refuses_tampered_books(&result, run);
        }
    }
}

/// An honest result with one changed number is refused.
fn refuses_tampered_books(honest: &TrialResult, run: &Run) {
    let workers = run.workers("self-test-gateway-none", "standard");
    let tamper = |change: fn(&mut TrialResult)| {
        let mut tampered = honest.clone();
        change(&mut tampered);
        check_honest(&tampered, &workers)
    };
    assert!(tamper(|result| result.messages.delivered -= 1).is_err());
    assert!(tamper(|result| result.books.equations[0].left += 1).is_err());
    assert!(tamper(|result| _ = result.failures.window.insert("session/reset".into(), 1)).is_err());
    assert_eq!(tamper(|_| ()), Ok(()));
}
