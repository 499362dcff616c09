//! Counts what was sent to a peer and what of it arrived: an extension of the protocol. Pure.
//!
//! Messages to one peer are numbered by counting. The number is not on the wire with each message, but in a
//! [`Kind::Count`] frame at the start of a link, and in each ping. Numbers continue over all links between two
//! instances. A gap means that messages were sent and didn't arrive, because they were on their way when a link broke.
//! Messages that a sender dropped are counted by the sender and have no number. Instead a new session begins, which
//! shows the receiver that it hasn't got everything that was published.
//!
//! [`Kind::Count`]: super::frame::Kind::Count

use bytes::{BufMut, Bytes, BytesMut};

/// The payload of a Count frame, and of pings and pongs if both sides support numbering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of messages before the next one, or that have arrived.
    pub number: u64,
    /// The sender's session, which changes whenever it drops messages for this peer.
    pub session: u32,
}

impl Count {
    /// Encodes the payload: the number, then the session, little endian.
    pub fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(12);
        out.put_u64_le(self.number);
        out.put_u32_le(self.session);
        out.freeze()
    }

    /// Decodes a payload; `None` if it is too short.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (number, rest) = payload.split_first_chunk()?;
        let session = rest.first_chunk()?;
        Some(Self { number: u64::from_le_bytes(*number), session: u32::from_le_bytes(*session) })
    }
}

/// The result of comparing the sender's count with that of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reconciled {
    /// How many messages didn't arrive and won't.
    pub(super) lost: u64,
    /// Whether everything that was published for this instance has arrived.
    pub(super) is_complete: bool,
}

/// The count of what has arrived from a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    count: Option<Count>,
}

impl Arrivals {
    /// Counts messages that arrived.
    pub(super) fn add(&mut self, messages: u64) {
        if let Some(count) = &mut self.count {
            count.number = count.number.wrapping_add(messages);
        }
    }

    /// Compares with the count that the sender reports, and continues from that.
    pub(super) fn compare(&mut self, theirs: Count) -> Reconciled {
        let Some(mine) = self.count.replace(theirs) else { return Reconciled { lost: 0, is_complete: false } };
        // A lower number than before: the sender has forgotten this instance and counts from the start.
        let lost = theirs.number.saturating_sub(mine.number);
        Reconciled { lost, is_complete: theirs == mine }
    }

    /// The count to report to the sender; `None` before the sender has reported its own.
    pub(super) fn reconciled(&self) -> Option<Count> {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(number: u64, session: u32) -> Count {
        Count { number, session }
    }

    fn reconciled(lost: u64, is_complete: bool) -> Reconciled {
        Reconciled { lost, is_complete }
    }

    #[test]
    fn gaps_are_counted_once_and_the_first_report_sets_the_start() {
        let mut arrivals = Arrivals::default();
        arrivals.add(5);
        assert_eq!(arrivals.compare(count(100, 0)), reconciled(0, false));
        arrivals.add(3);
        assert_eq!(arrivals.compare(count(103, 0)), reconciled(0, true));
        assert_eq!(arrivals.compare(count(110, 0)), reconciled(7, false));
        assert_eq!(arrivals.compare(count(110, 0)), reconciled(0, true));
        assert_eq!(arrivals.reconciled(), Some(count(110, 0)));
    }

    #[test]
    fn another_session_or_a_smaller_number_means_a_loss() {
        let mut arrivals = Arrivals::default();
        arrivals.compare(count(5, 0));
        assert_eq!(arrivals.compare(count(9, 1)), reconciled(4, false));
        assert_eq!(arrivals.compare(count(9, 2)), reconciled(0, false));
        assert_eq!(arrivals.compare(count(3, 2)), reconciled(0, false));
        assert_eq!(arrivals.compare(count(3, 2)), reconciled(0, true));
    }

    #[test]
    fn counts_are_read_back_and_other_payloads_refused() {
        assert_eq!(Count::parse(&count(7, 9).encode()), Some(count(7, 9)));
        assert_eq!(Count::parse(&count(7, 9).encode()[..11]), None);
        assert_eq!(Count::parse(b""), None);
    }
}
