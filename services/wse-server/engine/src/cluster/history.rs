//! Publications of other instances that are kept for clients that reconnect here: discards them when some of them
//! didn't arrive.

use std::{sync::Arc, time::Instant};

use super::{mesh::Mesh, peer::Peer};
use crate::{hub::Hub, recovery::RemovedLogs, topics};

impl Mesh {
    /// Discards the kept publications of a peer, because some of them didn't arrive or may not have: clients could not
    /// detect the gap.
    pub(super) fn forget_peer_history(&self, peer: &Peer) {
        if let Some(recovery) = self.shared.upgrade().as_ref().and_then(|shared| shared.recovery.as_ref()) {
            recovery.forget_origin(&peer.instance);
        }
    }

    /// Until when the subscription of a topic without subscribers here is kept for recovery; `None` if it ends at once.
    pub(super) fn linger_deadline(&self, topic: &str) -> Option<Instant> {
        let shared = self.shared.upgrade()?;
        let recovery = shared.recovery.as_ref().filter(|_| !topics::is_pattern(topic))?;
        recovery.lingers(topic).map(|ttl| Instant::now() + ttl)
    }

    /// Discards the kept publications of a topic whose subscription ends: later ones no longer arrive. Returns what the
    /// caller has to end without the lock.
    pub(super) fn take_topic_history(&self, topic: &str) -> Option<(Arc<Hub>, RemovedLogs)> {
        let shared = self.shared.upgrade()?;
        let removed_logs = shared.recovery.as_ref()?.take_topic(topic);
        Some((shared, removed_logs))
    }
}
