//! Queues that give the most urgent first. Pure: the caller brings the clock.
//!
//! [`PriorityQueue`] takes any priority and refuses when full; [`MessageQueue`] has the protocol's five levels and makes
//! room by dropping the least urgent.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
};

/// The protocol's levels, the most urgent first: critical, high, normal, low, background.
pub const LEVELS: [i64; 5] = [10, 8, 5, 3, 1];
/// How many of [`LEVELS`], from the end, give way when there is no room: 5, 3 and 1.
const YIELDING: std::ops::Range<usize> = 2..5;
/// The largest queue.
pub const MAXIMAL_SIZE: usize = 10_000_000;
/// Above this share of its capacity a queue asks its producers to slow down.
const BACKPRESSURE: f64 = 0.8;

/// Why there is no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// More than a queue may hold.
    #[error("max_size is {0}: give 0 to {MAXIMAL_SIZE}")]
    Size(usize),
    /// A batch of nothing would never empty it.
    #[error("batch_size is 0: give at least 1")]
    Batch,
}

fn checked_size(size: usize) -> Result<usize, QueueError> {
    if size > MAXIMAL_SIZE { Err(QueueError::Size(size)) } else { Ok(size) }
}

#[derive(Debug)]
struct Waiting<M> {
    /// The greatest comes first: the highest priority, of equals the one that came first.
    rank: (i64, Reverse<u64>),
    message: M,
}

impl<M> PartialEq for Waiting<M> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<M> Eq for Waiting<M> {}

impl<M> PartialOrd for Waiting<M> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Waiting<M> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

/// The highest number first; of equals the one that came first.
#[derive(Debug)]
pub struct PriorityQueue<M> {
    heap: BinaryHeap<Waiting<M>>,
    size: usize,
    arrivals: u64,
}

impl<M> PriorityQueue<M> {
    /// A queue for `size` messages.
    ///
    /// # Errors
    /// When that is too many.
    pub fn new(size: usize) -> Result<Self, QueueError> {
        Ok(Self { heap: BinaryHeap::new(), size: checked_size(size)?, arrivals: 0 })
    }

    /// Takes a message.
    ///
    /// # Errors
    /// When it is full: the message comes back.
    pub fn push(&mut self, priority: i64, message: M) -> Result<(), M> {
        if self.is_full() {
            return Err(message);
        }
        self.heap.push(Waiting { rank: (priority, Reverse(self.arrivals)), message });
        self.arrivals += 1;
        Ok(())
    }

    /// The most urgent message.
    pub fn pop(&mut self) -> Option<M> {
        self.heap.pop().map(|waiting| waiting.message)
    }

    /// At most so many messages, the most urgent first.
    pub fn drain(&mut self, maximum: usize) -> Vec<M> {
        let count = maximum.min(self.heap.len());
        (0..count).filter_map(|_| self.pop()).collect()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Whether no further message is taken.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.heap.len() >= self.size
    }

    /// The messages that wait, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &M> {
        self.heap.iter().map(|waiting| &waiting.message)
    }

    /// Takes all messages out, in no order.
    pub fn clear(&mut self) -> Vec<M> {
        std::mem::take(&mut self.heap).into_iter().map(|waiting| waiting.message).collect()
    }
}

/// The index of the level nearest to `priority`; of two that are as near, the more urgent.
fn level(priority: i64) -> usize {
    let near = LEVELS.iter().enumerate().min_by_key(|(_, level)| priority.abs_diff(**level));
    near.map_or(0, |(index, _)| index)
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Enqueued<M> {
    /// It waits.
    Accepted,
    /// It waits, in the place of this one.
    Replaced(M),
    /// There is no room, and nothing that would give way: here it is again.
    Refused(M),
}

/// What a queue looks like. Arrays are in the order of [`LEVELS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueStats {
    /// How many wait.
    pub size: usize,
    /// How many may.
    pub capacity: usize,
    /// How many of each level wait.
    pub depths: [usize; 5],
    /// How many of each level were dropped so far.
    pub dropped: [u64; 5],
    /// For how long the oldest has waited, in seconds.
    pub oldest_age_seconds: Option<f64>,
}

impl QueueStats {
    /// How full it is, from 0 to 1; an empty queue without capacity is full.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        if self.capacity == 0 { 1.0 } else { self.size as f64 / self.capacity as f64 }
    }

    /// Whether producers should slow down.
    #[must_use]
    pub fn backpressure(&self) -> bool {
        self.utilization() > BACKPRESSURE
    }
}

/// Five levels, each first in, first out.
#[derive(Debug)]
pub struct MessageQueue<M> {
    levels: [VecDeque<(M, f64)>; 5],
    size: usize,
    capacity: usize,
    batch: usize,
    dropped: [u64; 5],
}

impl<M> MessageQueue<M> {
    /// A queue for `capacity` messages that come out `batch` at a time.
    ///
    /// # Errors
    /// When one of them is out of bounds.
    pub fn new(capacity: usize, batch: usize) -> Result<Self, QueueError> {
        if batch == 0 {
            return Err(QueueError::Batch);
        }
        let levels = std::array::from_fn(|_| VecDeque::new());
        Ok(Self { levels, size: 0, capacity: checked_size(capacity)?, batch, dropped: [0; 5] })
    }

