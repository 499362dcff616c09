//! One other instance, for as long as we remember it: what it wants, what waits for it, and the link to it, if there is one.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    interest::{Budget, Interest},
    numbering::{Arrivals, Count},
    queue::Queue,
};
use crate::lock::lock;

/// See the module.
pub(super) struct Peer {
    pub(super) instance: Arc<str>,
    pub(super) state: Mutex<State>,
    pub(super) interest: Mutex<Interest>,
    pub(super) queue: Mutex<Queue>,
    /// Something was put into the queue.
    pub(super) wake: Notify,
    /// Whoever reads from the peer has it: so a new link is read when the one before it was read to its end.
    pub(super) arrivals: tokio::sync::Mutex<Arrivals>,
}

/// What changes when links come and go. Locked before the queue and the interest, never after.
#[derive(Default)]
pub(super) struct State {
    pub(super) link: Option<Link>,
    /// What both can do, of the link that there is or was last.
    pub(super) capabilities: u32,
    /// Where it was dialled, or says that it is reached.
    pub(super) address: Option<String>,
    /// When the last link ended; nothing while there is one.
    pub(super) left: Option<Instant>,
    /// It has said that it goes.
    pub(super) is_leaving: bool,
    /// Nothing is kept for it any more.
    pub(super) is_forgotten: bool,
    /// There has been a link before.
    pub(super) was_linked: bool,
    /// What it has told us that arrived.
    pub(super) confirmed: Option<Count>,
}

/// One connection with a peer.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) side: Side,
    /// Where the other end is.
    pub(super) remote: SocketAddr,
    /// What both can do.
    pub(super) capabilities: u32,
    /// Wall-clock time in milliseconds.
    pub(super) connected_millis: u64,
    /// Another link takes its place: what is being written is written, and what comes is read to its end.
    pub(super) retired: CancellationToken,
    /// It is to end at once.
    pub(super) cut: CancellationToken,
    /// It is over.
    pub(super) ended: CancellationToken,
}

/// Who dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// We did.
    Ours,
    /// The peer did.
    Theirs,
}

/// A peer as told to whoever asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterPeer {
    /// Where it is reached: as dialled or as it says, or else the other end of the link.
    pub address: String,
    /// Its name.
    pub instance_id: String,
    /// What both ends can do, as bits of the protocol's.
    pub capabilities: u32,
    /// When the link came about, in milliseconds since 1970.
    pub connected_at: u64,
}

impl Peer {
    /// With room for `limit` bytes of publications.
    pub(super) fn new(instance: &str, limit: usize, budget: Budget) -> Self {
        Self {
            instance: instance.into(),
            state: Mutex::default(),
            interest: Mutex::new(Interest::new(budget)),
            queue: Mutex::new(Queue::new(limit)),
            wake: Notify::new(),
            arrivals: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn link(&self) -> Option<Link> {
        lock(&self.state).link.clone()
    }

    /// How it is called in logs and lists.
    pub(super) fn name(&self) -> String {
        let state = lock(&self.state);
        let remote = state.link.as_ref().map(|link| link.remote.to_string());
        state.address.clone().or(remote).unwrap_or_else(|| self.instance.to_string())
    }

    /// For the list of peers; nothing without a link.
    pub(super) fn told(&self) -> Option<ClusterPeer> {
        let address = self.name();
        let link = self.link()?;
        Some(ClusterPeer {
            address,
            instance_id: self.instance.to_string(),
            capabilities: link.capabilities,
            connected_at: link.connected_millis,
        })
    }
}
