//! RFC 6455 frames on the client's side: parses unmasked frames; `build` builds masked ones. Pure.
//!
//! Parsing is strict, because a service that sends broken frames must not look fast.

pub use build::{Batch, LONGEST_HEADER, Masks, Progress, append, append_compressed, append_fragments, progress};

mod build;

/// Largest frame accepted from a service, in bytes. A longer one is treated as a broken length.
pub const LARGEST_FRAME: u64 = 16 << 20;

/// The FIN bit of a frame's first byte, set in the last frame of a message.
const LAST: u8 = 0x80;
/// The reserved bits of a frame's first byte.
const RESERVED: u8 = 0x70;
/// The reserved bit of the first frame of a compressed message (RSV1; RFC 7692, section 6).
const COMPRESSED: u8 = 0x40;

/// The opcode of a frame (RFC 6455, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// The next part of a fragmented message.
    Continuation = 0,
    /// The first frame of a UTF-8 text message.
    Text = 1,
    /// The first frame of a binary message.
    Binary = 2,
    /// The Close frame of the close handshake.
    Close = 8,
    /// A ping, which requests a pong.
    Ping = 9,
    /// A pong, the response to a ping.
    Pong = 10,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    /// Whether the frame is a control frame: close, ping or pong.
    pub fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// A frame from a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Whether the frame ends its message (FIN bit).
    pub last: bool,
    /// Opcode of the frame.
    pub opcode: Opcode,
    /// Payload of the frame.
    pub payload: &'a [u8],
    /// Length of the frame in bytes, header included.
    pub length: usize,
}

/// How a service violated the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A reserved bit is set, and no extension that was negotiated gives it a meaning.
    #[error("a reserved bit is set")]
    Reserved,
    /// The opcode is not defined.
    #[error("the opcode is unknown")]
    Opcode,
    /// The frame is masked; a server must not mask (RFC 6455, section 5.1).
    #[error("a frame from the service is masked")]
    Masked,
    /// The length isn't in its shortest form (RFC 6455, section 5.2).
    #[error("the length isn't in its shortest form")]
    Length,
    /// The frame is longer than [`LARGEST_FRAME`], or a message than its limit.
    #[error("the frame is longer than {LARGEST_FRAME} bytes")]
    TooLong,
    /// A control frame is fragmented or longer than 125 bytes (RFC 6455, section 5.5).
    #[error("a control frame is fragmented or longer than 125 bytes")]
    Control,
    /// A continuation without a first frame, or a first frame inside another message.
    #[error("fragments are out of order")]
    Fragments,
}

/// The first frame of `bytes`; `None` while it is incomplete.
///
/// # Errors
/// A [`Violation`], as soon as the header shows it.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Option<Frame<'_>>, Violation> {
    match bytes {
        [first, _, ..] if first & RESERVED != 0 => Err(Violation::Reserved),
        _ => parse_any(bytes),
    }
}

/// The first frame of `bytes`, which is that of a compressed message; `None` while it is incomplete.
///
/// # Errors
/// A [`Violation`], as soon as the header shows it; [`Violation::Reserved`] also if the frame isn't that of a compressed
/// message.
pub fn parse_compressed(bytes: &[u8]) -> Result<Option<Frame<'_>>, Violation> {
    let [first, _, ..] = bytes else { return Ok(None) };
    let begins_message = matches!(Opcode::from_bits(first & 0x0F), Some(Opcode::Text | Opcode::Binary));
    if first & RESERVED != COMPRESSED || !begins_message {
        return Err(Violation::Reserved);
    }
    parse_any(bytes)
}

