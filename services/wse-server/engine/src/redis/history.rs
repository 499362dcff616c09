//! The history of what other instances published through Redis, for clients that reconnect to this one. It is kept only
//! while nothing of it can be missing.
//!
//! A topic that no client needs any more stays subscribed for a while, as the client that reconnects may be its only
//! one.

use std::{collections::HashMap, sync::Arc, time::Instant};

use crate::{hub::Hub, links::Publication};

/// Publishing instances whose names are remembered; more than any deployment has.
const MAX_ORIGINS: usize = 1024;

/// The publishers whose publications are kept, and the topics that stay subscribed without a subscriber.
#[derive(Default)]
pub(super) struct History {
    /// For each publishing instance, the name under which its publications are kept.
    names: HashMap<u64, Arc<str>>,
    /// Topics without a subscriber that are still subscribed in Redis, and until when.
    lingering: HashMap<Arc<str>, Instant>,
}

impl History {
    /// Hands publications of `origin` to the subscribers here, and keeps those that are stamped.
    pub(super) fn forward(&mut self, shared: &Hub, origin: u64, topic: &str, publications: &[Publication<'_>]) {
        let is_stored = shared.recovery.is_some() && publications.iter().any(|publication| publication.stamp.is_some());
        if !is_stored {
            return shared.receive(topic, publications);
        }
        if self.names.len() >= MAX_ORIGINS && !self.names.contains_key(&origin) {
            self.forget(shared);
        }
        let name = self.names.entry(origin).or_insert_with(|| format!("redis:{origin:016x}").into());
        shared.receive_and_store(name, topic, publications);
    }

    /// The connection is lost, and with it all subscriptions in Redis.
    pub(super) fn forget_all(&mut self, shared: &Hub) {
        self.lingering.clear();
        self.forget(shared);
    }

    /// Publications may be missing from now on, so all logs are forgotten: no client may get a report that it received
    /// everything.
    pub(super) fn forget(&mut self, shared: &Hub) {
        for name in std::mem::take(&mut self.names).into_values() {
            shared.recovery.iter().for_each(|recovery| recovery.forget_origin(&name));
        }
    }

    /// The last subscriber of a topic (by name) has gone. Returns whether the topic stays subscribed in Redis for now.
    pub(super) fn lingers(&mut self, shared: &Hub, topic: &Arc<str>) -> bool {
        let Some(ttl) = shared.recovery.as_ref().and_then(|recovery| recovery.lingers(topic)) else { return false };
        self.lingering.insert(Arc::clone(topic), Instant::now() + ttl);
        true
    }

    /// A topic has a subscriber again. Returns whether it was still subscribed in Redis.
    pub(super) fn stop_lingering(&mut self, topic: &str) -> bool {
        self.lingering.remove(topic).is_some()
    }

    /// Takes the topics whose time is over; they have to be unsubscribed.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Arc<str>> {
        self.lingering.extract_if(|_, until| *until <= now).map(|(topic, _)| topic).collect()
    }

    /// The topic is no longer subscribed in Redis, so its logs can't be continued.
    pub(super) fn forget_topic(&mut self, shared: &Hub, topic: &str) {
        if let Some(recovery) = &shared.recovery {
            recovery.end(recovery.take_topic(topic));
        }
    }
}
