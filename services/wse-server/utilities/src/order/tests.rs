use proptest::prelude::*;

use super::*;

fn sequencer(ahead: u64) -> EventSequencer<u64> {
    EventSequencer::new(10, ahead).unwrap()
}

/// Processes an event whose content is its number, and returns the numbers that are delivered.
fn take(sequencer: &mut EventSequencer<u64>, number: u64) -> Vec<u64> {
    let delivered = sequencer.process("x", number, number, 0.0).unwrap();
    delivered.into_iter().flat_map(|(event, released)| std::iter::once(event).chain(released)).collect()
}

#[test]
fn the_first_event_sets_the_first_number_of_a_topic() {
    let mut it = sequencer(2);
    assert_eq!(take(&mut it, 5), [5]);
    assert_eq!(take(&mut it, 6), [6]);
    assert_eq!(it.process("y", 1, 1, 0.0), Ok(Some((1, Vec::new()))));
    assert_eq!(it.counts(), OrderCounts::default());
}

#[test]
fn an_event_ahead_waits_for_those_before_it() {
    let mut it = sequencer(3);
    assert_eq!(take(&mut it, 5), [5]);
    for early in [8, 7, 9] {
        assert_eq!(take(&mut it, early), [0; 0]);
    }
    assert_eq!(it.buffered(), 3);
    assert_eq!(take(&mut it, 6), [6, 7, 8, 9]);
    assert_eq!(it.buffered(), 0);
    assert_eq!(it.counts(), OrderCounts { duplicates: 0, out_of_order: 3, dropped: 0 });
}

#[test]
fn late_and_duplicate_events_are_dropped_and_the_newer_of_two_pending_ones_stays() {
    let mut it = sequencer(5);
    for number in [5, 4, 5] {
        take(&mut it, number);
    }
    assert_eq!(it.counts().dropped, 2);
    assert_eq!(it.process("x", 7, 70, 0.0), Ok(None));
    assert_eq!(it.process("x", 7, 71, 0.0), Ok(None));
    assert_eq!((it.counts().dropped, it.buffered()), (3, 1));
    assert_eq!(it.process("x", 6, 6, 0.0), Ok(Some((6, vec![71]))));
}

#[test]
fn a_jump_beyond_the_window_starts_over_and_counts_the_skipped_numbers() {
    let mut it = sequencer(2);
    assert_eq!(take(&mut it, 1), [1]);
    assert_eq!(take(&mut it, 4), [0; 0]);
    assert_eq!(take(&mut it, 5), [5]);
    // 2 and 3 never arrived; 4 was buffered.
    assert_eq!((it.counts().dropped, it.buffered()), (3, 0));
    assert_eq!(take(&mut it, 6), [6]);
    assert_eq!(take(&mut it, 4), [0; 0]);
}

#[test]
fn a_window_of_zero_buffers_no_event() {
    let mut it = sequencer(0);
    assert_eq!(take(&mut it, 1), [1]);
    assert_eq!(take(&mut it, 3), [3]);
    assert_eq!(take(&mut it, 1 << 30), [1 << 30]);
}

#[test]
fn gaps_are_all_missing_numbers_before_buffered_events() {
    let mut it = sequencer(50);
    for number in [1, 5, 6, 9, 30] {
        take(&mut it, number);
    }
    let [topic] = &it.topics(7.0)[..] else { panic!("one topic") };
    assert_eq!((topic.topic.as_str(), topic.expected), ("x", 2));
    assert_eq!(topic.buffered, [5, 6, 9, 30]);
    assert_eq!(topic.oldest_age_seconds, Some(7.0));
    assert_eq!(topic.gaps().collect::<Vec<_>>(), [(2, 4), (7, 8), (10, 29)]);
}

#[test]
fn a_cleanup_drops_stale_events_and_forgets_idle_topics() {
    let mut it = sequencer(50);
    for (number, at) in [(1, 0.0), (3, 0.0), (5, 200.0)] {
        it.process("x", number, number, at).unwrap();
    }
    it.cleanup(STALE_SECONDS + 1.0);
    assert_eq!((it.buffered(), it.counts().dropped), (1, 1));
    assert_eq!(it.topics(0.0)[0].buffered, [5]);
    it.cleanup(200.0 + IDLE_SECONDS + 1.0);
    assert_eq!((it.topics(0.0), it.buffered(), it.counts().dropped), (Vec::new(), 0, 2));
}

