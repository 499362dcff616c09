//! One other instance, for as long as it is remembered: its subscriptions, its queue, and its link if there is one.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use serde::Serialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    identity::Identity,
    interest::{Budget, Interest},
    numbering::{Arrivals, Count},
    queue::Queue,
};
use crate::lock::lock;

/// A peer: another instance of the cluster.
pub(super) struct Peer {
    pub(super) instance: Arc<str>,
    pub(super) state: Mutex<State>,
    pub(super) interest: Mutex<Interest>,
    pub(super) queue: Mutex<Queue>,
    /// Signals that the queue has something to take.
    pub(super) wake: Notify,
    /// Locked by the task that reads from the peer, so that a new link is read only after the previous one was read to
    /// its end.
    pub(super) arrivals: tokio::sync::Mutex<Arrivals>,
}

/// What changes when links come and go. It is locked before the queue and the subscriptions, never after.
#[derive(Default)]
pub(super) struct State {
    pub(super) link: Option<Link>,
    /// The capabilities of both sides, of the current or the last link.
    pub(super) capabilities: u32,
    /// The address at which the peer was dialled, or which it announced.
    pub(super) address: Option<String>,
    /// The certificate of the current or the last link; `None` without TLS.
    pub(super) identity: Option<Arc<Identity>>,
    /// When the last link ended; `None` while there is one.
    pub(super) left: Option<Instant>,
    /// The peer has announced that it is leaving.
    pub(super) is_leaving: bool,
    /// The peer was given up: its queue, subscriptions and users are discarded.
    pub(super) is_forgotten: bool,
    /// There has been a link before.
    pub(super) was_linked: bool,
    /// The count of what has arrived at the peer, as it last confirmed.
    pub(super) confirmed: Option<Count>,
}

/// One connection with a peer.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) id: u64,
    pub(super) side: Side,
    /// The address of the other side's socket.
    pub(super) remote: SocketAddr,
    /// The capabilities that both sides have.
    pub(super) capabilities: u32,
    /// When the link was made, in milliseconds since the Unix epoch.
    pub(super) connected_millis: u64,
    /// Set when another link takes its place: the write in progress is completed, and the socket is read to its end.
    pub(super) retired: CancellationToken,
    /// Set when the link has to end at once.
    pub(super) cut: CancellationToken,
    /// Set when the link has ended.
    pub(super) ended: CancellationToken,
}

/// Where a connection comes from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) side: Side,
    /// The address of the other side's socket.
    pub(super) remote: SocketAddr,
    /// The certificate of the other side; `None` without TLS.
    pub(super) identity: Option<Arc<Identity>>,
}

/// The side that dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// This instance dialled the peer.
    Ours,
    /// The peer dialled this instance.
    Theirs,
}

/// A peer that has a link, as reported to the application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterPeer {
    /// The address as dialled or as announced by the peer, or else that of the other side's socket.
    pub address: String,
    /// The peer's name, unique for as long as the instance lives.
    pub instance_id: String,
    /// The capabilities that both sides have, as bits of the protocol.
    pub capabilities: u32,
    /// When the link was made, in milliseconds since the Unix epoch.
    pub connected_at: u64,
}

impl Peer {
    /// Makes a peer whose queue holds at most `limit` bytes of publications.
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

    /// Whether a connection may call itself this peer: its certificate has the names of the one before. A peer that was
    /// given up has nothing left that another could take over.
    pub(super) fn admits(&self, identity: Option<&Identity>) -> bool {
        let state = lock(&self.state);
        let is_free = state.is_forgotten && state.link.is_none();
        is_free || state.identity.as_deref().zip(identity).is_none_or(|(known, given)| known.is_same(given))
    }

    pub(super) fn link(&self) -> Option<Link> {
        lock(&self.state).link.clone()
    }

    /// The name in logs and lists: the address if it is known, else the instance's name.
    pub(super) fn name(&self) -> String {
        let state = lock(&self.state);
        let remote = state.link.as_ref().map(|link| link.remote.to_string());
        state.address.clone().or(remote).unwrap_or_else(|| self.instance.to_string())
    }

    /// The entry in the list of peers; `None` without a link.
    pub(super) fn report(&self) -> Option<ClusterPeer> {
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
