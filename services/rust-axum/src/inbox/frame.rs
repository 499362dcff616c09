//! Frames of a client: their headers, the masking of payloads, and the reply to a Close frame.
//!
//! [`Header::parse`] checks a header against RFC 6455 as soon as the bytes show a [`Violation`]; complete messages are
//! checked by the inbox. The module does no I/O and keeps no state.

use crate::protocol::{Close, MAX_MESSAGE_BYTES};

/// A violation of the WebSocket protocol or of the contract, which ends the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The Close frame to send.
    pub(crate) close: Close,
    /// Whether a complete data message was refused. The books count it as a received message.
    pub(crate) is_message: bool,
}

impl Violation {
    pub(super) const fn frame(reason: &'static str) -> Self {
        Self { close: Close::new(1002, reason), is_message: false }
    }

    pub(super) const fn message(code: u16, reason: &'static str) -> Self {
        Self { close: Close::new(code, reason), is_message: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Text,
    Binary,
}

/// A fragmented data message of which the last fragment is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incomplete {
    pub(super) content: Content,
    /// Size of the fragments so far, in bytes.
    pub(super) length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data(Content),
    Continuation,
    Control(Control),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Close,
    Ping,
    Pong,
}

/// A frame's header, including the masking key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) is_last: bool,
    pub(super) mask: [u8; 4],
    /// Size of the header itself, in bytes.
    pub(super) bytes: usize,
    /// Size of the payload, in bytes.
    pub(super) length: usize,
}

impl Header {
    /// Parses the header at the front of `wire`; `None` if it is incomplete. Violations are reported as early as the
    /// bytes show them.
    pub(super) fn parse(wire: &[u8], incomplete: Option<Incomplete>) -> Result<Option<Self>, Violation> {
        let &[first, second, ..] = wire else { return Ok(None) };
        let (is_last, is_masked) = (first & 0x80 != 0, second & 0x80 != 0);
        if first & 0x70 != 0 {
            return Err(Violation::frame("reserved bit"));
        }
        if !is_masked {
            return Err(Violation::frame("frame without a mask"));
        }
        let kind = match first & 0x0f {
            0 => Kind::Continuation,
            1 => Kind::Data(Content::Text),
            2 => Kind::Data(Content::Binary),
            8 => Kind::Control(Control::Close),
            9 => Kind::Control(Control::Ping),
            10 => Kind::Control(Control::Pong),
            _ => return Err(Violation::frame("unknown opcode")),
        };
        match (kind, incomplete) {
            (Kind::Control(_), _) if !is_last => return Err(Violation::frame("control frame in fragments")),
            (Kind::Control(_), _) if second & 0x7f > 125 => return Err(Violation::frame("control frame too long")),
            (Kind::Continuation, None) => return Err(Violation::frame("continuation of nothing")),
            (Kind::Data(_), Some(_)) => return Err(Violation::frame("message within a message")),
            _ => {}
        }
        let Some((length, extended)) = payload_length(second & 0x7f, &wire[2..])? else { return Ok(None) };
        let before = incomplete.map_or(0, |incomplete| incomplete.length);
        if !matches!(kind, Kind::Control(_)) && length > (MAX_MESSAGE_BYTES - before) as u64 {
            return Err(Violation { close: Close::new(1009, "message beyond 64 KiB"), is_message: false });
        }
        let Some(&mask) = wire[2 + extended..].first_chunk() else { return Ok(None) };
        // The cast is lossless: `length` is at most `MAX_MESSAGE_BYTES`.
        Ok(Some(Self { kind, is_last, mask, bytes: 6 + extended, length: length as usize }))
    }
}

/// Returns the payload's length, and the number of bytes that the extended length field takes.
fn payload_length(short: u8, remaining: &[u8]) -> Result<Option<(u64, usize)>, Violation> {
    const NOT_MINIMAL: Violation = Violation::frame("length not minimal");
    match short {
        126 => match remaining.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)) {
            Some(..=125) => Err(NOT_MINIMAL),
            length => Ok(length.map(|length| (length.into(), 2))),
        },
        127 => match remaining.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)) {
            Some(..=0xffff) => Err(NOT_MINIMAL),
            length => Ok(length.map(|length| (length, 8))),
        },
        length => Ok(Some((length.into(), 0))),
    }
}

/// Returns the reply to a Close frame, which has the same code.
pub(super) fn close_reply(payload: &[u8]) -> Result<Close, Violation> {
    match payload {
        [] => Ok(Close { code: None, reason: "" }),
        [_] => Err(Violation::frame("close frame of one byte")),
        &[high, low, ref reason @ ..] => match u16::from_be_bytes([high, low]) {
            code @ (1000..=1003 | 1007..=1014 | 3000..=4999) if std::str::from_utf8(reason).is_ok() => {
                Ok(Close::new(code, ""))
            }
            _ => Err(Violation::frame("close frame with a code or reason that must not be sent")),
        },
    }
}

/// Unmasks eight bytes at a time, which the compiler vectorises.
pub(super) fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, remainder) = payload.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in remainder.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= mask;
    }
}
