//! The equations of a trial, from the counters of both sides after the drain. Pure.
//!
//! Which equations apply depends on what both sides count, not on the workload's name: an equation is included if both
//! of its sides exist. A counted drop is an outcome; a difference that no counter explains makes the trial invalid.
//!
//! `replies` has the equations of replies and error frames, `reported` those of counters that a plan maps.

use bench_format::{
    result::{Books, Equation, MessageCounts, Witness},
    trial_file::BookKeeping,
};

use crate::{case::Case, connections::compare, delta::ServiceDelta, merge::Merged, published, turnover};
use replies::reply_equations;

#[cfg(test)]
mod fixture;
mod replies;
mod reported;

/// Name of the term for connections and messages of the protocol check.
const PROTOCOL_CHECK: &str = "of the protocol check";

/// All equations that the trial's counters allow.
pub(crate) fn books(case: &Case<'_>, messages: &MessageCounts) -> Books {
    let Case { merged, delta, reported, .. } = case;
    let terms = &case.trial.terms;
    // Counters that a plan maps are no books of the harness's kind: each has an equation of its own.
    let is_own = case.trial.counters.is_none();
    let keeping = if is_own { case.trial.keeping } else { BookKeeping::None };
    let mut equations = connection_equations(merged, delta, keeping);
    equations.extend(turnover::equations(merged));
    if terms.witness == Witness::Receiver {
        let receivers: Vec<_> = merged.receivers().collect();
        let never_read = !merged.connections.failed.is_empty() || !merged.connections.closed_early.is_empty();
        equations.extend(published::equations(messages, &receivers, reported, never_read));
        if is_own {
            equations.extend(service_equations(merged, delta, keeping));
        }
    } else if merged.messages.due > 0 || merged.messages.sent > 0 {
        equations.extend(worker_equations(merged, terms.witness));
        if is_own {
            equations.extend(service_equations(merged, delta, keeping));
        }
        if is_own && terms.witness == Witness::Application {
            equations.extend(application_equations(merged, delta, keeping));
        }
        if terms.counts_answers && keeping != BookKeeping::None {
            equations.extend(reply_equations(merged, delta, terms));
        }
    }
    if let Some(counters) = &case.trial.counters {
        equations.extend(reported::equations(case, counters));
    }
    let connections = case.service.connections.as_deref().filter(|_| keeping == BookKeeping::Connections);
    Books { equations, connections: connections.map(|service| compare(&merged.books, service, &case.trial.others)) }
}

fn connection_equations(merged: &Merged, delta: &ServiceDelta, keeping: BookKeeping) -> Vec<Equation> {
    let counts = &merged.connections;
    let failed: u64 = counts.failed.values().sum();
    let attempted = terms([("open", counts.open), ("failed", failed)]);
    let attempted = Equation::new("attempted = open + failed", counts.attempted, attempted);
    if keeping == BookKeeping::None { vec![attempted] } else { vec![attempted, accepted_equation(merged, delta)] }
}

/// Compares the connections that the service accepted with those that the workers opened. An attempt can fail after the
/// service accepted it, but no more accepted connections than failed attempts are explained so.
fn accepted_equation(merged: &Merged, delta: &ServiceDelta) -> Equation {
    let counts = &merged.connections;
    let failed: u64 = counts.failed.values().sum();
    let checked = merged.checked.opened;
    let late = delta.accepted.saturating_sub(counts.open + checked).min(failed);
    let mut accepted = vec![("open", counts.open)];
    if checked > 0 {
        accepted.push((PROTOCOL_CHECK, checked));
    }
    if late > 0 {
        accepted.push(("failed after it was accepted", late));
    }
    Equation::new("accepted (service) = open (workers)", delta.accepted, terms(accepted))
}

fn worker_equations(merged: &Merged, witness: Witness) -> Vec<Equation> {
    let counts = &merged.messages;
    let mut equations = Vec::new();
    if witness == Witness::Reply {
        let outcomes = [
            ("delivered", counts.delivered),
            ("late", counts.late),
            ("wrong", counts.wrong),
            ("dropped", counts.dropped.values().sum()),
            ("lost", counts.lost),
            ("unsent", counts.unsent),
        ];
        let name = "due = delivered + late + wrong + dropped + lost + unsent";
        equations.push(Equation::new(name, counts.due, terms(outcomes)));
    }
    equations.push(Equation::new(
        "due = sent + unsent",
        counts.due,
        terms([("sent", counts.sent), ("unsent", counts.unsent)]),
    ));
    if !merged.books.is_empty() {
        let of_connections = merged.books.iter().map(|book| book.sent).sum();
        let name = "sent = sum over the workers' connections";
        equations.push(Equation::new(name, counts.sent, terms([("sent by connections", of_connections)])));
    }
    equations
}

