//! Selects the peers that receive the publications of a topic.
//!
//! The selection is cached by topic. Every change of the peers or of their subscriptions must call [`Routes::clear`].

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use super::peer::Peer;
use crate::lock::lock;

/// Largest number of topics in the cache. A full cache is emptied, so topics that are used once can't fill the memory.
const MAX_CACHED_TOPICS: usize = 4096;

/// A peer that receives a publication.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) peer: Arc<Peer>,
    /// The capabilities that both sides have.
    pub(super) capabilities: u32,
}

/// The cache of routes by topic.
#[derive(Default)]
pub(super) struct Routes {
    cached: Mutex<HashMap<Box<str>, Arc<[Route]>>>,
    /// Number of times that the cache was emptied by a change.
    changes: AtomicU64,
}

impl Routes {
    /// Empties the cache, after a change of the peers or of their subscriptions.
    pub(super) fn clear(&self) {
        let mut cached = lock(&self.cached);
        self.changes.fetch_add(1, Ordering::SeqCst);
        cached.clear();
    }

    /// Returns the routes of a topic, from the cache or else selected among `peers`.
    pub(super) fn for_topic(&self, topic: &str, peers: impl FnOnce() -> Vec<Arc<Peer>>) -> Arc<[Route]> {
        let changes = {
            let cached = lock(&self.cached);
            if let Some(routes) = cached.get(topic) {
                return Arc::clone(routes);
            }
            self.changes.load(Ordering::SeqCst)
        };
        let interested = peers().into_iter().filter(|peer| lock(&peer.interest).should_receive(topic));
        let route = |peer: Arc<Peer>| {
            let capabilities = lock(&peer.state).capabilities;
            Route { peer, capabilities }
        };
        let routes: Arc<[Route]> = interested.map(route).collect();
        let mut cached = lock(&self.cached);
        // The result isn't cached if something changed while it was computed.
        if self.changes.load(Ordering::SeqCst) == changes {
            if cached.len() >= MAX_CACHED_TOPICS {
                cached.clear();
            }
            cached.insert(topic.into(), Arc::clone(&routes));
        }
        routes
    }
}
