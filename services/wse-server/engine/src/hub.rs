//! The state that a server's threads share: queues to and from the shards, topics, and the registry of connections.
//!
//! Shards, links and the server call the hub. The hub depends on none of them: it puts commands into mailboxes and
//! passes publications to carriers.

mod fanout;
mod presence;

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use crate::{
    config::Config,
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
    stats::Book,
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
    /// Which shard was lost by a panic; its connections are no longer served.
    failure: OnceLock<String>,
    /// The books of connections whose shard has ended.
    pub(crate) last_books: Mutex<Vec<Book>>,
    started: Instant,
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
            failure: OnceLock::new(),
            last_books: Mutex::default(),
            started: Instant::now(),
            config,
        })
    }

    /// Whether new clients are admitted: all shards run, and the server neither stops nor drains.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_running() && !self.draining.load(Ordering::SeqCst) && self.failure.get().is_none()
    }

    /// Why the server is not ready, as `/readyz` reports it; `None` if it is.
    pub(crate) fn unready(&self) -> Option<String> {
        if let Some(failure) = self.failure.get() {
            return Some(failure.clone());
        }
        (!self.is_ready()).then(|| "stopping".into())
    }

    /// Why the server can't go on; `None` while all shards run or end by themselves.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Records that a shard was lost, and wakes the application, which would wait for its messages for ever.
    pub(crate) fn lose_shard(&self, index: usize) {
        let failure = format!("shard {index} has panicked: its connections are lost");
        tracing::error!(shard = index, "a shard has panicked; the server is not ready any more");
        // Only the first loss is reported.
        let _ = self.failure.set(failure);
        self.inbound.wake_drain();
    }

    /// Whether the server has not been asked to stop.
    pub(crate) fn is_running(&self) -> bool {
        !self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn uptime_seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}
