//! Numbers for what goes out, and a memory of what came in: ids that were seen within a window. Pure.
//!
//! [`crate::order`] puts numbered events back in order.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

/// The largest window: at some 100 bytes an id, 1 GB.
pub const MAXIMAL_WINDOW: usize = 10_000_000;
/// The longest id that is looked at. Those of the protocol have 36 bytes.
pub const MAXIMAL_ID_BYTES: usize = 1024;
/// The largest number of events that one topic may hold back.
pub const MAXIMAL_OUT_OF_ORDER: u64 = 100_000;

/// Why there is no sequencer, or no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SequencerError {
    /// It could remember nothing, or too much.
    #[error("window_size is {0}: give 1 to {MAXIMAL_WINDOW}")]
    Window(usize),
    /// Too long to be remembered as often as the window says.
    #[error("an event id has {0} bytes: give {MAXIMAL_ID_BYTES} at most, or a hash of it")]
    Id(usize),
    /// More events would be held back than make sense.
    #[error("max_out_of_order is {0}: give 0 to {MAXIMAL_OUT_OF_ORDER}")]
    OutOfOrder(u64),
    /// A topic too many.
    #[error("{0} topics are followed already: drop idle ones by cleanup(), or one by reset_sequence(topic)")]
    Topics(usize),
    /// What is held back of all topics together.
    #[error("{0} events are held back already: drop old ones by cleanup(), or a topic's by reset_sequence(topic)")]
    Buffered(usize),
}

/// Which ids were seen, the latest `window` of them.
#[derive(Clone, Debug)]
pub struct Seen {
    ids: HashSet<Arc<str>>,
    /// In the order in which they came, with when they did.
    order: VecDeque<(Arc<str>, f64)>,
    window: usize,
}

impl Seen {
    /// A memory of so many ids.
    ///
    /// # Errors
    /// When that is none or too many.
    pub fn new(window: usize) -> Result<Self, SequencerError> {
        if window == 0 || window > MAXIMAL_WINDOW {
            return Err(SequencerError::Window(window));
        }
        Ok(Self { ids: HashSet::new(), order: VecDeque::new(), window })
    }

    /// Whether `id` is remembered. If not, it is from now on, in the place of the oldest where there is no room.
    ///
    /// # Errors
    /// When the id is too long.
    pub fn is_duplicate(&mut self, id: &str, now_seconds: f64) -> Result<bool, SequencerError> {
        if id.len() > MAXIMAL_ID_BYTES {
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

    /// Forgets what came before `since_seconds`.
    pub fn forget_before(&mut self, since_seconds: f64) {
        // By order and not by all times: a clock that went back keeps a few for longer.
        while self.order.front().is_some_and(|(_, at)| *at < since_seconds)
            && let Some((id, _)) = self.order.pop_front()
        {
            self.ids.remove(&id);
        }
    }

    /// How many ids are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Sequence numbers from 1, and ids that were seen.
#[derive(Clone, Debug)]
pub struct Sequencer {
    current: u64,
    seen: Seen,
}

impl Sequencer {
    /// A sequencer that remembers the latest `window` ids.
    ///
    /// # Errors
    /// When that is none or too many.
    pub fn new(window: usize) -> Result<Self, SequencerError> {
        Ok(Self { current: 0, seen: Seen::new(window)? })
    }

    /// The next number; the first is 1.
    pub fn next_number(&mut self) -> u64 {
        self.current += 1;
        self.current
    }

    /// The number that was given last; 0 if none was.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.current
    }

    /// As [`Seen::is_duplicate`].
    ///
    /// # Errors
    /// When the id is too long.
    pub fn is_duplicate(&mut self, id: &str, now_seconds: f64) -> Result<bool, SequencerError> {
        self.seen.is_duplicate(id, now_seconds)
    }

    /// Forgets ids older than `age_seconds`.
    pub fn cleanup(&mut self, age_seconds: f64, now_seconds: f64) {
        self.seen.forget_before(now_seconds - age_seconds);
    }

    /// How many ids are remembered.
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
        let answers: Vec<bool> = "abcdabd"
            .split("")
            .filter(|id| !id.is_empty())
            .map(|id| sequencer.is_duplicate(id, 0.0).unwrap())
            .collect();
        assert_eq!(answers, [false, false, false, false, false, false, true]);
        assert_eq!(sequencer.seen_count(), 3);
    }

    #[test]
    fn a_cleanup_forgets_what_is_old_and_keeps_the_rest() {
        let mut sequencer = Sequencer::new(10).unwrap();
        for (id, at) in [("a", 0.0), ("b", 5.0), ("c", 9.0)] {
            assert_eq!(sequencer.is_duplicate(id, at), Ok(false));
        }
        // Seen again, but it counts from when it was new.
        assert_eq!(sequencer.is_duplicate("a", 9.0), Ok(true));
        sequencer.cleanup(5.0, 10.0);
        assert_eq!(sequencer.seen_count(), 2);
        assert_eq!(sequencer.is_duplicate("b", 10.0), Ok(true));
        assert_eq!(sequencer.is_duplicate("a", 10.0), Ok(false));
        sequencer.cleanup(0.0, 10.1);
        assert_eq!(sequencer.seen_count(), 0);
    }

    #[test]
    fn a_window_must_hold_something_and_an_id_must_be_short() {
        assert_eq!(Sequencer::new(0).unwrap_err(), SequencerError::Window(0));
        assert_eq!(Sequencer::new(MAXIMAL_WINDOW + 1).unwrap_err(), SequencerError::Window(MAXIMAL_WINDOW + 1));
        let mut sequencer = Sequencer::new(1).unwrap();
        let long = "x".repeat(MAXIMAL_ID_BYTES + 1);
        assert_eq!(sequencer.is_duplicate(&long, 0.0), Err(SequencerError::Id(long.len())));
        assert_eq!(sequencer.is_duplicate(&long[1..], 0.0), Ok(false));
    }

    proptest! {
        #[test]
        fn it_remembers_exactly_the_latest_ids_that_were_new(
            window in 1..8usize,
            ids in prop::collection::vec(0..12u8, 0..100),
        ) {
            let mut seen = Seen::new(window).unwrap();
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
