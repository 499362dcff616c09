//! Which peers get what is published to a topic, remembered while nobody comes, goes or wants something else.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use super::peer::Peer;
use crate::lock::lock;

/// Names that are remembered. A publisher that invents names all the time makes them be looked for again.
const REMEMBERED_NAMES: usize = 4096;

/// A peer that gets a publication.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) peer: Arc<Peer>,
    /// What both can do.
    pub(super) capabilities: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Routes {
    remembered: Mutex<HashMap<Box<str>, Arc<[Route]>>>,
    /// Counts what made them be forgotten.
    changes: AtomicU64,
}

impl Routes {
    /// Something changed: nothing of this is true any more.
    pub(super) fn forget(&self) {
        let mut remembered = lock(&self.remembered);
        self.changes.fetch_add(1, Ordering::SeqCst);
        remembered.clear();
    }

    /// The routes of a topic, found among `peers` if they aren't remembered.
    pub(super) fn of(&self, topic: &str, peers: impl FnOnce() -> Vec<Arc<Peer>>) -> Arc<[Route]> {
        let changes = {
            let remembered = lock(&self.remembered);
            if let Some(routes) = remembered.get(topic) {
                return Arc::clone(routes);
            }
            self.changes.load(Ordering::SeqCst)
        };
        let wanting = peers().into_iter().filter(|peer| lock(&peer.interest).wants(topic));
        let route = |peer: Arc<Peer>| {
            let capabilities = lock(&peer.state).capabilities;
            Route { peer, capabilities }
        };
        let routes: Arc<[Route]> = wanting.map(route).collect();
        let mut remembered = lock(&self.remembered);
        // What changed meanwhile may not be in these.
        if self.changes.load(Ordering::SeqCst) == changes {
            if remembered.len() >= REMEMBERED_NAMES {
                remembered.clear();
            }
            remembered.insert(topic.into(), Arc::clone(&routes));
        }
        routes
    }
}
