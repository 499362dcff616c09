//! Restores the order of numbered events, for each topic. It has no side effects; the caller passes the time.
//!
//! An event ahead of its turn is buffered until the events before it arrive. An event too far ahead means that events
//! are lost, so the topic continues from its number, unless no such number of events can be lost. An event behind its turn is dropped, because later ones were
//! delivered already.

use std::collections::{BTreeMap, HashMap};

pub use crate::sequencer::MAX_OUT_OF_ORDER;
use crate::sequencer::{MAX_ID_BYTES, Sequencer, SequencerError};

/// The most events that the buffers of all topics may hold together.
pub const MAX_BUFFERED: usize = 1_000_000;
/// The most topics that are followed at the same time.
pub const MAX_TOPICS: usize = 100_000;
/// The distance ahead at which a number is an error instead of a gap: at a million events a second, these are lost in 19
/// hours. Without a bound, one wrong number would make a topic drop all events that follow.
pub const MAX_JUMP: u64 = 1 << 36;
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
    max_ahead: u64,
    topics: HashMap<String, Topic<E>>,
    buffered: usize,
    counts: OrderCounts,
}

impl<E> EventSequencer<E> {
    /// A sequencer that remembers `window` ids and buffers an event up to `max_ahead` numbers ahead of its turn.
    ///
    /// # Errors
    /// Returns [`SequencerError::OutOfOrder`] or [`SequencerError::Window`] if the value is out of range.
    pub fn new(window: usize, max_ahead: u64) -> Result<Self, SequencerError> {
        if max_ahead > MAX_OUT_OF_ORDER {
            return Err(SequencerError::OutOfOrder(max_ahead));
        }
        Ok(Self {
            sequencer: Sequencer::new(window)?,
            max_ahead,
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
    /// Returns [`SequencerError::Topic`] if the name has more than [`MAX_ID_BYTES`], [`SequencerError::Topics`] if
    /// the topic is new and [`MAX_TOPICS`] are followed, [`SequencerError::Jump`] if the number is [`MAX_JUMP`]
    /// or more ahead, and [`SequencerError::Buffered`] if the event would have to be buffered and the buffers are full.
    /// The event is dropped.
    pub fn process(
        &mut self,
        topic: &str,
        number: u64,
        event: E,
        now_seconds: f64,
    ) -> Result<Delivered<E>, SequencerError> {
        if topic.len() > MAX_ID_BYTES {
            return Err(SequencerError::Topic(topic.len()));
        }
        let topic_count = self.topics.len();
        let Some(state) = self.topics.get_mut(topic) else {
            if topic_count >= MAX_TOPICS {
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
        if ahead >= MAX_JUMP {
            return Err(SequencerError::Jump { number, expected: state.expected, bound: MAX_JUMP });
        }
        self.counts.out_of_order += 1;
        if ahead > self.max_ahead {
            // The numbers that are skipped include those of the buffered events.
            self.counts.dropped = self.counts.dropped.saturating_add(ahead);
            self.buffered -= state.buffered.len();
            state.buffered.clear();
            state.expected = number.saturating_add(1);
            return Ok(Some((event, Vec::new())));
        }
        if self.buffered >= MAX_BUFFERED {
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
mod tests;
