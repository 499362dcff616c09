//! RFC 6455 frames on the client's side: builds masked frames, parses unmasked ones. Pure.
//!
//! Building copies a payload once and masks it at the same time, so a flood touches each byte once. Parsing is strict,
//! because a service that sends broken frames must not look fast.

/// Longest header of a client frame: two bytes, eight bytes of length, four bytes of mask.
pub const LONGEST_HEADER: usize = 14;
/// Largest frame accepted from a service, in bytes. A longer one is treated as a broken length.
pub const LARGEST_FRAME: u64 = 16 << 20;

/// The FIN bit of a frame's first byte, set in the last frame of a message.
const LAST: u8 = 0x80;

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

/// A source of masking keys, a new one for each frame (RFC 6455, section 5.3). They are not cryptographic: masking
/// protects proxies from scripts in browsers, and here there is neither.
#[derive(Clone, Debug)]
pub struct Masks(u64);

impl Masks {
    /// Creates a source from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next masking key.
    #[inline]
    pub fn next_mask(&mut self) -> [u8; 4] {
        (crate::schedule::splitmix64(&mut self.0) as u32).to_ne_bytes()
    }
}

/// Frames for one write, back to back in a reused buffer.
#[derive(Debug, Default)]
pub struct Batch {
    // The length never shrinks, so that memory isn't cleared before a frame is written.
    bytes: Vec<u8>,
    end: usize,
}

impl Batch {
    /// Removes all frames and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.end = 0;
    }

    /// The bytes of all frames.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Appends one unfragmented masked frame.
    #[inline]
    pub fn push(&mut self, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
        let needed = self.end + LONGEST_HEADER + payload.len();
        if self.bytes.len() < needed {
            self.bytes.resize(needed.next_power_of_two(), 0);
        }
        let room = &mut self.bytes[self.end..needed];
        let header = write_header(room, opcode, payload.len(), mask);
        mask_into(&mut room[header..header + payload.len()], payload, mask);
        self.end += header + payload.len();
    }
}

/// Appends one masked text message with a frame for each part. Only protocol checks send fragments.
pub fn append_fragments(out: &mut Vec<u8>, parts: &[&[u8]], mask: [u8; 4]) {
    for (nth, part) in parts.iter().enumerate() {
        let start = out.len();
        append(out, if nth == 0 { Opcode::Text } else { Opcode::Continuation }, part, mask);
        if nth + 1 < parts.len() {
            out[start] &= !LAST;
        }
    }
}

/// Appends one masked frame to a growing buffer, for frames outside of batches.
pub fn append(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    let start = out.len();
    out.resize(start + LONGEST_HEADER + payload.len(), 0);
    let header = write_header(&mut out[start..], opcode, payload.len(), mask);
    mask_into(&mut out[start + header..start + header + payload.len()], payload, mask);
    out.truncate(start + header + payload.len());
}

