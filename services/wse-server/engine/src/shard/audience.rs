//! The subscribers of each topic among a shard's connections. Commands change these lists, in the order in which
//! `topics.rs` changed its own.

use std::collections::HashMap;

use crate::{
    key::ConnectionKey,
    topics::{SubscriptionChange, TopicId},
};

/// The lists of subscribers by topic, with the reverse index.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    listeners: HashMap<TopicId, Vec<ConnectionKey>>,
    /// Each connection's index in these lists, so that removing it takes no search, however long they are.
    positions: HashMap<ConnectionKey, HashMap<TopicId, usize>>,
    /// The subscribers of several topics, each once. The vector is kept to reuse its memory.
    merged: Vec<ConnectionKey>,
}

impl Audiences {
    pub(super) fn change(&mut self, connection: ConnectionKey, change: SubscriptionChange) {
        match change {
            SubscriptionChange::Registered => {}
            SubscriptionChange::Subscribed(topic) => {
                let list = self.listeners.entry(topic).or_default();
                self.positions.entry(connection).or_default().insert(topic, list.len());
                list.push(connection);
            }
            SubscriptionChange::Unsubscribed(topic) => {
                let Some(positions) = self.positions.get_mut(&connection) else { return };
                let Some(position) = positions.remove(&topic) else { return };
                if positions.is_empty() {
                    self.positions.remove(&connection);
                }
                self.remove_at(topic, position);
            }
        }
    }

    /// Removes a closed connection from all lists.
    pub(super) fn forget(&mut self, connection: ConnectionKey) {
        for (topic, position) in self.positions.remove(&connection).unwrap_or_default() {
            self.remove_at(topic, position);
        }
    }

    /// Removes an entry from a list; the last entry moves into its place.
    fn remove_at(&mut self, topic: TopicId, position: usize) {
        let Some(list) = self.listeners.get_mut(&topic) else { return };
        list.swap_remove(position);
        if list.is_empty() {
            self.listeners.remove(&topic);
        } else if let Some(moved) = list.get(position) {
            let positions = self.positions.get_mut(moved).expect("a connection in a list has a position");
            *positions.get_mut(&topic).expect("it has a position in each of its lists") = position;
        }
    }

    /// Takes out the subscribers of any of `topics`, each once. Return them with [`Audiences::put_back`].
    pub(super) fn take(&mut self, topics: &[TopicId]) -> Vec<ConnectionKey> {
        if let [topic] = topics {
            return self.listeners.get_mut(topic).map(std::mem::take).unwrap_or_default();
        }
        let mut merged = std::mem::take(&mut self.merged);
        merged.extend(topics.iter().filter_map(|topic| self.listeners.get(topic)).flatten());
        merged.sort_unstable();
        merged.dedup();
        merged
    }

    /// Puts back the list from [`Audiences::take`]; the lists must not have changed in between.
    pub(super) fn put_back(&mut self, topics: &[TopicId], mut list: Vec<ConnectionKey>) {
        if let [topic] = topics {
            if let Some(position) = self.listeners.get_mut(topic) {
                *position = list;
            }
            return;
        }
        list.clear();
        self.merged = list;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn key(number: usize) -> ConnectionKey {
        ConnectionKey::new(0, number as u32, number)
    }

    fn listeners(audiences: &mut Audiences, topics: &[TopicId]) -> Vec<usize> {
        let list = audiences.take(topics);
        let found = list.iter().map(|key| key.slot()).collect();
        audiences.put_back(topics, list);
        found
    }

    #[test]
    fn a_subscriber_of_several_topics_is_listed_once() {
        let mut audiences = Audiences::default();
        for (number, topic) in [(1, 10), (1, 11), (2, 11)] {
            audiences.change(key(number), SubscriptionChange::Subscribed(topic));
        }
        assert_eq!(listeners(&mut audiences, &[10, 11]), [1, 2]);
        assert_eq!(listeners(&mut audiences, &[10, 11]), [1, 2]);
        assert_eq!(listeners(&mut audiences, &[10]), [1]);
        assert!(listeners(&mut audiences, &[99]).is_empty());
    }

    proptest! {
        #[test]
        fn lists_hold_users_who_joined_and_have_not_left(steps in proptest::collection::vec((0..6_usize, 0..3_u64, 0..4), 0..60)) {
            let mut audiences = Audiences::default();
            let mut plain = BTreeSet::new();
            for (number, topic, step) in steps {
                match step {
                    0 => {
                        audiences.forget(key(number));
                        plain.retain(|(_, other)| *other != number);
                    }
                    1 => {
                        audiences.change(key(number), SubscriptionChange::Unsubscribed(topic));
                        plain.remove(&(topic, number));
                    }
                    _ if plain.insert((topic, number)) => audiences.change(key(number), SubscriptionChange::Subscribed(topic)),
                    _ => {}
                }
                for topic in 0..3 {
                    let expected: Vec<_> = plain.iter().filter(|(other, _)| *other == topic).map(|(_, n)| *n).collect();
                    let mut found = listeners(&mut audiences, &[topic]);
                    found.sort_unstable();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
