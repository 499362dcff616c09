//! Compares the books of workers and service, connection by connection. Pure.

use std::collections::{HashMap, HashSet};

use bench_format::{
    result::{ConnectionCheck, ReceiverBook, WorkerBook},
    service::ConnectionBook,
};

/// Largest number of mismatches that are described. All are counted.
const NAMED_MISMATCHES: usize = 10;

/// Compares the books of workers and service; `other_clients` are ids of connections that belong to other clients.
///
/// For each connection, the messages that the worker sent (numbered or not) must be those that the service received. If
/// the service reports an application, they must also be those that the application counted, the service dropped or the
/// service consumed, with equal sequence sums unless something was dropped (the application doesn't know the number of
/// a dropped message). On a connection that receives published messages, the received and missing ones must add up from
/// the first to the last, and after a completed close handshake the messages read must be those that the service counts
/// as sent on it.
pub fn compare(workers: &[WorkerBook], service: &[ConnectionBook], other_clients: &[String]) -> ConnectionCheck {
    let mut unmatched: HashMap<&str, &ConnectionBook> = service.iter().map(|book| (book.id.as_str(), book)).collect();
    let other_clients: HashSet<&str> = other_clients.iter().map(String::as_str).collect();
    let mut check = ConnectionCheck::default();
    let mismatch = |check: &mut ConnectionCheck, description: String| {
        check.mismatched += 1;
        if check.examples.len() < NAMED_MISMATCHES {
            check.examples.push(description);
        }
    };
    for worker in workers {
        check.compared += 1;
        match unmatched.remove(worker.id.as_str()) {
            None => mismatch(&mut check, format!("{}: the service doesn't know this connection", worker.id)),
            Some(book) => {
                if let Some(description) = difference(worker, book) {
                    mismatch(&mut check, format!("{}: {description}", worker.id));
                }
            }
        }
    }
    for (id, book) in unmatched {
        if book.received > 0 && !other_clients.contains(id) {
            mismatch(&mut check, format!("{id}: no worker knows this connection, which sent {}", book.received));
        }
    }
    check
}

fn difference(worker: &WorkerBook, service: &ConnectionBook) -> Option<String> {
    let sent = worker.sent + worker.unnumbered;
    if sent != service.received {
        return Some(format!("sent {sent}, received {}", service.received));
    }
    if let Some(receiver) = &worker.receiver
        && receiver.expected() != receiver.received + receiver.missing
    {
        let ReceiverBook { first, last, received, missing, .. } = receiver;
        return Some(format!("from {first:?} to {last:?} it received {received} and misses {missing}"));
    }
    if let (Some(receiver), Some(reported)) = (worker.receiver.as_ref().filter(|book| book.closed), service.sent)
        && receiver.messages() != reported
    {
        return Some(format!("it read {} messages, but {reported} were sent to it", receiver.messages()));
    }
    let application = service.application?;
    let accounted = application.delivered + service.dropped + service.consumed;
    if sent != accounted {
        return Some(format!(
            "sent {sent}, but the application counted {}, {} were dropped and {} consumed",
            application.delivered, service.dropped, service.consumed
        ));
    }
    if service.dropped == 0 && application.sequence_sum != worker.sequence_sum {
        return Some(format!("sequence sum sent {}, delivered {}", worker.sequence_sum, application.sequence_sum));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench_format::service::ApplicationStats;

    fn sent(id: &str, sent: u64, sequence_sum: u64) -> WorkerBook {
        WorkerBook { id: id.into(), sent, sequence_sum, unnumbered: 1, ..WorkerBook::default() }
    }

    fn received(id: &str, received: u64, delivered: u64, sequence_sum: u64, dropped: u64) -> ConnectionBook {
        let application = Some(ApplicationStats { delivered, sequence_sum, unnumbered: 0 });
        ConnectionBook {
            id: id.into(),
            open: true,
            received,
            consumed: 1,
            dropped,
            application,
            ..ConnectionBook::default()
        }
    }

    #[test]
    fn consistent_books_balance() {
        let check = compare(&[sent("a", 10, 55)], &[received("a", 11, 10, 55, 0)], &[]);
        assert_eq!((check.compared, check.mismatched), (1, 0));
    }

    #[test]
    fn a_counted_drop_balances() {
        let check = compare(&[sent("a", 10, 55)], &[received("a", 11, 9, 50, 1)], &[]);
        assert_eq!(check.mismatched, 0);
    }

    #[test]
    fn a_service_that_reports_a_dropped_message_as_delivered_is_caught() {
        // It claims ten, but its application has a different sequence sum.
        let check = compare(&[sent("a", 10, 55)], &[received("a", 11, 10, 50, 0)], &[]);
        assert_eq!(check.mismatched, 1);
    }

    #[test]
    fn the_received_numbers_of_a_connection_add_up() {
        let with = |received, missing| {
            let receiver = ReceiverBook { first: Some(3), last: Some(12), received, missing, ..Default::default() };
            let worker = WorkerBook { receiver: Some(receiver), ..sent("a", 10, 55) };
            compare(&[worker], &[received_by("a")], &[]).mismatched
        };
        assert_eq!((with(10, 0), with(8, 2)), (0, 0));
        assert_eq!((with(9, 0), with(10, 1)), (1, 1));
    }

    #[test]
    fn a_connection_reads_what_was_sent_to_it() {
        let with = |reported, closed| {
            let receiver =
                ReceiverBook { first: Some(1), last: Some(4), received: 4, others: 2, closed, ..Default::default() };
            let worker = WorkerBook { receiver: Some(receiver), ..sent("a", 10, 55) };
            let service = ConnectionBook { sent: Some(reported), ..received_by("a") };
            compare(&[worker], &[service], &[]).mismatched
        };
        assert_eq!((with(6, true), with(5, true), with(7, true)), (0, 1, 1));
        assert_eq!(with(7, false), 0, "the unread messages of a connection that ended early are unknown");
    }

    /// The service's book of a connection without losses.
    fn received_by(id: &str) -> ConnectionBook {
        received(id, 11, 10, 55, 0)
    }

    #[test]
    fn a_connection_of_another_client_is_not_the_trials() {
        let other_clients = ["b".to_owned()];
        assert_eq!(compare(&[], &[received("b", 2, 1, 1, 0)], &other_clients).mismatched, 0);
        assert_eq!(compare(&[], &[received("c", 2, 1, 1, 0)], &other_clients).mismatched, 1);
    }

    #[test]
    fn a_connection_that_one_side_does_not_know_is_a_mismatch() {
        assert_eq!(compare(&[sent("a", 1, 1)], &[], &[]).mismatched, 1);
        assert_eq!(compare(&[], &[received("b", 2, 1, 1, 0)], &[]).mismatched, 1);
    }
}
