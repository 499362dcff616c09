//! Runs a service without a flaw and three that lose messages in different ways. The books must show each kind of loss,
//! and must balance for the service without a flaw.

use bench_format::result::{Equation, ReasonKind, TrialResult, Validity};

use crate::run::{Check, Checked, distinguish, ensure, reasons, sound, tampered};

/// The self-test services of the registry lose one message in this many.
const EVERY: u64 = 100;
/// The number of the first message of a connection, as the generator counts.
const FIRST_NUMBER: u64 = 100_000_000;

/// Each service with a check that its own result must pass, and the results of the others must not.
const CHECKS: [(&str, Check); 4] = [
    ("self-test-none", check_honest),
    ("self-test-drop", check_drop),
    ("self-test-silent-drop", check_silent_drop),
    ("self-test-liar", check_liar),
];

fn check_honest(result: &TrialResult) -> Checked {
    sound(result)?;
    let messages = &result.messages;
    ensure(messages.sent > 0 && messages.delivered == messages.sent, || format!("not all arrived: {messages:?}"))?;
    ensure(messages.dropped.is_empty(), || format!("drops: {:?}", messages.dropped))
}

/// Exactly one message in `EVERY` is dropped. Drops are an outcome and no error, and the books list them.
fn check_drop(result: &TrialResult) -> Checked {
    sound(result)?;
    let messages = &result.messages;
    let dropped = messages.dropped.get("self_test").copied().unwrap_or(0);
    ensure(dropped > 0 && dropped == messages.sent / EVERY, || {
        format!("the drops are not one in {EVERY}: {messages:?}")
    })?;
    ensure(messages.delivered == messages.sent - dropped, || {
        format!("delivered is not sent less dropped: {messages:?}")
    })?;
    let named = |equation: &Equation| {
        equation.terms.iter().any(|(term, count)| term.contains("self_test") && *count == dropped)
    };
    ensure(result.books.equations.iter().any(named), || format!("no equation names the drops: {:?}", result.books))
}

/// The books miss exactly the lost messages.
fn check_silent_drop(result: &TrialResult) -> Checked {
    check_unaccounted(result)?;
    let lost = result.messages.sent / EVERY;
    let missing = |equation: &Equation| lost > 0 && equation.left.abs_diff(equation.right) == lost;
    ensure(broken(result).iter().any(|equation| missing(equation)), || {
        format!("no equation is short of {lost} messages: {:?}", result.books)
    })
}

/// All counts agree; only the application's sum lacks the number of the one lost message.
fn check_liar(result: &TrialResult) -> Checked {
    check_unaccounted(result)?;
    let lost = FIRST_NUMBER + EVERY - 1;
    let broken = broken(result);
    ensure(broken.iter().all(|equation| equation.left.wrapping_sub(equation.right) == lost), || {
        format!("the difference is not message {lost}: {broken:?}")
    })?;
    let connections = result.books.connections.as_ref().ok_or("there are no books per connection")?;
    ensure(connections.mismatched == 1, || format!("the number of wrong connections is not 1: {connections:?}"))?;
    ensure(connections.examples.iter().all(|description| description.contains("sequence sum")), || {
        format!("the reason isn't the sum: {connections:?}")
    })
}

fn check_unaccounted(result: &TrialResult) -> Checked {
    ensure(reasons(result) == [ReasonKind::Unaccounted], || format!("{:?}", result.validity))?;
    ensure(result.verdict.is_none(), || "an invalid trial was judged".into())?;
    ensure(!result.books.balance(), || "the books balance".into())
}

fn broken(result: &TrialResult) -> Vec<&Equation> {
    result.books.equations.iter().filter(|equation| !equation.holds()).collect()
}

#[test]
fn every_kind_of_message_loss_is_distinguished() {
    refuses_tampered_books(&distinguish("books", &CHECKS, "self-test-none"));
}

/// An honest result with one changed number is refused.
fn refuses_tampered_books(honest: &TrialResult) {
    let tamper = |change| tampered(honest, check_honest, change);
    assert!(tamper(|result| result.messages.delivered -= 1).is_err());
    assert!(tamper(|result| result.books.equations[0].left += 1).is_err());
    assert!(tamper(|result| result.books.equations.clear()).is_err());
    assert!(tamper(|result| result.validity = Validity::Invalid { reasons: Vec::new() }).is_err());
    assert!(tamper(|result| result.books.connections.as_mut().unwrap().mismatched += 1).is_err());
    assert_eq!(tamper(|_| ()), Ok(()));
}