/// The first frame, regardless of its reserved bits.
#[inline]
fn parse_any(bytes: &[u8]) -> Result<Option<Frame<'_>>, Violation> {
    let [first, second, following @ ..] = bytes else { return Ok(None) };
    let opcode = Opcode::from_bits(first & 0x0F).ok_or(Violation::Opcode)?;
    if second & 0x80 != 0 {
        return Err(Violation::Masked);
    }
    let last = first & LAST != 0;
    if opcode.is_control() && (!last || *second > 125) {
        return Err(Violation::Control);
    }
    let (header, length) = match second {
        126 => match following.first_chunk::<2>() {
            None => return Ok(None),
            Some(length) => (4, shortest(u64::from(u16::from_be_bytes(*length)), 126)?),
        },
        127 => match following.first_chunk::<8>() {
            None => return Ok(None),
            Some(length) => (10, shortest(u64::from_be_bytes(*length), 1 << 16)?),
        },
        short => (2, u64::from(*short)),
    };
    if length > LARGEST_FRAME {
        return Err(Violation::TooLong);
    }
    let end = header + length as usize;
    Ok(bytes.get(header..end).map(|payload| Frame { last, opcode, payload, length: end }))
}

/// Returns `length`, or an error if a shorter form of the header can hold it: lengths from `at_least` need this form.
#[inline]
fn shortest(length: u64, at_least: u64) -> Result<u64, Violation> {
    if length < at_least { Err(Violation::Length) } else { Ok(length) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An unmasked frame, as a service builds it.
    fn server_frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x80 | opcode];
        match payload.len() {
            0..=125 => frame.push(payload.len() as u8),
            126..=0xFFFF => {
                frame.push(126);
                frame.extend((payload.len() as u16).to_be_bytes());
            }
            _ => {
                frame.push(127);
                frame.extend((payload.len() as u64).to_be_bytes());
            }
        }
        frame.extend(payload);
        frame
    }

    proptest! {
        #[test]
        fn a_frame_parses_the_same_at_every_split(length in 0_usize..70_000, split in any::<prop::sample::Index>()) {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let frame = server_frame(2, &payload);
            let at = split.index(frame.len());
            prop_assert_eq!(parse(&frame[..at]).unwrap(), None);
            let parsed = parse(&frame).unwrap().unwrap();
            prop_assert_eq!((parsed.payload, parsed.length, parsed.last), (&payload[..], frame.len(), true));
        }

        #[test]
        fn random_bytes_cause_no_panic_or_read_beyond_their_end(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some(frame)) = parse(&bytes) {
                prop_assert!(frame.length <= bytes.len());
            }
        }

    }

    #[test]
    fn only_the_first_frame_of_a_message_may_be_marked_as_compressed() {
        // RFC 7692, section 7.2.3.1: "Hello" in one frame, and in two.
        let whole = [0xc1, 0x07, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        let first = [0x41, 0x03, 0xf2, 0x48, 0xcd];
        for (bytes, last) in [(&whole[..], true), (&first, false)] {
            let frame = Frame { last, opcode: Opcode::Text, payload: &bytes[2..], length: bytes.len() };
            assert_eq!(parse_compressed(bytes), Ok(Some(frame)));
            assert_eq!(parse(bytes), Err(Violation::Reserved), "without the extension");
            for cut in 0..bytes.len() {
                assert_eq!(parse_compressed(&bytes[..cut]), Ok(None));
            }
        }
        for wrong in [
            [0x81, 0x00],
            [0xe1, 0x00],
            [0xa1, 0x00],
            [0x91, 0x00],
            [0xc0, 0x00],
            [0xc9, 0x00],
            [0xc8, 0x00],
            [0xc3, 0x00],
        ] {
            assert_eq!(parse_compressed(&wrong), Err(Violation::Reserved), "{wrong:x?}");
        }
    }

    #[test]
    fn each_violation_of_a_header_is_reported_by_its_name() {
        let long_zero = [0x82, 127, 0, 0, 0, 0, 0, 0, 0, 1];
        let huge = [0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0];
        for (bytes, violation) in [
            (&[0xC2, 0][..], Violation::Reserved),
            (&[0x83, 0], Violation::Opcode),
            (&[0x82, 0x80], Violation::Masked),
            (&[0x82, 126, 0, 125], Violation::Length),
            (&long_zero, Violation::Length),
            (&huge, Violation::TooLong),
            (&[0x08, 0], Violation::Control),
            (&[0x89, 126, 0, 126], Violation::Control),
        ] {
            assert_eq!(parse(bytes), Err(violation), "{bytes:x?}");
        }
    }
}
