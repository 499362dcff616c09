//! State that the gateway's threads share, and the part of each WebSocket thread that other threads access.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Config, inference::Channels, mailbox::Mailbox, metrics::Counters};

/// The part of one WebSocket thread that other threads access.
#[derive(Debug)]
pub struct ShardHandle {
    /// Queues between the WebSocket thread and its inference thread.
    pub channels: Arc<Channels>,
    /// Sockets that the first thread has accepted for this one.
    pub sockets: Mailbox<OwnedFd>,
    /// The thread's counters at the end of its last round.
    pub counters: Mutex<Counters>,
}

impl ShardHandle {
    fn new() -> std::io::Result<Self> {
        Ok(Self { channels: Arc::new(Channels::new()?), sockets: Mailbox::default(), counters: Mutex::default() })
    }
}

/// State that all threads share.
#[derive(Debug)]
pub struct Shared {
    /// The gateway's settings, unchanged after the start.
    pub config: Config,
    /// When the gateway started; uptime counts from here.
    pub started_at: Instant,
    /// One entry per WebSocket thread.
    pub handles: Vec<Arc<ShardHandle>>,
    /// Number of open WebSockets, over all threads.
    pub open: AtomicUsize,
    is_stopping: AtomicBool,
}

impl Shared {
    /// Creates the state before the threads start.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new(config: &Config) -> std::io::Result<Self> {
        Ok(Self {
            config: config.clone(),
            started_at: Instant::now(),
            handles: (0..config.threads()).map(|_| ShardHandle::new().map(Arc::new)).collect::<Result<_, _>>()?,
            open: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Stops the gateway: no more connections are accepted, and open ones are drained.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        for handle in &self.handles {
            handle.channels.shard.wake();
        }
    }

    /// Whether the gateway is stopping: no more connections are accepted, and open ones are drained.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Time since the gateway started.
    pub fn uptime(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// The published counters of each WebSocket thread.
    pub fn counters(&self) -> Vec<Counters> {
        self.handles.iter().map(|handle| *lock(&handle.counters)).collect()
    }
}

/// Locks a mutex even if it is poisoned. The value must be consistent after every statement that changes it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
