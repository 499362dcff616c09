//! Compares what a service published with what its receivers got. Pure.
//!
//! No other counter says what a subscriber should have received: it joins at one sequence number and leaves at another,
//! and all messages between them were published for it. A loss with a reason is an outcome; a loss without one makes
//! the trial invalid. If a service consists of several instances, the links between them are counted, too, and each
//! step from the publisher to the receivers is compared with the next.

mod schedule;
mod start;

use std::collections::BTreeMap;

pub use self::{
    schedule::{ScheduleDeviation, Scheduled},
    start::Start,
};
use bench_format::{
    result::{Equation, MessageCounts, ReceiverBook},
    service::{LinkStats, LinksStats, PublisherStats},
};

/// Reason of drops for connections that had ended. No receiver misses them.
const DISCONNECTED: &str = "disconnected";
/// Reason of a link's drops for which no other instance had a subscriber.
const UNWANTED: &str = "unwanted";
/// Reason of a link's losses beyond the drops that it reports.
const LOST: &str = "lost";
/// Prefix of the reason of a drop between two instances.
pub const LINK: &str = "link_";
/// Outcome of messages that were published by the end of the window and had not arrived by the end of the drain.
pub const UNDELIVERED: &str = "undelivered";

/// What a service reports about the messages that it sent to subscribers between two readings.
#[derive(Clone, Debug, Default)]
pub struct ReportedSends {
    /// Data messages handed to sockets; absent if the service doesn't count those that it publishes.
    pub sent: Option<u64>,
    /// Data messages dropped instead of being handed to sockets, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// The publisher's sequence number at the end of the window; absent if it isn't reported.
    pub last_of_window: Option<u64>,
    /// The publisher's counters after the last connection was closed; absent if it isn't reported.
    pub publisher: Option<PublisherStats>,
    /// Messages published between the readings; absent if the count isn't reported.
    pub published: Option<u64>,
    /// Counters of the links between the service's instances between the readings; absent if there are none.
    pub links: Option<LinksStats>,
}

impl ReportedSends {
    /// Drops that a receiver can have missed.
    fn missed(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.dropped.iter().filter(|(reason, count)| **count > 0 && *reason != DISCONNECTED)
    }

    /// Publications that the links report as dropped or lost, by reason with the prefix [`LINK`].
    fn missed_on_links(&self) -> BTreeMap<String, u64> {
        let mut missed = BTreeMap::new();
        for (_, link) in self.links.iter().flat_map(LinksStats::by_name) {
            let dropped = link.dropped.iter().filter(|(reason, _)| *reason != UNWANTED);
            let dropped = dropped.map(|(reason, count)| (reason.as_str(), *count));
            for (reason, count) in dropped.chain([(LOST, lost_on(link))]) {
                *missed.entry(format!("{LINK}{reason}")).or_default() += count;
            }
        }
        missed
    }
}

/// Completes the workers' counts. Missing messages that the service or its links report are `dropped`, the others are
/// `lost`. Messages published in the window that never reached a connection which stayed open count as due, too.
pub fn complete(messages: &mut MessageCounts, receivers: &[&ReceiverBook], reported: &ReportedSends) {
    let missing = messages.lost;
    for (reason, count) in reported.missed() {
        messages.dropped.insert(reason.clone(), *count);
    }
    let explained: u64 = messages.dropped.values().sum();
    messages.lost = missing.saturating_sub(explained);
    // A drop after a connection's last message leaves no gap.
    messages.due += explained.saturating_sub(missing);
    for (reason, publications) in reported.missed_on_links() {
        // Each receiver misses that many, except publications from before it joined and after it left.
        let most: u64 = receivers.iter().map(|book| book.missing.min(publications)).sum();
        let explained = most.min(messages.lost);
        if explained > 0 {
            messages.dropped.insert(reason, explained);
            messages.lost -= explained;
        }
    }
    let undelivered: u64 = reported.last_of_window.map_or(0, |last| {
        let behind = receivers.iter().filter(|book| book.closed && !book.reached);
        behind.filter_map(|book| book.last).map(|last_received| last.saturating_sub(last_received)).sum()
    });
    if undelivered > 0 {
        messages.dropped.insert(UNDELIVERED.into(), undelivered);
        messages.due += undelivered;
    }
}

