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
    assert_eq!(PriorityQueue::<u8>::new(MAX_SIZE + 1).unwrap_err(), QueueError::Size(MAX_SIZE + 1));
    assert_eq!(MessageQueue::<u8>::new(MAX_SIZE + 1, 1).unwrap_err(), QueueError::Size(MAX_SIZE + 1));
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
