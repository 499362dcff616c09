//! What one connection is subscribed to, and what it may subscribe to.

use std::{collections::HashMap, sync::Arc};

use super::{TopicAcl, TopicId};

/// The subscriptions of one connection, and its rules.
#[derive(Debug, Default)]
pub(super) struct Subscriber {
    /// Each topic with the connection's queue group; `None` for a subscription without a group.
    topics: HashMap<TopicId, Option<Arc<str>>>,
    /// Shared, so that topics are compared with it while no lock is held.
    acl: Option<Arc<TopicAcl>>,
}

impl Subscriber {
    pub(super) fn acl(&self) -> Option<&Arc<TopicAcl>> {
        self.acl.as_ref()
    }

    pub(super) fn restrict(&mut self, acl: Arc<TopicAcl>) {
        self.acl = Some(acl);
    }

    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn has(&self, topic: TopicId) -> bool {
        self.topics.contains_key(&topic)
    }

    /// The queue group of a subscription, `Some(None)` without a group; `None` if the connection isn't subscribed to
    /// the topic.
    pub(super) fn membership(&self, topic: TopicId) -> Option<&Option<Arc<str>>> {
        self.topics.get(&topic)
    }

    pub(super) fn add(&mut self, topic: TopicId, group: Option<Arc<str>>) {
        self.topics.insert(topic, group);
    }

    pub(super) fn remove(&mut self, topic: TopicId) -> Option<Option<Arc<str>>> {
        self.topics.remove(&topic)
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = TopicId> + '_ {
        self.topics.keys().copied()
    }
}
