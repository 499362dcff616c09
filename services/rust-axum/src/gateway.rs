//! What all sessions have in common, and who may begin one.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{config::Config, inference::Inference, metrics::Books, protocol::Echo, schedule::Schedule};

/// Time of one frame of audio, in milliseconds.
const FRAME_MS: u64 = 20;

/// What all sessions have in common.
pub(crate) struct Gateway {
    /// The books.
    pub(crate) books: Arc<Books>,
    /// The inference.
    pub(crate) inference: Inference,
    /// What partials repeat of the settings.
    pub(crate) echo: Echo,
    /// Frames that may wait in a session.
    pub(crate) max_buffered_frames: u64,
    flush_interval: Duration,
    flush_phase_jitter: Duration,
    max_connections: u64,
    /// Told when the gateway stops.
    pub(crate) stop: CancellationToken,
    /// Sessions that have not ended.
    pub(crate) sessions: TaskTracker,
}

impl Gateway {
    /// With these settings.
    ///
    /// # Errors
    /// When a client for the inference can't be made.
    pub(crate) fn new(config: &Config, books: Arc<Books>) -> anyhow::Result<Self> {
        Ok(Self {
            books,
            inference: Inference::new(config)?,
            echo: Echo { cpu_passes: config.cpu_passes, model_delay_ms: config.model_delay_ms },
            max_buffered_frames: config.max_buffered_frames.into(),
            flush_interval: Duration::from_millis(config.flush_interval_ms),
            flush_phase_jitter: Duration::from_millis(config.flush_phase_jitter_ms),
            max_connections: config.max_connections,
            stop: CancellationToken::new(),
            sessions: TaskTracker::new(),
        })
    }

    /// Frames that come between two ticks, or that may wait if those are fewer.
    pub(crate) fn batch_frames(&self) -> usize {
        let frames = (self.flush_interval.as_millis() as u64).div_ceil(FRAME_MS);
        frames.min(self.max_buffered_frames) as usize
    }

    /// The ticks of a session that started at `now`.
    pub(crate) fn schedule(&self, now: Instant) -> Schedule {
        // A fresh hasher has random keys: randomness enough to spread ticks.
        let random = RandomState::new().hash_one(0);
        let offset = (self.flush_phase_jitter.as_nanos() * u128::from(random)) >> 64;
        let offset = Duration::from_nanos(u64::try_from(offset).expect("no longer than the jitter"));
        Schedule::new(now + offset + self.flush_interval, self.flush_interval)
    }

    /// Takes a place for a connection, if there is one; why not otherwise.
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
            *counts.rejected.entry(refused).or_default() += 1;
            Err(refused)
        })
    }
}
