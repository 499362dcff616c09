//! The equations of replies and error frames: what the service counts as delivered or dropped, the workers read.

use std::collections::{BTreeMap, BTreeSet};

use bench_format::{result::Equation, terms::Terms};

use super::{PROTOCOL_CHECK, terms};
use crate::{delta::ServiceDelta, merge::Merged};

/// Compares replies and reported drops of service and workers. Only messages of a connection that ended early can be
/// counted by the service and never read by a worker.
pub(super) fn reply_equations(merged: &Merged, delta: &ServiceDelta, terms_of_trial: &Terms) -> Vec<Equation> {
    let counts = &merged.messages;
    let ended_early = merged.connections.closed_early.values().sum::<u64>() > 0;
    let mut unread = if ended_early { counts.lost } else { 0 };
    let mut equation = |name: String, left: u64, mut right: Vec<(String, u64)>| {
        let read: u64 = right.iter().map(|(_, count)| count).sum();
        let unread_messages = left.saturating_sub(read).min(unread);
        if unread_messages > 0 {
            unread -= unread_messages;
            right.push(("never read: its connection ended early".into(), unread_messages));
        }
        Equation::new(&name, left, right)
    };
    let checked = &merged.checked;
    let mut answered = vec![
        ("delivered", counts.delivered),
        ("late", counts.late),
        ("wrong", counts.wrong),
        ("duplicates", counts.duplicates),
    ];
    if checked.answered > 0 {
        answered.push((PROTOCOL_CHECK, checked.answered));
    }
    let mut equations =
        vec![equation("delivered (service) = answered (workers)".into(), delta.delivered, terms(answered))];
    let kinds: BTreeSet<&String> =
        delta.dropped.keys().chain(counts.dropped.keys()).chain(checked.dropped.keys()).collect();
    for kind in kinds.into_iter().filter(|kind| !terms_of_trial.unreported_drops.contains(kind)) {
        let of = |dropped: &BTreeMap<String, u64>| dropped.get(kind).copied().unwrap_or(0);
        let mut frames = vec![("in error frames".to_owned(), of(&counts.dropped))];
        if of(&checked.dropped) > 0 {
            frames.push((PROTOCOL_CHECK.to_owned(), of(&checked.dropped)));
        }
        equations.push(equation(
            format!("dropped({kind}) (service) = dropped({kind}) (workers)"),
            of(&delta.dropped),
            frames,
        ));
    }
    equations
}

#[cfg(test)]
mod tests {
    use bench_format::{
        result::{Witness, WorkerBook},
        trial_file::BookKeeping,
    };

    use super::*;
    use crate::books::fixture::{Sums, witnessed_by};

    /// A gateway's counts: 90 frames in partials, 6 in error frames, 4 queued when their connection was closed.
    fn gateway() -> (Merged, ServiceDelta) {
        let mut merged = Merged::default();
        (merged.connections.attempted, merged.connections.open) = (2, 2);
        let counts = &mut merged.messages;
        (counts.due, counts.sent, counts.delivered, counts.wrong, counts.lost) = (100, 100, 89, 1, 4);
        counts.dropped.insert("timeout".into(), 6);
        merged.books.push(WorkerBook { sent: 100, unnumbered: 2, ..WorkerBook::default() });
        let dropped = [("timeout".to_owned(), 6), ("closed".to_owned(), 4)].into();
        let mut delta = ServiceDelta { accepted: 2, received: 102, consumed: 2, delivered: 90, ..Default::default() };
        delta.dropped = dropped;
        (merged, delta)
    }

    fn broken_gateway(change: impl FnOnce(&mut Merged, &mut ServiceDelta)) -> Vec<String> {
        let (mut merged, mut delta) = gateway();
        change(&mut merged, &mut delta);
        let terms =
            Terms { counts_answers: true, unreported_drops: vec!["closed".into()], ..witnessed_by(Witness::Reply) };
        let (_, books) = Sums { merged, delta, service: None, terms, keeping: BookKeeping::Totals }.judged();
        books.equations.iter().filter(|equation| !equation.holds()).map(|equation| equation.name.clone()).collect()
    }

    #[test]
    fn a_consistent_gateway_balances() {
        assert_eq!(broken_gateway(|_, _| ()), Vec::<String>::new());
    }

    #[test]
    fn a_gateway_that_calls_a_lost_frame_delivered_is_caught() {
        let broken = broken_gateway(|_, delta| {
            delta.delivered += 4;
            delta.dropped.remove("closed");
        });
        assert_eq!(broken, ["delivered (service) = answered (workers)"]);
    }

    #[test]
    fn an_error_frame_that_never_arrived_is_found_by_its_kind() {
        let broken = broken_gateway(|_, delta| {
            delta.dropped.insert("overflow".into(), 4);
            delta.dropped.remove("closed");
        });
        assert_eq!(broken, ["dropped(overflow) (service) = dropped(overflow) (workers)"]);
    }

    #[test]
    fn a_connection_that_ended_early_explains_only_its_unread_messages() {
        let broken = |delivered_unread: u64, timeouts_unread: u64| {
            broken_gateway(|merged, delta| {
                merged.connections.closed_early.insert("reset".into(), 1);
                delta.dropped = [("timeout".to_owned(), 6 + timeouts_unread)].into();
                delta.delivered += delivered_unread;
                delta.received = delta.consumed + delta.delivered + delta.dropped_total();
            })
        };
        assert_eq!(broken(4, 0), Vec::<String>::new());
        assert_eq!(broken(1, 3), Vec::<String>::new());
        let more = broken(4, 1);
        assert!(more.contains(&"dropped(timeout) (service) = dropped(timeout) (workers)".to_owned()), "{more:?}");
    }

    #[test]
    fn replies_to_the_protocol_check_are_counted_beside_those_of_the_load() {
        let with = |answered, overflows| {
            broken_gateway(|merged, delta| {
                merged.checked.answered = answered;
                merged.checked.dropped.insert("overflow".into(), overflows);
                // One `client_hello` and one message on each of two connections.
                merged.checked.opened = 2;
                merged.books.push(WorkerBook { unnumbered: 4, ..WorkerBook::default() });
                delta.accepted += 2;
                delta.received += 4;
                delta.consumed += 2;
                delta.delivered += 1;
                delta.dropped.insert("overflow".into(), 1);
            })
        };
        assert_eq!(with(1, 1), Vec::<String>::new());
        assert_eq!(with(2, 1), ["delivered (service) = answered (workers)"]);
        assert_eq!(with(0, 1), ["delivered (service) = answered (workers)"]);
        assert_eq!(with(1, 0), ["dropped(overflow) (service) = dropped(overflow) (workers)"]);
        assert_eq!(with(1, 2), ["dropped(overflow) (service) = dropped(overflow) (workers)"]);
    }
}
