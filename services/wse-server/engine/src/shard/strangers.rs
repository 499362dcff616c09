//! Connections that haven't been let in: their request isn't whole, or they were refused and read our last words.
//!
//! They cost a descriptor and up to a request's bytes, and anyone can make them. So there are only so many: one more, and
//! the oldest makes way. A client that means it sends its request at once and is never the oldest; whoever trickles or
//! says nothing is, however many of them there are.

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

/// Who is at the door of one shard.
pub(super) struct Strangers {
    limit: usize,
    /// 0: no limit.
    peer_limit: usize,
    /// Oldest first. Those that were let in or are gone are skipped, and swept out when they are the most.
    queue: VecDeque<ConnectionKey>,
    peers: HashMap<ConnectionKey, Option<IpAddr>>,
    by_peer: HashMap<IpAddr, usize>,
}

impl Strangers {
    /// The limits are the process's: each shard has its equal share, as the kernel spreads connections.
    pub(super) fn new(config: &Config, shards: usize) -> Self {
        Self {
            limit: config.max_handshakes.div_ceil(shards),
            peer_limit: config.max_handshakes_per_peer.div_ceil(shards),
            queue: VecDeque::new(),
            peers: HashMap::new(),
            by_peer: HashMap::new(),
        }
    }

    /// Notes a stranger. Returns false if its address has as many here as it may.
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

    /// It was let in, or is gone.
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
    /// Puts a fresh connection among the strangers if it isn't in yet. Returns what becomes of it.
    pub(super) fn meet(&mut self, connection: &mut Connection, progress: Progress) -> Progress {
        if connection.is_registered || matches!(progress, Progress::Gone(_)) {
            return progress;
        }
        if !self.strangers.enter(connection) {
            if connection.phase == Phase::Handshake {
                self.core.counters.rejected[RejectReason::Crowded as usize] += 1;
            }
            return Progress::Gone(CloseReason::Error);
        }
        connection.is_stranger = true;
        progress
    }

    /// Has the oldest ones make way for those that came last.
    pub(super) fn thin_out(&mut self) {
        while self.strangers.is_crowded() && self.dismiss_oldest() {}
    }

    /// Ends the stranger that has been here longest. Returns false if there is none.
    pub(super) fn dismiss_oldest(&mut self) -> bool {
        let Some(key) = self.strangers.oldest() else { return false };
        self.with(key, |core, connection| {
            if connection.phase == Phase::Handshake {
                core.counters.rejected[RejectReason::Crowded as usize] += 1;
                // If it fits: nobody waits for a stranger to read it, or the crowd would be here for longer.
                let answer = Refusal::ServiceUnavailable.response();
                let _ = rustix::net::send(&connection.socket, answer.as_bytes(), SendFlags::NOSIGNAL);
            }
            Progress::Gone(CloseReason::Error)
        });
        true
    }
}

/// Whose it is. A host has a whole network of IPv6 addresses (RFC 6177), so these count by their first 64 bits.
fn address(connection: &Connection) -> Option<IpAddr> {
    let peer = SocketAddr::try_from(getpeername(&connection.socket).ok()??).ok()?;
    Some(match peer.ip().to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    })
}