    /// Takes a message at the level nearest to `priority`. Where there is no room, the oldest of the least urgent level
    /// gives way, even to one that is less urgent still; critical and high ones never do.
    pub fn enqueue(&mut self, message: M, priority: i64, now_seconds: f64) -> Enqueued<M> {
        let level = level(priority);
        let mut replaced = None;
        if self.size >= self.capacity {
            let Some((index, oldest)) = self.yielding() else {
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

    /// Takes out the message that gives way, if one does.
    fn yielding(&mut self) -> Option<(usize, M)> {
        let levels = &mut self.levels;
        YIELDING.rev().find_map(|index| levels[index].pop_front().map(|(message, _)| (index, message)))
    }

    /// The next batch, the most urgent first, each with its level.
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

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.size
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The messages that wait, the most urgent first.
    pub fn iter(&self) -> impl Iterator<Item = &M> {
        self.levels.iter().flatten().map(|(message, _)| message)
    }

    /// Takes all messages out. What was counted stays.
    pub fn clear(&mut self) -> Vec<M> {
        self.size = 0;
        self.levels.iter_mut().flat_map(std::mem::take).map(|(message, _)| message).collect()
    }

    /// What it looks like now.
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
    fn the_highest_comes_first_and_of_equals_the_earliest() {
        let mut queue = PriorityQueue::new(4).unwrap();
        for (priority, message) in [(5, 'a'), (10, 'b'), (5, 'c'), (-3, 'd')] {
            assert_eq!(queue.push(priority, message), Ok(()));
        }
        assert_eq!((queue.push(99, 'e'), queue.is_full(), queue.len()), (Err('e'), true, 4));
        assert_eq!((queue.pop(), queue.drain(2), queue.drain(9)), (Some('b'), vec!['a', 'c'], vec!['d']));
        assert_eq!((queue.pop(), queue.is_empty()), (None, true));
    }

    #[test]
    fn a_cleared_queue_gives_its_messages_back_and_takes_new_ones() {
        let mut queue = PriorityQueue::new(2).unwrap();
        assert_eq!((queue.push(1, 'a'), queue.push(2, 'b')), (Ok(()), Ok(())));
        assert_eq!(queue.iter().count(), 2);
        assert_eq!(queue.clear().len(), 2);
        assert_eq!((queue.is_empty(), queue.push(1, 'c'), queue.pop()), (true, Ok(()), Some('c')));
    }

    #[test]
    fn a_queue_without_room_takes_nothing_and_one_too_large_is_none() {
        assert_eq!(PriorityQueue::new(0).unwrap().push(1, 'a'), Err('a'));
        assert_eq!(PriorityQueue::<u8>::new(MAXIMAL_SIZE + 1).unwrap_err(), QueueError::Size(MAXIMAL_SIZE + 1));
        assert_eq!(MessageQueue::<u8>::new(MAXIMAL_SIZE + 1, 1).unwrap_err(), QueueError::Size(MAXIMAL_SIZE + 1));
        assert_eq!(MessageQueue::<u8>::new(1, 0).unwrap_err(), QueueError::Batch);
    }

    #[test]
    fn a_priority_becomes_the_nearest_level_and_a_tie_the_more_urgent() {
        let named = |priority| LEVELS[level(priority)];
        let levels: Vec<i64> = (-1..=12).map(named).collect();
        assert_eq!(levels, [1, 1, 1, 3, 3, 5, 5, 5, 8, 8, 10, 10, 10, 10]);
        assert_eq!((named(i64::MIN), named(i64::MAX)), (1, 10));
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
    fn even_a_less_urgent_newcomer_takes_the_place_of_a_normal_message() {
        let mut queue = queue_of(&[5, 5]);
        assert_eq!(queue.enqueue(9, 1, 0.0), Enqueued::Replaced(0));
        assert_eq!(queue.enqueue(10, 1, 0.0), Enqueued::Replaced(9));
        assert_eq!(queue.dequeue_batch(), [(5, 1), (1, 10)]);
    }

    #[test]
    fn critical_and_high_messages_stay_and_the_newcomer_goes() {
        let mut queue = queue_of(&[10, 8]);
        assert_eq!(queue.enqueue(7, 10, 0.0), Enqueued::Refused(7));
        assert_eq!(queue.enqueue(8, 1, 0.0), Enqueued::Refused(8));
        assert_eq!(queue.stats(0.0).dropped, [1, 0, 0, 0, 1]);
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn a_batch_is_the_most_urgent_in_their_order() {
        let mut queue = MessageQueue::new(10, 3).unwrap();
        for (message, priority) in [('a', 1), ('b', 5), ('c', 10), ('d', 5), ('e', 10)] {
            queue.enqueue(message, priority, 0.0);
        }
        assert_eq!(queue.dequeue_batch(), [(10, 'c'), (10, 'e'), (5, 'b')]);
        assert_eq!(queue.dequeue_batch(), [(5, 'd'), (1, 'a')]);
        assert_eq!((queue.dequeue_batch(), queue.is_empty()), (vec![], true));
    }

    #[test]
    fn its_books_say_how_full_it_is_and_how_long_the_oldest_waits() {
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
        fn it_comes_out_as_a_stable_sort_would_have_it(priorities in prop::collection::vec(-20..20i64, 0..60)) {
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
        fn every_message_is_waiting_came_out_or_was_dropped(
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
