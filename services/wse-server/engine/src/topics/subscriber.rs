//! What one connection has subscribed to, and what it may.

use std::{collections::HashMap, sync::Arc};

use super::{TopicAcl, TopicId};

/// One connection's subscriptions.
#[derive(Debug, Default)]
pub(super) struct Subscriber {
    /// Each with its queue group, if it is a member of one there.
    topics: HashMap<TopicId, Option<Arc<str>>>,
    acl: Option<Box<TopicAcl>>,
}

impl Subscriber {
    pub(super) fn permits(&self, topic: &str) -> bool {
        self.acl.as_ref().is_none_or(|acl| acl.permits(topic))
    }

    pub(super) fn restrict(&mut self, acl: TopicAcl) {
        self.acl = Some(Box::new(acl));
    }

    pub(super) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn has(&self, topic: TopicId) -> bool {
        self.topics.contains_key(&topic)
    }

    /// How it has a topic, if it has: alone, or as a member of a group.
    pub(super) fn way(&self, topic: TopicId) -> Option<&Option<Arc<str>>> {
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