fn service_equations(merged: &Merged, delta: &ServiceDelta, keeping: BookKeeping) -> Vec<Equation> {
    let mut equations = Vec::new();
    // A service with totals only may not count what it receives, and one without counters counts nothing.
    if keeping == BookKeeping::Connections || delta.received > 0 {
        let sent = [("sent", merged.messages.sent), ("unnumbered", merged.unnumbered())];
        equations.push(Equation::new("received (service) = sent + unnumbered (workers)", delta.received, terms(sent)));
        let mut outcomes = vec![("consumed".to_owned(), delta.consumed), ("delivered".to_owned(), delta.delivered)];
        outcomes.extend(drops(delta));
        outcomes.push(("queued".into(), delta.queued));
        equations.push(Equation::new("received = consumed + delivered + dropped + queued", delta.received, outcomes));
    }
    equations
}

fn application_equations(merged: &Merged, delta: &ServiceDelta, keeping: BookKeeping) -> Vec<Equation> {
    let Some(application) = delta.application else {
        return Vec::new();
    };
    let mut equations = Vec::new();
    if keeping == BookKeeping::Connections || delta.delivered > 0 {
        let counted = terms([("delivered (application)", application.delivered)]);
        let name = "delivered (service) = delivered (application)";
        equations.push(Equation::new(name, delta.delivered, counted));
    }
    let mut outcomes = vec![("delivered (application)".to_owned(), application.delivered)];
    outcomes.extend(drops(delta));
    equations.push(Equation::new("sent = delivered (application) + dropped", merged.messages.sent, outcomes));
    if delta.dropped_total() == 0 {
        let delivered = terms([("sequence sum delivered", application.sequence_sum)]);
        equations.push(Equation::new("sequence sum sent = sequence sum delivered", merged.sequence_sum(), delivered));
    }
    equations
}

fn drops(delta: &ServiceDelta) -> impl Iterator<Item = (String, u64)> {
    delta.dropped.iter().map(|(reason, count)| (format!("dropped({reason})"), *count))
}

