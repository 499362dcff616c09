//! Restores the order of numbered events, for each topic. It has no side effects; the caller passes the time.
//!
//! An event ahead of its turn is buffered until the events before it arrive. An event too far ahead means that events
//! are lost, so the topic continues from its number, unless no such number of events can be lost. An event behind its turn is dropped, because later ones were
//! delivered already.

use std::collections::{BTreeMap, HashMap};

pub use crate::sequencer::MAXIMAL_OUT_OF_ORDER;
use crate::sequencer::{MAXIMAL_ID_BYTES, Sequencer, SequencerError};

/// The most events that the buffers of all topics may hold together.
pub const MAXIMAL_BUFFERED: usize = 1_000_000;
/// The most topics that are followed at the same time.
pub const MAXIMAL_TOPICS: usize = 100_000;
/// The distance ahead at which a number is an error instead of a gap: at a million events a second, these are lost in 19
/// hours. Without a bound, one wrong number would make a topic drop all events that follow.
pub const MAXIMAL_JUMP: u64 = 1 << 36;
/// The longest time that an event stays in a buffer, in seconds. After it, [`EventSequencer::cleanup`] drops the event.
pub const STALE_SECONDS: f64 = 300.0;
/// The time without an event after which [`EventSequencer::cleanup`] forgets a topic, in seconds.
pub const IDLE_SECONDS: f64 = 3600.0;

/// One topic: the number that is expected next, and the events that arrived ahead of their turn.
#[derive(Debug)]
struct Topic<E> {
    expected: u64,
    /// Events by number, each with its arrival time in seconds.
    buffered: BTreeMap<u64, (E, f64)>,
    last_event_seconds: f64,
}

/// The state of a topic, for statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicState {
    /// The name of the topic, as the caller passed it.
    pub topic: String,
    /// The number of the event that is expected next.
    pub expected: u64,
    /// The numbers of the buffered events, in ascending order.
    pub buffered: Vec<u64>,
    /// The age of the oldest buffered event, in seconds; `None` without buffered events.
    pub oldest_age_seconds: Option<f64>,
}

impl TopicState {
    /// The ranges of missing numbers below the highest buffered one, each with its first and last number.
    pub fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        let next_numbers =
            std::iter::once(self.expected).chain(self.buffered.iter().map(|number| number.saturating_add(1)));
        next_numbers.zip(&self.buffered).filter(|(next, number)| next < number).map(|(next, number)| (next, number - 1))
    }
}

/// Counters of duplicates and of events out of order, since the sequencer was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Ids that occurred before.
    pub duplicates: u64,
    /// Events that arrived ahead of their turn.
    pub out_of_order: u64,
    /// Events that were dropped, and numbers that were skipped after a jump.
    pub dropped: u64,
}

/// The events that can be delivered: the one that arrived, with the buffered events that follow it. `None` if it is
/// buffered or dropped.
pub type Delivered<E> = Option<(E, Vec<E>)>;

/// Restores the order of the events of many topics, and numbers outgoing events.
#[derive(Debug)]
pub struct EventSequencer<E> {
    sequencer: Sequencer,
    maximal_ahead: u64,
    topics: HashMap<String, Topic<E>>,
    buffered: usize,
    counts: OrderCounts,
}

impl<E> EventSequencer<E> {
    /// A sequencer that remembers `window` ids and buffers an event up to `maximal_ahead` numbers ahead of its turn.
    ///
    /// # Errors
    /// Returns [`SequencerError::OutOfOrder`] or [`SequencerError::Window`] if the value is out of range.
    pub fn new(window: usize, maximal_ahead: u64) -> Result<Self, SequencerError> {
        if maximal_ahead > MAXIMAL_OUT_OF_ORDER {
            return Err(SequencerError::OutOfOrder(maximal_ahead));
        }
        Ok(Self {
            sequencer: Sequencer::new(window)?,
            maximal_ahead,
            topics: HashMap::new(),
            buffered: 0,
            counts: OrderCounts::default(),
        })
    }

