//! What all sessions of the gateway have in common.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{config::Config, inference::Clients, metrics::Books, protocol::Echo};

/// What all sessions have in common.
pub(crate) struct Gateway {
    /// The books.
    pub(crate) books: Arc<Books>,
    /// Clients of the inference.
    pub(crate) clients: Clients,
    /// What partials repeat of the settings.
    pub(crate) echo: Echo,
    /// Frames that may wait in a session.
    pub(crate) max_buffered_frames: usize,
    /// Time between two ticks of a session.
    pub(crate) flush_interval: Duration,
    /// Cancelled when the gateway stops.
    pub(crate) stop: CancellationToken,
    /// The sessions that run.
    pub(crate) sessions: TaskTracker,
    flush_phase_jitter: Duration,
    max_connections: u64,
}

impl Gateway {
    /// Makes what sessions need.
    ///
    /// # Errors
    /// When a client for the inference can't be made.
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

    /// The time by which a new session's ticks are shifted.
    pub(crate) fn random_phase(&self) -> Duration {
        // Each hasher has random keys: enough to spread ticks.
        let random = RandomState::new().hash_one(());
        self.flush_phase_jitter.mul_f64(random as f64 / u64::MAX as f64)
    }

    /// Books a new connection; the error is the reason why it is refused.
    pub(crate) fn admit(&self) -> Result<(), &'static str> {
        self.books.with(|counts| {
            let refused = if !self.books.is_accepting() {
                "draining"
            } else if self.max_connections > 0 && counts.open >= self.max_connections {
                "full"
            } else {
                counts.accepted += 1;
                counts.open += 1;
                return Ok(());
            };
            counts.reject(refused);
            Err(refused)
        })
    }
}
