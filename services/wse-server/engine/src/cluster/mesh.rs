//! All peers of an instance: which connections are admitted, which of two links stays, what goes to which peer, and
//! which peers are given up.

mod subscriptions;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    addresses::AddressBook,
    config::{ClusterConfig, MAX_PEERS},
    counters::{Counters, DropReason, RefuseReason, add},
    dead_letters::{ClusterDeadLetter, DeadLetters, in_frames},
    hello::{self, Hello},
    identity::Identity,
    interest::Budget,
    peer::{ClusterPeer, Link, Origin, Peer, Side, State},
    queue::Chunk,
    routes::Routes,
    subscriptions::Subscriptions,
    tls::Tls,
};
use crate::{clock, hub::Hub, links::ClusterStats, lock::lock, publications::Publications, random};

/// The most links that were dialled by others.
const MAX_INBOUND: usize = 128;

/// The peers of this instance and what they share: configuration, counters, subscriptions, addresses.
pub(crate) struct Mesh {
    /// This instance's name: a UUID of version 7, as text.
    pub(super) instance: Arc<str>,
    pub(super) config: ClusterConfig,
    /// The capabilities of this instance.
    capabilities: u32,
    /// The address of this instance that others pass on; `None` if none is configured.
    pub(super) advertised: Option<String>,
    pub(super) shared: Weak<Hub>,
    pub(super) publications: Publications,
    pub(super) counters: Counters,
    pub(super) dead_letters: DeadLetters,
    pub(super) tls: RwLock<Option<Arc<Tls>>>,
    pub(super) subscriptions: Mutex<Subscriptions>,
    pub(super) routes: Routes,
    pub(super) addresses: Mutex<AddressBook>,
    peers: Mutex<HashMap<Arc<str>, Arc<Peer>>>,
    budget: Budget,
    queue_limit: usize,
    next_link: AtomicU64,
    inbound: AtomicUsize,
    /// Stops all tasks of the cluster.
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Mesh {
    pub(super) fn new(shared: &Arc<Hub>, config: ClusterConfig, advertised: Option<String>, tls: Option<Tls>) -> Self {
        let presence = if shared.presence.is_some() { hello::PRESENCE } else { 0 };
        let mut addresses = AddressBook::default();
        advertised.iter().for_each(|own| addresses.add_own(own));
        Self {
            instance: random::id(clock::now_millis()).to_string().into(),
            config,
            capabilities: presence
                | hello::ROUTING
                | hello::COMPRESSION
                | hello::RECOVERY
                | hello::NUMBERS
                | hello::STAMPS,
            advertised,
            shared: Arc::downgrade(shared),
            publications: shared.publications.clone(),
            counters: Counters::default(),
            dead_letters: DeadLetters::new(),
            tls: RwLock::new(tls.map(Arc::new)),
            subscriptions: Mutex::default(),
            routes: Routes::default(),
            addresses: Mutex::new(addresses),
            peers: Mutex::default(),
            budget: Budget::default(),
            queue_limit: match shared.config.max_outbound_queue_bytes {
                0 => usize::MAX,
                limit => limit,
            },
            next_link: AtomicU64::new(0),
            inbound: AtomicUsize::new(0),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// This instance's hello for a new connection; `extra_capabilities` are capabilities of this one hello.
    pub(super) fn hello(&self, extra_capabilities: u32) -> Hello {
        let nonce = self.config.secret.is_some().then(random::bytes);
        Hello { instance: self.instance.to_string(), capabilities: self.capabilities | extra_capabilities, nonce }
    }

    /// Returns why the instance at an address refused this one, from the hello with which it did so. Notes which
    /// instance answered there.
    pub(super) fn refusal_reason(&self, hello: &Hello, address: &str) -> RefuseReason {
        if *hello.instance == *self.instance {
            return RefuseReason::Itself;
        }
        let known = lock(&self.peers).get(&*hello.instance).cloned();
        known.inspect(|peer| self.record_instance(Some(address), peer));
        RefuseReason::Duplicate
    }

    /// The current TLS settings for new links; `None` for links without TLS.
    pub(super) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All peers that are remembered.
    pub(super) fn peers(&self) -> Vec<Arc<Peer>> {
        lock(&self.peers).values().cloned().collect()
    }

    /// The link with the instance that answered at an address last.
    pub(super) fn link_at(&self, address: &str) -> Option<Link> {
        let instance = lock(&self.addresses).instance(address)?;
        let peer = lock(&self.peers).get(&instance).cloned()?;
        peer.link()
    }

    /// Makes a connection the link with the peer that sent `hello`.
    ///
    /// Of two links that were dialled by different sides, the one that the instance with the lower name dialled stays.
    /// Both sides decide so, whichever link they learn of first. With a peer of another implementation, the other link
    /// is never admitted, even if it is the only one. Of two links that the same side dialled, the first stays, because
    /// that side may know two addresses of one instance.
    ///
    /// # Errors
    /// A [`RefuseReason`] if the connection doesn't become a link.
    pub(super) fn admit(
        &self,
        hello: &Hello,
        origin: Origin,
        address: Option<&str>,
    ) -> Result<(Arc<Peer>, Link), RefuseReason> {
        let Origin { side, remote, identity } = origin;
        if *hello.instance == *self.instance {
            return Err(RefuseReason::Itself);
        }
        let is_lower = match side {
            Side::Ours => *self.instance < *hello.instance,
            Side::Theirs => *hello.instance < *self.instance,
        };
        // A peer of another implementation would close such a link at once and lose all that was sent over it.
        if hello.capabilities & hello::NUMBERS == 0 && !is_lower {
            return Err(RefuseReason::Order);
        }
        // This check is first, so that a refused connection leaves nothing behind.
        if side == Side::Theirs && self.inbound.load(Ordering::Relaxed) >= MAX_INBOUND {
            return Err(RefuseReason::Full);
        }
        let peer = self.peer(&hello.instance).ok_or(RefuseReason::Full)?;
        if !peer.admits(identity.as_deref()) {
            return Err(RefuseReason::Name);
        }
        let is_duplicate = lock(&peer.state).link.as_ref().is_some_and(|first| first.side == side || !is_lower);
        if is_duplicate {
            self.record_instance(address, &peer);
            return Err(RefuseReason::Duplicate);
        }
        if side == Side::Theirs {
            self.inbound.fetch_add(1, Ordering::Relaxed);
        }
        let link = Link {
            id: self.next_link.fetch_add(1, Ordering::Relaxed),
            side,
            remote,
            capabilities: self.capabilities & hello.capabilities,
            connected_millis: clock::now_millis(),
            retired: CancellationToken::new(),
            cut: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        self.replace_link(&peer, &link, identity, address);
        Ok((peer, link))
    }

    /// The peer of that name, which is created if needed; `None` if there are too many.
    fn peer(&self, instance: &str) -> Option<Arc<Peer>> {
        let mut peers = lock(&self.peers);
        if let Some(peer) = peers.get(instance) {
            return Some(Arc::clone(peer));
        }
        if peers.len() >= MAX_PEERS {
            let since =
                |peer: &Peer| Some(lock(&peer.state)).filter(|state| state.is_forgotten && state.link.is_none())?.left;
            let oldest = peers.values().filter_map(|peer| Some((since(peer)?, Arc::clone(&peer.instance)))).min()?;
            let forgotten = peers.remove(&oldest.1)?;
            self.counters.keep(lock(&forgotten.queue).books());
        }
        let peer = Arc::new(Peer::new(instance, self.queue_limit, Budget::clone(&self.budget)));
        peers.insert(Arc::clone(&peer.instance), Arc::clone(&peer));
        Some(peer)
    }

    fn replace_link(&self, peer: &Arc<Peer>, link: &Link, identity: Option<Arc<Identity>>, address: Option<&str>) {
        let before = {
            let mut state = lock(&peer.state);
            if state.is_forgotten {
                lock(&peer.interest).expect_all();
            }
            if state.was_linked && state.link.is_none() {
                add(&self.counters.reconnects, 1);
            }
            state.address = address.map(str::to_owned).or(state.address.take());
            (state.capabilities, state.identity) = (link.capabilities, identity);
            (state.left, state.is_leaving, state.is_forgotten, state.was_linked) = (None, false, false, true);
            state.link.replace(link.clone())
        };
        self.send_initial_state(peer, link);
        self.send_users(peer);
        if let Some(before) = before {
            before.retired.cancel();
        }
        peer.wake.notify_one();
        self.record_instance(address, peer);
        self.routes.clear();
        tracing::info!(peer = peer.name(), instance = &*peer.instance, side = ?link.side, "linked");
    }

    /// Notes which instance answers at an address. If another one did before, it has no other address and is given up,
    /// unless it has a link.
    pub(super) fn record_instance(&self, address: Option<&str>, peer: &Peer) {
        let before = address.and_then(|address| lock(&self.addresses).record_instance(address, &peer.instance));
        let before = before.and_then(|before| lock(&self.peers).get(&before).cloned());
        if let Some(before) = before.filter(|before| before.link().is_none()) {
            self.give_up(&before);
        }
    }

    /// Cleans up after a link has ended.
    pub(super) fn ended(&self, peer: &Peer, link: &Link) {
        if link.side == Side::Theirs {
            self.inbound.fetch_sub(1, Ordering::Relaxed);
        }
        let is_leaving = {
            let mut state = lock(&peer.state);
            let was_last = state.link.as_ref().is_some_and(|last| last.id == link.id);
            if was_last {
                (state.link, state.left) = (None, Some(Instant::now()));
                let mut queue = lock(&peer.queue);
                queue.assign(None, Vec::new());
                // Publishers don't wait for a peer without a link.
                self.publications.settle(queue.bytes());
            }
            was_last && state.is_leaving
        };
        self.routes.clear();
        if is_leaving {
            self.give_up(peer);
        }
        link.ended.cancel();
    }

    /// Gives up the peers that have been without a link for too long.
    pub(super) fn give_up_lost_peers(&self) {
        let is_expired = |state: &State| state.left.is_some_and(|left| left.elapsed() >= self.config.timing.keep);
        for peer in self.peers() {
            if is_expired(&lock(&peer.state)) {
                self.give_up(&peer);
            }
        }
    }

    /// Discards everything of a peer without a link, except its counts.
    pub(super) fn give_up(&self, peer: &Peer) {
        let (chunks, unconfirmed) = {
            let mut state = lock(&peer.state);
            if state.link.is_some() || std::mem::replace(&mut state.is_forgotten, true) {
                return;
            }
            let mut queue = lock(&peer.queue);
            let taken = queue.taken();
            let confirmed = state.confirmed.take();
            lock(&peer.interest).forget();
            (
                queue.give_up(DropReason::PeerLost),
                confirmed.map_or(0, |confirmed| taken.number.saturating_sub(confirmed.number)),
            )
        };
        self.routes.clear();
        add(&self.counters.unconfirmed, unconfirmed);
        self.add_dead_letters(peer, &chunks, DropReason::PeerLost);
        self.forget_peer_history(peer);
        self.remove_users(peer);
        tracing::info!(peer = peer.name(), instance = &*peer.instance, "peer given up");
    }

    /// Keeps the last of the publications that waited for a peer as dead letters.
    fn add_dead_letters(&self, peer: &Peer, chunks: &[Chunk], reason: DropReason) {
        let dropped = chunks.iter().map(|chunk| chunk.messages).sum();
        if dropped == 0 {
            return;
        }
        let name = peer.name();
        let dead_letters =
            chunks.iter().rev().take(1000).rev().flat_map(|chunk| in_frames(&chunk.bytes, &name, reason));
        self.dead_letters.add(dropped, dead_letters, reason.label(), &name);
    }

    /// Keeps publications that were not queued as dead letters.
    pub(super) fn add_unqueued_dead_letters(
        &self,
        peer: &Peer,
        dead_letters: impl ExactSizeIterator<Item = (String, String)>,
        reason: DropReason,
    ) {
        let dropped = dead_letters.len() as u64;
        let name = peer.name();
        let dead_letter =
            |(topic, payload)| ClusterDeadLetter { topic, payload, peer: name.clone(), reason: reason.label() };
        self.dead_letters.add(dropped, dead_letters.map(dead_letter), reason.label(), &name);
    }

    /// Sends a control frame to all peers that have a link and the capability.
    pub(super) fn send_to_all(&self, capability: u32, frame: &Bytes) {
        for peer in self.peers() {
            self.enqueue(&peer, capability, frame.clone());
        }
    }

    /// Sends a control frame to one peer if it has the capability. If too many of them wait already, its link is cut
    /// and the peer starts again.
    pub(super) fn enqueue(&self, peer: &Peer, capability: u32, frame: Bytes) {
        let Some(link) = peer.link().filter(|link| link.capabilities & capability == capability) else { return };
        if lock(&peer.queue).push_control(frame) {
            peer.wake.notify_one();
        } else {
            tracing::warn!(peer = peer.name(), "the peer is too far behind: link cut");
            link.cut.cancel();
        }
    }

    /// Drops what still waits, after all links have ended.
    pub(super) fn finish(&self) {
        for peer in self.peers() {
            let chunks = {
                let mut queue = lock(&peer.queue);
                if queue.owner().is_some() {
                    self.publications.settle(queue.bytes());
                    queue.assign(None, Vec::new());
                }
                queue.give_up(DropReason::Stopped)
            };
            lock(&peer.interest).forget();
            lock(&peer.state).link = None;
            self.add_dead_letters(&peer, &chunks, DropReason::Stopped);
        }
        self.routes.clear();
    }

    /// The peers that have a link, sorted by address.
    pub(super) fn report(&self) -> Vec<ClusterPeer> {
        let mut report: Vec<_> = self.peers().iter().filter_map(|peer| peer.report()).collect();
        report.sort_by(|one, other| one.address.cmp(&other.address));
        report
    }

    /// One reading of all counters.
    pub(crate) fn stats(&self) -> ClusterStats {
        let peers = self.peers();
        let mut stats = ClusterStats {
            peers: peers.iter().filter(|peer| peer.link().is_some()).count() as u64,
            dead_letters: self.dead_letters.len() as u64,
            ..self.counters.stats()
        };
        stats.balance();
        for peer in peers {
            let queue = lock(&peer.queue);
            stats.add(queue.books(), queue.messages());
        }
        stats
    }

    /// Whether frames of peers have to wait, because subscribers here have too much to take.
    pub(super) fn is_congested(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.is_congested())
    }

    /// Waits until subscribers here have room.
    pub(super) async fn wait_for_room(&self) {
        while self.is_congested() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
