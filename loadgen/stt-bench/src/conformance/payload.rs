//! The audio that the client sends, and the inference's correct result for it. Pure.
//!
//! Each frame carries its session and its sequence number in its first bytes, so that the frames of a batch and their
//! order can be identified. The golden frame is the only exception: its bytes are fixed by the golden vectors.

use std::fmt::Write;

pub use crate::audio::{FRAME_BYTES, FRAME_SAMPLES};
use crate::expected::WORDS;

/// First bytes of each frame except the golden one.
const MARK: [u8; 4] = *b"ladd";

/// Builds frame `sequence` (from 1) of a session: mark, session and sequence number (little-endian), then pseudo-random
/// bytes.
pub fn frame(session: u32, sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FRAME_BYTES);
    bytes.extend(MARK);
    bytes.extend(session.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    // Seeded with Knuth's multiplicative hash and advanced by a linear congruential generator, so that frames differ
    // from each other in all sessions.
    let mut state = session.wrapping_mul(2_654_435_761) ^ sequence.wrapping_mul(0x9e37_79b9);
    while bytes.len() < FRAME_BYTES {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes.extend(state.to_le_bytes());
    }
    bytes
}

/// Builds frames `first..=last` of a session, as one batch.
pub fn frames(session: u32, first: u32, last: u32) -> Vec<u8> {
    (first..=last).flat_map(|sequence| frame(session, sequence)).collect()
}

/// Builds the frame of the golden vectors: session 0, sequence number 1.
pub fn golden_frame() -> Vec<u8> {
    (0..FRAME_SAMPLES).flat_map(|sample| ((((320 + sample) * 17) % 20_000) as i16 - 10_000).to_le_bytes()).collect()
}

/// Session and sequence number of a frame; none if it does not begin with the mark.
pub fn mark(frame: &[u8]) -> Option<(u32, u32)> {
    let number = |at: usize| Some(u32::from_le_bytes(frame.get(at..at + 4)?.try_into().ok()?));
    frame.starts_with(&MARK).then(|| Some((number(4)?, number(8)?))).flatten()
}

/// The inference's result for a batch of audio.
#[derive(Clone, Debug, PartialEq)]
pub struct Inferred {
    /// Root mean square of the samples, over all passes.
    pub rms: f64,
    /// Changes of sign between adjacent samples, also from one pass to the next.
    pub zero_crossings: u64,
    /// FNV-1a hash (32 bits) over the samples, each offset by 32768 and its pass, modulo 65536.
    pub checksum: u32,
    /// Number of samples processed: samples sent, times the passes.
    pub samples: u64,
    /// One word of `WORDS`, selected by the checksum.
    pub transcript: &'static str,
    /// Length of the batch in bytes; passes do not multiply it.
    pub audio_bytes: u64,
}

/// Computes the correct result for `audio` in `passes` passes. It follows the definition literally and is slow.
pub fn infer(audio: &[u8], passes: u32) -> Inferred {
    let (mut checksum, mut zero_crossings, mut squares, mut samples, mut previous) =
        (2_166_136_261_u32, 0, 0_u128, 0, 0);
    for pass in 0..passes {
        for pair in audio.chunks_exact(2) {
            let sample = i16::from_le_bytes([pair[0], pair[1]]);
            zero_crossings += u64::from(samples > 0 && (sample < 0) != (previous < 0));
            let shifted = (i32::from(sample) + 32_768 + pass as i32) as u32 & 0xffff;
            checksum = (checksum ^ shifted).wrapping_mul(16_777_619);
            squares += u128::from(sample.unsigned_abs()).pow(2);
            (samples, previous) = (samples + 1, sample);
        }
    }
    let rms = if samples == 0 { 0.0 } else { (squares as f64 / samples as f64).sqrt() };
    let transcript = WORDS[checksum as usize % WORDS.len()];
    Inferred { rms, zero_crossings, checksum, samples, transcript, audio_bytes: audio.len() as u64 }
}

impl Inferred {
    /// JSON as the inference writes it: six keys, in this order, without spaces.
    pub fn to_json(&self) -> String {
        let mut json = String::new();
        let Self { rms, zero_crossings, checksum, samples, transcript, audio_bytes } = self;
        write!(
            json,
            "{{\"rms\":{rms},\"zero_crossings\":{zero_crossings},\"checksum\":{checksum},\"samples\":{samples},\
             \"transcript\":\"{transcript}\",\"audio_bytes\":{audio_bytes}}}"
        )
        .expect("a String takes everything");
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(inferred: &Inferred) -> (f64, u64, u32, u64, &str) {
        (inferred.rms, inferred.zero_crossings, inferred.checksum, inferred.samples, inferred.transcript)
    }

    fn generated(session: u64, sequence: u64) -> Vec<u8> {
        let sample = |j: u64| (((sequence * 320 + session + j) * 17 % 20_000) as i16 - 10_000).to_le_bytes();
        (0..320).flat_map(sample).collect()
    }

    fn samples(values: &[i16]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn the_golden_vectors_are_reproduced() {
        assert_eq!(golden_frame(), generated(0, 1));
        let many: Vec<u8> = (1..=50).flat_map(|sequence| generated(0, sequence)).collect();
        for (audio, passes, expected) in [
            (golden_frame(), 4, (2425.5023191083533, 7, 1_745_339_397, 1280, "now")),
            (golden_frame(), 1, (2425.5023191083533, 1, 2_841_288_837, 320, "now")),
            (golden_frame(), 2, (2425.5023191083533, 3, 1_595_346_885, 640, "now")),
            (generated(7, 11), 4, (7495.243791898966, 7, 1_789_384_901, 1280, "over")),
            (many, 4, (5699.347243325326, 111, 1_244_816_517, 64_000, "now")),
            (samples(&[0, 100, -100, 200]), 4, (122.47448713915891, 8, 1_251_606_621, 16, "now")),
            (samples(&[-32_768, 32_767]), 4, (32767.500003814755, 7, 3_827_001_041, 8, "wait")),
            (Vec::new(), 4, (0.0, 0, 2_166_136_261, 0, "right")),
        ] {
            assert_eq!(reported(&infer(&audio, passes)), expected);
        }
    }

    #[test]
    fn a_frame_names_its_session_and_all_frames_differ() {
        assert_eq!(mark(&frame(7, 9)), Some((7, 9)));
        assert_eq!(mark(&golden_frame()), None);
        assert_eq!(frame(7, 9).len(), FRAME_BYTES);
        assert_ne!(frame(7, 9)[12..], frame(7, 10)[12..]);
        assert_ne!(frame(7, 9)[12..], frame(9, 7)[12..]);
    }
}
