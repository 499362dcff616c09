//! The part of the WebSocket wire format (RFC 6455, section 5) that a gateway needs. It does no I/O: bytes in, values
//! out.
//!
//! Nearly all inbound bytes are runs of one kind of frame: final, binary, masked, 640 bytes. [`audio_run`] recognises
//! these by their first four bytes; [`parse_header`] and [`Assembly`] handle all other frames.

pub mod http;
pub mod messages;

/// Size of the audio in a frame, in bytes: 20 ms of 16 kHz mono PCM.
pub const FRAME_BYTES: usize = 640;
/// Size of such a frame on the wire, in bytes: two of header, two of extended length, four of masking key, and the
/// audio.
pub const WIRE_BYTES: usize = 8 + FRAME_BYTES;
/// Largest data message in bytes; beyond it the connection is closed with 1009.
pub const MAXIMAL_MESSAGE: usize = 64 << 10;
/// Largest payload of a control frame in bytes (RFC 6455, 5.5).
const MAXIMAL_CONTROL: usize = 125;
/// First four bytes of an audio frame: final and binary, masked with a 16-bit length, and the length 640.
const AUDIO_HEADER: [u8; 4] = [0x82, 0xFE, 0x02, 0x80];

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

/// The opcode of a frame (RFC 6455, 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// A further fragment of a message.
    Continuation = 0x0,
    /// A text message, or its first fragment.
    Text = 0x1,
    /// A binary message, or its first fragment.
    Binary = 0x2,
    /// A Close frame, part of the close handshake.
    Close = 0x8,
    /// A ping, which requires a pong.
    Ping = 0x9,
    /// A pong, the reply to a ping.
    Pong = 0xA,
}

/// The Close frame with which the gateway closes a connection by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The close code (RFC 6455, 7.4).
    pub code: u16,
    /// The human-readable close reason.
    pub reason: &'static str,
}

const fn violation(reason: &'static str) -> Refusal {
    Refusal { code: 1002, reason }
}

/// The first message is not the start message.
pub const NOT_STARTED: Refusal = violation("first message must be start");
/// A text message after the start message.
pub const TEXT_AFTER_START: Refusal = violation("expected binary PCM frames after start");
/// A binary message that is not 640 bytes long.
pub const WRONG_LENGTH: Refusal = Refusal { code: 1003, reason: "expected 640 byte PCM frame" };
/// A message is larger than [`MAXIMAL_MESSAGE`].
pub const TOO_BIG: Refusal = Refusal { code: 1009, reason: "message is too big" };
/// The client doesn't read its messages.
pub const SLOW_CONSUMER: Refusal = Refusal { code: 1013, reason: "slow consumer" };
/// The gateway is stopping.
pub const GOING_AWAY: Refusal = Refusal { code: 1001, reason: "going away" };

/// Number of complete audio frames at the start of `bytes`, each [`WIRE_BYTES`] long.
#[inline]
pub fn audio_run(bytes: &[u8]) -> usize {
    let (frames, _) = bytes.as_chunks::<WIRE_BYTES>();
    frames.iter().take_while(|frame| frame[..4] == AUDIO_HEADER).count()
}

/// Appends the audio of a run of complete frames, unmasked.
#[inline]
pub fn append_audio(run: &[u8], audio: &mut Vec<u8>) {
    audio.reserve(run.len() / WIRE_BYTES * FRAME_BYTES);
    for frame in run.as_chunks::<WIRE_BYTES>().0 {
        let start = audio.len();
        audio.extend_from_slice(&frame[8..]);
        unmask(&mut audio[start..], [frame[4], frame[5], frame[6], frame[7]]);
    }
}

/// XORs `payload` with `mask` in place, eight bytes at a time, which the compiler vectorises.
#[inline]
pub fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let word = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    // Only complete words were processed, so the mask starts at its first byte.
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// The header of a client's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// Whether it is the last frame of its message.
    fin: bool,
    opcode: Opcode,
    /// The masking key, with which the payload is XORed.
    mask: [u8; 4],
    /// Size of the header itself, in bytes.
    header_bytes: usize,
    /// Size of the payload that follows, in bytes.
    payload_bytes: usize,
}

