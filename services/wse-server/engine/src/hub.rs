//! The state that a server's threads share: queues to and from the shards, topics, and the registry of connections.
//!
//! Shards, links and the server call the hub. The hub depends on none of them: it puts commands into mailboxes and
//! passes publications to carriers.

mod fanout;
mod presence;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use crate::{
    clock,
    config::Config,
    failure::Failures,
    inbound::Inbound,
    jwt::Gate,
    limits::{InboundUsage, Share, Waker},
    links::Links,
    outbound::Mailbox,
    presence::Presence,
    publications::Publications,
    recipients::Recipients,
    recovery::Recovery,
    registry::Registry,
    returns::Returns,
    stats::{ClosedBooks, Cursor},
    topics::Topics,
};

/// The state that the shards, the links to other instances and the server share.
pub(crate) struct Hub {
    pub(crate) config: Config,
    pub(crate) gate: Option<Gate>,
    pub(crate) inbound: Arc<Inbound>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) recipients: Recipients,
    pub(crate) links: Arc<Links>,
    pub(crate) topics: Topics,
    pub(crate) publications: Publications,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) presence: Option<Presence>,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) wakers: Vec<Arc<Waker>>,
    /// The number of open connections of all shards, changed when one opens or closes.
    pub(crate) open: AtomicUsize,
    pub(crate) stopping: AtomicBool,
    /// Set once the server admits no more clients.
    pub(crate) draining: AtomicBool,
    /// Threads that ended while they were needed.
    pub(crate) failures: Failures,
    /// How many connections have closed: the number of the next one's book.
    pub(crate) closed: AtomicU64,
    /// The books that shards left when they ended.
    pub(crate) last_books: Mutex<Vec<ClosedBooks>>,
    started: Instant,
    started_millis: u64,
}

impl Hub {
    pub(crate) fn new(config: Config, shards: usize) -> std::io::Result<Self> {
        let wakers = (0..shards).map(|_| Waker::new().map(Arc::new)).collect::<std::io::Result<Vec<_>>>()?;
        let usage = InboundUsage::new(config.max_inbound_queue_size, config.max_inbound_queue_bytes, wakers.clone());
        let share = Share::of(&config);
        let returns = wakers.iter().map(|waker| Returns::new(share, Arc::clone(waker))).collect();
        let (registry, links) = (Arc::new(Registry::default()), Arc::new(Links::default()));
        Ok(Self {
            gate: config.jwt.as_ref().map(Gate::new),
            inbound: Arc::new(Inbound::new(usage, returns, Arc::clone(&registry))),
            registry,
            recipients: Recipients::new(config.rate_limit),
            topics: Topics::new(shards, config.max_subscriptions_per_connection, Arc::clone(&links)),
            links,
            publications: Publications::new(config.max_publish_backlog_bytes),
            recovery: config.recovery.clone().map(Recovery::new),
            presence: config.presence.clone().map(Presence::new),
            mailboxes: wakers.iter().map(|waker| Mailbox::new(Arc::clone(waker))).collect(),
            wakers,
            open: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            failures: Failures::default(),
            closed: AtomicU64::new(0),
            last_books: Mutex::default(),
            started: Instant::now(),
            started_millis: clock::now_millis(),
            config,
        })
    }

    /// Whether clients are admitted: running, not draining, and no shard is lost.
    pub(crate) fn admits(&self) -> bool {
        self.is_running() && !self.draining.load(Ordering::SeqCst) && self.failures.shard().is_none()
    }

    /// Why the server isn't ready, which `/readyz` reports; `None` if it is.
    pub(crate) fn unready(&self) -> Option<String> {
        match self.failures.any() {
            Some(failure) => Some(failure.to_owned()),
            None => (!self.admits()).then(|| "stopping".to_owned()),
        }
    }

    /// Notes that a shard has ended although the server runs. Callers that wait for it wait no longer.
    pub(crate) fn lose_shard(&self, index: usize, reason: &str) {
        tracing::error!(shard = index, reason, "a shard has ended: the server admits no more clients, restart it");
        self.failures.lose_shard(index, reason);
        let mailbox = &self.mailboxes[index];
        mailbox.close();
        // Dropped, because publishers wait for the publications among them.
        mailbox.take(&mut Vec::new());
        self.inbound.wake_drain();
    }

    /// Whether the server has not been asked to stop.
    pub(crate) fn is_running(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }

    /// The cursor of a reading that begins now: all connections with a lower number have closed, and their shards have
    /// stored their books.
    pub(crate) fn cursor(&self) -> Cursor {
        Cursor { started_millis: self.started_millis, next: self.closed.load(Ordering::SeqCst) }
    }

    pub(crate) fn uptime_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}
