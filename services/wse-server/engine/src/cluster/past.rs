//! What other instances published, kept for clients that come back here: when that has to be forgotten, because some of it
//! didn't arrive.

use std::{sync::Arc, time::Instant};

use super::{mesh::Mesh, peer::Peer};
use crate::{hub::Hub, recovery::Forgotten, topics};

impl Mesh {
    /// Something that a peer published didn't arrive, or may not have: what is kept of it has gaps that nobody sees.
    pub(super) fn lose(&self, peer: &Peer) {
        if let Some(recovery) = self.shared.upgrade().as_ref().and_then(|shared| shared.recovery.as_ref()) {
            recovery.forget_origin(&peer.instance);
        }
    }

    /// Until when a topic that nobody here wants any more is still asked for, if it is.
    pub(super) fn linger(&self, topic: &str) -> Option<Instant> {
        let shared = self.shared.upgrade()?;
        let recovery = shared.recovery.as_ref().filter(|_| !topics::is_pattern(topic))?;
        recovery.lingers(topic).map(|ttl| Instant::now() + ttl)
    }

    /// What is published to a topic no longer comes: nobody finds what came before any more.
    pub(super) fn forget_past(&self, topic: &str) -> Option<(Arc<Hub>, Forgotten)> {
        let shared = self.shared.upgrade()?;
        let forgotten = shared.recovery.as_ref()?.take_topic(topic);
        Some((shared, forgotten))
    }
}
