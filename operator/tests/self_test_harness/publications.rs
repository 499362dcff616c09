//! Every kind of loss of publications must show in the books, and an honest publisher must not be accused.

use bench_format::result::{Equation, ReasonKind, TrialResult, Validity};

use crate::run::{Check, Checked, distinguish, ensure, reasons, sound, tampered};

/// The flawed publishers of the registry lose one publication in this many.
const EVERY: u64 = 50;
const SENT: &str = "sent (service) = read (workers)";
const LOST: &str = "lost = 0";

/// Each service with the check that only its own result may pass.
const CHECKS: [(&str, Check); 4] = [
    ("self-test-publisher", check_honest),
    ("self-test-publisher-silent-drop", check_silent_drop),
    ("self-test-publisher-liar", check_liar),
    ("self-test-publisher-slow", check_slow),
];

fn check_honest(result: &TrialResult) -> Checked {
    sound(result)?;
    let messages = &result.messages;
    ensure(messages.delivered > 0 && messages.delivered == messages.due, || format!("not all arrived: {messages:?}"))?;
    ensure(messages.dropped.is_empty() && messages.lost == 0, || format!("drops: {messages:?}"))
}

/// A publication that was not sent and not reported counts as lost, and nothing else is wrong.
fn check_silent_drop(result: &TrialResult) -> Checked {
    check_lost(result)?;
    ensure(broken(result) == [LOST], || format!("{:?}", broken(result)))
}

/// The receivers miss as many publications, and in addition the service reports them as sent.
fn check_liar(result: &TrialResult) -> Checked {
    check_lost(result)?;
    ensure(broken(result) == [SENT, LOST], || format!("{:?}", broken(result)))?;
    let sent = result
        .books
        .equations
        .iter()
        .find(|equation| equation.name == SENT)
        .ok_or("no equation counts the sent publications")?;
    // A publication after a connection's last message may also be reported as sent, but no receiver misses it.
    let (pretended, connections) = (sent.left.saturating_sub(sent.right), result.connections.open);
    ensure((result.messages.lost..=result.messages.lost + 2 * connections).contains(&pretended), || {
        format!("{pretended} are missing, and {} are lost", result.messages.lost)
    })
}

/// Every publication arrived, but only half of those that were due were sent.
fn check_slow(result: &TrialResult) -> Checked {
    ensure(reasons(result) == [ReasonKind::SendRate], || format!("{:?}", result.validity))?;
    ensure(result.verdict.is_none(), || "an invalid trial was judged".into())?;
    let messages = &result.messages;
    ensure(messages.delivered > 0 && messages.delivered == messages.due, || format!("not all arrived: {messages:?}"))
}

/// About one in `EVERY` due publications never arrived. The trial is invalid for this reason only, and has no verdict.
fn check_lost(result: &TrialResult) -> Checked {
    ensure(reasons(result) == [ReasonKind::Unaccounted], || format!("{:?}", result.validity))?;
    ensure(result.verdict.is_none(), || "an invalid trial was judged".into())?;
    let (messages, connections) = (&result.messages, result.connections.open);
    let expected = messages.due / EVERY;
    ensure(messages.lost.abs_diff(expected) <= connections, || format!("not one in {EVERY}: {messages:?}"))?;
    ensure(messages.lost > 0 && messages.dropped.is_empty(), || format!("{messages:?}"))
}

fn broken(result: &TrialResult) -> Vec<&str> {
    let broken = result.books.equations.iter().filter(|equation: &&Equation| !equation.holds());
    broken.map(|equation| equation.name.as_str()).collect()
}

#[test]
fn every_kind_of_publication_loss_is_distinguished() {
    refuses_tampered_books(&distinguish("publications", &CHECKS, "self-test-publisher"));
}

/// An honest result with one changed number is refused.
fn refuses_tampered_books(honest: &TrialResult) {
    let tamper = |change| tampered(honest, check_honest, change);
    assert!(tamper(|result| result.messages.delivered -= 1).is_err());
    assert!(tamper(|result| result.messages.lost += 1).is_err());
    assert!(tamper(|result| result.books.equations[0].left += 1).is_err());
    assert!(tamper(|result| result.validity = Validity::Invalid { reasons: Vec::new() }).is_err());
    assert_eq!(tamper(|_| ()), Ok(()));
}
