//! What one connection received from a service that publishes: which sequence numbers, which are missing, how late they
//! were.
//!
//! Pure, and the hottest path of the generator: the next message in order costs one comparison and two additions here.
//! A connection without gaps allocates nothing.

use bench_format::result::ReceiverBook;

use crate::{
    frame::{self, Opcode},
    pattern::{Pattern, Publishing},
    phases::Phases,
    recorder::{Metric, Recorder},
    workload::{Delivery, Workload},
};

/// Largest number of gaps that a connection remembers, so that a late message isn't counted as a duplicate. If there
/// are more, the oldest gap is forgotten and its messages stay missing.
const MOST_GAPS: usize = 4096;

/// The sequence numbers received on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receiver {
    /// The next sequence number in order.
    next: u64,
    received: u64,
    first: u64,
    missing: u64,
    duplicated: u64,
    reordered: u64,
    /// Messages of other kinds; see [`ReceiverBook::others`].
    pub(crate) others: u64,
    /// Published messages without number or time; see [`ReceiverBook::wrong`].
    pub(crate) wrong: u64,
    /// Whether a message due after the window arrived; see [`ReceiverBook::reached`].
    pub(crate) reached: bool,
    /// Whether the close handshake was completed; see [`ReceiverBook::closed`].
    pub(crate) closed: bool,
    /// Missing numbers as half-open ranges in rising order.
    gaps: Vec<(u64, u64)>,
    /// Whether publication began after the connection was ready, so that number 0 is due, too.
    from_start: bool,
}

impl Receiver {
    /// A receiver of what is published in a pattern.
    pub(crate) fn of(pattern: Pattern) -> Self {
        Self { from_start: matches!(pattern, Pattern::Fanout { .. }), ..Self::default() }
    }

    /// Counts a message by its sequence number.
    #[inline]
    pub fn take(&mut self, sequence: u64) {
        if sequence == self.next {
            self.next += 1;
            self.received += 1;
        } else {
            self.take_out_of_order(sequence);
        }
    }

    #[cold]
    fn take_out_of_order(&mut self, sequence: u64) {
        if self.received == 0 && !self.from_start {
            // A subscriber joins at the publisher's current number.
            (self.first, self.next, self.received) = (sequence, sequence + 1, 1);
        } else if sequence > self.next {
            self.count_missing(self.next, sequence);
            self.next = sequence + 1;
            self.received += 1;
        } else if sequence < self.first {
            self.take_before_first(sequence);
            self.reordered += 1;
            self.received += 1;
        } else if self.fill_gap(sequence) {
            self.missing -= 1;
            self.reordered += 1;
            self.received += 1;
        } else {
            self.duplicated += 1;
        }
    }

    /// Counts the numbers from `from` to before `to` as missing.
    fn count_missing(&mut self, from: u64, to: u64) {
        self.missing += to - from;
        if self.gaps.len() == MOST_GAPS {
            self.gaps.remove(0);
        }
        self.gaps.push((from, to));
    }

    /// Counts a number below the first. The numbers between the two are missing until they arrive.
    fn take_before_first(&mut self, sequence: u64) {
        if sequence + 1 < self.first {
            self.missing += self.first - sequence - 1;
            self.gaps.insert(0, (sequence + 1, self.first));
        }
        self.first = sequence;
    }

    /// Removes a number from the gap that contains it; returns whether there is one.
    fn fill_gap(&mut self, sequence: u64) -> bool {
        let at = self.gaps.partition_point(|gap| gap.1 <= sequence);
        let Some((from, to)) = self.gaps.get(at).copied().filter(|gap| gap.0 <= sequence) else { return false };
        self.gaps.remove(at);
        if sequence + 1 < to {
            self.gaps.insert(at, (sequence + 1, to));
        }
        if from < sequence {
            self.gaps.insert(at, (from, sequence));
        }
        true
    }

    /// The counts for the worker's result.
    pub fn book(&self) -> ReceiverBook {
        let any = self.received > 0;
        ReceiverBook {
            first: any.then_some(self.first),
            last: any.then(|| self.next - 1),
            received: self.received,
            missing: self.missing,
            duplicated: self.duplicated,
            reordered: self.reordered,
            wrong: self.wrong,
            others: self.others,
            reached: self.reached,
            closed: self.closed,
        }
    }
}

/// The context in which the messages of one read are counted.
pub struct Reading<'a> {
    /// Time of the read, in nanoseconds of the monotonic clock.
    pub now_ns: u64,
    /// How the service publishes.
    pub publishing: Publishing,
    /// Phases, histograms, and the publisher's clock minus this machine's monotonic clock in nanoseconds; absent before
    /// the start is known.
    pub load: Option<(Phases, &'a mut Recorder, i64)>,
}

/// The result of handling a range of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Bytes of the frames that were handled.
    pub used: usize,
    /// Number of published messages among them.
    pub deliveries: u64,
}

