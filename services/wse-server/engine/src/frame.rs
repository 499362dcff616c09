//! The WebSocket wire format (RFC 6455, section 5): headers, masks, close payloads. Pure: bytes in, values out.
//!
//! [`crate::receive`] interprets sequences of frames.

use bytes::{BufMut, Bytes, BytesMut};

/// The longest payload of a control frame, in bytes (RFC 6455, 5.5).
pub const MAX_CONTROL_PAYLOAD: usize = 125;
/// The longest header, in bytes: two, eight of length, four of mask.
pub const MAX_HEADER: usize = 14;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

/// The type of a frame (RFC 6455, 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// The next part of a fragmented message.
    Continuation = 0x0,
    /// A text message, or its first part.
    Text = 0x1,
    /// A binary message, or its first part.
    Binary = 0x2,
    /// A Close frame: one side of the close handshake.
    Close = 0x8,
    /// A Ping frame, to which the other side replies with a Pong.
    Ping = 0x9,
    /// A Pong frame: the reply to a Ping.
    Pong = 0xA,
}

impl Opcode {
    fn parse(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xA => Self::Pong,
            _ => return None,
        })
    }

    /// Whether it is Close, Ping or Pong. These are short, never fragmented, and allowed between fragments.
    pub fn is_control(self) -> bool {
        self as u8 & 0x8 != 0
    }
}

/// A breach of the protocol by a client, which ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A reserved bit is set, and no extension gives it a meaning.
    #[error("reserved bits are set")]
    ReservedBits,
    /// The opcode is not defined.
    #[error("unknown opcode")]
    UnknownOpcode,
    /// The frame is not masked; clients must mask.
    #[error("frame is not masked")]
    Unmasked,
    /// A control frame is fragmented, which is not allowed.
    #[error("fragmented control frame")]
    FragmentedControl,
    /// A control frame's payload has more than 125 bytes.
    #[error("control frame is too long")]
    LongControl,
    /// The payload length would fit into fewer bytes.
    #[error("length is not minimally encoded")]
    LengthEncoding,
    /// A continuation frame without a message to continue.
    #[error("unexpected continuation")]
    UnexpectedContinuation,
    /// A new message began before the previous one was complete.
    #[error("expected a continuation")]
    ExpectedContinuation,
    /// A close payload of one byte, or a code that must not be on the wire.
    #[error("invalid close frame")]
    InvalidClose,
    /// A text or a close reason is not UTF-8.
    #[error("invalid UTF-8")]
    InvalidUtf8,
    /// The message is larger than the limit.
    #[error("message is too big")]
    TooBig,
    /// On a connection with encryption of version 2: a data frame that isn't encrypted, or not the client's next one.
    #[error("not the next encrypted message")]
    Unsealed,
}

impl Violation {
    /// The code of the Close frame that answers it (RFC 6455, 7.4.1).
    pub fn close_code(self) -> u16 {
        match self {
            Self::InvalidUtf8 => 1007,
            Self::TooBig => 1009,
            _ => 1002,
        }
    }
}

/// The header of a client's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether this is the last frame of its message.
    pub fin: bool,
    /// The frame's type, from the low four bits of the first byte.
    pub opcode: Opcode,
    /// The key that the payload is XORed with.
    pub mask: [u8; 4],
    /// The length of the header itself.
    pub header_bytes: usize,
    /// The length of the payload that follows.
    pub payload_bytes: usize,
}

impl Header {
    /// The length of header and payload together.
    pub fn frame_bytes(&self) -> usize {
        self.header_bytes + self.payload_bytes
    }
}

