//! What the gateway's threads share, and what each shows to the others.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Config, inference::Exchange, mailbox::Mailbox, metrics::Counters};

/// What one WebSocket thread shows to others.
#[derive(Debug)]
pub struct Door {
    /// Between it and its inference thread.
    pub exchange: Arc<Exchange>,
    /// Sockets that were accepted for it.
    pub sockets: Mailbox<OwnedFd>,
    /// What it had counted at the end of its last round.
    pub counters: Mutex<Counters>,
}

impl Door {
    fn new() -> std::io::Result<Self> {
        Ok(Self { exchange: Arc::new(Exchange::new()?), sockets: Mailbox::default(), counters: Mutex::default() })
    }
}

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    /// The settings.
    pub config: Config,
    /// When the gateway started.
    pub started_at: Instant,
    /// One per WebSocket thread.
    pub doors: Vec<Arc<Door>>,
    /// WebSockets that are open.
    pub open: AtomicUsize,
    is_stopping: AtomicBool,
}

impl Shared {
    /// For threads that have not started yet.
    ///
    /// # Errors
    /// A system that lacks descriptors.
    pub fn new(config: &Config) -> std::io::Result<Self> {
        Ok(Self {
            config: config.clone(),
            started_at: Instant::now(),
            doors: (0..config.threads()).map(|_| Door::new().map(Arc::new)).collect::<Result<_, _>>()?,
            open: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// From now on no connections are taken, and those that are open come to an end.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        for door in &self.doors {
            door.exchange.shard.wake();
        }
    }

    /// Whether no more connections are taken, and those that are open come to an end.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Since the start.
    pub fn uptime(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// What each thread has counted.
    pub fn counters(&self) -> Vec<Counters> {
        self.doors.iter().map(|door| *lock(&door.counters)).collect()
    }
}

/// A value that is whole after every statement that changes it, whoever panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