impl Reading<'_> {
    /// Handles unfragmented text messages until another frame follows, which is left to the caller.
    #[inline]
    pub fn take_published<W: Workload>(&mut self, workload: &W, receiver: &mut Receiver, bytes: &[u8]) -> Handled {
        let mut handled = Handled::default();
        while let Ok(Some(frame)) = frame::parse(&bytes[handled.used..])
            && frame.opcode == Opcode::Text
            && frame.last
        {
            handled.used += frame.length;
            handled.deliveries += u64::from(self.take(workload, receiver, frame.payload));
        }
        handled
    }

    /// Handles one text message; returns whether it is a published one.
    #[inline]
    pub fn take<W: Workload>(&mut self, workload: &W, receiver: &mut Receiver, payload: &[u8]) -> bool {
        self.count(receiver, workload.delivery(payload))
    }

    /// Counts one message by its kind; returns whether it is a published one.
    #[inline]
    pub(crate) fn count(&mut self, receiver: &mut Receiver, delivery: Delivery) -> bool {
        match delivery {
            Delivery::Published { sequence, due_unix_us } => {
                receiver.take(sequence);
                self.record(receiver, due_unix_us);
                true
            }
            Delivery::Other => {
                receiver.others += 1;
                false
            }
            Delivery::Wrong => {
                receiver.wrong += 1;
                false
            }
        }
    }

    #[inline]
    fn record(&mut self, receiver: &mut Receiver, due_unix_us: u64) {
        let Some((phases, recorder, offset_ns)) = &mut self.load else { return };
        // A time before this machine's boot is also before the window.
        let due_ns = due_unix_us.saturating_mul(1000).saturating_add_signed(-*offset_ns);
        if due_ns >= phases.window_end_ns {
            receiver.reached = true;
        } else if due_ns >= phases.window_start_ns {
            let metric = match self.publishing {
                Publishing::Paced => Metric::Response,
                Publishing::Flood => Metric::Age,
            };
            recorder.record(metric, self.now_ns.saturating_sub(due_ns), self.now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn book(sequences: &[u64]) -> ReceiverBook {
        let mut receiver = Receiver::default();
        sequences.iter().for_each(|sequence| receiver.take(*sequence));
        receiver.book()
    }

    /// The counts received, missing, duplicated and reordered.
    fn counts(sequences: &[u64]) -> (u64, u64, u64, u64) {
        let ReceiverBook { received, missing, duplicated, reordered, .. } = book(sequences);
        (received, missing, duplicated, reordered)
    }

    #[test]
    fn a_subscriber_may_start_at_any_number() {
        assert_eq!(book(&[0, 1, 2]), ReceiverBook { first: Some(0), last: Some(2), received: 3, ..Default::default() });
        assert_eq!(book(&[7, 8]), ReceiverBook { first: Some(7), last: Some(8), received: 2, ..Default::default() });
        assert_eq!(book(&[]), ReceiverBook::default());
    }

    #[test]
    fn a_skipped_number_is_a_missing_message() {
        assert_eq!(counts(&[5, 6, 9, 10, 12]), (5, 3, 0, 0));
    }

    #[test]
    fn a_repeated_message_is_a_duplicate_and_not_counted_again() {
        assert_eq!(counts(&[5, 6, 6, 7, 5]), (3, 0, 2, 0));
    }

    #[test]
    fn what_was_published_before_the_first_message_is_missing_if_the_receiver_was_there() {
        let mut receiver = Receiver::of(Pattern::Fanout { rate_per_second: 1.0, arrivals: Default::default() });
        [2, 3, 0].into_iter().for_each(|sequence| receiver.take(sequence));
        let ReceiverBook { first, last, received, missing, reordered, .. } = receiver.book();
        assert_eq!((first, last, received, missing, reordered), (Some(0), Some(3), 3, 1, 1));
    }

    #[test]
    fn a_late_message_is_reordered_and_not_missing() {
        assert_eq!(counts(&[5, 8, 6, 7, 9]), (5, 0, 0, 2));
        assert_eq!(counts(&[5, 9, 7, 7]), (3, 2, 1, 1), "7 came late and then again, 6 and 8 never");
        assert_eq!(counts(&[5, 6, 3]), (3, 1, 0, 1), "3 came after the first, 4 never");
    }

    #[test]
    fn a_gap_that_was_forgotten_stays_missing() {
        let even_numbers: Vec<u64> = (0..MOST_GAPS as u64 + 2).map(|n| 2 * n).collect();
        let late = [even_numbers, vec![1, 3]].concat();
        let missing = MOST_GAPS as u64 + 1;
        assert_eq!(counts(&late), (MOST_GAPS as u64 + 3, missing - 1, 1, 1));
    }

    proptest! {
        /// Compares the book with a plain implementation by a set of numbers and a maximum.
        #[test]
        fn the_books_are_those_of_a_set_of_numbers(sequences in prop::collection::vec(0_u64..60, 1..80)) {
            let mut distinct = std::collections::BTreeSet::new();
            let (mut duplicated, mut reordered) = (0, 0);
            for sequence in &sequences {
                let highest = distinct.last().copied();
                if !distinct.insert(*sequence) {
                    duplicated += 1;
                } else if highest.is_some_and(|highest| *sequence < highest) {
                    reordered += 1;
                }
            }
            let (first, last) = (*distinct.first().unwrap(), *distinct.last().unwrap());
            let received = distinct.len() as u64;
            let expected = ReceiverBook {
                first: Some(first),
                last: Some(last),
                received,
                missing: last - first + 1 - received,
                duplicated,
                reordered,
                ..Default::default()
            };
            let book = book(&sequences);
            prop_assert_eq!(book.expected(), book.received + book.missing);
            prop_assert_eq!(book, expected);
        }
    }
}