/// Parses the header of a client's frame. Returns `None` if `bytes` end within it.
///
/// # Errors
/// A [`Violation`] if no client may send this frame or its payload is longer than `limit` bytes; both are known before
/// the payload arrives.
#[inline]
pub fn parse_header(bytes: &[u8], limit: usize) -> Result<Option<Header>, Violation> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & RESERVED != 0 {
        return Err(Violation::ReservedBits);
    }
    let opcode = Opcode::parse(first & 0x0F).ok_or(Violation::UnknownOpcode)?;
    if second & MASKED == 0 {
        return Err(Violation::Unmasked);
    }
    let fin = first & FIN != 0;
    let short = second & !MASKED;
    if opcode.is_control() {
        if !fin {
            return Err(Violation::FragmentedControl);
        }
        if short > MAX_CONTROL_PAYLOAD as u8 {
            return Err(Violation::LongControl);
        }
    }
    let (length_bytes, payload_bytes) = match short {
        LENGTH_16 => match rest {
            [a, b, ..] => (2, minimal(u64::from(u16::from_be_bytes([*a, *b])), u64::from(LENGTH_16))?),
            _ => return Ok(None),
        },
        LENGTH_64 => match rest.first_chunk::<8>() {
            Some(length) => (8, minimal(u64::from_be_bytes(*length), 1 << 16)?),
            None => return Ok(None),
        },
        short => (0, u64::from(short)),
    };
    if payload_bytes > limit as u64 && !opcode.is_control() {
        return Err(Violation::TooBig);
    }
    let Some(mask) = rest.get(length_bytes..).and_then(|rest| rest.first_chunk::<4>()) else { return Ok(None) };
    let header_bytes = 2 + length_bytes + 4;
    Ok(Some(Header { fin, opcode, mask: *mask, header_bytes, payload_bytes: payload_bytes as usize }))
}

fn minimal(length: u64, minimum: u64) -> Result<u64, Violation> {
    // The highest bit must be 0 (RFC 6455, 5.2).
    if length < minimum || length >> 63 != 0 { Err(Violation::LengthEncoding) } else { Ok(length) }
}

/// XORs `payload` with `mask` in place, a word at a time, which the compiler vectorises.
#[inline]
pub fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let word = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    // Only whole words were processed, so the mask starts over.
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// Appends the header of an unfragmented message from the server: final and unmasked.
pub fn put_header(out: &mut impl BufMut, opcode: Opcode, payload_bytes: usize) {
    put_first(out, FIN | opcode as u8, payload_bytes);
}

/// The same with the first byte of the header, which has the opcode.
pub(crate) fn put_first(out: &mut impl BufMut, first: u8, payload_bytes: usize) {
    out.put_u8(first);
    match payload_bytes {
        0..=125 => out.put_u8(payload_bytes as u8),
        126..=0xFFFF => {
            out.put_u8(LENGTH_16);
            out.put_u16(payload_bytes as u16);
        }
        _ => {
            out.put_u8(LENGTH_64);
            out.put_u64(payload_bytes as u64);
        }
    }
}

/// Appends an unfragmented message from the server.
pub fn put(out: &mut impl BufMut, opcode: Opcode, payload: &[u8]) {
    put_header(out, opcode, payload.len());
    out.put_slice(payload);
}

/// Frames an unfragmented message from the server once, to be shared by all its receivers.
pub fn encode(opcode: Opcode, payload: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(payload.len() + MAX_HEADER);
    put(&mut framed, opcode, payload);
    framed.freeze()
}

/// The payloads of server messages that were framed back to back; stops at an incomplete one.
pub fn payloads(framed: &[u8]) -> impl Iterator<Item = &[u8]> {
    messages(framed).map(|(_, payload)| payload)
}

/// The opcode in the first byte of a header.
pub(crate) fn opcode(first: u8) -> Option<Opcode> {
    Opcode::parse(first & 0x0F)
}

/// Server messages that were framed back to back, each with the first byte of its header; stops at an incomplete one.
pub(crate) fn messages(mut framed: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let [first, second, rest @ ..] = framed else { return None };
        let (length, rest) = match *second {
            LENGTH_16 => {
                rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?
            }
            LENGTH_64 => rest.split_first_chunk().map(|(length, rest)| (u64::from_be_bytes(*length) as usize, rest))?,
            short => (usize::from(short), rest),
        };
        let (payload, rest) = rest.split_at_checked(length)?;
        framed = rest;
        Some((*first, payload))
    })
}

/// Appends a Close frame. `reason` must fit into a control frame beside the code (123 bytes).
pub fn put_close(out: &mut impl BufMut, code: u16, reason: &str) {
    debug_assert!(reason.len() + 2 <= MAX_CONTROL_PAYLOAD);
    put_header(out, Opcode::Close, 2 + reason.len());
    out.put_u16(code);
    out.put_slice(reason.as_bytes());
}

