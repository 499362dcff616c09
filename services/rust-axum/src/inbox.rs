//! The inbox: parses a client's WebSocket frames, checks the contract's rules, and collects the audio of the next
//! batch, all in one buffer.
//!
//! The buffer holds, in this order: audio that waits, the fragments of an incomplete message, and bytes that are not
//! parsed yet. A frame's payload is moved down to the end of the preceding section and unmasked there. A batch is
//! therefore contiguous when its tick comes, and is passed on without a copy. The module does no I/O and reads no
//! clock.

use bytes::{Buf, Bytes, BytesMut};

use crate::protocol::{Close, FRAME_BYTES, MAX_MESSAGE_BYTES, is_start};

/// Size of one audio frame on the wire: header, masking key and payload, in bytes.
const WIRE_FRAME_BYTES: usize = 8 + FRAME_BYTES;

/// What the inbox has parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The start message; it comes first and once.
    Start,
    /// An audio frame; its bytes wait in the inbox.
    Frame,
    /// A ping with its payload, which the pong must repeat.
    Ping(Vec<u8>),
    /// A Close frame; the reply to it.
    Close(Close),
}

/// A violation of the WebSocket protocol or of the contract, which ends the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The Close frame to send.
    pub(crate) close: Close,
    /// Whether a complete data message was refused, which the books count as a message.
    pub(crate) whole_message: bool,
}

impl Violation {
    const fn frame(reason: &'static str) -> Self {
        Self { close: Close::new(1002, reason), whole_message: false }
    }

    const fn message(code: u16, reason: &'static str) -> Self {
        Self { close: Close::new(code, reason), whole_message: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Text,
    Binary,
}

/// A fragmented data message of which the last fragment is missing.
#[derive(Clone, Copy, Debug)]
struct Incomplete {
    content: Content,
    length: usize,
}

/// The bytes that a client has sent and the gateway has not passed on yet.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: BytesMut,
    /// Bytes of complete audio frames at the front of the buffer.
    audio: usize,
    incomplete: Option<Incomplete>,
    /// Offset of the first byte that is not parsed yet.
    unparsed: usize,
    started: bool,
    /// Capacity reserved at the start of a batch, in bytes.
    batch_bytes: usize,
}

impl Inbox {
    /// Creates an empty inbox for batches of about `batch_frames` frames.
    pub(crate) fn new(batch_frames: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            audio: 0,
            incomplete: None,
            unparsed: 0,
            started: false,
            batch_bytes: batch_frames * FRAME_BYTES + 2 * WIRE_FRAME_BYTES,
        }
    }

    /// Appends bytes that were read from the socket.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Reserves the space of the whole batch at its start, so that it is not reallocated while it grows.
        if self.buffer.is_empty() && self.started {
            self.buffer.reserve(self.batch_bytes.max(bytes.len()));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Number of audio frames that wait.
    pub(crate) fn frames(&self) -> u64 {
        (self.audio / FRAME_BYTES) as u64
    }

    /// Takes all waiting audio.
    pub(crate) fn take(&mut self) -> Bytes {
        let audio = self.buffer.split_to(self.audio).freeze();
        self.unparsed -= self.audio;
        self.audio = 0;
        audio
    }

    /// Drops the oldest frames, at most those that wait.
    pub(crate) fn drop_oldest(&mut self, frames: u64) {
        let bytes = usize::try_from(frames).unwrap_or(usize::MAX).saturating_mul(FRAME_BYTES).min(self.audio);
        self.buffer.advance(bytes);
        self.audio -= bytes;
        self.unparsed -= bytes;
    }

    /// Parses the next event; `None` if more bytes must be read first.
    ///
    /// # Errors
    /// When the client violates the protocol or the contract. The inbox cannot be used after that.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, Violation> {
        while let Some(header) = Header::parse(&self.buffer[self.unparsed..], self.incomplete)? {
            let start = self.unparsed + header.bytes;
            let end = start + header.length;
            if self.buffer.len() < end {
                break;
            }
            self.unparsed = end;
            if let Kind::Control(control) = header.kind {
                let payload = &mut self.buffer[start..end];
                unmask(payload, header.mask);
                match control {
                    Control::Ping => return Ok(Some(Event::Ping(payload.to_vec()))),
                    Control::Pong => continue,
                    Control::Close => return answer(payload).map(|close| Some(Event::Close(close))),
                }
            }
            if let Some(event) = self.data(&header, start)? {
                return Ok(Some(event));
            }
        }
        self.compact();
        Ok(None)
    }