/// Parses the header of a client's frame; `None` if it is incomplete.
fn parse_header(bytes: &[u8]) -> Result<Option<Header>, Refusal> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & RESERVED != 0 {
        return Err(violation("reserved bits are set"));
    }
    let opcode = match first & 0x0F {
        0x0 => Opcode::Continuation,
        0x1 => Opcode::Text,
        0x2 => Opcode::Binary,
        0x8 => Opcode::Close,
        0x9 => Opcode::Ping,
        0xA => Opcode::Pong,
        _ => return Err(violation("unknown opcode")),
    };
    if second & MASKED == 0 {
        return Err(violation("frame is not masked"));
    }
    let fin = first & FIN != 0;
    let short = second & !MASKED;
    if first & 0x8 != 0 && (!fin || usize::from(short) > MAXIMAL_CONTROL) {
        return Err(violation("control frame is fragmented or too long"));
    }
    let (length_bytes, length) = match (short, rest) {
        (LENGTH_16, [a, b, ..]) => (2, minimal(u64::from(u16::from_be_bytes([*a, *b])), u64::from(LENGTH_16))?),
        (LENGTH_64, [a, b, c, d, e, f, g, h, ..]) => {
            (8, minimal(u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), 1 << 16)?)
        }
        (LENGTH_16 | LENGTH_64, _) => return Ok(None),
        (short, _) => (0, u64::from(short)),
    };
    if length > MAXIMAL_MESSAGE as u64 {
        return Err(TOO_BIG);
    }
    let Some(mask) = rest[length_bytes..].first_chunk::<4>() else { return Ok(None) };
    Ok(Some(Header { fin, opcode, mask: *mask, header_bytes: 6 + length_bytes, payload_bytes: length as usize }))
}

fn minimal(length: u64, least: u64) -> Result<u64, Refusal> {
    // The most significant bit must be 0 (RFC 6455, 5.2).
    if length < least || length >> 63 != 0 { Err(violation("length is not minimally encoded")) } else { Ok(length) }
}

/// What a client's frame completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing: the frame is a fragment that is not the last one, or a pong.
    Nothing,
    /// A complete text message, which may be invalid UTF-8.
    Text(&'a [u8]),
    /// A complete binary message.
    Binary(&'a [u8]),
    /// A ping; the pong must have the same payload.
    Ping(&'a [u8]),
    /// A Close frame with its code, if it has one.
    Close(Option<u16>),
}

/// The fragments of an incomplete message.
#[derive(Debug, Default)]
pub struct Assembly {
    kind: Option<Opcode>,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Whether the next data frame must be a continuation.
    #[inline]
    pub fn is_incomplete(&self) -> bool {
        self.kind.is_some()
    }

    /// Checks by the header alone that a frame is in order and doesn't make its message too big.
    fn check(&self, header: &Header) -> Result<(), Refusal> {
        match header.opcode {
            Opcode::Continuation if !self.is_incomplete() => Err(violation("unexpected continuation")),
            Opcode::Continuation if self.bytes.len() + header.payload_bytes > MAXIMAL_MESSAGE => Err(TOO_BIG),
            Opcode::Text | Opcode::Binary if self.is_incomplete() => Err(violation("expected a continuation")),
            _ => Ok(()),
        }
    }

    /// Adds a frame that passed [`Self::check`], with an unmasked payload.
    fn take<'a>(&'a mut self, header: &Header, payload: &'a [u8]) -> Result<Event<'a>, Refusal> {
        Ok(match header.opcode {
            Opcode::Ping => Event::Ping(payload),
            Opcode::Pong => Event::Nothing,
            Opcode::Close => Event::Close(close_code(payload)?),
            Opcode::Text if header.fin => Event::Text(payload),
            Opcode::Binary if header.fin => Event::Binary(payload),
            opcode => {
                if opcode != Opcode::Continuation {
                    self.kind = Some(opcode);
                    self.bytes.clear();
                }
                self.bytes.extend_from_slice(payload);
                if !header.fin {
                    return Ok(Event::Nothing);
                }
                if self.kind.take() == Some(Opcode::Text) {
                    Event::Text(&self.bytes)
                } else {
                    Event::Binary(&self.bytes)
                }
            }
        })
    }
}

/// Parses the frame at the start of `bytes`, of any kind. Returns its length in bytes and what it completes; `None` if
/// it is incomplete.
///
/// # Errors
/// When a client must not send this frame. A violation in the header is reported before the payload has arrived.
pub fn take_frame<'a>(bytes: &'a mut [u8], assembly: &'a mut Assembly) -> Result<Option<(usize, Event<'a>)>, Refusal> {
    let Some(header) = parse_header(bytes)? else { return Ok(None) };
    assembly.check(&header)?;
    let end = header.header_bytes + header.payload_bytes;
    let Some(payload) = bytes.get_mut(header.header_bytes..end) else { return Ok(None) };
    unmask(payload, header.mask);
    assembly.take(&header, payload).map(|event| Some((end, event)))
}

fn close_code(payload: &[u8]) -> Result<Option<u16>, Refusal> {
    let (code, reason) = match payload {
        [] => return Ok(None),
        [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        [_] => return Err(violation("close frame of one byte")),
    };
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(violation("close code must not be sent"));
    }
    if std::str::from_utf8(reason).is_err() {
        return Err(Refusal { code: 1007, reason: "close reason is not UTF-8" });
    }
    Ok(Some(code))
}

/// Appends a server's whole control frame; `payload` is at most 125 bytes.
pub fn put_control(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    debug_assert!(payload.len() <= MAXIMAL_CONTROL);
    out.extend_from_slice(&[FIN | opcode as u8, payload.len() as u8]);
    out.extend_from_slice(payload);
}

/// Appends a close frame.
pub fn put_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    debug_assert!(2 + reason.len() <= MAXIMAL_CONTROL);
    out.extend_from_slice(&[FIN | Opcode::Close as u8, (2 + reason.len()) as u8]);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// Appends a text message in wire format, with the payload that `write` appends. The payload must have 126 to 65 535
/// bytes, as all messages of the gateway do.
pub fn put_text(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[FIN | Opcode::Text as u8, LENGTH_16, 0, 0]);
    write(out);
    let length = out.len() - start - 4;
    debug_assert!((usize::from(LENGTH_16)..1 << 16).contains(&length), "{length}");
    out[start + 2..start + 4].copy_from_slice(&(length as u16).to_be_bytes());
}

