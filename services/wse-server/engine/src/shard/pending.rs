//! Pending handshakes: connections that aren't admitted yet because their request is incomplete, and refused ones that
//! read their last response.
//!
//! Each costs a descriptor and up to the size of a request, and any client can open them. So their number is limited,
//! and the oldest makes way for a new one. A proper client sends its request at once and is never the oldest. One that
//! sends slowly or not at all becomes the oldest, however many there are.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
};

use rustix::net::{SendFlags, SocketAddr, getpeername};

use super::{Shard, read::Progress};
use crate::{
    config::Config,
    connection::{Connection, Phase},
    handshake::Refusal,
    key::ConnectionKey,
    stats::{CloseReason, RejectReason},
};

/// The pending handshakes of one shard.
pub(super) struct PendingHandshakes {
    /// The most pending handshakes.
    limit: usize,
    /// The most from one address; 0 switches the limit off.
    peer_limit: usize,
    /// Oldest first. Entries that were admitted or closed stay until they are skipped, or removed when they are in the
    /// majority.
    queue: VecDeque<ConnectionKey>,
    /// The address of each pending handshake; `None` if it is unknown or addresses aren't limited.
    peers: HashMap<ConnectionKey, Option<IpAddr>>,
    /// How many pending handshakes each address has.
    by_peer: HashMap<IpAddr, usize>,
}

impl PendingHandshakes {
    /// Each shard gets an equal share of the process's limits, as the kernel spreads connections evenly.
    pub(super) fn new(config: &Config, shards: usize) -> Self {
        Self {
            limit: config.max_handshakes.div_ceil(shards),
            peer_limit: config.max_handshakes_per_peer.div_ceil(shards),
            queue: VecDeque::new(),
            peers: HashMap::new(),
            by_peer: HashMap::new(),
        }
    }

    /// Adds a connection. Returns false if its address has as many pending handshakes here as it may.
    fn enter(&mut self, connection: &Connection) -> bool {
        let peer = if self.peer_limit > 0 { address(connection) } else { None };
        if let Some(peer) = peer {
            let count = self.by_peer.entry(peer).or_default();
            if *count >= self.peer_limit {
                return false;
            }
            *count += 1;
        }
        self.peers.insert(connection.key, peer);
        self.queue.push_back(connection.key);
        if self.queue.len() > 2 * self.peers.len() + 64 {
            self.queue.retain(|key| self.peers.contains_key(key));
        }
        true
    }

    /// Removes a connection that was admitted or closed.
    pub(super) fn leave(&mut self, key: ConnectionKey) {
        let Some(Some(peer)) = self.peers.remove(&key) else { return };
        if let Some(count) = self.by_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }

    fn is_crowded(&self) -> bool {
        self.peers.len() > self.limit
    }

    fn oldest(&mut self) -> Option<ConnectionKey> {
        while let Some(key) = self.queue.pop_front() {
            if self.peers.contains_key(&key) {
                return Some(key);
            }
        }
        None
    }
}

impl Shard {
    /// Adds a new connection to the pending handshakes, unless it is admitted or closed already. Ends it if its address
    /// has too many.
    pub(super) fn track_handshake(&mut self, connection: &mut Connection, progress: Progress) -> Progress {
        if connection.is_registered || matches!(progress, Progress::Closed(_)) {
            return progress;
        }
        if !self.pending.enter(connection) {
            if connection.phase == Phase::Handshake {
                self.core.counters.rejected[RejectReason::Crowded as usize] += 1;
            }
            return Progress::Closed(CloseReason::Error);
        }
        connection.is_pending_handshake = true;
        progress
    }

    /// Ends the oldest pending handshakes until their number is within the limit.
    pub(super) fn enforce_handshake_limit(&mut self) {
        while self.pending.is_crowded() && self.drop_oldest_handshake() {}
    }

    /// Ends the oldest pending handshake. Returns false if there is none.
    pub(super) fn drop_oldest_handshake(&mut self) -> bool {
        let Some(key) = self.pending.oldest() else { return false };
        self.with(key, |core, connection| {
            if connection.phase == Phase::Handshake {
                core.counters.rejected[RejectReason::Crowded as usize] += 1;
                // Only if it fits into the socket's buffer: waiting for the client to read it would keep the crowd
                // longer.
                let refusal = Refusal::ServiceUnavailable.response();
                let _ = rustix::net::send(&connection.socket, refusal.as_bytes(), SendFlags::NOSIGNAL);
            }
            Progress::Closed(CloseReason::Error)
        });
        true
    }
}

/// The address by which a connection counts. A host has a whole network of IPv6 addresses (RFC 6177), so these count by
/// their first 64 bits.
fn address(connection: &Connection) -> Option<IpAddr> {
    let peer = SocketAddr::try_from(getpeername(&connection.socket).ok()??).ok()?;
    Some(match peer.ip().to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    })
}
