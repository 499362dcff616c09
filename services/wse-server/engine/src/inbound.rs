//! From the shards to the application: queues of segments, and the batches that are drained from them.
//!
//! A lock is taken once per epoll round and once per drain, never per message.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    key::ConnectionKey,
    limits::Held,
    registry::Registry,
    stats::{Counters, ShardReading},
};

/// What an entry of a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A connection opened without a token; data is its cookie header, the type its id. The application greets it.
    Connect,
    /// A connection opened with a valid token; data is the user's id, the type the connection's id.
    AuthConnect,
    /// The text of a JSON object, without the legacy prefix. Malformed JSON shows when it is parsed.
    Json,
    /// Validated MessagePack, without its prefix.
    MessagePack,
    /// Text that is no JSON object, as it came.
    Raw,
    /// A binary frame that is nothing of the above.
    Binary,
    /// A user joined a topic; data is a JSON object of topic, user and what it says about itself. It is no connection's.
    PresenceJoin,
    /// A user left a topic; otherwise as above.
    PresenceLeave,
    /// The connection is gone; no data, the type is its id. It is the connection's last entry.
    Disconnect,
}

impl Kind {
    /// Whether it is a message from the client, and not an event of the connection's life.
    pub fn is_message(self) -> bool {
        !matches!(self, Self::Connect | Self::AuthConnect | Self::Disconnect | Self::PresenceJoin | Self::PresenceLeave)
    }
}

/// One message or event: offsets into its segment's blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is.
    pub connection: ConnectionKey,
    /// Where its data starts, in bytes.
    pub start: u32,
    /// Where its data ends.
    pub end: u32,
    /// Where its type starts.
    pub type_start: u32,
    /// How long its type is; 0 if it has none.
    pub type_len: u16,
    /// What it is.
    pub kind: Kind,
}

/// Messages that share one blob.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The bytes as they came off the wire, unmasked in place, frame headers between them.
    pub blob: Bytes,
    /// Where the messages are, in the order they arrived.
    pub entries: Vec<Entry>,
}

impl Segment {
    /// The bytes of the type that `entry`, one of this segment's, has; empty where it has none.
    #[inline]
    pub fn label(&self, entry: &Entry) -> &[u8] {
        let start = entry.type_start as usize;
        &self.blob[start..start + usize::from(entry.type_len)]
    }

    /// The message that `entry`, one of this segment's, describes.
    pub fn message(&self, entry: &Entry) -> Message<'_> {
        let kind = self.label(entry);
        Message {
            kind: entry.kind,
            connection: entry.connection,
            data: &self.blob[entry.start as usize..entry.end as usize],
            message_type: if kind.is_empty() { None } else { std::str::from_utf8(kind).ok() },
        }
    }
}

/// One message of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub kind: Kind,
    /// Whose it is.
    pub connection: ConnectionKey,
    /// Its data.
    pub data: &'a [u8],
    /// The top-level `t` (or `type`) of a JSON object or a MessagePack map, if it is a string without escapes; of a
    /// connection event, the connection's id.
    pub message_type: Option<&'a str>,
}

/// Messages that were drained together. Dropping it gives their memory back, which is what lets a paused shard read on.
pub struct Batch {
    segments: Vec<Segment>,
    /// The index of each segment's first message.
    starts: Vec<usize>,
    len: usize,
    lease: Option<Lease>,
}

/// What a batch holds and whom to tell when it doesn't any more.
struct Lease {
    inbound: Arc<Inbound>,
    messages: usize,
    bytes: usize,
    has_disconnects: bool,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Batch").field("len", &self.len).field("segments", &self.segments.len()).finish()
    }
}

impl Batch {
    fn empty() -> Self {
        Self { segments: Vec::new(), starts: Vec::new(), len: 0, lease: None }
    }

    /// How many messages and events it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Message `index`, if there are so many. Finds its segment by bisection; whoever walks keeps a cursor over
    /// [`Batch::segments`] instead.
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

    /// The blobs with their entries.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    fn push(&mut self, queued: Queued, lease: &mut Lease) {
        lease.messages += queued.segment.entries.len();
        lease.bytes += queued.bytes;
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
            let gone = self.segments.iter().flat_map(|segment| &segment.entries);
            lease.inbound.registry.forget(gone.filter(|entry| entry.kind == Kind::Disconnect).map(|e| e.connection));
        }
        // The blobs first: a woken shard wants its arenas back.
        self.segments.clear();
        lease.inbound.held.release(lease.messages, lease.bytes);
    }
}

/// A segment on its way, with what it counts for.
pub(crate) struct Queued {
    pub(crate) segment: Segment,
    /// Bytes charged to it; a blob shared by several segments is charged to one of them.
    pub(crate) bytes: usize,
    /// Entries that are messages.
    pub(crate) messages: usize,
    pub(crate) has_disconnects: bool,
}

