//! The equations of a tier: the generator's own, and those that the service's counters add. Pure.

use bench_format::result::{Books, ConnectionCounts, Equation, MessageCounts, Witness, WorkerResult};

use judge::{connections::compare, merge::Merged, published};

use super::ServiceView;

/// The equations; without the service's counters only those of the generator.
pub(super) fn books(
    merged: &Merged,
    messages: &MessageCounts,
    results: &[WorkerResult],
    service: Option<&ServiceView>,
    witness: Witness,
) -> Books {
    let mut equations = if witness == Witness::Receiver {
        published(merged, messages, service)
    } else {
        let mut equations = offered(&merged.connections, messages);
        equations.extend(fates(messages, results, service, witness));
        equations
    };
    let Some(view) = service else { return Books { equations, connections: None } };
    let workers: Vec<_> = results.iter().flat_map(|result| result.books.iter().cloned()).collect();
    let sent = [term("sent", messages.sent), term("unnumbered", unnumbered(results))];
    equations.extend(received(view, sent));
    let nothing_dropped = messages.dropped.values().all(|count| *count == 0);
    if let (Witness::Application, Some(application), true) = (witness, view.application, nothing_dropped) {
        let sum = workers.iter().fold(0_u64, |sum, book| sum.wrapping_add(book.sequence_sum));
        equations.push(Equation::new(
            "sequence sum sent = sequence sum delivered",
            sum,
            [term("sequence sum delivered", application.sequence_sum)],
        ));
    }
    let connections = view.connections.as_ref().map(|books| compare(&workers, &books.connections, &[]));
    Books { equations, connections }
}

/// Hellos and the like, over all workers.
pub(super) fn unnumbered(results: &[WorkerResult]) -> u64 {
    results.iter().flat_map(|result| &result.books).map(|book| book.unnumbered).sum()
}

/// What a service that publishes sent, and what the connections got of it.
fn published(merged: &Merged, messages: &MessageCounts, service: Option<&ServiceView>) -> Vec<Equation> {
    let told = service.map(ServiceView::told).unwrap_or_default();
    let ConnectionCounts { attempted, open, failed, closed_early } = &merged.connections;
    let failed: u64 = failed.values().sum();
    let mut equations =
        vec![Equation::new("attempted = open + failed", *attempted, [term("open", *open), term("failed", failed)])];
    let never_read = failed > 0 || !closed_early.is_empty();
    let receivers: Vec<_> = merged.receivers().collect();
    equations.extend(published::equations(messages, &receivers, &told, never_read));
    equations
}

fn term(name: &str, value: u64) -> (String, u64) {
    (name.to_owned(), value)
}

/// What the generator attempted, by its own count.
fn offered(connections: &ConnectionCounts, messages: &MessageCounts) -> Vec<Equation> {
    let failed = connections.failed.values().sum();
    vec![
        Equation::new(
            "attempted = open + failed",
            connections.attempted,
            [term("open", connections.open), term("failed", failed)],
        ),
        Equation::new(
            "due = sent + unsent",
            messages.due,
            [term("sent", messages.sent), term("unsent", messages.unsent)],
        ),
    ]
}

/// What became of what was sent, says the witness.
fn fates(
    messages: &MessageCounts,
    results: &[WorkerResult],
    service: Option<&ServiceView>,
    witness: Witness,
) -> Option<Equation> {
    let MessageCounts { sent, delivered, late, wrong, lost, .. } = *messages;
    let dropped = messages.dropped.values().sum();
    let consumed = service.map_or(0, |view| view.whole.consumed);
    match witness {
        Witness::None | Witness::Receiver => None,
        Witness::Reply => Some(Equation::new(
            "sent = delivered + late + wrong + lost",
            sent,
            [term("delivered", delivered), term("late", late), term("wrong", wrong), term("lost", lost)],
        )),
        Witness::Application => Some(Equation::new(
            "sent + unnumbered = delivered + consumed + dropped + lost",
            sent + unnumbered(results),
            [term("delivered", delivered), term("consumed", consumed), term("dropped", dropped), term("lost", lost)],
        )),
    }
}

/// What the service received, and what it did with it.
fn received(view: &ServiceView, sent: [(String, u64); 2]) -> [Equation; 2] {
    let whole = &view.whole;
    [
        Equation::new("received (service) = sent + unnumbered (workers)", whole.received, sent),
        Equation::new(
            "received = consumed + delivered + dropped + queued",
            whole.received,
            [
                term("consumed", whole.consumed),
                term("delivered", whole.delivered),
                term("dropped", whole.dropped.values().sum()),
                term("queued", whole.queued),
            ],
        ),
    ]
}
