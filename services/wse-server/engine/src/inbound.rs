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
    limits::InboundUsage,
    registry::Registry,
    returns::{self, Returned, Returns},
    stats::{Counters, ShardReading},
};

/// The kind of an entry in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A connection opened without a check of its token: the data is its cookie header, the type its id. The
    /// application sends the `server_ready`.
    Connect,
    /// A connection opened with a valid token: the data is the user's id, the type the connection's id.
    AuthConnect,
    /// The text of a JSON object, without the legacy prefix. Malformed JSON is detected only when the application
    /// parses it.
    Json,
    /// Validated MessagePack, without its prefix.
    MessagePack,
    /// Text that is not a JSON object, unchanged.
    Raw,
    /// A binary frame that is none of the above.
    Binary,
    /// A user joined a topic: the data is a JSON object of topic, user and the user's presence data. It belongs to no
    /// connection.
    PresenceJoin,
    /// A user left a topic; otherwise as [`Kind::PresenceJoin`].
    PresenceLeave,
    /// The connection is closed: no data, the type is its id. It is the connection's last entry.
    Disconnect,
}

impl Kind {
    /// Whether it is a message from the client, not an event of a connection or of presence.
    pub fn is_message(self) -> bool {
        !matches!(self, Self::Connect | Self::AuthConnect | Self::Disconnect | Self::PresenceJoin | Self::PresenceLeave)
    }
}

/// One message or event, as offsets into its segment's blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The connection that it belongs to.
    pub connection: ConnectionKey,
    /// The offset of the data, in bytes.
    pub start: u32,
    /// The offset at which the data ends, in bytes.
    pub end: u32,
    /// The offset of the type, in bytes.
    pub type_start: u32,
    /// The length of the type, in bytes; 0 if there is none.
    pub type_len: u16,
    /// The kind of message or event.
    pub kind: Kind,
}

/// Messages that share one blob.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The bytes as they came off the wire, unmasked in place, with frame headers between the messages.
    pub blob: Bytes,
    /// The messages, in order of arrival.
    pub entries: Vec<Entry>,
}

impl Segment {
    /// The bytes of the type of `entry`, which must belong to this segment; empty if it has none.
    #[inline]
    pub fn label(&self, entry: &Entry) -> &[u8] {
        let start = entry.type_start as usize;
        &self.blob[start..start + usize::from(entry.type_len)]
    }

    /// The message that `entry`, which must belong to this segment, describes.
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

/// One message of a batch, borrowed from its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The kind of message or event.
    pub kind: Kind,
    /// The connection that it belongs to.
    pub connection: ConnectionKey,
    /// The data; its meaning depends on the kind.
    pub data: &'a [u8],
    /// The top-level `t` (or `type`) of a JSON object or a MessagePack map, if it is a string without escapes; for a
    /// connection event, the connection's id.
    pub message_type: Option<&'a str>,
}

/// Messages that were drained together. Dropping the batch releases their memory, after which a paused shard can read
/// on.
pub struct Batch {
    segments: Vec<Segment>,
    /// The index of each segment's first message in the batch.
    starts: Vec<usize>,
    len: usize,
    lease: Option<Lease>,
}

/// What a batch holds of the application's limits, and where it is released.
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
            let disconnected = self.segments.iter().flat_map(|segment| &segment.entries);
            lease
                .inbound
                .registry
                .forget(disconnected.filter(|entry| entry.kind == Kind::Disconnect).map(|e| e.connection));
        }
        let returned = count(&self.segments);
        // The blobs go first, because a woken shard needs its arenas.
        self.segments.clear();
        lease.inbound.usage.release(lease.messages, lease.bytes);
        returns::give_back(&returned, &lease.inbound.returns);
    }
}

/// A segment on its way to the application, with what is charged for it.
pub(crate) struct Queued {
    pub(crate) segment: Segment,
    /// The bytes charged to it; a blob that several segments share is charged to one of them.
    pub(crate) bytes: usize,
    /// The number of entries that are messages.
    pub(crate) messages: usize,
    pub(crate) has_disconnects: bool,
}

impl Queued {
    /// Cuts off the first `count` entries. The blob's bytes stay charged to the rest, which keeps the blob alive.
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
    /// The number of queued entries, events included.
    depth: usize,
}

/// The queues of all shards, and the drains that wait on them.
pub(crate) struct Inbound {
    queues: Box<[Mutex<ShardQueue>]>,
    pub(crate) usage: InboundUsage,
    /// What the application has released, by shard.
    pub(crate) returns: Box<[Returns]>,
    pub(crate) registry: Arc<Registry>,
    /// The shard at which the next drain starts. It moves on each time, so that no shard is always served last.
    turn: AtomicUsize,
    waiting: AtomicUsize,
    woken: Mutex<bool>,
    arrived: Condvar,
    closed: AtomicBool,
}

