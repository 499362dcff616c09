//! What a service published, held against what its receivers got. Pure.
//!
//! Nobody else counts what a subscriber should have had: it comes in at some number and leaves at another, and everything in
//! between was published for it. Loss is an outcome with a name; what has none makes the trial invalid.

use std::collections::BTreeMap;

use crate::{
    books::Equation,
    result::{MessageCounts, ReceiverBook},
    service::PublisherStats,
};

/// Drops under this reason were meant for a connection that had ended: nobody waits for them.
const DISCONNECTED: &str = "disconnected";
/// The outcome of what was published by the window's end and had not come when the drain's time was over.
pub const UNDELIVERED: &str = "undelivered";

/// What a service says of what it sent to subscribers between two readings.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Data messages handed to sockets; absent where it doesn't count those that it publishes.
    pub sent: Option<u64>,
    /// Data messages dropped in their place, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// The publisher's number when the window ended; absent where it doesn't tell.
    pub last_of_window: Option<u64>,
    /// The publisher, after the last connection was closed.
    pub publisher: Option<PublisherStats>,
}

impl Told {
    /// Drops that a receiver could have missed.
    fn missed(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.dropped.iter().filter(|(reason, count)| **count > 0 && *reason != DISCONNECTED)
    }
}

/// Completes the workers' counts: of what is missing, drops that the service tells of are `dropped`, the rest is `lost`; and
/// what was published in the window for a connection that lasted, and never came, is due, too.
pub fn complete(messages: &mut MessageCounts, receivers: &[&ReceiverBook], told: &Told) {
    let missing = messages.lost;
    for (reason, count) in told.missed() {
        messages.dropped.insert(reason.clone(), *count);
    }
    let explained: u64 = messages.dropped.values().sum();
    messages.lost = missing.saturating_sub(explained);
    // What was dropped behind a connection's last message leaves no gap.
    messages.due += explained.saturating_sub(missing);
    let undelivered: u64 = told.last_of_window.map_or(0, |last| {
        let behind = receivers.iter().filter(|book| book.closed && !book.reached);
        behind.filter_map(|book| book.last).map(|got| last.saturating_sub(got)).sum()
    });
    if undelivered > 0 {
        messages.dropped.insert(UNDELIVERED.into(), undelivered);
        messages.due += undelivered;
    }
}

