//! Queues that return the most urgent message first. They have no side effects; the caller passes the time.
//!
//! [`PriorityQueue`] accepts any priority and refuses messages when it is full. [`MessageQueue`] has the five levels of
//! the protocol and makes room by dropping the least urgent message.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
};

/// The priority levels of the protocol, the most urgent first: critical, high, normal, low, background.
pub const LEVELS: [i64; 5] = [10, 8, 5, 3, 1];
/// The indexes in [`LEVELS`] whose messages may be dropped when a queue is full: levels 5, 3 and 1.
const DROPPABLE_LEVELS: std::ops::Range<usize> = 2..5;
/// The largest capacity of a queue, in messages.
pub const MAX_SIZE: usize = 10_000_000;
/// The utilization above which a queue reports backpressure: producers should slow down.
const BACKPRESSURE: f64 = 0.8;

/// Why a queue can't be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The capacity is larger than [`MAX_SIZE`].
    #[error("max_size is {0}: give 0 to {MAX_SIZE}")]
    Size(usize),
    /// The batch size is 0, so batches would never empty the queue.
    #[error("batch_size is 0: give at least 1")]
    Batch,
}

fn checked_size(size: usize) -> Result<usize, QueueError> {
    if size > MAX_SIZE { Err(QueueError::Size(size)) } else { Ok(size) }
}

#[derive(Debug)]
struct QueuedMessage<M> {
    /// The order in the heap, greatest first: the highest priority, and of equal priorities the earliest arrival.
    rank: (i64, Reverse<u64>),
    message: M,
}

impl<M> PartialEq for QueuedMessage<M> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<M> Eq for QueuedMessage<M> {}

impl<M> PartialOrd for QueuedMessage<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for QueuedMessage<M> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

/// A bounded queue that returns the highest priority first, and of equal priorities the earliest arrival.
#[derive(Debug)]
pub struct PriorityQueue<M> {
    heap: BinaryHeap<QueuedMessage<M>>,
    size: usize,
    arrivals: u64,
}

impl<M> PriorityQueue<M> {
    /// An empty queue with room for `size` messages.
    ///
    /// # Errors
    /// Returns [`QueueError::Size`] if `size` is larger than [`MAX_SIZE`].
    pub fn new(size: usize) -> Result<Self, QueueError> {
        Ok(Self { heap: BinaryHeap::new(), size: checked_size(size)?, arrivals: 0 })
    }

    /// Adds a message behind those of the same priority.
    ///
    /// # Errors
    /// Returns the message if the queue is full.
    pub fn push(&mut self, priority: i64, message: M) -> Result<(), M> {
        if self.is_full() {
            return Err(message);
        }
        self.heap.push(QueuedMessage { rank: (priority, Reverse(self.arrivals)), message });
        self.arrivals += 1;
        Ok(())
    }

    /// Removes and returns the most urgent message; `None` if the queue is empty.
    pub fn pop(&mut self) -> Option<M> {
        self.heap.pop().map(|queued| queued.message)
    }

    /// Removes and returns at most `maximum` messages, the most urgent first.
    pub fn drain(&mut self, maximum: usize) -> Vec<M> {
        let count = maximum.min(self.heap.len());
        (0..count).filter_map(|_| self.pop()).collect()
    }

    /// The number of messages in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether the queue has no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Whether the queue is at its capacity and refuses messages.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.heap.len() >= self.size
    }

    /// The messages in the queue, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &M> {
        self.heap.iter().map(|queued| &queued.message)
    }

    /// Removes and returns all messages, in no particular order.
    pub fn clear(&mut self) -> Vec<M> {
        std::mem::take(&mut self.heap).into_iter().map(|queued| queued.message).collect()
    }
}

/// The index of the level nearest to `priority`; the more urgent of two that are equally near.
fn level(priority: i64) -> usize {
    let nearest = LEVELS.iter().enumerate().min_by_key(|(_, level)| priority.abs_diff(**level));
    nearest.map_or(0, |(index, _)| index)
}

/// The outcome of adding a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Enqueued<M> {
    /// The message is in the queue.
    Accepted,
    /// The message is in the queue, and this one was dropped to make room.
    Replaced(M),
    /// The queue is full of messages that can't be dropped. This is the message that was refused.
    Refused(M),
}

