//! The outbox: bytes that wait to be written to a client, limited in number and in time.

use std::{mem, time::Duration};

use tokio::time::Instant;

use crate::protocol::{Opcode, put_frame};

/// Bytes that may wait for a client, from the contract.
const MAX_BYTES: usize = 64 << 10;
/// Time without progress after which a client counts as slow, from the contract.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Encoded frames that wait to be written to one client.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// Number of bytes at the front of `bytes` that are written.
    written: usize,
    /// Time of the last progress; `None` while nothing waits.
    last_progress: Option<Instant>,
    is_full: bool,
}

impl Outbox {
    /// Appends a frame. If more than [`MAX_BYTES`] would wait, the frame is discarded and [`Self::is_full`] becomes
    /// true, which ends the session.
    pub(crate) fn push(&mut self, opcode: Opcode, payload: &[u8], now: Instant) {
        if self.bytes().len() + payload.len() > MAX_BYTES {
            self.is_full = true;
            return;
        }
        self.last_progress.get_or_insert(now);
        put_frame(&mut self.bytes, opcode, payload);
    }

    /// The bytes that wait.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Records that the first `written` of these bytes were written at `now`.
    pub(crate) fn advance(&mut self, written: usize, now: Instant) {
        self.written += written;
        self.last_progress = Some(now);
        if self.is_empty() {
            *self = Self { is_full: self.is_full, ..Self::default() };
        }
    }

    /// Takes all bytes that wait.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.drain(..mem::take(&mut self.written));
        bytes
    }

    /// Whether all bytes were written.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Whether a frame was discarded because too many bytes waited.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether bytes wait and the client has taken none for [`STALL_TIMEOUT`].
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.last_progress.is_some_and(|last_progress| now.saturating_duration_since(last_progress) >= STALL_TIMEOUT)
    }
}
