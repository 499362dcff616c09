//! When the protocol wants to hear of connections again that aren't ready yet. Pure.
//!
//! A timer is never cancelled: at its end the protocol says whether it still matters.

use std::{cmp::Reverse, collections::BinaryHeap};

/// A timer of a connection attempt. The field order is the order in which timers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timer {
    /// When it ends, in nanoseconds of the monotonic clock.
    pub(crate) due_ns: u64,
    /// Index of the session among those of its thread.
    pub(crate) slot: u32,
    /// When the attempt started; a later attempt of the same session has another.
    pub(crate) started_ns: u64,
    /// What the protocol calls it.
    pub(crate) number: u32,
}

/// The timers of one thread.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    earliest_first: BinaryHeap<Reverse<Timer>>,
}

impl Timers {
    pub(crate) fn start(&mut self, timer: Timer) {
        self.earliest_first.push(Reverse(timer));
    }

    /// When the next one ends, in nanoseconds of the monotonic clock; `u64::MAX` without timers.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.earliest_first.peek().map_or(u64::MAX, |Reverse(timer)| timer.due_ns)
    }

    /// Takes the next timer that has ended.
    pub(crate) fn take_ended(&mut self, now_ns: u64) -> Option<Timer> {
        if self.next_ns() > now_ns {
            return None;
        }
        self.earliest_first.pop().map(|Reverse(timer)| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_end_in_the_order_of_their_times_and_not_before() {
        let mut timers = Timers::default();
        assert_eq!((timers.next_ns(), timers.take_ended(u64::MAX - 1)), (u64::MAX, None));
        let timer = |due_ns, slot| Timer { due_ns, slot, started_ns: 0, number: 1 };
        for timer in [timer(30, 0), timer(10, 1), timer(20, 2)] {
            timers.start(timer);
        }
        assert_eq!((timers.next_ns(), timers.take_ended(9)), (10, None));
        let ended: Vec<u32> = std::iter::from_fn(|| timers.take_ended(20)).map(|timer| timer.slot).collect();
        assert_eq!((ended, timers.next_ns()), (vec![1, 2], 30));
    }
}
