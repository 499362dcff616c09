//! What the flaw does with a message for the application or the subscribers. Pure except for its counters.

use std::{
    num::NonZeroU64,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::config::Flaw;

/// What happens with one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It reaches the application, and is counted.
    Deliver,
    /// It doesn't reach the application, and is counted as dropped.
    Drop,
    /// It doesn't reach the application, and isn't counted.
    DropSilently,
    /// It doesn't reach the application, and is counted as delivered.
    FakeDelivery,
}

/// Decides for the messages of all connections.
#[derive(Debug)]
pub struct Dispositions {
    flaw: Flaw,
    every: NonZeroU64,
    /// Number of decisions over all connections: so a loss of one in k is exact for any number of connections.
    decided: AtomicU64,
    has_faked: AtomicBool,
}

impl Dispositions {
    /// Creates the decisions of a flaw; `every` is its k.
    pub fn new(flaw: Flaw, every: NonZeroU64) -> Self {
        Self { flaw, every, decided: AtomicU64::new(0), has_faked: AtomicBool::new(false) }
    }

    /// The fate of a connection's `nth` message, counted from 1.
    pub fn decide(&self, nth: u64) -> Disposition {
        match self.flaw {
            Flaw::Drop if self.is_kth() => Disposition::Drop,
            Flaw::SilentDrop | Flaw::PublisherSilentDrop if self.is_kth() => Disposition::DropSilently,
            Flaw::PublisherLiar if self.is_kth() => Disposition::FakeDelivery,
            Flaw::Liar if nth == self.every.get() && !self.has_faked.swap(true, Ordering::Relaxed) => {
                Disposition::FakeDelivery
            }
            Flaw::Null => Disposition::Drop,
            _ => Disposition::Deliver,
        }
    }

    fn is_kth(&self) -> bool {
        (self.decided.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.every.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispositions(flaw: Flaw) -> Dispositions {
        Dispositions::new(flaw, NonZeroU64::new(10).unwrap())
    }

    /// How many of 1 005 messages on each of two connections have this fate.
    fn count(flaw: Flaw, disposition: Disposition) -> usize {
        let dispositions = dispositions(flaw);
        (1..=1005).flat_map(|nth| [nth, nth]).filter(|nth| dispositions.decide(*nth) == disposition).count()
    }

    #[test]
    fn an_honest_service_delivers_everything() {
        assert_eq!(count(Flaw::None, Disposition::Deliver), 2010);
        assert_eq!(count(Flaw::Delay, Disposition::Deliver), 2010);
    }

    #[test]
    fn one_in_k_of_all_connections_together_is_dropped() {
        assert_eq!(count(Flaw::Drop, Disposition::Drop), 201);
        assert_eq!(count(Flaw::SilentDrop, Disposition::DropSilently), 201);
    }

    #[test]
    fn the_flaw_liar_fakes_one_delivery_which_is_the_kth_of_one_connection() {
        let dispositions = dispositions(Flaw::Liar);
        let faked: Vec<u64> = (1..=1005)
            .flat_map(|nth| [nth, nth])
            .filter(|nth| dispositions.decide(*nth) == Disposition::FakeDelivery)
            .collect();
        assert_eq!(faked, [10]);
    }

    #[test]
    fn a_null_service_delivers_nothing() {
        assert_eq!(count(Flaw::Null, Disposition::Drop), 2010);
    }
}
