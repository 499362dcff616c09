//! Services that only a plan describes, with counters of their own that it maps: what the counters say must agree with what
//! the workers sent.

use bench_format::result::{Equation, ReasonKind, TrialResult, Validity, Witness};

use crate::run::{Attempts, Check, Checked, distinguish, ensure, is_disturbed, reasons, sound};

/// Messages of the plan `websocket-uplink`: 400 per second for 1 + 4 seconds.
const SENT: u64 = 2000;

fn detail(result: &TrialResult) -> String {
    match &result.validity {
        Validity::Valid => String::new(),
        Validity::Invalid { reasons } => {
            reasons.iter().map(|reason| reason.detail.as_str()).collect::<Vec<_>>().join("; ")
        }
    }
}

/// All messages arrived by the service's counter, at the rate of the load.
fn honest(result: &TrialResult) -> Checked {
    sound(result)?;
    let (messages, figures) = (&result.messages, &result.figures);
    ensure(result.witness == Witness::Application, || format!("{:?}", result.witness))?;
    ensure((messages.sent, messages.delivered) == (SENT, SENT), || format!("{messages:?}"))?;
    let (delivered, received) = (figures.delivered_per_second, figures.received_per_second);
    let is_rate = |rate: Option<f64>| rate.is_some_and(|rate| (380.0..420.0).contains(&rate));
    ensure(is_rate(delivered) && is_rate(received), || format!("{figures:?}"))?;
    ensure(figures.service_bytes_per_connection.is_some(), || "no reading had all connections open".into())
}

/// One message in a hundred is an outcome, because the service counts it.
fn dropping(result: &TrialResult) -> Checked {
    sound(result)?;
    ensure(result.messages.dropped.get("reported") == Some(&(SENT / 100)), || format!("{:?}", result.messages))
}

/// The equations that don't hold, those that are remarks included.
fn differences(result: &TrialResult) -> Vec<String> {
    result.books.equations.iter().filter_map(Equation::difference).collect()
}

/// The service received everything and delivered fewer messages than that.
fn losing(result: &TrialResult) -> Checked {
    let expected = "sent = delivered (application) + dropped: 2000 against 1996 (delivered (application) 1996)";
    ensure(differences(result) == [expected] && detail(result) == expected, || detail(result))?;
    ensure(reasons(result) == [ReasonKind::Unaccounted], || format!("{:?}", result.validity))
}

/// Both counters lack the same messages; that of received ones is only a remark.
fn miscounting(result: &TrialResult) -> Checked {
    let differences = differences(result);
    ensure(differences.len() == 2 && differences[0].starts_with("received (service)"), || format!("{differences:?}"))?;
    ensure(reasons(result) == [ReasonKind::Unaccounted] && detail(result) == differences[1], || detail(result))
}

/// Both counters begin again.
fn restarting(result: &TrialResult) -> Checked {
    ensure(reasons(result).contains(&ReasonKind::ServiceRestarted), || format!("{:?}", result.validity))?;
    ensure(detail(result).contains("its counter received fell from "), || detail(result))
}

/// Without the counter there is no throughput, and the reason names it.
fn uncounted(result: &TrialResult) -> Checked {
    let expected =
        "after the load the service's page of counters has no delivered (app_messages_total{direction=\"in\"})";
    ensure(detail(result) == expected, || detail(result))?;
    let claimed = (result.witness, result.figures.delivered_per_second, result.messages.lost);
    ensure(claimed == (Witness::None, None, 0), || format!("{claimed:?}"))
}

#[test]
fn counters_of_a_described_service_witness_messages_without_replies() {
    let checks: [(&str, Check); 6] = [
        ("honest", honest),
        ("dropping", dropping),
        ("losing", losing),
        ("miscounting", miscounting),
        ("restarting", restarting),
        ("uncounted", uncounted),
    ];
    distinguish("websocket-uplink", &checks, "honest");
}

#[test]
fn beside_replies_a_difference_is_a_remark_unless_the_counters_are_exact() {
    let mut attempts = Attempts::of("websocket-counters");
    let services = ["honest", "json", "miscounting", "exact"];
    let run =
        attempts.until(|run| services.iter().all(|service| !is_disturbed(&run.trial(service, "standard").validity)));
    for service in ["honest", "json"] {
        let result = run.trial(service, "standard");
        assert_eq!(sound(&result), Ok(()), "{service}\n{}", run.output);
        assert!(result.books.equations.iter().any(|equation| equation.name.starts_with("received (service)")));
    }
    let remarked = run.trial("miscounting", "standard");
    assert_eq!(remarked.validity, Validity::Valid, "\n{}", run.output);
    let remark = differences(&remarked).pop().expect("a difference");
    assert_eq!(remark, "received (service) = sent + unnumbered (workers): 1198 against 1200 (sent 1200, unnumbered 0)");
    assert!(run.output.contains(&format!("(the service's counters: {remark})")), "{}", run.output);
    let exact = run.trial("exact", "standard");
    assert_eq!((reasons(&exact), detail(&exact)), (vec![ReasonKind::Unaccounted], remark), "\n{}", run.output);
}
