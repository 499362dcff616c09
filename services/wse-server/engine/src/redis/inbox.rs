//! Decides which messages from Redis are new: drops this instance's own ones and duplicates, and counts what is
//! missing. No I/O.
//!
//! Redis sends a message once for each of our subscriptions that matches, and other instances send a publication again
//! if they don't know whether it got out. The numbers in headers identify such duplicates. Messages without a number
//! are duplicates if they come directly one after the other through different subscriptions.

use super::{CHANNEL, header::Header, outbox::RUN, recent::Recent, resp::Message};
use crate::recovery::Position;

/// Topics whose numbers are remembered.
const REMEMBERED_TOPICS: usize = 1 << 16;
/// Publishers of one topic whose numbers are remembered.
const REMEMBERED_ORIGINS: usize = 64;
/// A gap of at least this many numbers means that the publisher has begun a new run.
const FAR: u64 = 1 << 36;

/// The counters of inbound messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Books {
    /// New messages of others.
    pub(super) received: u64,
    /// Of these, those that were handed to the subscribers here.
    pub(super) delivered: u64,
    /// Numbers that are missing.
    pub(super) lost: u64,
    /// Duplicates of messages that came before.
    pub(super) duplicates: u64,
    /// Messages that aren't UTF-8, have another channel prefix or an unreadable header.
    pub(super) malformed: u64,
}

/// The next number that a publisher is expected to use in a topic.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    origin: u64,
    /// One more than the last number that arrived.
    next: u64,
    /// While it equals the inbox's `era`, this instance has been subscribed since the last number, so a gap counts as
    /// loss.
    era: u32,
}

/// The last message without a number, to recognize its duplicates.
#[derive(Debug, Default)]
struct Copies {
    channel: Vec<u8>,
    payload: Vec<u8>,
    /// The patterns of the subscriptions through which it came; a subscription by name is an empty pattern.
    by: Vec<Box<[u8]>>,
}

impl Copies {
    /// Whether this is a duplicate of the last message: the same text through another subscription. The same text
    /// through the same subscription is another message.
    fn has(&mut self, message: &Message<'_>) -> bool {
        let by = message.pattern.unwrap_or_default();
        let is_same = self.channel == message.channel && self.payload == message.payload;
        if is_same && !self.by.iter().any(|known| **known == *by) {
            self.by.push(by.into());
            return true;
        }
        if !is_same {
            self.channel.clear();
            self.channel.extend_from_slice(message.channel);
            self.payload.clear();
            self.payload.extend_from_slice(message.payload);
        }
        self.by.clear();
        self.by.push(by.into());
        false
    }
}

/// A new message that another instance or another program published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewMessage<'a> {
    pub(super) topic: &'a str,
    pub(super) text: &'a str,
    /// The instance that published it; 0 if it has no header.
    pub(super) origin: u64,
    pub(super) stamp: Option<Position>,
}

/// The state that tells new messages from duplicates.
#[derive(Debug)]
pub(super) struct Inbox {
    own: u64,
    cursors: Recent<Vec<Cursor>>,
    copies: Copies,
    /// Changes when this instance unsubscribes from a pattern.
    era: u32,
    pub(super) books: Books,
}

impl Inbox {
    pub(super) fn new(own: u64) -> Self {
        let cursors = Recent::new(REMEMBERED_TOPICS);
        Self { own, cursors, copies: Copies::default(), era: 1, books: Books::default() }
    }

