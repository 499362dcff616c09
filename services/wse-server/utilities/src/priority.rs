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
pub const MAXIMAL_SIZE: usize = 10_000_000;
/// The utilization above which a queue reports backpressure: producers should slow down.
const BACKPRESSURE: f64 = 0.8;

/// Why a queue can't be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The capacity is larger than [`MAXIMAL_SIZE`].
    #[error("max_size is {0}: give 0 to {MAXIMAL_SIZE}")]
    Size(usize),
    /// The batch size is 0, so batches would never empty the queue.
    #[error("batch_size is 0: give at least 1")]
    Batch,
}

fn checked_size(size: usize) -> Result<usize, QueueError> {
    if size > MAXIMAL_SIZE { Err(QueueError::Size(size)) } else { Ok(size) }
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
    /// Returns [`QueueError::Size`] if `size` is larger than [`MAXIMAL_SIZE`].
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
    /// [`MAXIMAL_SIZE`].
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_highest_priority_is_first_and_among_equals_the_earliest() {
        let mut queue = PriorityQueue::new(4).unwrap();
        for (priority, message) in [(5, 'a'), (10, 'b'), (5, 'c'), (-3, 'd')] {
            assert_eq!(queue.push(priority, message), Ok(()));
        }
        assert_eq!((queue.push(99, 'e'), queue.is_full(), queue.len()), (Err('e'), true, 4));
        assert_eq!((queue.pop(), queue.drain(2), queue.drain(9)), (Some('b'), vec!['a', 'c'], vec!['d']));
        assert_eq!((queue.pop(), queue.is_empty()), (None, true));
    }

    #[test]
    fn a_cleared_queue_returns_its_messages_and_accepts_new_ones() {
        let mut queue = PriorityQueue::new(2).unwrap();
        assert_eq!((queue.push(1, 'a'), queue.push(2, 'b')), (Ok(()), Ok(())));
        assert_eq!(queue.iter().count(), 2);
        assert_eq!(queue.clear().len(), 2);
        assert_eq!((queue.is_empty(), queue.push(1, 'c'), queue.pop()), (true, Ok(()), Some('c')));
    }

    #[test]
    fn a_queue_of_size_0_accepts_no_message_and_too_large_a_size_is_refused() {
        assert_eq!(PriorityQueue::new(0).unwrap().push(1, 'a'), Err('a'));
        assert_eq!(PriorityQueue::<u8>::new(MAXIMAL_SIZE + 1).unwrap_err(), QueueError::Size(MAXIMAL_SIZE + 1));
        assert_eq!(MessageQueue::<u8>::new(MAXIMAL_SIZE + 1, 1).unwrap_err(), QueueError::Size(MAXIMAL_SIZE + 1));
        assert_eq!(MessageQueue::<u8>::new(1, 0).unwrap_err(), QueueError::Batch);
    }

    #[test]
    fn a_priority_is_rounded_to_the_nearest_level_and_a_tie_to_the_more_urgent() {
        let level_of = |priority| LEVELS[level(priority)];
        let levels: Vec<i64> = (-1..=12).map(level_of).collect();
        assert_eq!(levels, [1, 1, 1, 3, 3, 5, 5, 5, 8, 8, 10, 10, 10, 10]);
        assert_eq!((level_of(i64::MIN), level_of(i64::MAX)), (1, 10));
    }

    fn queue_of(priorities: &[i64]) -> MessageQueue<i64> {
        let mut queue = MessageQueue::new(priorities.len(), 10).unwrap();
        for (message, priority) in (0..).zip(priorities) {
            assert_eq!(queue.enqueue(message, *priority, 0.0), Enqueued::Accepted);
        }
        queue
    }

    #[test]
    fn a_full_queue_drops_the_oldest_of_its_least_urgent_level() {
        let mut queue = queue_of(&[5, 3, 1, 1, 10]);
        let replaced: Vec<_> = (0..4).map(|message| queue.enqueue(100 + message, 10, 0.0)).collect();
        assert_eq!(replaced, [2, 3, 1, 0].map(Enqueued::Replaced));
        assert_eq!(queue.stats(0.0).dropped, [0, 0, 1, 1, 2]);
    }

    #[test]
    fn even_a_less_urgent_new_message_replaces_a_normal_one() {
        let mut queue = queue_of(&[5, 5]);
        assert_eq!(queue.enqueue(9, 1, 0.0), Enqueued::Replaced(0));
        assert_eq!(queue.enqueue(10, 1, 0.0), Enqueued::Replaced(9));
        assert_eq!(queue.dequeue_batch(), [(5, 1), (1, 10)]);
    }

    #[test]
    fn critical_and_high_messages_stay_and_the_new_one_is_dropped() {
        let mut queue = queue_of(&[10, 8]);
        assert_eq!(queue.enqueue(7, 10, 0.0), Enqueued::Refused(7));
        assert_eq!(queue.enqueue(8, 1, 0.0), Enqueued::Refused(8));
        assert_eq!(queue.stats(0.0).dropped, [1, 0, 0, 0, 1]);
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn a_batch_has_the_most_urgent_messages_in_order() {
        let mut queue = MessageQueue::new(10, 3).unwrap();
        for (message, priority) in [('a', 1), ('b', 5), ('c', 10), ('d', 5), ('e', 10)] {
            queue.enqueue(message, priority, 0.0);
        }
        assert_eq!(queue.dequeue_batch(), [(10, 'c'), (10, 'e'), (5, 'b')]);
        assert_eq!(queue.dequeue_batch(), [(5, 'd'), (1, 'a')]);
        assert_eq!((queue.dequeue_batch(), queue.is_empty()), (vec![], true));
    }

    #[test]
    fn the_stats_have_the_utilization_and_the_age_of_the_oldest_message() {
        let mut queue = MessageQueue::new(5, 10).unwrap();
        assert_eq!(queue.stats(9.0).oldest_age_seconds, None);
        for (message, at) in [(5, 2.0), (10, 1.0), (1, 3.0), (5, 4.0)] {
            queue.enqueue(message, message, at);
        }
        let stats = queue.stats(9.0);
        assert_eq!((stats.size, stats.capacity, stats.depths), (4, 5, [1, 0, 2, 0, 1]));
        assert_eq!((stats.oldest_age_seconds, stats.utilization(), stats.backpressure()), (Some(8.0), 0.8, false));
        queue.enqueue(1, 1, 9.0);
        assert!(queue.stats(9.0).backpressure());
        queue.enqueue(1, 1, 9.0);
        assert!(queue.iter().eq(&[10, 5, 5, 1, 1]));
        assert_eq!(queue.clear().len(), 5);
        assert_eq!((queue.stats(9.0).size, queue.stats(9.0).dropped), (0, [0, 0, 0, 0, 1]));
        assert_eq!(MessageQueue::<u8>::new(0, 1).unwrap().stats(0.0).utilization(), 1.0);
    }

    proptest! {
        #[test]
        fn messages_leave_the_queue_in_the_order_of_a_stable_sort(priorities in prop::collection::vec(-20..20i64, 0..60)) {
            let mut queue = PriorityQueue::new(100).unwrap();
            let mut expected: Vec<(i64, usize)> = Vec::new();
            for (index, priority) in priorities.into_iter().enumerate() {
                prop_assert!(queue.push(priority, index).is_ok());
                expected.push((priority, index));
            }
            expected.sort_by_key(|(priority, _)| Reverse(*priority));
            prop_assert_eq!(queue.drain(100), expected.into_iter().map(|(_, index)| index).collect::<Vec<_>>());
        }

        #[test]
        fn every_message_is_queued_dequeued_or_dropped(
            capacity in 0..8usize,
            batch in 1..5usize,
            steps in prop::collection::vec(prop::option::of(-2..14i64), 0..100),
        ) {
            let mut queue = MessageQueue::new(capacity, batch).unwrap();
            let (mut taken, mut out) = (0, 0);
            for step in steps {
                match step {
                    Some(priority) => {
                        taken += 1;
                        queue.enqueue(priority, priority, 0.0);
                    }
                    None => {
                        let messages = queue.dequeue_batch();
                        prop_assert!(messages.len() <= batch);
                        prop_assert!(messages.is_sorted_by(|(a, _), (b, _)| a >= b));
                        out += messages.len() as u64;
                    }
                }
                let stats = queue.stats(0.0);
                prop_assert!(stats.size <= capacity && stats.size == stats.depths.iter().sum::<usize>());
                prop_assert_eq!(taken, out + stats.size as u64 + stats.dropped.iter().sum::<u64>());
            }
        }
    }
}