    /// Moves the data frame's payload from `start` behind the audio and unmasks it. Returns the event if the frame
    /// completes a message.
    fn data(&mut self, header: &Header, start: usize) -> Result<Option<Event>, Violation> {
        let before = self.incomplete.map_or(0, |incomplete| incomplete.length);
        let target = self.audio + before;
        // The target is always below the source, because the header alone has six bytes.
        self.buffer.copy_within(start..start + header.length, target);
        unmask(&mut self.buffer[target..target + header.length], header.mask);
        let length = before + header.length;
        let content = match (header.kind, self.incomplete) {
            (Kind::Data(content), _) => content,
            (_, Some(incomplete)) => incomplete.content,
            (_, None) => return Err(Violation::frame("continuation of nothing")),
        };
        if !header.last {
            self.incomplete = Some(Incomplete { content, length });
            return Ok(None);
        }
        self.incomplete = None;
        self.message(content, length).map(Some)
    }

    /// Checks the complete message that lies behind the audio against the contract.
    fn message(&mut self, content: Content, length: usize) -> Result<Event, Violation> {
        match (self.started, content) {
            (false, Content::Text) if is_start(&self.buffer[self.audio..self.audio + length]) => {
                self.started = true;
                Ok(Event::Start)
            }
            (false, _) => Err(Violation::message(1002, "first message must be start")),
            (true, Content::Binary) if length == FRAME_BYTES => {
                self.audio += FRAME_BYTES;
                Ok(Event::Frame)
            }
            (true, Content::Binary) => Err(Violation::message(1003, "expected 640 byte PCM frame")),
            (true, Content::Text) => Err(Violation::message(1002, "expected binary PCM frames after start")),
        }
    }

    /// Moves the unparsed bytes down, directly behind the parsed ones.
    fn compact(&mut self) {
        let end = self.audio + self.incomplete.map_or(0, |incomplete| incomplete.length);
        if end < self.unparsed {
            self.buffer.copy_within(self.unparsed.., end);
            self.buffer.truncate(end + self.buffer.len() - self.unparsed);
            self.unparsed = end;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data(Content),
    Continuation,
    Control(Control),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    Close,
    Ping,
    Pong,
}

/// A frame's header, including the masking key.
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: Kind,
    last: bool,
    mask: [u8; 4],
    /// Size of the header itself, in bytes.
    bytes: usize,
    /// Size of the payload, in bytes.
    length: usize,
}

impl Header {
    /// Parses the header at the front of `wire`; `None` if it is incomplete. Violations are reported as early as the
    /// bytes show them.
    fn parse(wire: &[u8], incomplete: Option<Incomplete>) -> Result<Option<Self>, Violation> {
        let &[first, second, ..] = wire else { return Ok(None) };
        let (last, masked) = (first & 0x80 != 0, second & 0x80 != 0);
        if first & 0x70 != 0 {
            return Err(Violation::frame("reserved bit"));
        }
        if !masked {
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
            (Kind::Control(_), _) if !last => return Err(Violation::frame("control frame in fragments")),
            (Kind::Control(_), _) if second & 0x7f > 125 => return Err(Violation::frame("control frame too long")),
            (Kind::Continuation, None) => return Err(Violation::frame("continuation of nothing")),
            (Kind::Data(_), Some(_)) => return Err(Violation::frame("message within a message")),
            _ => {}
        }
        let Some((length, extended)) = payload_length(second & 0x7f, &wire[2..])? else { return Ok(None) };
        let before = incomplete.map_or(0, |incomplete| incomplete.length);
        if !matches!(kind, Kind::Control(_)) && length > (MAX_MESSAGE_BYTES - before) as u64 {
            return Err(Violation { close: Close::new(1009, "message beyond 64 KiB"), whole_message: false });
        }
        let Some(&mask) = wire[2 + extended..].first_chunk() else { return Ok(None) };
        // The cast is lossless: `length` is at most `MAX_MESSAGE_BYTES`.
        Ok(Some(Self { kind, last, mask, bytes: 6 + extended, length: length as usize }))
    }
}

/// Returns the payload's length, and the number of bytes that the extended length field takes.
fn payload_length(short: u8, rest: &[u8]) -> Result<Option<(u64, usize)>, Violation> {
    const NOT_MINIMAL: Violation = Violation::frame("length not minimal");
    match short {
        126 => match rest.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)) {
            Some(..=125) => Err(NOT_MINIMAL),
            length => Ok(length.map(|length| (length.into(), 2))),
        },
        127 => match rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)) {
            Some(..=0xffff) => Err(NOT_MINIMAL),
            length => Ok(length.map(|length| (length, 8))),
        },
        length => Ok(Some((length.into(), 0))),
    }
}

