//! WebSocket frames (RFC 6455): checks and assembles a client's, composes the gateway's.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::config::Flaw;

/// Longest message of a client, in bytes.
const MAX_BYTES: usize = 64 << 10;
/// Size of one read from the socket, in bytes.
const READ_BYTES: usize = 16 << 10;

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A text message, whose UTF-8 isn't checked.
    Text(Vec<u8>),
    /// A binary message with its payload.
    Binary(Vec<u8>),
    /// A Ping, with the payload that the Pong must repeat.
    Ping(Vec<u8>),
    /// A Pong, without its payload.
    Pong,
    /// A Close frame, with its payload: the client's code and reason.
    Close(Vec<u8>),
}

/// Why nothing more is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The client violated RFC 6455; the text is the close reason.
    Violation(&'static str),
    /// A message is longer than the limit.
    TooLong,
    /// The connection has ended.
    Disconnected,
}

/// The reading side of a connection.
#[derive(Debug)]
pub struct Reader<R> {
    io: R,
    bytes: BytesMut,
    /// An incomplete message: its opcode and the payload so far.
    parts: Option<(u8, Vec<u8>)>,
    flaw: Flaw,
    /// Bytes of complete frames so far.
    pub received: u64,
}

struct Header {
    last: bool,
    opcode: u8,
    mask: Option<[u8; 4]>,
    /// Length of the header, in bytes.
    bytes: usize,
    payload: usize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// Creates a reader of `io`.
    pub fn new(io: R, flaw: Flaw) -> Self {
        Self { io, bytes: BytesMut::new(), parts: None, flaw, received: 0 }
    }

    /// The next message. Nothing is lost when the future is dropped before it is ready.
    ///
    /// # Errors
    /// When the client violates RFC 6455, a message is too long, or the connection has ended.
    pub async fn next(&mut self) -> Result<Message, ReadError> {
        loop {
            while let Some(header) = self.header()? {
                let Some(message) = self.frame(&header)? else { break };
                if let Some(message) = message {
                    return Ok(message);
                }
            }
            self.bytes.reserve(READ_BYTES);
            match self.io.read_buf(&mut self.bytes).await {
                Ok(0) | Err(_) => return Err(ReadError::Disconnected),
                Ok(_) => {}
            }
        }
    }

    /// Reads and discards everything until the client closes its side.
    pub async fn discard(&mut self) {
        loop {
            self.bytes.clear();
            self.bytes.reserve(READ_BYTES);
            if !matches!(self.io.read_buf(&mut self.bytes).await, Ok(1..)) {
                return;
            }
        }
    }

    fn header(&self) -> Result<Option<Header>, ReadError> {
        let [first, second, rest @ ..] = &self.bytes[..] else { return Ok(None) };
        let (last, opcode, masked) = (first & 0x80 != 0, first & 0x0f, second & 0x80 != 0);
        if first & 0x70 != 0 {
            return Err(ReadError::Violation("reserved bits must be 0"));
        }
        if !matches!(opcode, 0..=2 | 8..=10) {
            return Err(ReadError::Violation("unknown opcode"));
        }
        if opcode >= 8 && (!last || second & 0x7f > 125) {
            return Err(ReadError::Violation("control frames have at most 125 bytes and no fragments"));
        }
        if !masked && self.flaw != Flaw::Unmasked {
            return Err(ReadError::Violation("client frames must be masked"));
        }
        let (extended_bytes, length) = match (second & 0x7f, rest) {
            (126, [a, b, ..]) => (2, u64::from(u16::from_be_bytes([*a, *b]))),
            (127, [a, b, c, d, e, f, g, h, ..]) => (8, u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])),
            (126 | 127, _) => return Ok(None),
            (short, _) => (0, u64::from(short)),
        };
        if (extended_bytes == 2 && length < 126) || (extended_bytes == 8 && length <= 0xffff) {
            return Err(ReadError::Violation("the length is not minimal"));
        }
        let so_far = self.parts.as_ref().map_or(0, |(_, parts)| parts.len());
        let payload = usize::try_from(length).unwrap_or(usize::MAX);
        if opcode < 8 && payload.saturating_add(so_far) > MAX_BYTES {
            return Err(ReadError::TooLong);
        }
        let mask = match (masked, rest.get(extended_bytes..extended_bytes + 4)) {
            (false, _) => None,
            (true, Some(mask)) => Some([mask[0], mask[1], mask[2], mask[3]]),
            (true, None) => return Ok(None),
        };
        Ok(Some(Header { last, opcode, mask, bytes: 2 + extended_bytes + if masked { 4 } else { 0 }, payload }))
    }

    /// Takes a frame: `None` when the frame is incomplete, `Some(None)` when its message is.
    fn frame(&mut self, header: &Header) -> Result<Option<Option<Message>>, ReadError> {
        let bytes = header.bytes + header.payload;
        if self.bytes.len() < bytes {
            return Ok(None);
        }
        self.received += bytes as u64;
        self.bytes.advance(header.bytes);
        let mut payload = self.bytes.split_to(header.payload).to_vec();
        if let Some(mask) = header.mask {
            payload.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= mask[at % 4]);
        }
        Ok(Some(match header.opcode {
            8 if payload.len() == 1 => return Err(ReadError::Violation("a close code has two bytes")),
            8 => Some(Message::Close(payload)),
            9 => Some(Message::Ping(payload)),
            10 => Some(Message::Pong),
            opcode => self.data(opcode, header.last, payload)?,
        }))
    }

    fn data(&mut self, opcode: u8, last: bool, payload: Vec<u8>) -> Result<Option<Message>, ReadError> {
        if self.flaw == Flaw::NoFragments && (!last || opcode == 0) {
            return Err(ReadError::Violation("fragments are not supported"));
        }
        let (opcode, assembled) = match (opcode, self.parts.take()) {
            (0, None) => return Err(ReadError::Violation("a continuation frame without a message")),
            (1.., Some(_)) => return Err(ReadError::Violation("a new message inside a fragmented message")),
            (0, Some((opcode, mut parts))) => {
                parts.extend(payload);
                (opcode, parts)
            }
            (opcode, None) => (opcode, payload),
        };
        if !last {
            self.parts = Some((opcode, assembled));
            return Ok(None);
        }
        Ok(Some(if opcode == 1 { Message::Text(assembled) } else { Message::Binary(assembled) }))
    }
}

/// A frame of the gateway: final and without a mask.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..=125 => bytes.push(length as u8),
        length @ 126..=0xffff => {
            bytes.push(126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}

/// A text frame with this payload.
pub fn text(text: &str) -> Vec<u8> {
    frame(1, text.as_bytes())
}

/// The Pong for a Ping's payload.
pub fn pong(payload: &[u8]) -> Vec<u8> {
    frame(10, payload)
}

/// A Close frame with code and reason.
pub fn close(code: u16, reason: &str) -> Vec<u8> {
    frame(8, &[&code.to_be_bytes()[..], reason.as_bytes()].concat())
}

/// The answer to a client's Close frame: its own code, or none.
pub fn close_echo(payload: &[u8]) -> Vec<u8> {
    frame(8, payload.get(..2).unwrap_or_default())
}
