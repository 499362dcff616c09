//! The WebSocket wire format (RFC 6455, section 5), as far as a gateway needs it. Pure: bytes in, values out.
//!
//! Nearly all that arrives are runs of one frame: final, binary, masked, 640 bytes. [`audio_run`] finds them eight bytes at
//! a time; [`parse_header`] and [`Assembly`] take everything else.

pub mod http;
pub mod messages;

/// Bytes of audio in a frame: 20 ms of 16 kHz mono PCM.
pub const FRAME_BYTES: usize = 640;
/// Such a frame on the wire: two bytes, two of length, four of mask, the audio.
pub const WIRE_BYTES: usize = 8 + FRAME_BYTES;
/// A data message is no longer than this.
pub const MAXIMAL_MESSAGE: usize = 64 << 10;
/// A control frame's payload is no longer than this (RFC 6455, 5.5).
const MAXIMAL_CONTROL: usize = 125;
/// Final and binary, masked with a length of 16 bits, which is 640.
const AUDIO_HEADER: [u8; 4] = [0x82, 0xFE, 0x02, 0x80];

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// The next part of a fragmented message.
    Continuation = 0x0,
    /// Text, or its first part.
    Text = 0x1,
    /// Binary, or its first part.
    Binary = 0x2,
    /// Goodbye.
    Close = 0x8,
    /// Are you there?
    Ping = 0x9,
    /// I am.
    Pong = 0xA,
}

/// Why a gateway closes a connection by itself: a code, and a reason for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The close code.
    pub code: u16,
    /// The close reason.
    pub reason: &'static str,
}

const fn violation(reason: &'static str) -> Refusal {
    Refusal { code: 1002, reason }
}

/// The first message was something else.
pub const NOT_STARTED: Refusal = violation("first message must be start");
/// Text after the start.
pub const TEXT_AFTER_START: Refusal = violation("expected binary PCM frames after start");
/// A frame of another length.
pub const WRONG_LENGTH: Refusal = Refusal { code: 1003, reason: "expected 640 byte PCM frame" };
/// A message beyond [`MAXIMAL_MESSAGE`].
pub const TOO_BIG: Refusal = Refusal { code: 1009, reason: "message is too big" };
/// The client doesn't read.
pub const SLOW_CONSUMER: Refusal = Refusal { code: 1013, reason: "slow consumer" };
/// The gateway stops.
pub const GOING_AWAY: Refusal = Refusal { code: 1001, reason: "going away" };

/// How many whole frames of audio `bytes` begin with, each [`WIRE_BYTES`] long.
#[inline]
pub fn audio_run(bytes: &[u8]) -> usize {
    let (frames, _) = bytes.as_chunks::<WIRE_BYTES>();
    frames.iter().take_while(|frame| frame[..4] == AUDIO_HEADER).count()
}

/// Appends the audio of a run of whole frames, unmasked.
#[inline]
pub fn append_audio(run: &[u8], audio: &mut Vec<u8>) {
    audio.reserve(run.len() / WIRE_BYTES * FRAME_BYTES);
    for frame in run.as_chunks::<WIRE_BYTES>().0 {
        let start = audio.len();
        audio.extend_from_slice(&frame[8..]);
        unmask(&mut audio[start..], [frame[4], frame[5], frame[6], frame[7]]);
    }
}

/// XORs `payload` with `mask`, in place, a word at a time (the compiler makes vectors of it).
#[inline]
pub fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let word = u64::from_ne_bytes([mask[0], mask[1], mask[2], mask[3], mask[0], mask[1], mask[2], mask[3]]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    // Whole words were eaten, so the mask starts over.
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// A client frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// Whether it is the last frame of its message.
    fin: bool,
    opcode: Opcode,
    /// What its payload is XORed with.
    mask: [u8; 4],
    /// Bytes of the header itself.
    header_bytes: usize,
    /// Bytes of the payload behind it.
    payload_bytes: usize,
}

/// Parses the header of a client's frame; `None` if `bytes` end within it.
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
    // The highest bit must be 0 (RFC 6455, 5.2).
    if length < least || length >> 63 != 0 { Err(violation("length is not minimally encoded")) } else { Ok(length) }
}

/// What a client's frame completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing yet: a fragment, or a pong.
    Nothing,
    /// A whole text message; perhaps not UTF-8.
    Text(&'a [u8]),
    /// A whole binary message.
    Binary(&'a [u8]),
    /// To be answered with the same payload.
    Ping(&'a [u8]),
    /// Goodbye, with its code if it has one.
    Close(Option<u16>),
}

/// Fragments of the message that is under way.
#[derive(Debug, Default)]
pub struct Assembly {
    kind: Option<Opcode>,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Whether the next data frame must be a continuation.
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.kind.is_some()
    }

    /// Refuses a frame that is out of order, or makes its message too big, by its header alone.
    fn check(&self, header: &Header) -> Result<(), Refusal> {
        match header.opcode {
            Opcode::Continuation if !self.is_under_way() => Err(violation("unexpected continuation")),
            Opcode::Continuation if self.bytes.len() + header.payload_bytes > MAXIMAL_MESSAGE => Err(TOO_BIG),
            Opcode::Text | Opcode::Binary if self.is_under_way() => Err(violation("expected a continuation")),
            _ => Ok(()),
        }
    }

    /// Takes a frame that passed [`Self::check`], its payload unmasked.
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

/// Takes the frame that `bytes` begin with, of any kind, if it is whole: how many bytes it is, and what it completes.
///
/// # Errors
/// A frame that no client may send. That is known from its header; its payload needn't be here.
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
        return Err(Refusal { code: 1007, reason: "close reason is no UTF-8" });
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

/// Appends a server's text message that `write` writes, which must be of 126 to 65 535 bytes: all of ours are.
pub fn put_text(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[FIN | Opcode::Text as u8, LENGTH_16, 0, 0]);
    write(out);
    let length = out.len() - start - 4;
    debug_assert!((usize::from(LENGTH_16)..1 << 16).contains(&length), "{length}");
    out[start + 2..start + 4].copy_from_slice(&(length as u16).to_be_bytes());
}

/// What bytes mean, apart from how they came: what tests and fuzz targets compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A whole text message.
    Text(Vec<u8>),
    /// A whole binary message.
    Binary(Vec<u8>),
    /// A ping.
    Ping(Vec<u8>),
    /// A close frame; nothing follows.
    Close(Option<u16>),
    /// The connection is closed with this code; nothing follows.
    Refused(u16),
}

/// What a started session's client says, read in these chunks. With `is_fast` runs of audio take the fast path, as in a
/// shard; without it everything takes the general one.
pub fn meaning_of<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, is_fast: bool) -> Vec<Meaning> {
    let (mut meanings, mut pending, mut assembly) = (Vec::new(), Vec::new(), Assembly::default());
    for chunk in chunks {
        pending.extend_from_slice(chunk);
        let mut at = 0;
        loop {
            let run = if is_fast && !assembly.is_under_way() { audio_run(&pending[at..]) } else { 0 };
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
