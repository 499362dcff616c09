//! From the shards to the application: queues of segments, and the batches that are drained from them.
//!
//! A lock is taken once per epoll round and once per drain, never per message.

mod batch;
mod segment;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;

use self::batch::Lease;
pub use self::{
    batch::Batch,
    segment::{Entry, Kind, Message, Segment},
};
use crate::{
    key::ConnectionKey,
    limits::InboundUsage,
    registry::Registry,
    returns::Returns,
    runs::Runs,
    stats::{Counters, ShardReading},
};

/// A segment on its way to the application, with what is charged for it.
pub(crate) struct Queued {
    pub(crate) segment: Segment,
    /// The bytes charged to it; a blob that several segments share is charged to one of them.
    pub(crate) bytes: usize,
    /// The number of entries that are messages.
    pub(crate) messages: usize,
    /// Whose messages they are.
    pub(crate) runs: Runs,
    pub(crate) has_disconnects: bool,
}

impl Queued {
    /// Cuts off the first `count` entries. The blob's bytes stay charged to the rest, which keeps the blob alive.
    fn split_front(&mut self, count: usize) -> Self {
        let rest = self.segment.entries.split_off(count);
        let front = std::mem::replace(&mut self.segment.entries, rest);
        let has_events = self.messages < count + self.segment.entries.len();
        let is_message = |entry: &&Entry| entry.kind.is_message();
        let messages = if has_events { front.iter().filter(is_message).count() } else { count };
        self.messages -= messages;
        let runs = self.runs.split_front(messages);
        let segment = Segment { blob: self.segment.blob.clone(), entries: front };
        Self { segment, bytes: 0, messages, runs, has_disconnects: self.has_disconnects }
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
        let mut lease =
            Lease { inbound: Arc::clone(self), messages: 0, bytes: 0, runs: Runs::default(), has_disconnects: false };
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
    /// far as they are queued. Returns how many messages it removed, and the bytes that its share was charged for them.
    ///
    /// A blob is released with its last entry; until then its bytes stay charged.
    pub(crate) fn evict(&self, connection: ConnectionKey, messages: usize, bytes: usize) -> (usize, usize) {
        let mut queue = self.queue(connection.shard());
        let ShardQueue { segments, queued, depth, .. } = &mut *queue;
        let (mut evicted, mut evicted_bytes, mut charged_bytes, mut freed_bytes) = (0, 0, 0, 0);
        for segment in segments.iter_mut() {
            if evicted >= messages && evicted_bytes >= bytes {
                break;
            }
            let before = evicted;
            segment.segment.entries.retain(|entry| {
                let is_evicted = entry.connection == connection
                    && entry.kind.is_message()
                    && (evicted < messages || evicted_bytes < bytes);
                evicted += usize::from(is_evicted);
                evicted_bytes += if is_evicted { (entry.end - entry.start) as usize } else { 0 };
                !is_evicted
            });
            segment.messages -= evicted - before;
            charged_bytes += segment.runs.remove(connection, evicted - before);
            if segment.segment.entries.is_empty() {
                freed_bytes += std::mem::take(&mut segment.bytes);
                segment.segment.blob = Bytes::new();
            }
        }
        segments.retain(|segment| !segment.segment.entries.is_empty());
        *queued -= evicted as u64;
        *depth -= evicted;
        drop(queue);
        self.usage.release(evicted, freed_bytes);
        (evicted, charged_bytes)
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