/// The code in a client's close payload; `None` if the payload is empty.
///
/// # Errors
/// [`Violation::InvalidClose`] for a payload of one byte or a code that must not be on the wire (RFC 6455, 7.4),
/// [`Violation::InvalidUtf8`] for a reason that is not UTF-8.
pub fn close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    let (code, reason) = match payload {
        [] => return Ok(None),
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        [_] => return Err(Violation::InvalidClose),
    };
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::InvalidClose);
    }
    if simdutf8::basic::from_utf8(reason).is_err() {
        return Err(Violation::InvalidUtf8);
    }
    Ok(Some(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn header(bytes: &[u8]) -> Result<Option<Header>, Violation> {
        parse_header(bytes, LIMIT)
    }

    #[test]
    fn the_three_lengths_are_read() {
        let mask = [1, 2, 3, 4];
        for (length, bytes) in [
            (5_usize, vec![0x81, 0x85]),
            (126, vec![0x81, 0xFE, 0, 126]),
            (65_536, vec![0x81, 0xFF, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let whole = [bytes.as_slice(), &mask].concat();
            let parsed = header(&whole).unwrap().unwrap();
            assert_eq!((parsed.payload_bytes, parsed.header_bytes, parsed.mask), (length, whole.len(), mask));
            for cut in 0..whole.len() {
                assert_eq!(header(&whole[..cut]), Ok(None), "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_forbidden_client_frame_is_named() {
        for (bytes, violation) in [
            (&[0xC1, 0x80][..], Violation::ReservedBits),
            (&[0x83, 0x80], Violation::UnknownOpcode),
            (&[0x81, 0x05], Violation::Unmasked),
            (&[0x09, 0x80], Violation::FragmentedControl),
            (&[0x89, 0xFE], Violation::LongControl),
            (&[0x81, 0xFE, 0, 125], Violation::LengthEncoding),
            (&[0x81, 0xFF, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF], Violation::LengthEncoding),
            (&[0x81, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0], Violation::LengthEncoding),
            (&[0x81, 0xFF, 0, 0, 0, 0, 0, 0x20, 0, 0], Violation::TooBig),
        ] {
            assert_eq!(header(bytes), Err(violation), "{bytes:x?}");
        }
    }

    #[test]
    fn unmasking_twice_changes_nothing_at_any_length() {
        let mask = [0xDE, 0xAD, 0xBE, 0xEF];
        for length in 0..40_u8 {
            let plain: Vec<u8> = (0..length).collect();
            let mut bytes = plain.clone();
            unmask(&mut bytes, mask);
            let expected: Vec<u8> = plain.iter().enumerate().map(|(i, byte)| byte ^ mask[i % 4]).collect();
            assert_eq!(bytes, expected);
            unmask(&mut bytes, mask);
            assert_eq!(bytes, plain);
        }
    }

    #[test]
    fn messages_are_framed_with_minimal_lengths() {
        for (length, header) in
            [(125_usize, &[0x81, 125][..]), (126, &[0x81, 126, 0, 126]), (65_536, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0])]
        {
            let framed = encode(Opcode::Text, &vec![b'x'; length]);
            assert_eq!((&framed[..header.len()], framed.len()), (header, header.len() + length));
        }
    }

    #[test]
    fn close_payloads_are_checked() {
        assert_eq!(close_code(&[]), Ok(None));
        assert_eq!(close_code(&[3, 0xE8, b'o', b'k']), Ok(Some(1000)));
        assert_eq!(close_code(&4999_u16.to_be_bytes()), Ok(Some(4999)));
        assert_eq!(close_code(&[3]), Err(Violation::InvalidClose));
        assert_eq!(close_code(&[3, 0xE8, 0xFF]), Err(Violation::InvalidUtf8));
        for code in [0_u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000] {
            assert_eq!(close_code(&code.to_be_bytes()), Err(Violation::InvalidClose), "{code}");
        }
    }
    #[test]
    fn messages_framed_together_are_split_again() {
        let lengths = [0, 1, 125, 126, 0xFFFF, 0x1_0000, 3];
        let mut framed = Vec::new();
        lengths.iter().for_each(|length| put(&mut framed, Opcode::Text, &vec![7; *length]));
        assert_eq!(payloads(&framed).map(<[u8]>::len).collect::<Vec<_>>(), lengths);
        assert_eq!(payloads(&framed[..framed.len() - 1]).count(), lengths.len() - 1);
        assert_eq!(payloads(b"").count(), 0);
    }
}