/// Returns the reply to a Close frame, which has the same code.
fn answer(payload: &[u8]) -> Result<Close, Violation> {
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
fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = payload.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut wire = vec![first];
        match payload.len() {
            length @ ..=125 => wire.push(0x80 | length as u8),
            length => wire.extend([&[0xfe][..], &(length as u16).to_be_bytes()].concat()),
        }
        wire.extend(MASK);
        wire.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        wire
    }

    fn audio(number: u8) -> [u8; FRAME_BYTES] {
        std::array::from_fn(|index| number.wrapping_add(index as u8))
    }

    /// The start message and three audio frames; the second is fragmented, with a ping between its fragments.
    fn session() -> Vec<u8> {
        let split = audio(2);
        let parts = [
            frame(0x81, br#"{"type":"start"}"#),
            frame(0x82, &audio(1)),
            frame(0x02, &split[..100]),
            frame(0x89, b"hi"),
            frame(0x00, &split[100..101]),
            frame(0x80, &split[101..]),
            frame(0x82, &audio(3)),
        ];
        parts.concat()
    }

    fn events(inbox: &mut Inbox) -> Vec<Event> {
        std::iter::from_fn(|| inbox.next().unwrap()).collect()
    }

    #[test]
    fn audio_is_whole_however_the_bytes_arrive() {
        let wire = session();
        for step in [1, 2, 7, 640, 648, 1000, wire.len()] {
            let mut inbox = Inbox::new(2);
            let mut seen = vec![];
            for part in wire.chunks(step) {
                inbox.push(part);
                seen.extend(events(&mut inbox));
            }
            let ping = Event::Ping(b"hi".to_vec());
            assert_eq!(seen, [Event::Start, Event::Frame, ping, Event::Frame, Event::Frame], "{step} bytes at a time");
            assert_eq!(inbox.take(), [audio(1), audio(2), audio(3)].concat(), "{step} bytes at a time");
        }
    }

    #[test]
    fn taking_and_dropping_leave_what_is_not_whole() {
        let mut inbox = Inbox::new(2);
        let wire = session();
        let (most, rest) = wire.split_at(wire.len() - 300);
        inbox.push(most);
        events(&mut inbox);
        inbox.drop_oldest(1);
        assert_eq!((inbox.frames(), inbox.take()), (1, audio(2).to_vec().into()));
        inbox.push(rest);
        assert_eq!(events(&mut inbox), [Event::Frame]);
        assert_eq!(inbox.take(), audio(3).to_vec());
    }

    #[test]
    fn a_message_may_have_64_kib_and_not_a_byte_more() {
        let mut inbox = Inbox::new(2);
        inbox.push(&frame(0x81, br#"{"type":"start"}"#));
        inbox.push(&frame(0x02, &[0; 0xfff0]));
        assert_eq!(events(&mut inbox), [Event::Start]);
        // The header of the last fragment is enough to refuse the message.
        inbox.push(&[0x80, 0x91]);
        assert_eq!(inbox.next().unwrap_err().close.code, Some(1009));
    }

    #[test]
    fn a_close_is_answered_with_its_code_if_that_may_be_sent() {
        for (payload, code) in [
            (&b""[..], None),
            (b"\x03\xe8bye", Some(1000)),
            (b"\x10\xe1", Some(4321)),
            (b"\x03\xed", Some(1002)),
            (b"\x03\xe8\xff", Some(1002)),
        ] {
            let mut inbox = Inbox::new(2);
            inbox.push(&frame(0x88, payload));
            let answered = match inbox.next() {
                Ok(Some(Event::Close(close))) => close,
                Err(violation) => violation.close,
                other => panic!("{other:?}"),
            };
            assert_eq!(answered.code, code, "{payload:?}");
        }
    }
}