#[inline]
fn write_header(room: &mut [u8], opcode: Opcode, length: usize, mask: [u8; 4]) -> usize {
    room[0] = LAST | opcode as u8;
    let at = match length {
        0..=125 => {
            room[1] = 0x80 | length as u8;
            2
        }
        126..=0xFFFF => {
            room[1] = 0x80 | 126;
            room[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            4
        }
        _ => {
            room[1] = 0x80 | 127;
            room[2..10].copy_from_slice(&(length as u64).to_be_bytes());
            10
        }
    };
    room[at..at + 4].copy_from_slice(&mask);
    at + 4
}

/// Copies `payload`, masked, to `target`, which has the same length.
#[inline]
fn mask_into(target: &mut [u8], payload: &[u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_le_bytes([a, b, c, d, a, b, c, d]);
    if let (Some(to), Some(from)) = (target.last_chunk_mut::<8>(), payload.last_chunk::<8>()) {
        // The last eight bytes come first, in one piece. The loop below writes some of them again with the same values.
        // The mask is rotated to continue from the bytes before.
        let turned = wide.rotate_right(8 * (payload.len() % 4) as u32);
        *to = (u64::from_le_bytes(*from) ^ turned).to_le_bytes();
        for (to, from) in target.as_chunks_mut::<8>().0.iter_mut().zip(payload.as_chunks::<8>().0) {
            *to = (u64::from_le_bytes(*from) ^ wide).to_le_bytes();
        }
    } else {
        for ((to, from), key) in target.iter_mut().zip(payload).zip(wide.to_le_bytes()) {
            *to = from ^ key;
        }
    }
}

/// How many frames a partial write completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of complete text and binary frames.
    pub data_frames: u64,
    /// Start of the first incomplete frame; the total length if all are complete.
    pub boundary: usize,
}

/// Walks frames built by this module up to `written` bytes.
pub fn progress(frames: &[u8], written: usize) -> Progress {
    let mut progress = Progress::default();
    while progress.boundary < frames.len() {
        let rest = &frames[progress.boundary..];
        let length = match rest[1] & 0x7F {
            126 => 8 + usize::from(u16::from_be_bytes([rest[2], rest[3]])),
            127 => 14 + u64::from_be_bytes(rest[2..10].try_into().expect("eight bytes are an array of eight")) as usize,
            short => 6 + usize::from(short),
        };
        if progress.boundary + length > written {
            break;
        }
        progress.data_frames += u64::from(rest[0] & 0x08 == 0);
        progress.boundary += length;
    }
    progress
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
    /// A reserved bit is set, although no extension was negotiated.
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
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(Violation::Reserved);
    }
    let opcode = Opcode::from_bits(first & 0x0F).ok_or(Violation::Opcode)?;
    if second & 0x80 != 0 {
        return Err(Violation::Masked);
    }
    let last = first & LAST != 0;
    if opcode.is_control() && (!last || *second > 125) {
        return Err(Violation::Control);
    }
    let (header, length) = match second {
        126 => match rest.first_chunk::<2>() {
            None => return Ok(None),
            Some(length) => (4, shortest(u64::from(u16::from_be_bytes(*length)), 126)?),
        },
        127 => match rest.first_chunk::<8>() {
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

    /// Parses a client frame byte by byte, as plainly as the RFC describes it.
    fn unmask(frame: &[u8]) -> (u8, Vec<u8>, usize) {
        assert_eq!(frame[1] & 0x80, 0x80, "client frames are masked");
        let (length, at) = match frame[1] & 0x7F {
            126 => (usize::from(u16::from_be_bytes([frame[2], frame[3]])), 4),
            127 => (u64::from_be_bytes(frame[2..10].try_into().unwrap()) as usize, 10),
            short => (usize::from(short), 2),
        };
        let mask = &frame[at..at + 4];
        let payload = frame[at + 4..at + 4 + length].iter().enumerate().map(|(i, byte)| byte ^ mask[i % 4]).collect();
        (frame[0], payload, at + 4 + length)
    }

    proptest! {
        #[test]
        fn masking_twice_restores_the_payload(payload in prop::collection::vec(any::<u8>(), 0..70_000), mask: [u8; 4]) {
            let mut batch = Batch::default();
            batch.push(Opcode::Binary, &payload, mask);
            let (first, back, length) = unmask(batch.bytes());
            prop_assert_eq!((first, back, length), (0x82, payload.clone(), batch.bytes().len()));
            let mut appended = Vec::new();
            append(&mut appended, Opcode::Binary, &payload, mask);
            prop_assert_eq!(appended, batch.bytes());
        }

        #[test]
        fn a_frame_parses_the_same_at_every_split(length in 0_usize..70_000, split in any::<prop::sample::Index>()) {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let frame = server_frame(2, &payload);
            let at = split.index(frame.len());
            prop_assert_eq!(parse(&frame[..at]).unwrap(), None);
            let whole = parse(&frame).unwrap().unwrap();
            prop_assert_eq!((whole.payload, whole.length, whole.last), (&payload[..], frame.len(), true));
        }

        #[test]
        fn garbage_never_panics_and_never_reads_beyond_its_end(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some(frame)) = parse(&bytes) {
                prop_assert!(frame.length <= bytes.len());
            }
        }

        #[test]
        fn progress_counts_whole_data_frames_only(sizes in prop::collection::vec(0_usize..300, 1..6), cut in any::<prop::sample::Index>()) {
            let mut batch = Batch::default();
            let mut ends = Vec::new();
            for (i, size) in sizes.iter().enumerate() {
                batch.push(if i == 1 { Opcode::Pong } else { Opcode::Text }, &vec![7; *size], [1, 2, 3, 4]);
                ends.push(batch.bytes().len());
            }
            let written = cut.index(batch.bytes().len() + 1);
            let seen = progress(batch.bytes(), written);
            let whole = ends.iter().take_while(|end| **end <= written).count();
            let data = (0..whole).filter(|i| *i != 1).count() as u64;
            let boundary = if whole == 0 { 0 } else { ends[whole - 1] };
            prop_assert_eq!(seen, Progress { data_frames: data, boundary });
        }
    }

    #[test]
    fn every_short_payload_is_masked_byte_by_byte() {
        let mask = [0x12, 0x34, 0x56, 0x78];
        for length in 0..70 {
            let payload: Vec<u8> = (0..length).collect();
            let mut target = vec![0; payload.len()];
            mask_into(&mut target, &payload, mask);
            let expected: Vec<u8> = payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            assert_eq!(target, expected, "{length} bytes");
        }
    }

    #[test]
    fn only_the_last_fragment_ends_its_message() {
        let mut frames = Vec::new();
        append_fragments(&mut frames, &[b"ab", b"", b"c"], [0; 4]);
        assert_eq!(frames, b"\x01\x82\0\0\0\0ab\x00\x80\0\0\0\0\x80\x81\0\0\0\0c");
    }

    #[test]
    fn every_violation_has_its_own_name() {
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

    #[test]
    fn masks_differ_from_frame_to_frame() {
        let mut masks = Masks::new(7);
        let drawn: std::collections::HashSet<_> = (0..1000).map(|_| masks.next_mask()).collect();
        assert!(drawn.len() > 990);
    }
}
