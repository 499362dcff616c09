//! State that the gateway's threads share, and the part of each WebSocket thread that other threads access.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Config, inference::Exchange, mailbox::Mailbox, metrics::Counters};

/// The part of one WebSocket thread that other threads access.
#[derive(Debug)]
pub struct Door {
    /// Queues between the WebSocket thread and its inference thread.
    pub exchange: Arc<Exchange>,
    /// Sockets that the first thread has accepted for this one.
    pub sockets: Mailbox<OwnedFd>,
    /// The thread's counters at the end of its last round.
    pub counters: Mutex<Counters>,
}

impl Door {
    fn new() -> std::io::Result<Self> {
        Ok(Self { exchange: Arc::new(Exchange::new()?), sockets: Mailbox::default(), counters: Mutex::default() })
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
    pub doors: Vec<Arc<Door>>,
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
            doors: (0..config.threads()).map(|_| Door::new().map(Arc::new)).collect::<Result<_, _>>()?,
            open: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Stops the gateway: no more connections are accepted, and open ones are drained.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        for door in &self.doors {
            door.exchange.shard.wake();
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
        self.doors.iter().map(|door| *lock(&door.counters)).collect()
    }
}

/// Locks a mutex even if it is poisoned. The value must be consistent after every statement that changes it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