#[test]
fn a_reset_forgets_topics_but_neither_numbers_nor_ids() {
    let mut it = sequencer(50);
    for topic in ["x", "y"] {
        it.process(topic, 1, 1, 0.0).unwrap();
        it.process(topic, 3, 3, 0.0).unwrap();
    }
    assert_eq!((it.next_number(), it.is_duplicate("a", 0.0)), (1, Ok(false)));
    it.reset(Some("x"));
    it.reset(Some("unknown"));
    assert_eq!((it.buffered(), it.iter().count(), it.topics(0.0).len()), (1, 1, 1));
    it.reset(None);
    assert_eq!((it.buffered(), it.topics(0.0).len(), it.current()), (0, 0, 1));
    assert_eq!(it.is_duplicate("a", 0.0), Ok(true));
    assert_eq!((it.counts().duplicates, it.seen_count()), (1, 1));
}

#[test]
fn a_number_that_no_gap_explains_is_refused_and_the_topic_goes_on() {
    let mut it = sequencer(2);
    assert_eq!(take(&mut it, 1), [1]);
    for number in [2 + MAX_JUMP, i64::MAX as u64, u64::MAX] {
        let refused = SequencerError::Jump { number, expected: 2, bound: MAX_JUMP };
        assert_eq!(it.process("x", number, number, 0.0), Err(refused));
    }
    assert_eq!((take(&mut it, 2), take(&mut it, 3)), (vec![2], vec![3]));
    assert_eq!(it.counts(), OrderCounts::default());
    assert_eq!(take(&mut it, 3 + MAX_JUMP), [3 + MAX_JUMP], "the largest gap");
}

#[test]
fn a_topic_has_a_longest_name() {
    let mut it = sequencer(2);
    assert!(it.process(&"x".repeat(MAX_ID_BYTES), 1, 1, 0.0).is_ok());
    assert_eq!(it.process(&"x".repeat(MAX_ID_BYTES + 1), 1, 1, 0.0), Err(SequencerError::Topic(1025)));
}

#[test]
fn bounds_are_checked_at_the_start() {
    let beyond = MAX_OUT_OF_ORDER + 1;
    assert_eq!(EventSequencer::<u8>::new(10, beyond).unwrap_err(), SequencerError::OutOfOrder(beyond));
    assert_eq!(EventSequencer::<u8>::new(0, 1).unwrap_err(), SequencerError::Window(0));
}

#[test]
fn topics_beyond_the_limit_are_refused_until_a_reset() {
    let mut it = sequencer(1);
    for topic in 0..MAX_TOPICS {
        it.process(&topic.to_string(), 1, 1, 0.0).unwrap();
    }
    assert_eq!(it.process("x", 1, 1, 0.0), Err(SequencerError::Topics(MAX_TOPICS)));
    it.reset(Some("5"));
    assert_eq!(it.process("x", 1, 1, 0.0), Ok(Some((1, Vec::new()))));
}

proptest! {
    #[test]
    fn output_is_in_order_and_shuffles_within_the_window_lose_nothing(
        swaps in prop::collection::vec((0..60usize, 0..60usize), 0..100),
    ) {
        let mut numbers: Vec<u64> = (1..=60).collect();
        for (a, b) in swaps {
            numbers.swap(a, b);
        }
        let mut it = sequencer(60);
        let mut out = take(&mut it, 0);
        for number in numbers {
            out.extend(take(&mut it, number));
        }
        prop_assert_eq!(out, (0..=60).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_only_rise_and_the_books_balance_for_every_input(
        ahead in 0..6u64,
        numbers in prop::collection::vec(0..40u64, 0..200),
    ) {
        let mut it = sequencer(ahead);
        let mut out: Vec<u64> = Vec::new();
        for number in &numbers {
            out.extend(take(&mut it, *number));
            prop_assert_eq!(it.buffered(), it.topics(0.0)[0].buffered.len());
            prop_assert!(it.buffered() as u64 <= ahead);
        }
        prop_assert!(out.is_sorted_by(|a, b| a < b), "{out:?}");
        prop_assert!(out.len() + it.buffered() <= numbers.len());
    }
}
