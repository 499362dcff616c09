//! What the engine needs to know about a connection in order to send it an event: its format, its encryption key, its
//! rate limit, and the ids of the events that it got.
//!
//! The owner's threads ask, and the shards report. A connection without any of that (JSON, no encryption, no event so
//! far) has no entry. Inbound messages don't touch this table.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use wse_utilities::crypto::Key;

use crate::{
    config::RateLimit,
    dedup::{Dedup, REMEMBERED},
    format::Format,
    key::ConnectionKey,
    lock::lock,
    rate_limit::{Notice, RateLimiter},
};

/// Number of locks: a power of two, large enough that senders rarely meet.
const STRIPES: usize = 64;

/// What is known about one connection.
#[derive(Debug, Default)]
struct Recipient {
    format: Format,
    sealing: Sealing,
    pace: Option<Box<RateLimiter>>,
}

/// What the sending thread has to know about a connection's encryption.
#[derive(Clone, Debug, Default)]
pub(crate) enum Sealing {
    /// There is none.
    #[default]
    Open,
    /// Version 1: the thread encrypts with this key.
    Key(Arc<Key>),
    /// Version 2: the shard encrypts.
    Shard,
}

type Stripe = HashMap<ConnectionKey, Recipient>;

/// How to write an event that may be sent.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) format: Format,
    pub(crate) sealing: Sealing,
}

/// Whether an event may be sent.
#[derive(Debug)]
pub(crate) enum EventDecision {
    Admitted(Admission, Option<Notice>),
    /// An event with the same id was sent to the connection before.
    Duplicate,
    /// The connection's rate limit is reached.
    Limited(Option<Notice>),
}

/// The recipients of events, by connection, and the counters of events that weren't sent.
pub(crate) struct Recipients {
    stripes: Box<[Mutex<Stripe>]>,
    /// The ids of the events that were sent last, with their connections.
    recent: Mutex<Dedup>,
    limit: RateLimit,
    duplicates: AtomicU64,
    limited: AtomicU64,
    unencrypted: AtomicU64,
}

