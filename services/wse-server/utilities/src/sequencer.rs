//! Sequence numbers for outgoing events, and detection of duplicate event ids within a window. Pure: the caller passes
//! the time.
//!
//! [`crate::order`] restores the order of numbered events.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

/// The largest window. At about 100 bytes an id it takes 1 GB.
pub const MAX_WINDOW: usize = 10_000_000;
/// The longest id that is accepted, in bytes. The ids of the protocol have 36.
pub const MAX_ID_BYTES: usize = 1024;
/// The largest accepted value of `max_out_of_order`: by how many numbers an event of a topic may be early.
pub const MAX_OUT_OF_ORDER: u64 = 100_000;

/// Why a sequencer can't be created, or can't accept an id or event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequencerError {
    /// The window is 0 or larger than [`MAX_WINDOW`].
    #[error("window_size is {0}: give 1 to {MAX_WINDOW}")]
    Window(usize),
    /// The id has this many bytes. A full window of such ids would take too much memory.
    #[error("an event id has {0} bytes: give {MAX_ID_BYTES} at most, or a hash of it")]
    Id(usize),
    /// `max_out_of_order` is larger than [`MAX_OUT_OF_ORDER`].
    #[error("max_out_of_order is {0}: give 0 to {MAX_OUT_OF_ORDER}")]
    OutOfOrder(u64),
    /// The event has a new topic, and the largest number of topics is tracked already.
    #[error("{0} topics are tracked already: drop idle ones with cleanup(), or one with reset_sequence(topic)")]
    Topics(usize),
    /// The topic's name has this many bytes.
    #[error("a topic has {0} bytes: give {MAX_ID_BYTES} at most, or a hash of it")]
    Topic(usize),
    /// The event's number is so far ahead that lost events can't be the reason. It probably belongs to another topic.
    #[error(
        "sequence is {number}, {bound} or more ahead of {expected}, which is next: drop the event, or start again with reset_sequence(topic)"
    )]
    Jump {
        /// The number of the event.
        number: u64,
        /// The number of the next event of the topic.
        expected: u64,
        /// The distance that is refused.
        bound: u64,
    },
    /// The event would have to be buffered, and the buffers of all topics together are full.
    #[error("{0} events are buffered already: drop old ones with cleanup(), or a topic's with reset_sequence(topic)")]
    Buffered(usize),
}

/// The last `window` distinct ids.
#[derive(Clone, Debug)]
pub struct SeenIds {
    ids: HashSet<Arc<str>>,
    /// The ids in the order of their arrival, each with its arrival time in seconds.
    order: VecDeque<(Arc<str>, f64)>,
    window: usize,
}

impl SeenIds {
    /// An empty memory for the last `window` ids.
    ///
    /// # Errors
    /// Returns [`SequencerError::Window`] if `window` is 0 or larger than [`MAX_WINDOW`].
    pub fn new(window: usize) -> Result<Self, SequencerError> {
        if window == 0 || window > MAX_WINDOW {
            return Err(SequencerError::Window(window));
        }
        Ok(Self { ids: HashSet::new(), order: VecDeque::new(), window })
    }

    /// Whether `id` is remembered. If it isn't, it is added, and a full window drops its oldest id.
    ///
    /// # Errors
    /// Returns [`SequencerError::Id`] if the id is longer than [`MAX_ID_BYTES`].
    pub fn is_duplicate(&mut self, id: &str, now_seconds: f64) -> Result<bool, SequencerError> {
        if id.len() > MAX_ID_BYTES {
            return Err(SequencerError::Id(id.len()));
        }
        if self.ids.contains(id) {
            return Ok(true);
        }
        if self.order.len() >= self.window
            && let Some((oldest, _)) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        let id: Arc<str> = id.into();
        self.ids.insert(Arc::clone(&id));
        self.order.push_back((id, now_seconds));
        Ok(false)
    }

    /// Forgets the ids that arrived before `since_seconds`.
    pub fn forget_before(&mut self, since_seconds: f64) {
        // Stops at the first newer id. If the clock went back, some older ids behind it are kept for longer.
        while self.order.front().is_some_and(|(_, at)| *at < since_seconds)
            && let Some((id, _)) = self.order.pop_front()
        {
            self.ids.remove(&id);
        }
    }

