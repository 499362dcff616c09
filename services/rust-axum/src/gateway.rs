//! State that all sessions share, and the admission of new connections.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{config::Config, inference::Inference, metrics::Books, protocol::EchoedSettings, schedule::Schedule};

/// Duration of one audio frame, in milliseconds.
const FRAME_MS: u64 = 20;

/// State that all sessions share. It is created once, before the first connection.
pub(crate) struct Gateway {
    /// Counters of all sessions; the metrics port reads them.
    pub(crate) books: Arc<Books>,
    /// HTTP clients of the inference; each session takes one.
    pub(crate) inference: Inference,
    /// Settings that every partial echoes.
    pub(crate) echo: EchoedSettings,
    /// Frames that may wait in one session, besides the batch in flight.
    pub(crate) max_buffered_frames: u64,
    flush_interval: Duration,
    flush_phase_jitter: Duration,
    max_connections: u64,
    /// Cancelled when the gateway stops.
    pub(crate) stop: CancellationToken,
    /// Tracks the running sessions, so that a stop can wait for them.
    pub(crate) sessions: TaskTracker,
}

impl Gateway {
    /// Creates the shared state.
    ///
    /// # Errors
    /// When an HTTP client cannot be built.
    pub(crate) fn new(config: &Config, books: Arc<Books>) -> anyhow::Result<Self> {
        Ok(Self {
            books,
            inference: Inference::new(config)?,
            echo: EchoedSettings { cpu_passes: config.cpu_passes, model_delay_ms: config.model_delay_ms },
            max_buffered_frames: config.max_buffered_frames.into(),
            flush_interval: Duration::from_millis(config.flush_interval_ms),
            flush_phase_jitter: Duration::from_millis(config.flush_phase_jitter_ms),
            max_connections: config.max_connections,
            stop: CancellationToken::new(),
            sessions: TaskTracker::new(),
        })
    }

    /// Expected size of a batch in frames: those that arrive between two ticks, at most those that may wait.
    pub(crate) fn batch_frames(&self) -> usize {
        let frames = (self.flush_interval.as_millis() as u64).div_ceil(FRAME_MS);
        frames.min(self.max_buffered_frames) as usize
    }

    /// Creates the schedule of a session that starts at `now`, with a random offset of up to `flush_phase_jitter`.
    pub(crate) fn schedule(&self, now: Instant) -> Schedule {
        // Each `RandomState` has new random keys, which is random enough to spread ticks.
        let random = RandomState::new().hash_one(0);
        let offset = (self.flush_phase_jitter.as_nanos() * u128::from(random)) >> 64;
        let offset = Duration::from_nanos(u64::try_from(offset).expect("no longer than the jitter"));
        Schedule::new(now + offset + self.flush_interval, self.flush_interval)
    }

    /// Counts a new connection as accepted and open. The error is the reason (`draining` or `full`) for which it is
    /// refused, and is counted, too.
    pub(crate) fn admit(&self) -> Result<(), &'static str> {
        self.books.update(|counts| {
            let reason = if !self.books.is_accepting() {
                "draining"
            } else if self.max_connections > 0 && counts.open >= self.max_connections {
                "full"
            } else {
                counts.accepted += 1;
                counts.open += 1;
                return Ok(());
            };
            *counts.rejected.entry(reason).or_default() += 1;
            Err(reason)
        })
    }
}