    /// Returns the next number for an outgoing event; the first is 1.
    pub fn next_number(&mut self) -> u64 {
        self.sequencer.next_number()
    }

    /// The last number that was returned; 0 before the first.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.sequencer.current()
    }

    /// The same as [`Sequencer::is_duplicate`], and counts the duplicates.
    ///
    /// # Errors
    /// Returns [`SequencerError::Id`] if the id is too long.
    pub fn is_duplicate(&mut self, id: &str, now_seconds: f64) -> Result<bool, SequencerError> {
        let is_duplicate = self.sequencer.is_duplicate(id, now_seconds)?;
        self.counts.duplicates += u64::from(is_duplicate);
        Ok(is_duplicate)
    }

    /// Processes event `number` of `topic` and returns what can be delivered now. The first event of a topic defines
    /// where it begins.
    ///
    /// # Errors
    /// Returns [`SequencerError::Topic`] if the name has more than [`MAXIMAL_ID_BYTES`], [`SequencerError::Topics`] if
    /// the topic is new and [`MAXIMAL_TOPICS`] are followed, [`SequencerError::Jump`] if the number is [`MAXIMAL_JUMP`]
    /// or more ahead, and [`SequencerError::Buffered`] if the event would have to be buffered and the buffers are full.
    /// The event is dropped.
    pub fn process(
        &mut self,
        topic: &str,
        number: u64,
        event: E,
        now_seconds: f64,
    ) -> Result<Delivered<E>, SequencerError> {
        if topic.len() > MAXIMAL_ID_BYTES {
            return Err(SequencerError::Topic(topic.len()));
        }
        let topic_count = self.topics.len();
        let Some(state) = self.topics.get_mut(topic) else {
            if topic_count >= MAXIMAL_TOPICS {
                return Err(SequencerError::Topics(topic_count));
            }
            let new_topic = Topic {
                expected: number.saturating_add(1),
                buffered: BTreeMap::new(),
                last_event_seconds: now_seconds,
            };
            self.topics.insert(topic.to_owned(), new_topic);
            return Ok(Some((event, Vec::new())));
        };
        state.last_event_seconds = now_seconds;
        if number == state.expected {
            let released = state.release();
            self.buffered -= released.len();
            return Ok(Some((event, released)));
        }
        let Some(ahead) = number.checked_sub(state.expected) else {
            self.counts.dropped += 1;
            return Ok(None);
        };
        if ahead >= MAXIMAL_JUMP {
            return Err(SequencerError::Jump { number, expected: state.expected, bound: MAXIMAL_JUMP });
        }
        self.counts.out_of_order += 1;
        if ahead > self.maximal_ahead {
            // The numbers that are skipped include those of the buffered events.
            self.counts.dropped = self.counts.dropped.saturating_add(ahead);
            self.buffered -= state.buffered.len();
            state.buffered.clear();
            state.expected = number.saturating_add(1);
            return Ok(Some((event, Vec::new())));
        }
        if self.buffered >= MAXIMAL_BUFFERED {
            return Err(SequencerError::Buffered(self.buffered));
        }
        match state.buffered.insert(number, (event, now_seconds)) {
            Some(_) => self.counts.dropped += 1,
            None => self.buffered += 1,
        }
        Ok(None)
    }

    /// Drops events that were buffered for more than [`STALE_SECONDS`], and forgets topics that were idle for more than
    /// [`IDLE_SECONDS`].
    pub fn cleanup(&mut self, now_seconds: f64) {
        let (mut buffered, mut dropped) = (0, 0);
        self.topics.retain(|_, topic| {
            let before = topic.buffered.len();
            topic.buffered.retain(|_, (_, at)| now_seconds - *at <= STALE_SECONDS);
            dropped += (before - topic.buffered.len()) as u64;
            buffered += topic.buffered.len();
            now_seconds - topic.last_event_seconds <= IDLE_SECONDS
        });
        self.buffered = buffered;
        self.counts.dropped += dropped;
    }

    /// Forgets one topic or all topics, with their buffered events. The last number and the remembered ids are kept.
    pub fn reset(&mut self, topic: Option<&str>) {
        match topic {
            Some(topic) => self.buffered -= self.topics.remove(topic).map_or(0, |topic| topic.buffered.len()),
            None => {
                self.topics.clear();
                self.buffered = 0;
            }
        }
    }

    /// The states of all topics, ordered by name.
    #[must_use]
    pub fn topics(&self, now_seconds: f64) -> Vec<TopicState> {
        let mut states: Vec<_> = self.topics.iter().map(|(name, topic)| topic.state(name, now_seconds)).collect();
        states.sort_unstable_by(|a, b| a.topic.cmp(&b.topic));
        states
    }

    /// The buffered events, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.topics.values().flat_map(|topic| topic.buffered.values()).map(|(event, _)| event)
    }

    /// The counters since the sequencer was created.
    #[must_use]
    pub fn counts(&self) -> OrderCounts {
        self.counts
    }

    /// The number of buffered events of all topics.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffered
    }

    /// The number of remembered ids.
    #[must_use]
    pub fn seen_count(&self) -> usize {
        self.sequencer.seen_count()
    }
}