/// The equations of receivers. `never_read`: some connection failed or ended early, so that something which was sent to it
/// was perhaps read by nobody.
pub fn equations(
    messages: &MessageCounts,
    receivers: &[&ReceiverBook],
    told: &Told,
    never_read: bool,
) -> Vec<Equation> {
    let sum = |of: fn(&ReceiverBook) -> u64| receivers.iter().map(|book| of(book)).sum::<u64>();
    let term = |name: &str, count: u64| (name.to_owned(), count);
    let numbers = [term("received", sum(|book| book.received)), term("missing", sum(|book| book.missing))];
    let mut equations = vec![
        Equation::new("last - first + 1 = received + missing (receivers)", sum(ReceiverBook::expected), numbers),
        Equation::new(
            "due = delivered + wrong + dropped + lost",
            messages.due,
            [
                term("delivered", messages.delivered),
                term("wrong", messages.wrong),
                term("dropped", messages.dropped.values().sum()),
                term("lost", messages.lost),
            ],
        ),
    ];
    if let Some(sent) = told.sent {
        let mut read = vec![
            term("received", sum(|book| book.received)),
            term("duplicates", sum(|book| book.duplicated)),
            term("wrong", sum(|book| book.wrong)),
            term("greetings and pings", sum(|book| book.others)),
        ];
        let all: u64 = read.iter().map(|(_, count)| count).sum();
        let rest = sent.saturating_sub(all);
        if rest > 0 && (never_read || receivers.iter().any(|book| !book.closed)) {
            read.push(term("never read: its connection failed or ended early", rest));
        }
        equations.push(Equation::new("sent (service) = read (workers)", sent, read));
    }
    if let Some(publisher) = &told.publisher {
        let ahead = receivers.iter().filter(|book| book.last > publisher.last_sequence).count() as u64;
        equations.push(Equation::new("receivers ahead of the publisher = 0", ahead, [term("none", 0)]));
    }
    equations
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver of 100 numbers from 11 on.
    fn book() -> ReceiverBook {
        ReceiverBook {
            first: Some(11),
            last: Some(110),
            received: 100,
            others: 2,
            reached: true,
            closed: true,
            ..Default::default()
        }
    }

    fn counts(book: &ReceiverBook) -> MessageCounts {
        MessageCounts { due: book.expected(), delivered: book.received, lost: book.missing, ..MessageCounts::default() }
    }

    fn told() -> Told {
        let publisher = PublisherStats { last_sequence: Some(120), ..PublisherStats::default() };
        Told { sent: Some(102), last_of_window: Some(100), publisher: Some(publisher), ..Told::default() }
    }

    /// The counts, and the equations that don't hold.
    fn judged(book: &ReceiverBook, told: &Told, never_read: bool) -> (MessageCounts, Vec<String>) {
        let mut messages = counts(book);
        complete(&mut messages, &[book], told);
        let equations = equations(&messages, &[book], told, never_read);
        let broken = equations.into_iter().filter(|equation| !equation.holds()).map(|equation| equation.name);
        (messages, broken.collect())
    }

    const NOTHING: Vec<String> = Vec::new();

    #[test]
    fn honest_books_balance() {
        assert_eq!(judged(&book(), &told(), false), (counts(&book()), NOTHING));
    }

    #[test]
    fn a_gap_is_lost_unless_the_service_tells_of_it() {
        let book = ReceiverBook { received: 95, missing: 5, ..book() };
        let (messages, broken) = judged(&book, &Told { sent: Some(97), ..told() }, false);
        assert_eq!((messages.due, messages.delivered, messages.lost, broken), (100, 95, 5, NOTHING));
        let dropped = BTreeMap::from([("slow_consumer".to_owned(), 3), (DISCONNECTED.to_owned(), 9)]);
        let (messages, broken) = judged(&book, &Told { sent: Some(97), dropped, ..told() }, false);
        assert_eq!((messages.dropped["slow_consumer"], messages.lost, messages.due, broken), (3, 2, 100, NOTHING));
    }

    #[test]
    fn what_is_dropped_behind_the_last_message_was_due_too() {
        let dropped = BTreeMap::from([("slow_consumer".to_owned(), 7)]);
        let (messages, broken) = judged(&book(), &Told { dropped, ..told() }, false);
        assert_eq!((messages.due, messages.delivered, messages.lost, broken), (107, 100, 0, NOTHING));
    }

    #[test]
    fn what_had_not_come_when_the_drain_was_over_has_a_name() {
        let behind = ReceiverBook { reached: false, ..book() };
        let told = Told { last_of_window: Some(115), ..told() };
        let (messages, broken) = judged(&behind, &told, false);
        assert_eq!((messages.due, messages.dropped[UNDELIVERED], broken), (105, 5, NOTHING));
        let (messages, _) = judged(&ReceiverBook { closed: false, ..behind }, &told, true);
        assert!(messages.dropped.is_empty(), "nobody knows what a connection that ended early should have had");
    }

    #[test]
    fn a_service_that_calls_sent_what_nobody_read_is_caught_unless_a_connection_ended_early() {
        let name = "sent (service) = read (workers)";
        let more = Told { sent: Some(105), ..told() };
        assert_eq!(judged(&book(), &more, false).1, [name]);
        assert_eq!(judged(&book(), &more, true).1, NOTHING);
        let less = Told { sent: Some(99), ..told() };
        assert_eq!(judged(&book(), &less, true).1, [name], "more was read than was sent");
    }

    #[test]
    fn a_number_that_was_never_published_is_caught() {
        let ahead = ReceiverBook { first: Some(22), last: Some(121), ..book() };
        assert_eq!(judged(&ahead, &told(), false).1, ["receivers ahead of the publisher = 0"]);
    }

    #[test]
    fn books_that_do_not_add_up_are_caught() {
        let (_, broken) = judged(&ReceiverBook { received: 99, others: 3, ..book() }, &told(), false);
        assert_eq!(broken[0], "last - first + 1 = received + missing (receivers)");
    }
}
