//! The subscriptions of all shards' connections: names, patterns, queue groups, and the rules for what each connection
//! may subscribe to.
//!
//! A publication is resolved here, on the publisher's thread, into topic ids. The subscribers of a topic id are listed
//! by their shard (`shard/audience.rs`), which alone writes to them. The same commands change both lists in the same
//! order, so a publication reaches the connections that were subscribed when it was made.

mod acl;
mod error;
mod glob;
mod group;
mod state;
mod subscriber;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic::Ordering},
};

pub(crate) use self::glob::{is_pattern, matches};
pub use self::{acl::TopicAcl, error::TopicError};
use self::{
    group::Group,
    state::{State, Topic},
    subscriber::Subscriber,
};
use crate::{
    key::ConnectionKey,
    links::{Carrier, Links},
    lock::lock,
};

/// The id of a topic; ids aren't reused.
pub(crate) type TopicId = u64;

/// Names whose matching patterns are cached. Publishing to ever new names empties the cache again and again.
const CACHED_NAMES: usize = 4096;
/// The most bytes that the name of a queue group may have.
const LONGEST_GROUP: usize = 512;

/// Checks that a text is a valid topic name or pattern.
///
/// # Errors
/// [`TopicError::Empty`], [`TopicError::TooLong`] or [`TopicError::Control`].
pub(crate) fn check(topic: &str) -> Result<(), TopicError> {
    check_name(topic, glob::LONGEST)
}

fn check_name(name: &str, maximum: usize) -> Result<(), TopicError> {
    if name.trim().is_empty() {
        return Err(TopicError::Empty { given: name.into() });
    }
    if name.len() > maximum {
        let beginning = name.chars().take(40).collect();
        return Err(TopicError::TooLong { bytes: name.len(), maximum, beginning });
    }
    match name.chars().any(char::is_control) {
        true => Err(TopicError::Control { given: name.into() }),
        false => Ok(()),
    }
}

/// The recipients of a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Audience {
    /// The topics, by name or by pattern, whose subscribers get it; each subscriber gets it once.
    pub(crate) topics: Arc<[TopicId]>,
    /// The shards that have subscribers of these topics.
    pub(crate) shards: Vec<usize>,
    /// One member of each queue group.
    pub(crate) picks: Vec<Pick>,
}

/// A member of a queue group that is to get a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) connection: ConnectionKey,
    pub(crate) topic: TopicId,
    pub(crate) group: Arc<str>,
    /// The member's index in the group.
    position: usize,
    /// How many members may still be tried, including this one.
    tries: usize,
}

/// A change that a connection's shard has to make to its own lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionChange {
    /// The connection has subscriptions or rules that must be removed when it closes.
    Registered,
    /// From now on the connection gets what is published to the topic.
    Subscribed(TopicId),
    /// The connection no longer gets what is published to the topic.
    Unsubscribed(TopicId),
}

/// The topics of a server, with their subscribers and queue groups.
pub(crate) struct Topics {
    state: RwLock<State>,
    /// The topics that each name matches, as long as the patterns stay the same.
    matching: Mutex<HashMap<Arc<str>, Arc<[TopicId]>>>,
    shards: usize,
    /// The most subscriptions of a connection; 0 switches the limit off.
    max_subscriptions: usize,
    /// Notified of topics that get their first subscriber or lose their last, while the lists are locked.
    links: Arc<Links>,
}