impl<E> Topic<E> {
    /// Advances past the expected event, and takes out the buffered events that follow it without a gap.
    fn release(&mut self) -> Vec<E> {
        self.expected = self.expected.saturating_add(1);
        let mut released = Vec::new();
        while let Some((event, _)) = self.buffered.remove(&self.expected) {
            released.push(event);
            self.expected = self.expected.saturating_add(1);
        }
        released
    }

    fn state(&self, name: &str, now_seconds: f64) -> TopicState {
        let oldest = self.buffered.values().map(|(_, at)| *at).reduce(f64::min);
        TopicState {
            topic: name.to_owned(),
            expected: self.expected,
            buffered: self.buffered.keys().copied().collect(),
            oldest_age_seconds: oldest.map(|at| (now_seconds - at).max(0.0)),
        }
    }
}

#[cfg(test)]
mod tests {
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
        for number in [2 + MAXIMAL_JUMP, i64::MAX as u64, u64::MAX] {
            let refused = SequencerError::Jump { number, expected: 2, bound: MAXIMAL_JUMP };
            assert_eq!(it.process("x", number, number, 0.0), Err(refused));
        }
        assert_eq!((take(&mut it, 2), take(&mut it, 3)), (vec![2], vec![3]));
        assert_eq!(it.counts(), OrderCounts::default());
        assert_eq!(take(&mut it, 3 + MAXIMAL_JUMP), [3 + MAXIMAL_JUMP], "the largest gap");
    }

    #[test]
    fn a_topic_has_a_longest_name() {
        let mut it = sequencer(2);
        assert!(it.process(&"x".repeat(MAXIMAL_ID_BYTES), 1, 1, 0.0).is_ok());
        assert_eq!(it.process(&"x".repeat(MAXIMAL_ID_BYTES + 1), 1, 1, 0.0), Err(SequencerError::Topic(1025)));
    }

    #[test]
    fn bounds_are_checked_at_the_start() {
        let beyond = MAXIMAL_OUT_OF_ORDER + 1;
        assert_eq!(EventSequencer::<u8>::new(10, beyond).unwrap_err(), SequencerError::OutOfOrder(beyond));
        assert_eq!(EventSequencer::<u8>::new(0, 1).unwrap_err(), SequencerError::Window(0));
    }

    #[test]
    fn topics_beyond_the_limit_are_refused_until_a_reset() {
        let mut it = sequencer(1);
        for topic in 0..MAXIMAL_TOPICS {
            it.process(&topic.to_string(), 1, 1, 0.0).unwrap();
        }
        assert_eq!(it.process("x", 1, 1, 0.0), Err(SequencerError::Topics(MAXIMAL_TOPICS)));
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
}