/// The meaning of inbound bytes, independent of how they are chunked; tests and fuzz targets compare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A complete text message.
    Text(Vec<u8>),
    /// A complete binary message.
    Binary(Vec<u8>),
    /// A ping with its payload.
    Ping(Vec<u8>),
    /// A Close frame with its code; nothing follows.
    Close(Option<u16>),
    /// The gateway closes the connection with this code; nothing follows.
    Refused(u16),
}

/// Parses what the client of a started session sends, in these chunks. With `is_fast`, runs of audio take the fast path
/// as in a shard; without it, all frames take the general path.
pub fn meaning_of<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, is_fast: bool) -> Vec<Meaning> {
    let (mut meanings, mut pending, mut assembly) = (Vec::new(), Vec::new(), Assembly::default());
    for chunk in chunks {
        pending.extend_from_slice(chunk);
        let mut at = 0;
        loop {
            let run = if is_fast && !assembly.is_incomplete() { audio_run(&pending[at..]) } else { 0 };
            let mut audio = Vec::new();
            append_audio(&pending[at..at + run * WIRE_BYTES], &mut audio);
            meanings.extend(audio.chunks(FRAME_BYTES).map(|frame| Meaning::Binary(frame.into())));
            at += run * WIRE_BYTES;
            match take_frame(&mut pending[at..], &mut assembly) {
                Ok(None) => break,
                Ok(Some((taken, event))) => {
                    at += taken;
                    meanings.extend(match event {
                        Event::Nothing => None,
                        Event::Text(text) => Some(Meaning::Text(text.into())),
                        Event::Binary(bytes) => Some(Meaning::Binary(bytes.into())),
                        Event::Ping(payload) => Some(Meaning::Ping(payload.into())),
                        Event::Close(code) => Some(Meaning::Close(code)),
                    });
                    if let Some(Meaning::Close(_)) = meanings.last() {
                        return meanings;
                    }
                }
                Err(refusal) => {
                    meanings.push(Meaning::Refused(refusal.code));
                    return meanings;
                }
            }
        }
        pending.drain(..at);
    }
    meanings
}

#[cfg(test)]
#[path = "protocol/tests.rs"]
mod tests;