impl Topics {
    pub(crate) fn new(shards: usize, max_subscriptions: usize, links: Arc<Links>) -> Self {
        Self { state: RwLock::default(), matching: Mutex::default(), shards, max_subscriptions, links }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        // No code panics between two changes that belong together, so a poisoned lock is still consistent.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes a connection to those of `requested` that it may have, with or without a queue group. An existing
    /// subscription changes to the new kind. `notify` gets each change while the lock is held, so in order. Returns the
    /// topics that were permitted.
    ///
    /// # Errors
    /// Returns a [`TopicError`] if a name is invalid or the connection would have too many subscriptions. Nothing has
    /// changed then, except that the connection may have been enlisted.
    pub(crate) fn subscribe(
        &self,
        connection: ConnectionKey,
        requested: &[&str],
        group: Option<&str>,
        mut notify: impl FnMut(SubscriptionChange),
    ) -> Result<Vec<String>, TopicError> {
        requested.iter().try_for_each(|topic| check(topic))?;
        group.map_or(Ok(()), |group| check_name(group, LONGEST_GROUP))?;
        let (mut state, permitted) = self.permitted(connection, requested, &mut notify)?;
        let known =
            |state: &State, topic: &str| state.ids.get(topic).is_some_and(|id| state.subscribers[&connection].has(*id));
        let mut fresh: Vec<&str> = permitted.iter().copied().filter(|topic| !known(&state, topic)).collect();
        fresh.sort_unstable();
        fresh.dedup();
        let count = state.subscribers[&connection].len() + fresh.len();
        if self.max_subscriptions > 0 && count > self.max_subscriptions {
            return Err(TopicError::TooManySubscriptions { requested: count, maximum: self.max_subscriptions });
        }
        for topic in &permitted {
            let id = state.intern(topic, self.shards, || {
                self.clear_matching();
                self.links.set_interest(topic, true);
            });
            state.join(connection, id, group, &mut notify);
        }
        Ok(permitted.into_iter().map(str::to_owned).collect())
    }

    /// Those of `requested` that a connection's rules permit, with the state locked. Nothing is locked while the topics are
    /// compared with the rules: that may take long, and publishers need the lock.
    fn permitted<'a>(
        &self,
        connection: ConnectionKey,
        requested: &[&'a str],
        notify: &mut impl FnMut(SubscriptionChange),
    ) -> Result<(RwLockWriteGuard<'_, State>, Vec<&'a str>), TopicError> {
        loop {
            let acl = self.read().subscribers.get(&connection).and_then(|subscriber| subscriber.acl().cloned());
            let mut permitted = Vec::with_capacity(requested.len());
            for topic in requested {
                if acl.as_ref().map_or(Ok(true), |acl| acl.permits(topic))? {
                    permitted.push(*topic);
                }
            }
            let mut state = self.write();
            let current = state.register(connection, notify).acl();
            if current.map(Arc::as_ptr) == acl.as_ref().map(Arc::as_ptr) {
                return Ok((state, permitted));
            }
            // The application has replaced the rules meanwhile.
        }
    }

    /// Ends a connection's subscriptions to `topics`; `None` means to all. Returns how many ended.
    pub(crate) fn unsubscribe(
        &self,
        connection: ConnectionKey,
        topics: Option<&[&str]>,
        mut notify: impl FnMut(SubscriptionChange),
    ) -> usize {
        let mut state = self.write();
        let Some(subscriber) = state.subscribers.get(&connection) else { return 0 };
        let topics_left: Vec<TopicId> = match topics {
            None => subscriber.topics().collect(),
            Some(topics) => {
                let named = topics.iter().filter_map(|topic| state.ids.get(*topic).copied());
                named.filter(|id| subscriber.has(*id)).collect()
            }
        };
        self.remove_subscriptions(&mut state, connection, &topics_left, &mut notify)
    }

    /// Removes a closed connection, with its subscriptions and rules.
    pub(crate) fn leave(&self, connection: ConnectionKey) {
        let mut state = self.write();
        let Some(subscriber) = state.subscribers.get(&connection) else { return };
        let all: Vec<TopicId> = subscriber.topics().collect();
        self.remove_subscriptions(&mut state, connection, &all, &mut |_| {});
        state.subscribers.remove(&connection);
    }

    /// Sets the rules for a connection. Subscriptions that they don't permit, or that can't be compared with them, end.
    pub(crate) fn set_acl(&self, connection: ConnectionKey, acl: TopicAcl, mut notify: impl FnMut(SubscriptionChange)) {
        let acl = Arc::new(acl);
        self.write().register(connection, &mut notify).restrict(Arc::clone(&acl));
        // What is subscribed from here on is compared with the new rules. The others are compared without the lock.
        let names: Vec<(TopicId, Arc<str>)> = {
            let state = self.read();
            let topics = state.subscribers.get(&connection).into_iter().flat_map(Subscriber::topics);
            topics.map(|id| (id, Arc::clone(&state.topics[&id].name))).collect()
        };
        let is_lost = |name: &str| !acl.permits(name).unwrap_or(false);
        let forbidden: Vec<TopicId> = names.into_iter().filter(|(_, name)| is_lost(name)).map(|(id, _)| id).collect();
        if forbidden.is_empty() {
            return;
        }
        let mut state = self.write();
        // If the rules were replaced once more, that caller ends what its rules don't permit.
        let current = state.subscribers.get(&connection).and_then(Subscriber::acl);
        if current.is_some_and(|current| Arc::ptr_eq(current, &acl)) {
            self.remove_subscriptions(&mut state, connection, &forbidden, &mut notify);
        }
    }

    /// The recipients of `messages` publications to `name` at this moment; the members of queue groups are for the
    /// first of them.
    pub(crate) fn audience(&self, name: &str, messages: u64) -> Audience {
        let state = self.read();
        let exact = state.ids.get(name).copied().filter(|id| !glob::is_pattern(&state.topics[id].name));
        let topics: Arc<[TopicId]> = match (exact, state.patterns.is_empty()) {
            (None, true) => return Audience::default(),
            (Some(id), true) => [id].into(),
            (exact, false) => self.matching(&state, name, exact),
        };
        let mut audience = Audience { topics, ..Audience::default() };
        for shard in 0..self.shards {
            if audience.topics.iter().any(|id| state.topics[id].listeners[shard] > 0) {
                audience.shards.push(shard);
            }
        }
        for id in &*audience.topics {
            state.topics[id].published.fetch_add(messages, Ordering::Relaxed);
        }
        audience.picks = state.picks(&audience.topics);
        audience
    }

    /// The members of queue groups that are next in turn for a message to these topics.
    pub(crate) fn picks(&self, topics: &[TopicId]) -> Vec<Pick> {
        self.read().picks(topics)
    }

    fn matching(&self, state: &State, name: &str, exact: Option<TopicId>) -> Arc<[TopicId]> {
        let mut cached = lock(&self.matching);
        if let Some(matching) = cached.get(name) {
            return Arc::clone(matching);
        }
        let fits = |id: &&TopicId| glob::matches(&state.topics[*id].name, name);
        let matching: Arc<[TopicId]> = exact.into_iter().chain(state.patterns.iter().filter(fits).copied()).collect();
        if cached.len() >= CACHED_NAMES {
            cached.clear();
        }
        cached.insert(name.into(), Arc::clone(&matching));
        matching
    }

    /// Called with the state locked for writing, so that no other thread caches what is about to change.
    fn clear_matching(&self) {
        lock(&self.matching).clear();
    }

    /// The next member of a queue group, after one turned out to be closed or too slow.
    pub(crate) fn next_pick(&self, pick: &Pick) -> Option<Pick> {
        let state = self.read();
        let group = state.topics.get(&pick.topic)?.groups.iter().find(|group| group.name == pick.group)?;
        group.after(pick)
    }

    /// How many connections are subscribed to the name `name` or to exactly the pattern `name`, including members of
    /// queue groups.
    pub(crate) fn subscriber_count(&self, name: &str) -> usize {
        let state = self.read();
        let topic = state.ids.get(name).map(|id| &state.topics[id]);
        topic.map_or(0, |topic| topic.listeners() + topic.groups.iter().map(Group::len).sum::<usize>())
    }

    /// All names and patterns that have subscribers. Later changes are reported to the links.
    #[allow(dead_code)]
    pub(crate) fn requested(&self) -> Vec<Arc<str>> {
        self.read().ids.keys().cloned().collect()
    }

    /// Reports all names and patterns with subscribers to a carrier, while no other change can be reported. A carrier
    /// that was added to the links before this call knows all subscriptions after it, in whichever order the reports
    /// came.
    pub(crate) fn announce_topics(&self, carrier: &dyn Carrier) {
        self.read().ids.keys().for_each(|topic| carrier.set_interest(topic, true));
    }

    /// The queue groups of a topic, each with its number of members.
    pub(crate) fn groups(&self, name: &str) -> HashMap<String, usize> {
        let state = self.read();
        let topic = state.ids.get(name).map(|id| &state.topics[id]);
        let groups = topic.into_iter().flat_map(|topic| &topic.groups);
        groups.map(|group| (group.name.to_string(), group.len())).collect()
    }

    /// How many topics have subscribers, and the `maximum` topics with the most publications.
    pub(crate) fn busiest(&self, maximum: usize) -> (usize, Vec<(String, u64)>) {
        let state = self.read();
        let counts = state.topics.values().map(|topic| (&topic.name, topic.published.load(Ordering::Relaxed)));
        let mut counts: Vec<_> = counts.filter(|(_, published)| *published > 0).collect();
        counts.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        let named = counts.into_iter().take(maximum).map(|(name, published)| (name.to_string(), published));
        (state.topics.len(), named.collect())
    }

    /// Ends a connection's subscriptions to `topics`, and removes topics that have no subscribers left. Returns how
    /// many subscriptions ended.
    fn remove_subscriptions(
        &self,
        state: &mut State,
        connection: ConnectionKey,
        topics: &[TopicId],
        notify: &mut impl FnMut(SubscriptionChange),
    ) -> usize {
        let ended = topics.iter().filter(|id| state.leave_topic(connection, **id, notify)).count();
        for id in topics {
            if !state.topics.get(id).is_some_and(Topic::is_unused) {
                continue;
            }
            let topic = state.topics.remove(id).expect("it was looked up above");
            state.ids.remove(&topic.name);
            state.patterns.retain(|pattern| pattern != id);
            self.clear_matching();
            self.links.set_interest(&topic.name, false);
        }
        ended
    }
}

#[cfg(test)]
mod tests;