/// The equations of receivers. `never_read` states that a connection failed or ended early, so that some messages sent
/// on it may never have been read.
pub fn equations(
    messages: &MessageCounts,
    receivers: &[&ReceiverBook],
    reported: &ReportedSends,
    never_read: bool,
) -> Vec<Equation> {
    let sum = |of: fn(&ReceiverBook) -> u64| receivers.iter().map(|book| of(book)).sum::<u64>();
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
    if let Some(sent) = reported.sent {
        equations.push(sent_equation(sent, receivers, never_read));
        // A service that counts what it sends also counts what it drops.
        equations.push(Equation::new("lost = 0", messages.lost, [term("none", 0)]));
    }
    if let Some(publisher) = &reported.publisher {
        let ahead = receivers.iter().filter(|book| book.last > publisher.last_sequence).count() as u64;
        equations.push(Equation::new("receivers ahead of the publisher = 0", ahead, [term("none", 0)]));
    }
    for (name, link) in reported.links.iter().flat_map(LinksStats::by_name) {
        equations.extend(link_equations(name, link, reported.published));
    }
    equations
}

/// Compares what the service reports as sent with what the workers read.
fn sent_equation(sent: u64, receivers: &[&ReceiverBook], never_read: bool) -> Equation {
    let sum = |of: fn(&ReceiverBook) -> u64| receivers.iter().map(|book| of(book)).sum::<u64>();
    let mut read = vec![
        term("received", sum(|book| book.received)),
        term("duplicates", sum(|book| book.duplicated)),
        term("wrong", sum(|book| book.wrong)),
        term("greetings and pings", sum(|book| book.others)),
    ];
    let all: u64 = read.iter().map(|(_, count)| count).sum();
    let unread = sent.saturating_sub(all);
    if unread > 0 && (never_read || receivers.iter().any(|book| !book.closed)) {
        read.push(term("never read: its connection failed or ended early", unread));
    }
    Equation::new("sent (service) = read (workers)", sent, read)
}

/// The steps from the publisher over a link to the instance of the receivers, each compared with the next.
fn link_equations(name: &str, link: &LinkStats, published: Option<u64>) -> Vec<Equation> {
    let mut written = vec![term("sent", link.sent)];
    written.extend(link.dropped.iter().map(|(reason, count)| term(&format!("dropped({reason})"), *count)));
    written.push(term("queued", link.queued));
    let equation = |description: &str, left, right| Equation::new(&format!("{description} ({name})"), left, right);
    let published_equation = published.map(|count| {
        let name = format!("published (publisher) = published ({name})");
        Equation::new(&name, count, [term("published", link.published)])
    });
    let received_terms = [term("received", link.received), term("lost", lost_on(link))];
    let steps = [
        equation("published = sent + dropped + queued", link.published, written),
        equation("sent = received + lost", link.sent, received_terms.into()),
        equation("received = delivered", link.received, vec![term("delivered", link.delivered)]),
    ];
    published_equation.into_iter().chain(steps).collect()
}

/// Publications lost on a link beyond the drops that the sender reports. The receiving side counts every missing number
/// as lost, and the sender may drop a publication after numbering it, which would count twice.
fn lost_on(link: &LinkStats) -> u64 {
    let dropped: u64 = link.dropped.iter().filter(|(reason, _)| *reason != UNWANTED).map(|(_, count)| *count).sum();
    let counted_twice = (link.received + link.lost).saturating_sub(link.sent).min(dropped);
    link.lost.saturating_sub(counted_twice)
}