    /// The number of remembered ids.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no id is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Counts sequence numbers from 1 and detects duplicate ids.
#[derive(Clone, Debug)]
pub struct Sequencer {
    current: u64,
    seen: SeenIds,
}

impl Sequencer {
    /// A sequencer that remembers the last `window` ids.
    ///
    /// # Errors
    /// Returns [`SequencerError::Window`] if `window` is 0 or larger than [`MAX_WINDOW`].
    pub fn new(window: usize) -> Result<Self, SequencerError> {
        Ok(Self { current: 0, seen: SeenIds::new(window)? })
    }

    /// Returns the next sequence number; the first is 1.
    pub fn next_number(&mut self) -> u64 {
        self.current += 1;
        self.current
    }

    /// The last sequence number that was returned; 0 before the first.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.current
    }

    /// The same as [`SeenIds::is_duplicate`].
    ///
    /// # Errors
    /// Returns [`SequencerError::Id`] if the id is longer than [`MAX_ID_BYTES`].
    pub fn is_duplicate(&mut self, id: &str, now_seconds: f64) -> Result<bool, SequencerError> {
        self.seen.is_duplicate(id, now_seconds)
    }

    /// Forgets the ids that are older than `age_seconds`.
    pub fn cleanup(&mut self, age_seconds: f64, now_seconds: f64) {
        self.seen.forget_before(now_seconds - age_seconds);
    }

    /// The number of remembered ids.
    #[must_use]
    pub fn seen_count(&self) -> usize {
        self.seen.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_count_from_one() {
        let mut sequencer = Sequencer::new(3).unwrap();
        assert_eq!(sequencer.current(), 0);
        assert_eq!((sequencer.next_number(), sequencer.next_number()), (1, 2));
        assert_eq!(sequencer.current(), 2);
    }

    #[test]
    fn a_full_window_forgets_its_oldest_id() {
        let mut sequencer = Sequencer::new(3).unwrap();
        let results: Vec<bool> = "abcdabd"
            .split("")
            .filter(|id| !id.is_empty())
            .map(|id| sequencer.is_duplicate(id, 0.0).unwrap())
            .collect();
        assert_eq!(results, [false, false, false, false, false, false, true]);
        assert_eq!(sequencer.seen_count(), 3);
    }

    #[test]
    fn a_cleanup_forgets_old_ids_and_keeps_the_rest() {
        let mut sequencer = Sequencer::new(10).unwrap();
        for (id, at) in [("a", 0.0), ("b", 5.0), ("c", 9.0)] {
            assert_eq!(sequencer.is_duplicate(id, at), Ok(false));
        }
        // A duplicate doesn't renew the age of an id.
        assert_eq!(sequencer.is_duplicate("a", 9.0), Ok(true));
        sequencer.cleanup(5.0, 10.0);
        assert_eq!(sequencer.seen_count(), 2);
        assert_eq!(sequencer.is_duplicate("b", 10.0), Ok(true));
        assert_eq!(sequencer.is_duplicate("a", 10.0), Ok(false));
        sequencer.cleanup(0.0, 10.1);
        assert_eq!(sequencer.seen_count(), 0);
    }

    #[test]
    fn an_empty_window_and_a_long_id_are_refused() {
        assert_eq!(Sequencer::new(0).unwrap_err(), SequencerError::Window(0));
        assert_eq!(Sequencer::new(MAX_WINDOW + 1).unwrap_err(), SequencerError::Window(MAX_WINDOW + 1));
        let mut sequencer = Sequencer::new(1).unwrap();
        let long = "x".repeat(MAX_ID_BYTES + 1);
        assert_eq!(sequencer.is_duplicate(&long, 0.0), Err(SequencerError::Id(long.len())));
        assert_eq!(sequencer.is_duplicate(&long[1..], 0.0), Ok(false));
    }

    proptest! {
        #[test]
        fn the_window_has_exactly_the_latest_new_ids(
            window in 1..8usize,
            ids in prop::collection::vec(0..12u8, 0..100),
        ) {
            let mut seen = SeenIds::new(window).unwrap();
            let mut model: Vec<u8> = Vec::new();
            for id in ids {
                let expected = model.iter().rev().take(window).any(|known| *known == id);
                prop_assert_eq!(seen.is_duplicate(&id.to_string(), 0.0), Ok(expected));
                if !expected {
                    model.push(id);
                }
                prop_assert_eq!(seen.len(), model.len().min(window));
                prop_assert_eq!(seen.is_empty(), model.is_empty());
            }
        }
    }
}
