//! What others published through Redis, for clients that come back here: kept while nothing of it can be missing.
//!
//! A topic that nobody here wants any more is asked for a while longer: the client that comes back may be its only one.

use std::{collections::HashMap, sync::Arc, time::Instant};

use crate::{hub::Hub, links::Publication};

/// Origins whose names are remembered; more instances than anyone runs.
const MOST_ORIGINS: usize = 1024;

/// See the module.
#[derive(Default)]
pub(super) struct Past {
    /// As whom their publications are kept.
    names: HashMap<u64, Arc<str>>,
    /// Until when a topic is still asked for that nobody wants.
    lingering: HashMap<Arc<str>, Instant>,
}

impl Past {
    /// Hands on what `origin` published, and keeps what it stamped.
    pub(super) fn hand_on(&mut self, shared: &Hub, origin: u64, topic: &str, publications: &[Publication<'_>]) {
        let is_kept = shared.recovery.is_some() && publications.iter().any(|publication| publication.stamp.is_some());
        if !is_kept {
            return shared.receive(topic, publications);
        }
        if self.names.len() >= MOST_ORIGINS && !self.names.contains_key(&origin) {
            self.forget(shared);
        }
        let name = self.names.entry(origin).or_insert_with(|| format!("redis:{origin:016x}").into());
        shared.receive_and_keep(name, topic, publications);
    }

    /// The connection is gone, and with it all that was asked for.
    pub(super) fn lose(&mut self, shared: &Hub) {
        self.lingering.clear();
        self.forget(shared);
    }

    /// Something may be missing from now on: nobody is told any more that he has everything.
    pub(super) fn forget(&mut self, shared: &Hub) {
        for name in std::mem::take(&mut self.names).into_values() {
            shared.recovery.iter().for_each(|recovery| recovery.forget_origin(&name));
        }
    }

    /// Nobody wants a topic any more, a name. Whether it is still asked for.
    pub(super) fn lingers(&mut self, shared: &Hub, topic: &Arc<str>) -> bool {
        let Some(ttl) = shared.recovery.as_ref().and_then(|recovery| recovery.lingers(topic)) else { return false };
        self.lingering.insert(Arc::clone(topic), Instant::now() + ttl);
        true
    }

    /// Somebody wants it again. Whether it was still asked for.
    pub(super) fn is_back(&mut self, topic: &str) -> bool {
        self.lingering.remove(topic).is_some()
    }

    /// Topics that are no longer asked for.
    pub(super) fn over(&mut self, now: Instant) -> Vec<Arc<str>> {
        self.lingering.extract_if(|_, until| *until <= now).map(|(topic, _)| topic).collect()
    }

    /// What is published to a topic no longer comes.
    pub(super) fn forget_topic(&mut self, shared: &Hub, topic: &str) {
        if let Some(recovery) = &shared.recovery {
            recovery.end(recovery.take_topic(topic));
        }
    }
}