    /// The message if it is new, and `None` if it is our own, a duplicate or malformed. Updates the counters.
    pub(super) fn receive<'a>(&mut self, message: &Message<'a>) -> Option<NewMessage<'a>> {
        let new_message = self.classify(message);
        match new_message {
            Ok(Some(_)) => self.books.received += 1,
            Ok(None) => {}
            Err(()) => self.books.malformed += 1,
        }
        new_message.unwrap_or_default()
    }

    fn classify<'a>(&mut self, message: &Message<'a>) -> Result<Option<NewMessage<'a>>, ()> {
        let channel = message.channel.strip_prefix(CHANNEL.as_bytes()).ok_or(())?;
        let topic = simdutf8::basic::from_utf8(channel).map_err(drop)?;
        let (header, text) = Header::split(message.payload).map_err(drop)?;
        if header.is_some_and(|header| header.origin == self.own) {
            return Ok(None);
        }
        let is_copy = match header.and_then(|header| Some((header.origin, header.number?))) {
            Some((origin, number)) => self.is_duplicate(topic, origin, number),
            None => self.copies.has(message),
        };
        if is_copy {
            self.books.duplicates += 1;
            return Ok(None);
        }
        let text = simdutf8::basic::from_utf8(text).map_err(drop)?;
        let stamp = header.and_then(|header| header.stamp);
        Ok(Some(NewMessage { topic, text, origin: header.map_or(0, |header| header.origin), stamp }))
    }

    /// Whether the number came before. Counts the numbers that are missing in front of it.
    fn is_duplicate(&mut self, topic: &str, origin: u64, number: u64) -> bool {
        let (era, next) = (self.era, number.wrapping_add(1));
        let cursors = self.cursors.get_or_insert_with(topic, Vec::new);
        let Some(cursor) = cursors.iter_mut().find(|cursor| cursor.origin == origin) else {
            if cursors.len() >= REMEMBERED_ORIGINS {
                cursors.remove(0);
            }
            cursors.push(Cursor { origin, next, era });
            return false;
        };
        if number < cursor.next {
            return true;
        }
        if cursor.era == era {
            let missing = number - cursor.next;
            // Of the run that ended, the loss is unknown; of the new run, everything in front of this number is
            // missing.
            self.books.lost += if missing < FAR { missing } else { number % RUN };
        }
        (cursor.next, cursor.era) = (next, era);
        false
    }

    /// This instance is no longer subscribed to the topic by its name: a gap may be publications that it did not ask
    /// for.
    pub(super) fn forget_name(&mut self, topic: &str) {
        self.cursors.get_mut(topic).into_iter().flatten().for_each(|cursor| cursor.era = 0);
    }

    /// This instance is no longer subscribed to some pattern. A gap in any topic may come from that, as it isn't known
    /// which topics only this pattern matched.
    pub(super) fn forget_pattern(&mut self) {
        self.era = self.era.checked_add(1).unwrap_or(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: u64 = 1;
    const OTHER: u64 = 2;

    fn payload(origin: u64, number: Option<u64>) -> Vec<u8> {
        let mut payload = Vec::new();
        let number = number.map(|number| RUN + number);
        Header { origin, number, stamp: None }.put(&mut payload);
        payload.extend_from_slice(b"{}");
        payload
    }

    fn receive(inbox: &mut Inbox, pattern: Option<&str>, channel: &str, payload: &[u8]) -> bool {
        let message = Message { pattern: pattern.map(str::as_bytes), channel: channel.as_bytes(), payload };
        inbox.receive(&message).is_some()
    }

    fn numbered(inbox: &mut Inbox, number: u64) -> bool {
        receive(inbox, None, "wse:a", &payload(OTHER, Some(number)))
    }

    #[test]
    fn each_number_is_new_once_and_what_is_missing_is_counted() {
        let mut inbox = Inbox::new(OWN);
        // Numbers before the first one that arrived are not missing.
        assert!(numbered(&mut inbox, 5) && numbered(&mut inbox, 6));
        assert!(!numbered(&mut inbox, 6) && !numbered(&mut inbox, 5) && !numbered(&mut inbox, 0));
        assert!(numbered(&mut inbox, 10));
        let books = Books { received: 3, lost: 3, duplicates: 3, ..Books::default() };
        assert_eq!(inbox.books, books);
        // Another publisher and another topic have numbers of their own.
        assert!(receive(&mut inbox, None, "wse:a", &payload(3, Some(0))));
        assert!(receive(&mut inbox, None, "wse:b", &payload(OTHER, Some(0))));
        assert_eq!(inbox.books.lost, 3);
    }

    #[test]
    fn own_publications_are_ignored() {
        let mut inbox = Inbox::new(OWN);
        assert!(!receive(&mut inbox, None, "wse:a", &payload(OWN, Some(0))));
        assert!(!receive(&mut inbox, None, "wse:a", &payload(OWN, None)));
        assert_eq!(inbox.books, Books::default());
    }

    #[test]
    fn a_new_run_of_numbers_counts_only_its_own_missing_ones_as_lost() {
        let mut inbox = Inbox::new(OWN);
        assert!(numbered(&mut inbox, 5));
        let later = (1 << 16) * RUN;
        assert!(numbered(&mut inbox, later + 2) && numbered(&mut inbox, later + 3) && !numbered(&mut inbox, 6));
        assert_eq!((inbox.books.lost, inbox.books.duplicates), (2, 1));
        // A run that used up its numbers continues with those of the next run.
        let mut inbox = Inbox::new(OWN);
        assert!(numbered(&mut inbox, RUN - 1) && numbered(&mut inbox, RUN + 1));
        assert_eq!(inbox.books.lost, 1);
    }

    #[test]
    fn an_unsubscribed_publication_is_not_missing() {
        let mut inbox = Inbox::new(OWN);
        assert!(numbered(&mut inbox, 0));
        inbox.forget_name("a");
        assert!(numbered(&mut inbox, 10) && numbered(&mut inbox, 12));
        assert_eq!(inbox.books.lost, 1);
        inbox.forget_pattern();
        assert!(numbered(&mut inbox, 20) && numbered(&mut inbox, 22) && !numbered(&mut inbox, 22));
        assert_eq!(inbox.books.lost, 2);
    }

    #[test]
    fn copies_without_numbers_are_distinguished_by_subscription() {
        let mut inbox = Inbox::new(OWN);
        let mut plain = |by: Option<&str>, payload: &str| receive(&mut inbox, by, "wse:a", payload.as_bytes());
        for _ in 0..2 {
            // The same text twice is two messages.
            assert!(plain(None, "{}") && !plain(Some("wse:*"), "{}") && !plain(Some("wse:a*"), "{}"));
        }
        assert!(plain(Some("wse:*"), "{ }") && !plain(Some("wse:a*"), "{ }"));
        assert!(plain(None, "{}") && plain(None, "{}"));
        let again = payload(OTHER, None);
        assert!(receive(&mut inbox, None, "wse:a", &again) && !receive(&mut inbox, Some("wse:*"), "wse:a", &again));
        assert_eq!((inbox.books.received, inbox.books.duplicates), (6, 6));
    }

    #[test]
    fn a_payload_that_is_not_text_is_counted_and_dropped() {
        let mut inbox = Inbox::new(OWN);
        let mut broken = payload(OTHER, Some(0));
        broken.push(0xFF);
        for payload in [b"\xff".as_slice(), b"\x01\xf0", &broken] {
            assert!(!receive(&mut inbox, None, "wse:a", payload));
        }
        assert!(!receive(&mut inbox, None, "other:a", b"{}"));
        assert_eq!(inbox.books, Books { malformed: 4, ..Books::default() });
    }

    #[test]
    fn unknown_publishers_take_no_memory() {
        let mut inbox = Inbox::new(OWN);
        (2..10_000).for_each(|origin| assert!(receive(&mut inbox, None, "wse:a", &payload(origin, Some(0)))));
        assert_eq!(inbox.cursors.get_mut("a").map(|cursors| cursors.len()), Some(REMEMBERED_ORIGINS));
    }

    proptest! {
        #[test]
        fn received_and_lost_are_all_numbers_up_to_the_last(
            taken in prop::collection::vec(any::<bool>(), 1..200), copies in prop::collection::vec(0..3_u8, 200),
        ) {
            let mut inbox = Inbox::new(OWN);
            let (mut last, mut new) = (None, 0);
            for (number, _) in taken.iter().enumerate().filter(|(number, taken)| **taken || *number == 0) {
                new += u64::from(numbered(&mut inbox, number as u64));
                (0..copies[number]).for_each(|_| assert!(!numbered(&mut inbox, number as u64)));
                last = Some(number as u64);
            }
            prop_assert_eq!(inbox.books.received, new);
            prop_assert_eq!(inbox.books.received + inbox.books.lost, last.unwrap() + 1);
        }
    }
}