impl Inbound {
    pub(crate) fn new(usage: InboundUsage, returns: Box<[Returns]>, registry: Arc<Registry>) -> Self {
        Self {
            queues: returns.iter().map(|_| Mutex::default()).collect(),
            usage,
            returns,
            registry,
            turn: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            woken: Mutex::new(false),
            arrived: Condvar::new(),
            closed: AtomicBool::new(false),
        }
    }

    fn queue(&self, shard: usize) -> MutexGuard<'_, ShardQueue> {
        // A panic under this lock leaves complete values behind: nothing under it can fail half-way.
        self.queues[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over what arrived in a shard's round, and publishes its counters. `counters` include what is handed over.
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
        // Charged under the lock: a drain could otherwise release it first.
        self.usage.charge(entries, bytes);
        drop(queue);
        if any && self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    fn wake(&self) {
        let _waiting = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        self.arrived.notify_one();
    }

    /// Takes up to `limit` entries that are ready, and waits up to `timeout` for the first.
    pub(crate) fn drain(self: &Arc<Self>, limit: usize, timeout: Duration) -> Batch {
        let batch = self.take(limit);
        if !batch.is_empty() || timeout.is_zero() || limit == 0 || self.closed.load(Ordering::SeqCst) {
            return batch;
        }
        let deadline = Instant::now() + timeout;
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        // Announced before the queues are checked again: a shard that pushes later sees it and wakes this thread.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let batch = loop {
            let batch = self.take(limit);
            let remaining = deadline.saturating_duration_since(Instant::now());
            if !batch.is_empty() || remaining.is_zero() || *woken || self.closed.load(Ordering::SeqCst) {
                break batch;
            }
            woken = self.arrived.wait_timeout(woken, remaining).unwrap_or_else(PoisonError::into_inner).0;
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

    /// Marks the end of input: drains take what is queued and no longer wait.
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

    /// Removes the oldest queued messages of a connection: at least `messages` of them, and as many as hold `bytes`, as
    /// far as they are queued. Returns how many messages and bytes of data it removed.
    ///
    /// A blob is released with its last entry; until then its bytes stay charged.
    pub(crate) fn evict(&self, connection: ConnectionKey, messages: usize, bytes: usize) -> (usize, usize) {
        let mut queue = self.queue(connection.shard());
        let ShardQueue { segments, queued, depth, .. } = &mut *queue;
        let (mut disconnected, mut gone_bytes, mut freed_bytes) = (0, 0, 0);
        for segment in segments.iter_mut() {
            if disconnected >= messages && gone_bytes >= bytes {
                break;
            }
            let before = disconnected;
            segment.segment.entries.retain(|entry| {
                let is_evicted = entry.connection == connection
                    && entry.kind.is_message()
                    && (disconnected < messages || gone_bytes < bytes);
                disconnected += usize::from(is_evicted);
                gone_bytes += if is_evicted { (entry.end - entry.start) as usize } else { 0 };
                !is_evicted
            });
            segment.messages -= disconnected - before;
            if segment.segment.entries.is_empty() {
                freed_bytes += std::mem::take(&mut segment.bytes);
                segment.segment.blob = Bytes::new();
            }
        }
        segments.retain(|segment| !segment.segment.entries.is_empty());
        *queued -= disconnected as u64;
        *depth -= disconnected;
        drop(queue);
        self.usage.release(disconnected, freed_bytes);
        (disconnected, gone_bytes)
    }

    /// How often the application has asked for messages.
    pub(crate) fn drains(&self) -> usize {
        self.turn.load(Ordering::Relaxed)
    }

    /// A consistent reading of each shard's counters.
    pub(crate) fn readings(&self) -> Vec<ShardReading> {
        (0..self.queues.len())
            .map(|shard| {
                let ShardQueue { counters, delivered, queued, depth, .. } = *self.queue(shard);
                ShardReading { counters, delivered, queued, depth }
            })
            .collect()
    }
}

/// Counts the messages of `segments`, run by run.
pub(crate) fn count(segments: &[Segment]) -> Vec<Returned> {
    let mut list: Vec<Returned> = Vec::new();
    for segment in segments {
        for entry in segment.entries.iter().filter(|entry| entry.kind.is_message()) {
            let bytes = (entry.end - entry.start) as usize;
            match list.last_mut() {
                Some(last) if last.connection == entry.connection => {
                    last.messages += 1;
                    last.bytes += bytes;
                }
                _ => list.push(Returned { connection: entry.connection, messages: 1, bytes }),
            }
        }
    }
    list
}