fn term(name: &str, count: u64) -> (String, u64) {
    (name.to_owned(), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver of 100 messages, numbered from 11.
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

    fn reported() -> ReportedSends {
        let publisher = PublisherStats { last_sequence: Some(120), ..PublisherStats::default() };
        ReportedSends {
            sent: Some(102),
            last_of_window: Some(100),
            publisher: Some(publisher),
            ..ReportedSends::default()
        }
    }

    /// The completed counts, and the equations that don't hold.
    fn judged(book: &ReceiverBook, reported: &ReportedSends, never_read: bool) -> (MessageCounts, Vec<String>) {
        let mut messages = counts(book);
        complete(&mut messages, &[book], reported);
        let equations = equations(&messages, &[book], reported, never_read);
        let broken = equations.into_iter().filter(|equation| !equation.holds()).map(|equation| equation.name);
        (messages, broken.collect())
    }

    const NOTHING: Vec<String> = Vec::new();

    #[test]
    fn consistent_books_balance() {
        assert_eq!(judged(&book(), &reported(), false), (counts(&book()), NOTHING));
    }

    #[test]
    fn a_gap_is_a_loss_and_found_unless_the_service_reports_it() {
        let book = ReceiverBook { received: 95, missing: 5, ..book() };
        let (messages, broken) = judged(&book, &ReportedSends { sent: Some(97), ..reported() }, false);
        assert_eq!((messages.due, messages.delivered, messages.lost), (100, 95, 5));
        assert_eq!(broken, ["lost = 0"]);
        let dropped = |count| BTreeMap::from([("slow_consumer".to_owned(), count), (DISCONNECTED.to_owned(), 9)]);
        let fewer_sent = ReportedSends { sent: Some(97), dropped: dropped(3), ..reported() };
        let (messages, broken) = judged(&book, &fewer_sent, false);
        assert_eq!((messages.dropped["slow_consumer"], messages.lost, messages.due), (3, 2, 100));
        assert_eq!(broken, ["lost = 0"]);
        let (messages, broken) = judged(&book, &ReportedSends { dropped: dropped(5), ..fewer_sent }, false);
        assert_eq!((messages.dropped["slow_consumer"], messages.lost, broken), (5, 0, NOTHING));
    }

    #[test]
    fn a_gap_that_the_service_does_not_count_is_only_a_loss() {
        let book = ReceiverBook { received: 95, missing: 5, ..book() };
        let (messages, broken) = judged(&book, &ReportedSends { sent: None, ..reported() }, false);
        assert_eq!((messages.lost, broken), (5, NOTHING));
    }

    #[test]
    fn messages_dropped_after_the_last_one_were_due_too() {
        let dropped = BTreeMap::from([("slow_consumer".to_owned(), 7)]);
        let (messages, broken) = judged(&book(), &ReportedSends { dropped, ..reported() }, false);
        assert_eq!((messages.due, messages.delivered, messages.lost, broken), (107, 100, 0, NOTHING));
    }

    #[test]
    fn messages_missing_after_the_drain_have_a_reason() {
        let behind = ReceiverBook { reached: false, ..book() };
        let reported = ReportedSends { last_of_window: Some(115), ..reported() };
        let (messages, broken) = judged(&behind, &reported, false);
        assert_eq!((messages.due, messages.dropped[UNDELIVERED], broken), (105, 5, NOTHING));
        let (messages, _) = judged(&ReceiverBook { closed: false, ..behind }, &reported, true);
        assert!(messages.dropped.is_empty(), "the messages due on a connection that ended early are unknown");
    }

    #[test]
    fn a_service_that_counts_unread_messages_as_sent_is_found_unless_a_connection_ended_early() {
        let name = "sent (service) = read (workers)";
        let more = ReportedSends { sent: Some(105), ..reported() };
        assert_eq!(judged(&book(), &more, false).1, [name]);
        assert_eq!(judged(&book(), &more, true).1, NOTHING);
        let less = ReportedSends { sent: Some(99), ..reported() };
        assert_eq!(judged(&book(), &less, true).1, [name], "more was read than was sent");
    }

    #[test]
    fn a_number_that_was_never_published_is_caught() {
        let ahead = ReceiverBook { first: Some(22), last: Some(121), ..book() };
        assert_eq!(judged(&ahead, &reported(), false).1, ["receivers ahead of the publisher = 0"]);
    }

    #[test]
    fn books_that_do_not_add_up_are_caught() {
        let (_, broken) = judged(&ReceiverBook { received: 99, others: 3, ..book() }, &reported(), false);
        assert_eq!(broken[0], "last - first + 1 = received + missing (receivers)");
    }

    /// A link that got 120 publications over Redis: the sender dropped `dropped` of them, and `lost` more were lost.
    fn over_redis(dropped: u64, lost: u64) -> ReportedSends {
        let sent = 120 - dropped;
        let link = LinkStats {
            published: 120,
            sent,
            dropped: BTreeMap::from([("overflow".to_owned(), dropped)]),
            received: sent - lost,
            delivered: sent - lost,
            lost,
            ..LinkStats::default()
        };
        ReportedSends {
            published: Some(120),
            links: Some(LinksStats { redis: Some(link), cluster: None }),
            ..reported()
        }
    }

    /// The equations of the link that don't hold after a change of its counters.
    fn broken_link(change: impl FnOnce(&mut LinkStats)) -> Vec<String> {
        let mut reported = over_redis(2, 1);
        change(reported.links.as_mut().unwrap().redis.as_mut().unwrap());
        judged(
            &ReceiverBook { received: 97, missing: 3, ..book() },
            &ReportedSends { sent: Some(99), ..reported },
            false,
        )
        .1
    }

    #[test]
    fn a_reported_link_has_a_name() {
        let book = ReceiverBook { received: 97, missing: 3, ..book() };
        let (messages, broken) = judged(&book, &ReportedSends { sent: Some(99), ..over_redis(2, 1) }, false);
        let expected = BTreeMap::from([("link_lost".to_owned(), 1), ("link_overflow".to_owned(), 2)]);
        assert_eq!((messages.dropped, messages.lost, messages.due, broken), (expected, 0, 100, NOTHING));
    }

    #[test]
    fn a_link_explains_no_more_losses_than_it_reports() {
        let book = ReceiverBook { received: 93, missing: 7, ..book() };
        let (messages, broken) = judged(&book, &ReportedSends { sent: Some(95), ..over_redis(2, 1) }, false);
        assert_eq!((messages.lost, broken), (4, vec!["lost = 0".to_owned()]));
    }

    #[test]
    fn a_link_drop_while_a_receiver_was_absent_is_not_a_loss() {
        let (messages, broken) = judged(&book(), &over_redis(15, 3), false);
        assert_eq!((messages, broken), (counts(&book()), NOTHING));
    }

    #[test]
    fn drops_after_numbering_are_reported_once() {
        let mut reported = over_redis(2, 1);
        reported.links.as_mut().unwrap().redis.as_mut().unwrap().lost = 3;
        let book = ReceiverBook { received: 97, missing: 3, ..book() };
        let (messages, broken) = judged(&book, &ReportedSends { sent: Some(99), ..reported }, false);
        assert_eq!((messages.dropped["link_lost"], messages.dropped["link_overflow"], broken), (1, 2, NOTHING));
    }

    #[test]
    fn an_unsubscribed_publication_explains_no_gap() {
        let mut reported = over_redis(0, 0);
        let link = reported.links.as_mut().unwrap().redis.as_mut().unwrap();
        link.dropped = BTreeMap::from([(UNWANTED.to_owned(), 3)]);
        link.published += 3;
        reported.published = Some(123);
        let book = ReceiverBook { received: 97, missing: 3, ..book() };
        let (messages, broken) = judged(&book, &ReportedSends { sent: Some(99), ..reported }, false);
        assert_eq!((messages.lost, broken), (3, vec!["lost = 0".to_owned()]));
    }

    #[test]
    fn each_step_of_a_link_is_compared_with_the_next() {
        assert_eq!(broken_link(|_| ()), NOTHING);
        let published_equation = "published (publisher) = published (redis)";
        let [written, received_equation, handed_on] =
            ["published = sent + dropped + queued", "sent = received + lost", "received = delivered"]
                .map(|description| format!("{description} (redis)"));
        assert_eq!(
            broken_link(|link| (link.published, link.sent, link.received, link.delivered) = (119, 117, 116, 116)),
            [published_equation]
        );
        assert_eq!(broken_link(|link| (link.sent, link.received, link.delivered) = (117, 116, 116)), [written]);
        assert_eq!(broken_link(|link| (link.received, link.delivered) = (116, 116)), [received_equation]);
        assert_eq!(broken_link(|link| link.delivered = 116), [handed_on]);
    }
}
