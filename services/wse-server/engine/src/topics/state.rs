//! The state behind `Topics`: which topics exist and who is subscribed to them. Changed only under its lock.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicU64},
};

use super::{Pick, SubscriptionChange, TopicId, glob, group::Group, subscriber::Subscriber};
use crate::key::ConnectionKey;

/// One name or pattern that has subscribers.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    /// The number of connections that get every message, by shard.
    pub(super) listeners: Box<[u32]>,
    pub(super) groups: Vec<Group>,
    pub(super) published: AtomicU64,
}

impl Topic {
    pub(super) fn is_unused(&self) -> bool {
        self.groups.is_empty() && self.listeners.iter().all(|count| *count == 0)
    }

    pub(super) fn listeners(&self) -> usize {
        self.listeners.iter().map(|count| *count as usize).sum()
    }
}

/// The topics and their subscribers.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) next_id: TopicId,
    pub(super) ids: HashMap<Arc<str>, TopicId>,
    pub(super) topics: HashMap<TopicId, Topic>,
    /// The ids of `topics` that are patterns.
    pub(super) patterns: Vec<TopicId>,
    pub(super) subscribers: HashMap<ConnectionKey, Subscriber>,
}

impl State {
    pub(super) fn register(
        &mut self,
        connection: ConnectionKey,
        notify: &mut impl FnMut(SubscriptionChange),
    ) -> &mut Subscriber {
        self.subscribers.entry(connection).or_insert_with(|| {
            notify(SubscriptionChange::Registered);
            Subscriber::default()
        })
    }

    pub(super) fn picks(&self, topics: &[TopicId]) -> Vec<Pick> {
        let mut picks: Vec<Pick> = Vec::new();
        for id in topics {
            for group in self.topics.get(id).into_iter().flat_map(|topic| &topic.groups) {
                // Groups of the same name on several matching topics get a message once.
                if !picks.iter().any(|pick| *pick.group == *group.name) {
                    picks.extend(group.pick(*id));
                }
            }
        }
        picks
    }

    /// The id of a topic. A new topic gets a new id, and `changed` is called.
    pub(super) fn intern(&mut self, name: &str, shards: usize, changed: impl FnOnce()) -> TopicId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.next_id;
        self.next_id += 1;
        let name: Arc<str> = name.into();
        self.ids.insert(Arc::clone(&name), id);
        if glob::is_pattern(&name) {
            self.patterns.push(id);
        }
        let listeners = vec![0; shards].into();
        self.topics.insert(id, Topic { name, listeners, groups: Vec::new(), published: AtomicU64::new(0) });
        changed();
        id
    }

    /// Subscribes a connection to a topic, with or without a group. An existing subscription of another kind ends.
    pub(super) fn join(
        &mut self,
        connection: ConnectionKey,
        id: TopicId,
        group: Option<&str>,
        notify: &mut impl FnMut(SubscriptionChange),
    ) {
        let subscriber = self.subscribers.get_mut(&connection).expect("a connection is registered before it joins");
        let group: Option<Arc<str>> = group.map(Into::into);
        if subscriber.membership(id).is_some_and(|membership| *membership == group) {
            return;
        }
        if subscriber.has(id) {
            self.leave_topic(connection, id, notify);
        }
        let subscriber = self.subscribers.get_mut(&connection).expect("leaving a topic keeps the subscriber");
        subscriber.add(id, group.clone());
        let topic = self.topics.get_mut(&id).expect("the topic was interned before");
        match group {
            None => {
                topic.listeners[connection.shard()] += 1;
                notify(SubscriptionChange::Subscribed(id));
            }
            Some(name) => match topic.groups.iter_mut().find(|group| group.name == name) {
                Some(group) => group.add(connection),
                None => topic.groups.push(Group::new(name, connection)),
            },
        }
    }

    /// Ends one subscription. Returns whether there was one.
    pub(super) fn leave_topic(
        &mut self,
        connection: ConnectionKey,
        id: TopicId,
        notify: &mut impl FnMut(SubscriptionChange),
    ) -> bool {
        let membership = self.subscribers.get_mut(&connection).and_then(|subscriber| subscriber.remove(id));
        let (Some(membership), Some(topic)) = (membership, self.topics.get_mut(&id)) else { return false };
        match membership {
            None => {
                topic.listeners[connection.shard()] -= 1;
                notify(SubscriptionChange::Unsubscribed(id));
            }
            Some(name) => {
                topic.groups.iter_mut().filter(|group| group.name == name).for_each(|group| group.remove(connection));
                topic.groups.retain(|group| group.len() > 0);
            }
        }
        true
    }
}
