//! Builds the masked frames of a client, and counts how many of them a partial write completed.
//!
//! Building copies a payload once and masks it at the same time, so a flood touches each byte once.

use super::{COMPRESSED, LAST, Opcode};

/// Longest header of a client frame: two bytes, eight bytes of length, four bytes of mask.
pub const LONGEST_HEADER: usize = 14;

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
        let target = &mut self.bytes[self.end..needed];
        let header = write_header(target, opcode, payload.len(), mask);
        mask_into(&mut target[header..header + payload.len()], payload, mask);
        self.end += header + payload.len();
    }

    /// Appends one unfragmented masked frame whose payload is a compressed message.
    pub fn push_compressed(&mut self, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
        let start = self.end;
        self.push(opcode, payload, mask);
        self.bytes[start] |= COMPRESSED;
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

/// Appends one masked frame whose payload is a compressed message.
pub fn append_compressed(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    let start = out.len();
    append(out, opcode, payload, mask);
    out[start] |= COMPRESSED;
}

#[inline]
fn write_header(target: &mut [u8], opcode: Opcode, length: usize, mask: [u8; 4]) -> usize {
    target[0] = LAST | opcode as u8;
    let at = match length {
        0..=125 => {
            target[1] = 0x80 | length as u8;
            2
        }
        126..=0xFFFF => {
            target[1] = 0x80 | 126;
            target[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            4
        }
        _ => {
            target[1] = 0x80 | 127;
            target[2..10].copy_from_slice(&(length as u64).to_be_bytes());
            10
        }
    };
    target[at..at + 4].copy_from_slice(&mask);
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
        let remaining = &frames[progress.boundary..];
        let length = match remaining[1] & 0x7F {
            126 => 8 + usize::from(u16::from_be_bytes([remaining[2], remaining[3]])),
            127 => {
                14 + u64::from_be_bytes(remaining[2..10].try_into().expect("eight bytes are an array of eight"))
                    as usize
            }
            short => 6 + usize::from(short),
        };
        if progress.boundary + length > written {
            break;
        }
        progress.data_frames += u64::from(remaining[0] & 0x08 == 0);
        progress.boundary += length;
    }
    progress
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            let (first, unmasked, length) = unmask(batch.bytes());
            prop_assert_eq!((first, unmasked, length), (0x82, payload.clone(), batch.bytes().len()));
            let mut appended = Vec::new();
            append(&mut appended, Opcode::Binary, &payload, mask);
            prop_assert_eq!(appended, batch.bytes());
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
            let counted = progress(batch.bytes(), written);
            let complete = ends.iter().take_while(|end| **end <= written).count();
            let data = (0..complete).filter(|i| *i != 1).count() as u64;
            let boundary = if complete == 0 { 0 } else { ends[complete - 1] };
            prop_assert_eq!(counted, Progress { data_frames: data, boundary });
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
    fn the_first_bit_that_is_reserved_marks_a_compressed_message() {
        let mut batch = Batch::default();
        batch.push(Opcode::Text, b"a", [0; 4]);
        batch.push_compressed(Opcode::Text, b"b", [0; 4]);
        let mut appended = Vec::new();
        append(&mut appended, Opcode::Text, b"a", [0; 4]);
        append_compressed(&mut appended, Opcode::Text, b"b", [0; 4]);
        assert_eq!(batch.bytes(), b"\x81\x81\0\0\0\0a\xC1\x81\0\0\0\0b");
        assert_eq!(batch.bytes(), appended);
        assert_eq!(progress(&appended, appended.len()).data_frames, 2);
    }

    #[test]
    fn only_the_last_fragment_ends_its_message() {
        let mut frames = Vec::new();
        append_fragments(&mut frames, &[b"ab", b"", b"c"], [0; 4]);
        assert_eq!(frames, b"\x01\x82\0\0\0\0ab\x00\x80\0\0\0\0\x80\x81\0\0\0\0c");
    }

    #[test]
    fn masks_differ_from_frame_to_frame() {
        let mut masks = Masks::new(7);
        let drawn: std::collections::HashSet<_> = (0..1000).map(|_| masks.next_mask()).collect();
        assert!(drawn.len() > 990);
    }
}
