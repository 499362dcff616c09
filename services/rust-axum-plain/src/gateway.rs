//! State that all sessions share: settings, books, inference clients and the stop signal.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{config::Config, inference::Clients, metrics::Books, protocol::Echo};

/// State that all sessions share. It is created once, before the first connection.
pub(crate) struct Gateway {
    /// Counters of all sessions; the metrics port reads them.
    pub(crate) books: Arc<Books>,
    /// HTTP clients of the inference; each session takes one.
    pub(crate) clients: Clients,
    /// Settings that every partial echoes.
    pub(crate) echo: Echo,
    /// Frames that may wait in one session, besides the batch in flight.
    pub(crate) max_buffered_frames: usize,
    /// Time between two ticks of a session.
    pub(crate) flush_interval: Duration,
    /// Cancelled when the gateway stops.
    pub(crate) stop: CancellationToken,
    /// Tracks the running sessions, so that a stop can wait for them.
    pub(crate) sessions: TaskTracker,
    flush_phase_jitter: Duration,
    max_connections: u64,
}

impl Gateway {
    /// Creates the shared state.
    ///
    /// # Errors
    /// When an HTTP client cannot be built.
    pub(crate) fn new(config: &Config, books: Arc<Books>) -> anyhow::Result<Self> {
        Ok(Self {
            books,
            clients: Clients::new(config)?,
            echo: Echo { cpu_passes: config.cpu_passes, model_delay_ms: config.model_delay_ms },
            max_buffered_frames: config.max_buffered_frames as usize,
            flush_interval: config.flush_interval_ms,
            flush_phase_jitter: config.flush_phase_jitter_ms,
            max_connections: config.max_connections,
            stop: CancellationToken::new(),
            sessions: TaskTracker::new(),
        })
    }

    /// Draws the offset of a new session's ticks, uniformly from zero to `flush_phase_jitter`.
    pub(crate) fn random_phase(&self) -> Duration {
        // Each `RandomState` has new random keys, which is random enough to spread ticks.
        let random = RandomState::new().hash_one(());
        self.flush_phase_jitter.mul_f64(random as f64 / u64::MAX as f64)
    }

    /// Counts a new connection as accepted and open. The error is the reason (`draining` or `full`) for which it is
    /// refused, and is counted, too.
    pub(crate) fn admit(&self) -> Result<(), &'static str> {
        self.books.with(|counts| {
            let reason = if !self.books.is_accepting() {
                "draining"
            } else if self.max_connections > 0 && counts.open >= self.max_connections {
                "full"
            } else {
                counts.accepted += 1;
                counts.open += 1;
                return Ok(());
            };
            counts.reject(reason);
            Err(reason)
        })
    }
}
