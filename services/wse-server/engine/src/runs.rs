//! Runs: how many messages of which connection a part of the queue has.
//!
//! A shard notes a run for each read. So neither a drain, which cuts segments, nor the drop of a batch, which returns the
//! messages to the shares of their connections, has to look at each message again.

use crate::key::ConnectionKey;

/// Messages of one connection that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) connection: ConnectionKey,
    pub(crate) messages: usize,
    /// The bytes of their data, without frame headers. A run that is cut divides them evenly among its messages; the sum
    /// of its parts is exact.
    pub(crate) bytes: usize,
}

impl Run {
    /// Cuts off the first `messages`; all if it has no more.
    fn split_front(&mut self, messages: usize) -> Self {
        let front = if messages < self.messages {
            Self { messages, bytes: self.bytes * messages / self.messages, ..*self }
        } else {
            *self
        };
        self.messages -= front.messages;
        self.bytes -= front.bytes;
        front
    }
}

/// Runs in the order of their messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Vec<Run>);

impl Runs {
    /// Appends a run. It is added to the last one if both are of the same connection.
    pub(crate) fn push(&mut self, run: Run) {
        match self.0.last_mut() {
            Some(last) if last.connection == run.connection => {
                last.messages += run.messages;
                last.bytes += run.bytes;
            }
            _ => self.0.push(run),
        }
    }

    /// Appends all runs of `later`.
    pub(crate) fn extend(&mut self, later: &Self) {
        later.0.iter().for_each(|run| self.push(*run));
    }

    /// Cuts off the runs of the first `messages`.
    pub(crate) fn split_front(&mut self, mut messages: usize) -> Self {
        let whole = self.0.iter().take_while(|run| {
            let fits = run.messages <= messages;
            messages -= if fits { run.messages } else { 0 };
            fits
        });
        let whole = whole.count();
        let mut front: Vec<Run> = self.0.drain(..whole).collect();
        if messages > 0 {
            front.extend(self.0.first_mut().map(|run| run.split_front(messages)));
        }
        Self(front)
    }

    /// Removes the first `messages` of a connection. Returns their bytes.
    pub(crate) fn remove(&mut self, connection: ConnectionKey, mut messages: usize) -> usize {
        let mut bytes = 0;
        for run in self.0.iter_mut().filter(|run| run.connection == connection) {
            let removed = run.split_front(messages);
            messages -= removed.messages;
            bytes += removed.bytes;
        }
        self.0.retain(|run| run.messages > 0);
        bytes
    }

    pub(crate) fn as_slice(&self) -> &[Run] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(slot: usize, messages: usize, bytes: usize) -> Run {
        Run { connection: ConnectionKey::new(0, 0, slot), messages, bytes }
    }

    fn runs(list: &[Run]) -> Runs {
        let mut runs = Runs::default();
        list.iter().for_each(|run| runs.push(*run));
        runs
    }

    #[test]
    fn neighbours_of_one_connection_are_one_run() {
        assert_eq!(runs(&[run(1, 2, 10), run(1, 1, 4), run(2, 1, 1)]).as_slice(), [run(1, 3, 14), run(2, 1, 1)]);
    }

    #[test]
    fn a_cut_within_a_run_divides_its_bytes_evenly() {
        let mut rest = runs(&[run(1, 2, 10), run(2, 3, 10)]);
        assert_eq!(rest.split_front(3).as_slice(), [run(1, 2, 10), run(2, 1, 3)]);
        assert_eq!(rest.as_slice(), [run(2, 2, 7)]);
    }

    #[test]
    fn a_cut_between_runs_and_one_behind_the_last_leave_them_whole() {
        let mut rest = runs(&[run(1, 2, 10), run(2, 3, 10)]);
        assert_eq!(rest.split_front(2).as_slice(), [run(1, 2, 10)]);
        assert_eq!(rest.split_front(9).as_slice(), [run(2, 3, 10)]);
        assert!(rest.as_slice().is_empty());
    }

    proptest! {
        /// What was noted comes back to each connection, however the queue is cut and what is removed from it.
        #[test]
        fn no_message_and_no_byte_is_lost_or_gained(
            noted in prop::collection::vec((0_usize..4, 1_usize..2000, 0_usize..1_000_000), 0..20),
            cuts in prop::collection::vec(0_usize..1500, 0..20),
            removed in (0_usize..4, 0_usize..3000),
        ) {
            let sum = |list: &[Run], slot: usize| {
                let own = list.iter().filter(|run| run.connection.slot() == slot);
                own.fold((0, 0), |sum, run| (sum.0 + run.messages, sum.1 + run.bytes))
            };
            let all: Vec<Run> = noted.iter().map(|&(slot, messages, bytes)| run(slot, messages, bytes)).collect();
            let mut rest = runs(&all);
            let (slot, count) = removed;
            let removed_bytes = rest.remove(ConnectionKey::new(0, 0, slot), count);
            let mut released = Runs::default();
            for cut in cuts {
                let queued: usize = rest.as_slice().iter().map(|run| run.messages).sum();
                let front = rest.split_front(cut);
                prop_assert_eq!(front.as_slice().iter().map(|run| run.messages).sum::<usize>(), cut.min(queued));
                released.extend(&front);
            }
            released.extend(&rest);
            for other in 0..4 {
                let (messages, bytes) = sum(&all, other);
                let gone = if other == slot { (count.min(messages), removed_bytes) } else { (0, 0) };
                prop_assert_eq!(sum(released.as_slice(), other), (messages - gone.0, bytes - gone.1));
            }
        }
    }
}
