//! The inbox: parses a client's WebSocket frames ([`frame`]), checks messages against the contract, and collects the
//! audio of the next batch, all in one buffer.
//!
//! The buffer holds, in this order: audio that waits, the fragments of an incomplete message, and bytes that are not
//! parsed yet. A frame's payload is moved down to the end of the preceding section and unmasked there. A batch is
//! therefore contiguous when its tick comes, and is passed on without a copy. The module does no I/O and reads no
//! clock.

mod frame;

use bytes::{Buf, Bytes, BytesMut};

pub(crate) use self::frame::Violation;
use self::frame::{Content, Control, Header, Incomplete, Kind, close_reply, unmask};
use crate::protocol::{Close, FRAME_BYTES, is_start};

/// Size of one audio frame on the wire: header, masking key and payload, in bytes.
const WIRE_FRAME_BYTES: usize = 8 + FRAME_BYTES;

/// A message or control frame that the inbox has parsed.
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

/// The bytes that a client has sent and the gateway has not passed on yet.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: BytesMut,
    /// Bytes of complete audio frames at the front of the buffer.
    audio: usize,
    incomplete: Option<Incomplete>,
    /// Offset of the first byte that is not parsed yet.
    unparsed: usize,
    is_started: bool,
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
            is_started: false,
            batch_bytes: batch_frames * FRAME_BYTES + 2 * WIRE_FRAME_BYTES,
        }
    }

    /// Appends bytes that were read from the socket.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Reserves the space of the whole batch at its start, so that it is not reallocated while it grows.
        if self.buffer.is_empty() && self.is_started {
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
                    Control::Close => return close_reply(payload).map(|close| Some(Event::Close(close))),
                }
            }
            if let Some(event) = self.data_frame(&header, start)? {
                return Ok(Some(event));
            }
        }
        self.compact();
        Ok(None)
    }

    /// Moves the data frame's payload from `start` behind the audio and unmasks it. Returns the event if the frame
    /// completes a message.
    fn data_frame(&mut self, header: &Header, start: usize) -> Result<Option<Event>, Violation> {
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
        if !header.is_last {
            self.incomplete = Some(Incomplete { content, length });
            return Ok(None);
        }
        self.incomplete = None;
        self.complete_message(content, length).map(Some)
    }

    /// Checks the complete message that lies behind the audio against the contract.
    fn complete_message(&mut self, content: Content, length: usize) -> Result<Event, Violation> {
        match (self.is_started, content) {
            (false, Content::Text) if is_start(&self.buffer[self.audio..self.audio + length]) => {
                self.is_started = true;
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
    fn audio_is_complete_for_any_size_of_reads() {
        let wire = session();
        for step in [1, 2, 7, 640, 648, 1000, wire.len()] {
            let mut inbox = Inbox::new(2);
            let mut parsed = vec![];
            for part in wire.chunks(step) {
                inbox.push(part);
                parsed.extend(events(&mut inbox));
            }
            let ping = Event::Ping(b"hi".to_vec());
            assert_eq!(
                parsed,
                [Event::Start, Event::Frame, ping, Event::Frame, Event::Frame],
                "{step} bytes at a time"
            );
            assert_eq!(inbox.take(), [audio(1), audio(2), audio(3)].concat(), "{step} bytes at a time");
        }
    }

    #[test]
    fn taking_and_dropping_keep_an_incomplete_frame() {
        let mut inbox = Inbox::new(2);
        let wire = session();
        let (first, second) = wire.split_at(wire.len() - 300);
        inbox.push(first);
        events(&mut inbox);
        inbox.drop_oldest(1);
        assert_eq!((inbox.frames(), inbox.take()), (1, audio(2).to_vec().into()));
        inbox.push(second);
        assert_eq!(events(&mut inbox), [Event::Frame]);
        assert_eq!(inbox.take(), audio(3).to_vec());
    }

    #[test]
    fn a_message_longer_than_64_kib_is_refused() {
        let mut inbox = Inbox::new(2);
        inbox.push(&frame(0x81, br#"{"type":"start"}"#));
        inbox.push(&frame(0x02, &[0; 0xfff0]));
        assert_eq!(events(&mut inbox), [Event::Start]);
        // The header of the last fragment is enough to refuse the message.
        inbox.push(&[0x80, 0x91]);
        assert_eq!(inbox.next().unwrap_err().close.code, Some(1009));
    }

    #[test]
    fn a_close_frame_is_answered_with_its_code_if_that_is_valid() {
        for (payload, code) in [
            (&b""[..], None),
            (b"\x03\xe8bye", Some(1000)),
            (b"\x10\xe1", Some(4321)),
            (b"\x03\xed", Some(1002)),
            (b"\x03\xe8\xff", Some(1002)),
        ] {
            let mut inbox = Inbox::new(2);
            inbox.push(&frame(0x88, payload));
            let reply = match inbox.next() {
                Ok(Some(Event::Close(close))) => close,
                Err(violation) => violation.close,
                event => panic!("{event:?}"),
            };
            assert_eq!(reply.code, code, "{payload:?}");
        }
    }
}