fn terms<'a>(terms: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<(String, u64)> {
    terms.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use bench_format::{
        result::{ReceiverBook, WorkerBook},
        service::{ApplicationStats, ConnectionBook},
    };

    use super::fixture::{Sums, witnessed_by};
    use super::*;

    /// Ten numbered messages and one unnumbered message on one connection, all delivered or consumed.
    fn consistent() -> (Merged, ServiceDelta, Vec<ConnectionBook>) {
        let mut merged = Merged::default();
        (merged.connections.attempted, merged.connections.open) = (1, 1);
        (merged.messages.due, merged.messages.sent) = (10, 10);
        let book = WorkerBook { id: "a".into(), sent: 10, sequence_sum: 55, unnumbered: 1, ..Default::default() };
        merged.books.push(book);
        let application = Some(ApplicationStats { delivered: 10, sequence_sum: 55, unnumbered: 0 });
        let delta =
            ServiceDelta { accepted: 1, received: 11, consumed: 1, delivered: 10, application, ..Default::default() };
        let service =
            ConnectionBook { id: "a".into(), received: 11, consumed: 1, application, ..ConnectionBook::default() };
        (merged, delta, vec![service])
    }

    fn broken(change: impl FnOnce(&mut Merged, &mut ServiceDelta, &mut Vec<ConnectionBook>)) -> Vec<String> {
        let (mut merged, mut delta, mut service) = consistent();
        change(&mut merged, &mut delta, &mut service);
        let (terms, keeping) = (witnessed_by(Witness::Application), BookKeeping::Connections);
        let (_, books) = Sums { merged, delta, service: Some(service), terms, keeping }.judged();
        let equations =
            books.equations.iter().filter(|equation| !equation.holds()).map(|equation| equation.name.clone());
        let connections = books.connections.filter(|check| check.mismatched > 0).map(|_| "connections".to_owned());
        equations.chain(connections).collect()
    }

    #[test]
    fn consistent_books_balance() {
        assert_eq!(broken(|_, _, _| ()), Vec::<String>::new());
    }

    #[test]
    fn a_counted_drop_is_an_outcome() {
        let broken = broken(|_, delta, service| {
            delta.dropped.insert("inbound_overflow".into(), 2);
            delta.delivered = 8;
            let application = ApplicationStats { delivered: 8, sequence_sum: 40, unnumbered: 0 };
            delta.application = Some(application);
            service[0].dropped = 2;
            service[0].application = Some(application);
        });
        assert_eq!(broken, Vec::<String>::new());
    }

    #[test]
    fn a_drop_that_is_reported_as_delivered_breaks_the_sequence_sum() {
        let broken = broken(|_, delta, service| {
            let application = ApplicationStats { delivered: 10, sequence_sum: 50, unnumbered: 0 };
            delta.application = Some(application);
            service[0].application = Some(application);
        });
        assert_eq!(broken, ["sequence sum sent = sequence sum delivered", "connections"]);
    }

    #[test]
    fn a_message_that_the_service_never_received_is_unaccounted() {
        let broken = broken(|_, delta, service| {
            (delta.received, delta.delivered) = (10, 9);
            let application = ApplicationStats { delivered: 9, sequence_sum: 45, unnumbered: 0 };
            delta.application = Some(application);
            service[0].received = 10;
            service[0].application = Some(application);
        });
        assert!(broken.contains(&"received (service) = sent + unnumbered (workers)".to_owned()), "{broken:?}");
        assert!(broken.contains(&"sent = delivered (application) + dropped".to_owned()), "{broken:?}");
    }

    #[test]
    fn an_application_that_counts_less_than_the_service_claims_is_caught() {
        let broken = broken(|_, delta, _| delta.application.as_mut().unwrap().delivered = 9);
        assert!(broken.contains(&"delivered (service) = delivered (application)".to_owned()), "{broken:?}");
    }

    #[test]
    fn only_failed_attempts_explain_further_accepted_connections() {
        let with = |accepted, failed: u64| {
            broken(|merged, delta, _| {
                merged.connections.attempted = 1 + failed;
                merged.connections.failed.insert("timeout".into(), failed);
                delta.accepted = accepted;
            })
        };
        assert_eq!(with(1, 2), Vec::<String>::new());
        assert_eq!(with(3, 2), Vec::<String>::new());
        assert_eq!(with(4, 2), ["accepted (service) = open (workers)"]);
        assert_eq!(with(0, 2), ["accepted (service) = open (workers)"]);
    }

    #[test]
    fn connections_of_the_protocol_check_are_accepted_beside_the_loads_own() {
        let with = |accepted, checked| {
            broken(|merged, delta, service| {
                merged.checked.opened = checked;
                merged.books.push(WorkerBook { id: "check".into(), unnumbered: 2, ..WorkerBook::default() });
                delta.accepted = accepted;
                (delta.received, delta.consumed) = (13, 3);
                let application = Some(ApplicationStats::default());
                let book =
                    ConnectionBook { id: "check".into(), received: 2, consumed: 2, application, ..service[0].clone() };
                service.push(book);
            })
        };
        assert_eq!(with(2, 1), Vec::<String>::new());
        assert_eq!(with(2, 0), ["accepted (service) = open (workers)"]);
        assert_eq!(with(1, 1), ["accepted (service) = open (workers)"]);
    }

    #[test]
    fn a_service_with_totals_only_is_checked_against_its_totals() {
        let (merged, mut delta, _) = consistent();
        (delta.received, delta.consumed, delta.delivered) = (0, 0, 0);
        let (terms, keeping) = (witnessed_by(Witness::Application), BookKeeping::Totals);
        let (_, books) = Sums { merged, delta, service: Some(vec![]), terms, keeping }.judged();
        let names: Vec<&str> = books.equations.iter().map(|equation| equation.name.as_str()).collect();
        assert!(books.balance() && books.connections.is_none());
        assert!(!names.contains(&"received (service) = sent + unnumbered (workers)"), "{names:?}");
        assert!(names.contains(&"sequence sum sent = sequence sum delivered"), "{names:?}");
    }

    #[test]
    fn a_reply_witness_requires_one_outcome_for_each_message() {
        let (mut merged, mut delta, _) = consistent();
        (merged.messages.delivered, merged.messages.lost) = (8, 1);
        (delta.consumed, delta.delivered, delta.application) = (11, 0, None);
        let (terms, keeping) = (witnessed_by(Witness::Reply), BookKeeping::Connections);
        let (_, books) = Sums { merged, delta, service: None, terms, keeping }.judged();
        let broken: Vec<_> = books.equations.iter().filter(|equation| !equation.holds()).collect();
        assert_eq!((broken.len(), broken[0].left, broken[0].right), (1, 10, 9));
    }

    #[test]
    fn the_applications_counts_complete_the_workers() {
        let (merged, mut delta, _) = consistent();
        delta.dropped.insert("inbound_overflow".into(), 3);
        delta.application.as_mut().unwrap().delivered = 6;
        let (terms, keeping) = (witnessed_by(Witness::Application), BookKeeping::Connections);
        let (counts, _) = Sums { merged, delta, service: None, terms, keeping }.judged();
        assert_eq!((counts.delivered, counts.dropped["inbound_overflow"], counts.lost), (6, 3, 1));
    }

    /// A receiver of 100 published messages, and a service whose books of each connection also count a first message.
    fn publisher() -> (Merged, ServiceDelta, Vec<ConnectionBook>) {
        let mut merged = Merged::default();
        (merged.connections.attempted, merged.connections.open) = (1, 1);
        (merged.messages.due, merged.messages.delivered) = (100, 100);
        let receiver = ReceiverBook {
            first: Some(0),
            last: Some(99),
            received: 100,
            others: 1,
            reached: true,
            closed: true,
            ..Default::default()
        };
        let receiver = Some(receiver);
        merged.books.push(WorkerBook { id: "a".into(), unnumbered: 1, receiver, ..WorkerBook::default() });
        let delta = ServiceDelta { accepted: 1, received: 1, consumed: 1, sent: 101, ..Default::default() };
        let service = ConnectionBook { id: "a".into(), received: 1, consumed: 1, ..Default::default() };
        (merged, delta, vec![service])
    }

    fn broken_publisher(change: impl FnOnce(&mut ReceiverBook, &mut ServiceDelta)) -> Vec<String> {
        let (mut merged, mut delta, service) = publisher();
        change(merged.books[0].receiver.as_mut().unwrap(), &mut delta);
        let (terms, keeping) = (witnessed_by(Witness::Receiver), BookKeeping::Connections);
        let (_, books) = Sums { merged, delta, service: Some(service), terms, keeping }.judged();
        assert!(books.equations.len() > 5, "{books:?}");
        let broken = books.equations.iter().filter(|equation| !equation.holds()).map(|equation| equation.name.clone());
        broken.chain(books.connections.filter(|check| check.mismatched > 0).map(|_| "connections".to_owned())).collect()
    }

    #[test]
    fn a_consistent_publisher_balances() {
        assert_eq!(broken_publisher(|_, _| ()), Vec::<String>::new());
    }

    #[test]
    fn a_publisher_that_claims_more_than_its_receivers_read_is_caught() {
        assert_eq!(broken_publisher(|_, delta| delta.sent += 1), ["sent (service) = read (workers)"]);
    }

    #[test]
    fn a_receiver_whose_numbers_do_not_add_up_is_caught_on_its_connection() {
        let broken = broken_publisher(|receiver, _| receiver.received -= 1);
        assert!(broken.contains(&"connections".to_owned()), "{broken:?}");
        assert!(broken.contains(&"last - first + 1 = received + missing (receivers)".to_owned()), "{broken:?}");
    }

    #[test]
    fn a_service_without_counters_has_no_service_equations() {
        let (merged, _, _) = consistent();
        let (terms, keeping) = (witnessed_by(Witness::Application), BookKeeping::None);
        let delta = ServiceDelta::default();
        let (messages, books) = Sums { merged, delta, service: None, terms, keeping }.judged();
        assert!(
            books.balance() && books.equations.iter().all(|equation| !equation.name.contains("service")),
            "{books:?}"
        );
        assert_eq!((messages.delivered, messages.lost), (0, 0), "without counters the outcome is unknown");
    }
}
