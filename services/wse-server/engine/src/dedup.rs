//! Which events were sent already: the last ones that the application gave an id of their own. Pure.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::{BuildHasher, RandomState},
};

use crate::key::ConnectionKey;

/// How many events are remembered for all connections together (the reference's number).
pub(crate) const REMEMBERED: usize = 50_000;

/// A connection and an id, hashed to 128 bits with secret keys. It is much shorter than an id may be, and without the
/// keys no one can construct two equal ones.
type Fingerprint = u128;

/// The most recent events in order of arrival. Above the limit, the oldest is forgotten first.
#[derive(Debug)]
pub(crate) struct Dedup {
    limit: usize,
    keys: (RandomState, RandomState),
    /// The running number of each event.
    known: HashMap<Fingerprint, u64>,
    /// The same events, oldest first. An event that [`Dedup::forget`] removed leaves its entry behind.
    order: VecDeque<(u64, Fingerprint)>,
    next: u64,
}

impl Dedup {
    pub(crate) fn new(limit: usize) -> Self {
        let keys = (RandomState::new(), RandomState::new());
        Self { limit, keys, known: HashMap::new(), order: VecDeque::new(), next: 0 }
    }

    fn fingerprint(&self, connection: ConnectionKey, id: &str) -> Fingerprint {
        let halves = (self.keys.0.hash_one((connection, id)), self.keys.1.hash_one((connection, id)));
        u128::from(halves.0) << 64 | u128::from(halves.1)
    }

    pub(crate) fn contains(&self, connection: ConnectionKey, id: &str) -> bool {
        self.known.contains_key(&self.fingerprint(connection, id))
    }

    /// Remembers an event, unless it is already remembered.
    pub(crate) fn insert(&mut self, connection: ConnectionKey, id: &str) {
        let fingerprint = self.fingerprint(connection, id);
        let Entry::Vacant(vacant) = self.known.entry(fingerprint) else { return };
        vacant.insert(self.next);
        self.order.push_back((self.next, fingerprint));
        self.next += 1;
        if self.order.len() > self.limit
            && let Some((number, fingerprint)) = self.order.pop_front()
            && self.known.get(&fingerprint) == Some(&number)
        {
            self.known.remove(&fingerprint);
        }
    }

    /// Forgets an event that was not sent after all: the next one with this id is not a duplicate.
    pub(crate) fn forget(&mut self, connection: ConnectionKey, id: &str) {
        let fingerprint = self.fingerprint(connection, id);
        self.known.remove(&fingerprint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: usize) -> ConnectionKey {
        ConnectionKey::new(0, 7, slot)
    }

    #[test]
    fn an_event_is_known_by_its_connection_and_its_id() {
        let mut dedup = Dedup::new(10);
        assert!(!dedup.contains(key(1), "a"));
        dedup.insert(key(1), "a");
        assert!(dedup.contains(key(1), "a"));
        assert!(!dedup.contains(key(2), "a") && !dedup.contains(key(1), "b") && !dedup.contains(key(1), ""));
    }

    #[test]
    fn the_oldest_id_is_evicted_first_and_a_repeated_id_keeps_its_age() {
        let mut dedup = Dedup::new(3);
        for id in ["a", "b", "c", "a", "d"] {
            dedup.insert(key(1), id);
        }
        let known = ["a", "b", "c", "d"].map(|id| dedup.contains(key(1), id));
        assert_eq!(known, [false, true, true, true]);
    }

    #[test]
    fn an_id_forgotten_and_inserted_again_stays_as_long_as_any_other() {
        let mut dedup = Dedup::new(3);
        dedup.insert(key(1), "a");
        dedup.forget(key(1), "a");
        assert!(!dedup.contains(key(1), "a"));
        for id in ["b", "a", "c"] {
            dedup.insert(key(1), id);
        }
        // The entry that the first "a" left in `order` was evicted, not the second "a" itself.
        assert_eq!(["a", "b", "c"].map(|id| dedup.contains(key(1), id)), [true, true, true]);
        dedup.insert(key(1), "d");
        assert_eq!(["a", "b", "c", "d"].map(|id| dedup.contains(key(1), id)), [true, false, true, true]);
    }

    #[test]
    fn it_stores_no_more_than_its_limit() {
        let mut dedup = Dedup::new(100);
        for number in 0..10_000 {
            dedup.insert(key(number % 7), &number.to_string());
            if number % 3 == 0 {
                dedup.forget(key(number % 7), &number.to_string());
            }
            assert!(dedup.known.len() <= 100 && dedup.order.len() <= 100);
        }
    }
}
