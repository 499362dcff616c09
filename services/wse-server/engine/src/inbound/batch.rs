//! The segments of one drain, and the memory that they hold until the application releases them.

use std::sync::Arc;

use super::{Inbound, Kind, Message, Queued, Segment};
use crate::{returns, runs::Runs};

/// Messages that were drained together. Dropping the batch releases their memory, after which a paused shard can read
/// on.
pub struct Batch {
    segments: Vec<Segment>,
    /// The index of each segment's first message in the batch.
    starts: Vec<usize>,
    pub(super) len: usize,
    pub(super) lease: Option<Lease>,
}

/// What a batch holds of the application's limits, and where it is released.
pub(super) struct Lease {
    pub(super) inbound: Arc<Inbound>,
    pub(super) messages: usize,
    pub(super) bytes: usize,
    /// Whose messages they are.
    pub(super) runs: Runs,
    pub(super) has_disconnects: bool,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Batch").field("len", &self.len).field("segments", &self.segments.len()).finish()
    }
}

impl Batch {
    pub(super) fn empty() -> Self {
        Self { segments: Vec::new(), starts: Vec::new(), len: 0, lease: None }
    }

    /// The number of messages and events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no messages or events.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The message at `index`, or `None` beyond the end. Finds the segment by bisection; to visit all messages, use
    /// [`Batch::iter`] or keep a cursor over [`Batch::segments`].
    pub fn get(&self, index: usize) -> Option<Message<'_>> {
        if index >= self.len {
            return None;
        }
        let segment = self.starts.partition_point(|start| *start <= index) - 1;
        let segment_start = self.starts[segment];
        let segment = &self.segments[segment];
        Some(segment.message(&segment.entries[index - segment_start]))
    }

    /// All messages in order.
    pub fn iter(&self) -> impl Iterator<Item = Message<'_>> {
        self.segments.iter().flat_map(|segment| segment.entries.iter().map(|entry| segment.message(entry)))
    }

    /// The segments: blobs with their entries.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    pub(super) fn push(&mut self, queued: Queued, lease: &mut Lease) {
        lease.messages += queued.segment.entries.len();
        lease.bytes += queued.bytes;
        lease.runs.extend(&queued.runs);
        lease.has_disconnects |= queued.has_disconnects;
        self.starts.push(self.len);
        self.len += queued.segment.entries.len();
        self.segments.push(queued.segment);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if lease.has_disconnects {
            let disconnected = self.segments.iter().flat_map(|segment| &segment.entries);
            lease
                .inbound
                .registry
                .forget(disconnected.filter(|entry| entry.kind == Kind::Disconnect).map(|e| e.connection));
        }
        // The blobs go first, because a woken shard needs its arenas.
        self.segments.clear();
        lease.inbound.usage.release(lease.messages, lease.bytes);
        returns::give_back(lease.runs.as_slice(), &lease.inbound.returns);
    }
}
