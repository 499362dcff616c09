//! Which peers get what is published to a topic. Results are cached until a peer comes, goes or changes its
//! subscriptions.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use super::peer::Peer;
use crate::lock::lock;

/// The most names in the cache. A publisher that keeps inventing names causes them to be looked up again.
const CACHED_NAMES: usize = 4096;

/// A peer that gets a publication.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) peer: Arc<Peer>,
    /// The capabilities of both sides.
    pub(super) capabilities: u32,
}

/// The cache of routes by topic.
#[derive(Default)]
pub(super) struct Routes {
    cached: Mutex<HashMap<Box<str>, Arc<[Route]>>>,
    /// Counts the changes that emptied the cache.
    changes: AtomicU64,
}

impl Routes {
    /// Empties the cache, because something changed.
    pub(super) fn forget(&self) {
        let mut cached = lock(&self.cached);
        self.changes.fetch_add(1, Ordering::SeqCst);
        cached.clear();
    }

    /// The routes of a topic, from the cache or else found among `peers`.
    pub(super) fn of(&self, topic: &str, peers: impl FnOnce() -> Vec<Arc<Peer>>) -> Arc<[Route]> {
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
            if cached.len() >= CACHED_NAMES {
                cached.clear();
            }
            cached.insert(topic.into(), Arc::clone(&routes));
        }
        routes
    }
}
