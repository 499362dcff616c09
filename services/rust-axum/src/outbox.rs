//! What a session still has to write, within bounds.

use std::{mem, time::Duration};

use tokio::time::Instant;

use crate::protocol::{Opcode, put_frame};

/// Bytes that may wait for a client that doesn't read.
const MAX_BYTES: usize = 64 << 10;
/// How long a client may read nothing while something waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Frames that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// How much of `bytes` is written.
    written: usize,
    /// Since when nothing could be written, while something waits.
    since: Option<Instant>,
    full: bool,
}

impl Outbox {
    /// Adds a frame, unless too much waits already: then it is lost, and the session with it.
    pub(crate) fn put(&mut self, opcode: Opcode, payload: &[u8], now: Instant) {
        if self.bytes().len() + payload.len() > MAX_BYTES {
            self.full = true;
            return;
        }
        self.since.get_or_insert(now);
        put_frame(&mut self.bytes, opcode, payload);
    }

    /// What waits.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// So many bytes of it were written, at `now`.
    pub(crate) fn advance(&mut self, written: usize, now: Instant) {
        self.written += written;
        self.since = Some(now);
        if self.is_empty() {
            *self = Self { full: self.full, ..Self::default() };
        }
    }

    /// Takes all that waits.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.drain(..mem::take(&mut self.written));
        bytes
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Whether a frame found no place.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether the client has read nothing for too long.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= PATIENCE)
    }
}
