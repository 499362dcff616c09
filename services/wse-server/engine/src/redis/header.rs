//! The header in front of a publication in a Redis message: which instance published it, and its number.
//!
//! ```text
//! 01 | what follows (bit 0: a number, bit 1: a stamp) | origin u64 | [number u64] | [epoch u32 | offset i64] | text
//! ```
//! Integers are little-endian. No text begins with the byte 01, so a message that another program publishes without a
//! header is recognized: its payload is the text.

use crate::recovery::Position;

const MARK: u8 = 1;
const NUMBERED: u8 = 1;
const STAMPED: u8 = 2;
/// The longest header, in bytes.
pub(super) const LONGEST: usize = 2 + 8 + 8 + 12;

/// The header of one publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The instance that published it.
    pub origin: u64,
    /// Its number among that instance's publications to this topic. A dead letter that is published again has none: it
    /// goes to all subscribers, regardless of the numbers before.
    pub number: Option<u64>,
    /// Its position in that instance's log.
    pub stamp: Option<Position>,
}

/// A header that is incomplete or of an unknown version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Header {
    /// The header's length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        10 + if self.number.is_some() { 8 } else { 0 } + if self.stamp.is_some() { 12 } else { 0 }
    }

    /// Appends the header to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        let numbered = if self.number.is_some() { NUMBERED } else { 0 };
        let stamped = if self.stamp.is_some() { STAMPED } else { 0 };
        out.extend_from_slice(&[MARK, numbered | stamped]);
        out.extend_from_slice(&self.origin.to_le_bytes());
        if let Some(number) = self.number {
            out.extend_from_slice(&number.to_le_bytes());
        }
        if let Some(Position { epoch, offset }) = self.stamp {
            out.extend_from_slice(&epoch.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
        }
    }

    /// Splits a message into its header, if it has one, and its text.
    ///
    /// # Errors
    /// [`Malformed`] if the header is incomplete or has unknown flags.
    pub fn split(message: &[u8]) -> Result<(Option<Self>, &[u8]), Malformed> {
        let [MARK, rest @ ..] = message else { return Ok((None, message)) };
        let (&flags, rest) = rest.split_first().ok_or(Malformed)?;
        if flags & !(NUMBERED | STAMPED) != 0 {
            return Err(Malformed);
        }
        let (origin, mut rest) = number(rest)?;
        let mut header = Self { origin, number: None, stamp: None };
        if flags & NUMBERED != 0 {
            let (number, remaining) = number(rest)?;
            (header.number, rest) = (Some(number), remaining);
        }
        if flags & STAMPED != 0 {
            let (epoch, remaining) = rest.split_first_chunk().ok_or(Malformed)?;
            let (offset, remaining) = number(remaining)?;
            header.stamp = Some(Position { epoch: u32::from_le_bytes(*epoch), offset: offset as i64 });
            rest = remaining;
        }
        Ok((Some(header), rest))
    }
}

fn number(bytes: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    Ok((u64::from_le_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn foreign_publications_without_header_stay_unchanged() {
        for message in [b"{}".as_slice(), b"", b"\x00\x01", b"text", b"\xff\xfe"] {
            assert_eq!(Header::split(message), Ok((None, message)));
        }
    }

    #[test]
    fn an_unreadable_header_is_malformed() {
        for message in [b"\x01".as_slice(), b"\x01\x04aaaaaaaa", b"\x01\x00aaaaaaa", b"\x01\x01aaaaaaaabbbbbbb"] {
            assert_eq!(Header::split(message), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn written_frames_are_read(
            origin: u64, number: Option<u64>, stamp: Option<(u32, i64)>, text: String,
        ) {
            let stamp = stamp.map(|(epoch, offset)| Position { epoch, offset });
            let header = Header { origin, number, stamp };
            let mut message = Vec::new();
            header.put(&mut message);
            prop_assert!(message.len() == header.length() && message.len() <= LONGEST);
            message.extend_from_slice(text.as_bytes());
            prop_assert_eq!(Header::split(&message), Ok((Some(header), text.as_bytes())));
        }
    }
}