/// The state of a queue. Arrays are in the order of [`LEVELS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueStats {
    /// The number of messages in the queue.
    pub size: usize,
    /// The largest number of messages that the queue may hold.
    pub capacity: usize,
    /// The number of messages of each level in the queue.
    pub depths: [usize; 5],
    /// The number of messages of each level that were dropped or refused since the queue was created.
    pub dropped: [u64; 5],
    /// How long the oldest message has been in the queue, in seconds; `None` if the queue is empty.
    pub oldest_age_seconds: Option<f64>,
}

impl QueueStats {
    /// How full the queue is, from 0 to 1; 1 for a queue with capacity 0.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        if self.capacity == 0 { 1.0 } else { self.size as f64 / self.capacity as f64 }
    }

    /// Whether the queue is more than 80 % full, so that producers should slow down.
    #[must_use]
    pub fn backpressure(&self) -> bool {
        self.utilization() > BACKPRESSURE
    }
}

/// A bounded queue with the five priority levels of the protocol. Each level is first in, first out.
#[derive(Debug)]
pub struct MessageQueue<M> {
    levels: [VecDeque<(M, f64)>; 5],
    size: usize,
    capacity: usize,
    batch: usize,
    dropped: [u64; 5],
}

impl<M> MessageQueue<M> {
    /// An empty queue with room for `capacity` messages, which are taken out `batch` at a time.
    ///
    /// # Errors
    /// Returns [`QueueError::Batch`] if `batch` is 0, and [`QueueError::Size`] if `capacity` is larger than
    /// [`MAX_SIZE`].
    pub fn new(capacity: usize, batch: usize) -> Result<Self, QueueError> {
        if batch == 0 {
            return Err(QueueError::Batch);
        }
        let levels = std::array::from_fn(|_| VecDeque::new());
        Ok(Self { levels, size: 0, capacity: checked_size(capacity)?, batch, dropped: [0; 5] })
    }

    /// Adds a message at the level nearest to `priority`. A full queue drops the oldest message of its least urgent
    /// level, even for a message that is less urgent. Critical and high messages are never dropped.
    pub fn enqueue(&mut self, message: M, priority: i64, now_seconds: f64) -> Enqueued<M> {
        let level = level(priority);
        let mut replaced = None;
        if self.size >= self.capacity {
            let Some((index, oldest)) = self.take_droppable() else {
                self.dropped[level] += 1;
                return Enqueued::Refused(message);
            };
            self.dropped[index] += 1;
            self.size -= 1;
            replaced = Some(oldest);
        }
        self.levels[level].push_back((message, now_seconds));
        self.size += 1;
        replaced.map_or(Enqueued::Accepted, Enqueued::Replaced)
    }

    /// Removes the message that may be dropped to make room; `None` if there are only critical and high ones.
    fn take_droppable(&mut self) -> Option<(usize, M)> {
        let levels = &mut self.levels;
        DROPPABLE_LEVELS.rev().find_map(|index| levels[index].pop_front().map(|(message, _)| (index, message)))
    }

    /// Removes and returns the next batch, the most urgent first, each message with its level.
    pub fn dequeue_batch(&mut self) -> Vec<(i64, M)> {
        let count = self.batch.min(self.size);
        let mut batch = Vec::with_capacity(count);
        for (level, queue) in LEVELS.iter().zip(&mut self.levels) {
            let taken = queue.len().min(count - batch.len());
            batch.extend(queue.drain(..taken).map(|(message, _)| (*level, message)));
        }
        self.size -= batch.len();
        batch
    }

    /// The number of messages in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.size
    }

    /// Whether the queue has no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The messages in the queue, the most urgent first.
    pub fn iter(&self) -> impl Iterator<Item = &M> {
        self.levels.iter().flatten().map(|(message, _)| message)
    }

    /// Removes and returns all messages. Counters are kept.
    pub fn clear(&mut self) -> Vec<M> {
        self.size = 0;
        self.levels.iter_mut().flat_map(std::mem::take).map(|(message, _)| message).collect()
    }

    /// The current state, for statistics.
    #[must_use]
    pub fn stats(&self, now_seconds: f64) -> QueueStats {
        let oldest = self.levels.iter().filter_map(|queue| queue.front()).map(|(_, at)| *at).reduce(f64::min);
        QueueStats {
            size: self.size,
            capacity: self.capacity,
            depths: std::array::from_fn(|index| self.levels[index].len()),
            dropped: self.dropped,
            oldest_age_seconds: oldest.map(|at| (now_seconds - at).max(0.0)),
        }
    }
}

#[cfg(test)]
mod tests;
