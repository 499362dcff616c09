//! The messages of one connection that wait for the socket or for a reply. Pure.
//!
//! Slots are kept in the order in which messages were composed. Message `n` is found by its distance from the oldest,
//! so a lookup costs one subtraction.

use std::collections::VecDeque;

/// A message that was composed and isn't settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Due time, in nanoseconds of the monotonic clock.
    pub due_ns: u64,
    /// Time at which the socket had accepted the whole message; 0 before that.
    pub sent_ns: u64,
    answered: bool,
}

/// The result of matching a reply to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matched {
    /// The first reply to the message.
    Answer {
        /// The message that the reply belongs to.
        slot: Slot,
        /// Whether a later message was answered before.
        reordered: bool,
    },
    /// The message was answered before.
    Duplicate,
    /// The message was never sent.
    Unknown,
}

/// The unsettled messages of one connection.
#[derive(Debug, Default)]
pub struct Outstanding {
    slots: VecDeque<Slot>,
    /// Number of the message in the first slot.
    base: u64,
    /// Number of the first message that the socket hasn't accepted completely.
    unsent: u64,
    /// Highest number answered, plus one.
    answered_to: u64,
}

impl Outstanding {
    /// Adds the next message, which waits for the socket. Messages are added in order.
    pub fn add(&mut self, due_ns: u64) {
        self.slots.push_back(Slot { due_ns, sent_ns: 0, answered: false });
    }

    /// Marks `count` more messages as accepted by the socket, and passes each to `record`.
    pub fn sent(&mut self, count: u64, now_ns: u64, mut record: impl FnMut(&Slot)) {
        for n in self.unsent..self.unsent + count {
            if let Some(slot) = self.slots.get_mut((n - self.base) as usize) {
                slot.sent_ns = now_ns;
                record(slot);
            }
        }
        self.unsent += count;
    }

    /// Removes all sent messages, for workloads without replies.
    pub fn settle_sent(&mut self) {
        let settled = ((self.unsent - self.base) as usize).min(self.slots.len());
        self.slots.drain(..settled);
        self.base = self.unsent;
    }

    /// Matches a reply to message `n`.
    pub fn reply(&mut self, n: u64) -> Matched {
        if n < self.base {
            return Matched::Duplicate;
        }
        if n >= self.unsent {
            return Matched::Unknown;
        }
        let slot = &mut self.slots[(n - self.base) as usize];
        if slot.answered {
            return Matched::Duplicate;
        }
        slot.answered = true;
        let matched = Matched::Answer { slot: *slot, reordered: n < self.answered_to };
        self.answered_to = self.answered_to.max(n + 1);
        while self.slots.front().is_some_and(|slot| slot.answered) {
            self.slots.pop_front();
            self.base += 1;
        }
        matched
    }

    /// Settles the oldest message that was sent and not answered, because its reply was wrong. Returns whether there
    /// was one.
    pub fn settle_oldest(&mut self) -> bool {
        let Some(n) = self.oldest() else { return false };
        self.reply(n);
        true
    }

    /// Number of the oldest message that was sent completely and not answered.
    pub fn oldest(&self) -> Option<u64> {
        let sent = (self.unsent - self.base) as usize;
        let n = self.slots.iter().take(sent).position(|slot| !slot.answered)?;
        Some(self.base + n as u64)
    }

    /// Number of the oldest unsettled message whose number has this remainder. `modulus` must not be 0.
    pub fn with_remainder(&self, remainder: u64, modulus: u64) -> Option<u64> {
        let ahead = (remainder % modulus + modulus - self.base % modulus) % modulus;
        let n = self.base + ahead;
        (n < self.unsent).then_some(n)
    }

    /// The slot of message `n` if it was sent and not answered.
    pub fn unanswered_slot(&self, n: u64) -> Option<Slot> {
        if n >= self.unsent {
            return None;
        }
        let at = usize::try_from(n.checked_sub(self.base)?).ok()?;
        self.slots.get(at).copied().filter(|slot| !slot.answered)
    }

    /// Number of messages that were sent completely and not answered.
    pub fn unanswered(&self) -> u64 {
        self.slots.iter().filter(|slot| slot.sent_ns != 0 && !slot.answered).count() as u64
    }

    /// Whether no message waits for the socket or a reply.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(count: u64) -> Outstanding {
        let mut outstanding = Outstanding::default();
        (0..count).for_each(|n| outstanding.add(n * 10));
        outstanding.sent(count, 1000, |_| {});
        outstanding
    }

    fn reply(outstanding: &mut Outstanding, n: u64) -> (u64, bool) {
        match outstanding.reply(n) {
            Matched::Answer { slot, reordered } => (slot.due_ns, reordered),
            other => panic!("message {n}: {other:?}"),
        }
    }

    #[test]
    fn replies_find_their_message() {
        let mut outstanding = sent(3);
        assert_eq!([0, 1, 2].map(|n| reply(&mut outstanding, n)), [(0, false), (10, false), (20, false)]);
        assert!(outstanding.is_empty());
    }

    #[test]
    fn a_late_reply_is_a_reorder_and_not_a_loss() {
        let mut outstanding = sent(3);
        assert_eq!(reply(&mut outstanding, 2), (20, false));
        assert_eq!(reply(&mut outstanding, 0), (0, true));
        assert_eq!(outstanding.unanswered(), 1);
    }

    #[test]
    fn a_second_reply_is_a_duplicate_before_and_after_its_slot_is_freed() {
        let mut outstanding = sent(3);
        reply(&mut outstanding, 1);
        assert_eq!(outstanding.reply(1), Matched::Duplicate);
        reply(&mut outstanding, 0);
        assert_eq!(outstanding.reply(1), Matched::Duplicate);
    }

    #[test]
    fn a_reply_to_something_unsent_is_unknown() {
        let mut outstanding = sent(1);
        outstanding.add(5);
        assert_eq!(outstanding.reply(1), Matched::Unknown);
        assert_eq!(outstanding.reply(99), Matched::Unknown);
    }

    #[test]
    fn a_wrong_reply_settles_the_oldest_message() {
        let mut outstanding = sent(2);
        reply(&mut outstanding, 0);
        assert!(outstanding.settle_oldest());
        assert!(outstanding.is_empty() && !outstanding.settle_oldest());
    }

    #[test]
    fn a_message_is_found_by_its_order_and_by_a_remainder() {
        let mut outstanding = sent(10);
        assert_eq!(outstanding.oldest(), Some(0));
        for n in 0..6 {
            reply(&mut outstanding, n);
        }
        reply(&mut outstanding, 7);
        assert_eq!(outstanding.oldest(), Some(6));
        assert_eq!(
            [6, 7, 8, 2].map(|remainder| outstanding.with_remainder(remainder % 4, 4)),
            [Some(6), Some(7), Some(8), Some(6)]
        );
        assert_eq!(outstanding.with_remainder(5, 100), None, "5 is settled and 105 was never sent");
        assert_eq!([5, 6, 7, 10].map(|n| outstanding.unanswered_slot(n).is_some()), [false, true, false, false]);
    }

    #[test]
    fn without_replies_a_message_is_settled_when_it_is_sent() {
        let mut outstanding = Outstanding::default();
        (0..3).for_each(|n| outstanding.add(n));
        let mut delays = Vec::new();
        outstanding.sent(2, 10, |slot| delays.push(slot.sent_ns - slot.due_ns));
        outstanding.settle_sent();
        assert_eq!(delays, [10, 9]);
        assert!(!outstanding.is_empty());
    }
}