impl Recipients {
    pub(crate) fn new(limit: RateLimit) -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            recent: Mutex::new(Dedup::new(REMEMBERED)),
            limit,
            duplicates: AtomicU64::new(0),
            limited: AtomicU64::new(0),
            unencrypted: AtomicU64::new(0),
        }
    }

    fn stripe(&self, key: ConnectionKey) -> MutexGuard<'_, Stripe> {
        lock(&self.stripes[key.slot() % STRIPES])
    }

    /// The connection uses MessagePack from now on.
    pub(crate) fn use_message_pack(&self, connection: ConnectionKey) {
        self.stripe(connection).entry(connection).or_default().format = Format::MessagePack;
    }

    /// The connection has an encryption key: events are encrypted from now on. The shard must send the client its own
    /// public key before it writes anything else to the connection.
    pub(crate) fn use_key(&self, connection: ConnectionKey, sealing: Sealing) {
        self.stripe(connection).entry(connection).or_default().sealing = sealing;
    }

    /// Removes a closed connection. The registry must have removed it before.
    pub(crate) fn close(&self, connection: ConnectionKey) {
        self.stripe(connection).remove(&connection);
    }

    /// Decides whether an event may be sent, and takes a token and records its id if it may. `is_open` is called after
    /// a new entry was made, because a connection that closes meanwhile would leave that entry behind.
    pub(crate) fn admit(
        &self,
        connection: ConnectionKey,
        id: Option<&str>,
        now_seconds: f64,
        is_open: impl FnOnce() -> bool,
    ) -> EventDecision {
        // Held until the event's id is recorded: of two threads with the same id, one must wait.
        let mut recent = id.map(|id| (lock(&self.recent), id));
        if recent.as_ref().is_some_and(|(recent, id)| recent.contains(connection, id)) {
            self.duplicates.fetch_add(1, Ordering::Relaxed);
            return EventDecision::Duplicate;
        }
        let mut is_new = false;
        let (step, admission) = {
            let mut stripe = self.stripe(connection);
            let recipient = stripe.entry(connection).or_default();
            let pace = recipient.pace.get_or_insert_with(|| {
                is_new = true;
                Box::new(RateLimiter::new(self.limit, now_seconds))
            });
            (pace.step(now_seconds), Admission { format: recipient.format, sealing: recipient.sealing.clone() })
        };
        if is_new && !is_open() {
            self.close(connection);
        }
        if !step.is_allowed {
            self.limited.fetch_add(1, Ordering::Relaxed);
            return EventDecision::Limited(step.notice);
        }
        if let Some((recent, id)) = &mut recent {
            recent.insert(connection, id);
        }
        EventDecision::Admitted(admission, step.notice)
    }

    /// The part of the connection's tokens that is left, from 0 to 1.
    pub(crate) fn allowance(&self, connection: ConnectionKey, now_seconds: f64) -> f64 {
        let mut stripe = self.stripe(connection);
        let pace = stripe.get_mut(&connection).and_then(|recipient| recipient.pace.as_mut());
        pace.map_or(1.0, |pace| pace.allowance(now_seconds))
    }

    /// An admitted event could not be written, and its id may be used again.
    pub(crate) fn withdraw(&self, connection: ConnectionKey, id: &str) {
        lock(&self.recent).forget(connection, id);
    }

    /// How many events were dropped because their id was sent before.
    pub(crate) fn duplicates(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    /// How many events were dropped by a rate limit.
    pub(crate) fn limited(&self) -> u64 {
        self.limited.load(Ordering::Relaxed)
    }

    /// Counts an event that could not be encrypted.
    pub(crate) fn count_unencrypted(&self) {
        self.unencrypted.fetch_add(1, Ordering::Relaxed);
    }

    /// How many events could not be encrypted.
    pub(crate) fn unencrypted(&self) -> u64 {
        self.unencrypted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipients(capacity: f64) -> Recipients {
        Recipients::new(RateLimit { capacity, refill_per_second: 0.0 })
    }

    fn connection(slot: usize) -> ConnectionKey {
        ConnectionKey::new(0, 1, slot)
    }

    fn entries(recipients: &Recipients) -> usize {
        recipients.stripes.iter().map(|stripe| lock(stripe).len()).sum()
    }

    #[test]
    fn an_event_with_an_id_is_sent_once_and_one_without_each_time() {
        let recipients = recipients(10.0);
        let admit = |slot, id| recipients.admit(connection(slot), id, 0.0, || true);
        assert!(matches!(admit(1, Some("a")), EventDecision::Admitted(..)));
        assert!(matches!(admit(1, Some("a")), EventDecision::Duplicate));
        assert!(matches!(admit(2, Some("a")), EventDecision::Admitted(..)));
        assert!((0..2).all(|_| matches!(admit(1, None), EventDecision::Admitted(..))));
        assert_eq!((recipients.duplicates(), recipients.limited()), (1, 0));
    }

    #[test]
    fn a_rate_limited_event_and_a_withdrawn_one_may_be_sent_again() {
        let recipients = recipients(1.0);
        let admit = |id, capacity_of| recipients.admit(connection(capacity_of), Some(id), 0.0, || true);
        assert!(matches!(admit("a", 1), EventDecision::Admitted(..)));
        assert!(matches!(admit("b", 1), EventDecision::Limited(Some(Notice::Limited))));
        assert!(matches!(admit("b", 1), EventDecision::Limited(None)), "no duplicate: it was never sent");
        assert!(matches!(admit("c", 2), EventDecision::Admitted(..)));
        recipients.withdraw(connection(2), "c");
        assert!(matches!(admit("c", 2), EventDecision::Limited(_)));
        assert_eq!((recipients.duplicates(), recipients.limited()), (0, 3));
    }

    #[test]
    fn a_connection_gets_events_in_its_format_and_with_its_key() {
        let recipients = recipients(10.0);
        recipients.use_message_pack(connection(1));
        let key = Arc::new(Key::new(&[7; 32]).unwrap());
        recipients.use_key(connection(2), Sealing::Key(key.clone()));
        let admission = |slot| match recipients.admit(connection(slot), None, 0.0, || true) {
            EventDecision::Admitted(admission, None) => {
                (admission.format, matches!(admission.sealing, Sealing::Key(_)))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(admission(1), (Format::MessagePack, false));
        assert_eq!(admission(2), (Format::Json, true));
        assert_eq!(admission(3), (Format::Json, false));
        assert_eq!(entries(&recipients), 3);
        (1..=3).for_each(|slot| recipients.close(connection(slot)));
        assert_eq!(entries(&recipients), 0);
        assert_eq!(Arc::strong_count(&key), 1, "the key is dropped with its connection");
    }

    #[test]
    fn an_event_for_a_closing_connection_leaves_no_entry() {
        let recipients = recipients(10.0);
        assert!(matches!(recipients.admit(connection(1), None, 0.0, || false), EventDecision::Admitted(..)));
        assert_eq!(entries(&recipients), 0);
    }
}