impl Queued {
    /// Cuts the first `count` entries off. The blob's bytes stay charged to the rest, which keeps it alive.
    fn split_front(&mut self, count: usize) -> Self {
        let rest = self.segment.entries.split_off(count);
        let front = std::mem::replace(&mut self.segment.entries, rest);
        let messages = front.iter().filter(|entry| entry.kind.is_message()).count();
        self.messages -= messages;
        let segment = Segment { blob: self.segment.blob.clone(), entries: front };
        Self { segment, bytes: 0, messages, has_disconnects: self.has_disconnects }
    }
}

/// What one shard shares with the application, under one lock so that a reading of it is consistent.
#[derive(Default)]
struct ShardQueue {
    segments: VecDeque<Queued>,
    counters: Counters,
    delivered: u64,
    queued: u64,
    /// Queued entries, events included.
    depth: usize,
}

/// The queues of all shards.
pub(crate) struct Inbound {
    queues: Box<[Mutex<ShardQueue>]>,
    pub(crate) held: Held,
    pub(crate) registry: Arc<Registry>,
    /// Where the next drain starts, so that no shard is served last for ever.
    turn: AtomicUsize,
    waiting: AtomicUsize,
    woken: Mutex<bool>,
    arrived: Condvar,
    closed: AtomicBool,
}

impl Inbound {
    pub(crate) fn new(shards: usize, held: Held, registry: Arc<Registry>) -> Self {
        Self {
            queues: (0..shards).map(|_| Mutex::default()).collect(),
            held,
            registry,
            turn: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            woken: Mutex::new(false),
            arrived: Condvar::new(),
            closed: AtomicBool::new(false),
        }
    }

    fn queue(&self, shard: usize) -> MutexGuard<'_, ShardQueue> {
        // Whoever panicked under this lock left whole values behind: nothing under it can fail half-way.
        self.queues[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A shard's round: hands over what arrived and publishes its counters. `counters` include what is handed over.
    pub(crate) fn push(&self, shard: usize, arrived: &mut Vec<Queued>, counters: &Counters) {
        let any = !arrived.is_empty();
        let (mut entries, mut bytes) = (0, 0);
        let mut queue = self.queue(shard);
        for queued in arrived.drain(..) {
            entries += queued.segment.entries.len();
            bytes += queued.bytes;
            queue.queued += queued.messages as u64;
            queue.segments.push_back(queued);
        }
        queue.depth += entries;
        queue.counters = *counters;
        // Charged before anyone can drain it, or the release could come first.
        self.held.charge(entries, bytes);
        drop(queue);
        if any && self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        let _waiting = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        self.arrived.notify_one();
    }

    /// Takes what is ready, up to `limit` entries, waiting up to `timeout` for the first.
    pub(crate) fn drain(self: &Arc<Self>, limit: usize, timeout: Duration) -> Batch {
        let batch = self.take(limit);
        if !batch.is_empty() || timeout.is_zero() || limit == 0 || self.closed.load(Ordering::SeqCst) {
            return batch;
        }
        let deadline = Instant::now() + timeout;
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        // Announced before looking again: a shard that pushes later sees it and wakes us.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let batch = loop {
            let batch = self.take(limit);
            let left = deadline.saturating_duration_since(Instant::now());
            if !batch.is_empty() || left.is_zero() || *woken || self.closed.load(Ordering::SeqCst) {
                break batch;
            }
            woken = self.arrived.wait_timeout(woken, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        *woken = false;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        batch
    }

    /// Makes a waiting drain return early; if none is waiting, the next one that would wait.
    pub(crate) fn wake_drain(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.arrived.notify_all();
    }

    /// Nothing will arrive any more: drains take what is there and don't wait.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake_drain();
    }

    fn take(self: &Arc<Self>, limit: usize) -> Batch {
        let mut batch = Batch::empty();
        let mut lease = Lease { inbound: Arc::clone(self), messages: 0, bytes: 0, has_disconnects: false };
        let shards = self.queues.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        for turn in 0..shards {
            let mut queue = self.queue((first + turn) % shards);
            while batch.len < limit {
                let Some(mut next) = queue.segments.pop_front() else { break };
                let room = limit - batch.len;
                if next.segment.entries.len() > room {
                    let front = next.split_front(room);
                    queue.segments.push_front(next);
                    next = front;
                }
                queue.delivered += next.messages as u64;
                queue.queued -= next.messages as u64;
                queue.depth -= next.segment.entries.len();
                batch.push(next, &mut lease);
            }
        }
        if !batch.is_empty() {
            batch.lease = Some(lease);
        }
        batch
    }

    /// A consistent reading of each shard's books.
    pub(crate) fn readings(&self) -> Vec<ShardReading> {
        (0..self.queues.len())
            .map(|shard| {
                let ShardQueue { counters, delivered, queued, depth, .. } = *self.queue(shard);
                ShardReading { counters, delivered, queued, depth }
            })
            .collect()
    }
}
