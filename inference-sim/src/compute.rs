//! The result of a request: a pure function of its audio and the number of passes over it.
//!
//! The checksum is one chain of dependent multiplications over all passes, so its latency can't be hidden within a
//! request ([`crate::lanes`] hides it across requests). The other values follow from one pass and the seam between two
//! passes.

use serde::Serialize;

/// Initial value of the chain, and the checksum of empty audio: the offset basis of FNV-1a.
pub(crate) const BASIS: u32 = 2_166_136_261;
/// Factor of the chain at every sample: the 32-bit prime of FNV-1a.
pub(crate) const PRIME: u32 = 16_777_619;
/// Converts a signed sample to an unsigned one. Pass `k` adds `k` to it.
pub(crate) const OFFSET: u16 = 0x8000;

/// The words of the transcripts; the checksum selects one.
const WORDS: [&str; 24] = [
    "the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "hello", "world", "yes", "no", "okay", "right",
    "left", "stop", "go", "wait", "ready", "done", "again", "now", "later", "never",
];

/// The result of one request, with the keys in the order of the JSON response.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InferenceResult {
    /// Root of the mean square of all samples.
    pub rms: f64,
    /// Number of sign changes over all passes, including those between two passes.
    pub zero_crossings: u64,
    /// Value of the chain after the last sample.
    pub checksum: u32,
    /// Number of samples over all passes.
    pub samples: u64,
    /// The word that the checksum selects.
    pub transcript: &'static str,
    /// Length of the request's body, in bytes.
    pub audio_bytes: u64,
}

/// The audio of one request: 16-bit little-endian samples.
#[derive(Clone, Copy, Debug)]
pub struct Audio<'a> {
    samples: &'a [[u8; 2]],
}

/// The error for a body with an odd number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OddLength;

impl<'a> Audio<'a> {
    /// Reads a body as audio.
    pub fn new(body: &'a [u8]) -> Result<Self, OddLength> {
        match body.as_chunks() {
            (samples, []) => Ok(Self { samples }),
            _ => Err(OddLength),
        }
    }

    /// The samples as the body has them, little-endian.
    pub(crate) fn samples(self) -> &'a [[u8; 2]] {
        self.samples
    }

    /// The number of 16-bit samples in the body.
    pub fn len(self) -> usize {
        self.samples.len()
    }

    /// Whether there are no samples.
    pub fn is_empty(self) -> bool {
        self.samples.is_empty()
    }
}

/// Computes the complete result of a single request.
pub fn infer(audio: Audio, passes: u32) -> InferenceResult {
    result_of(audio, passes, checksum(audio, passes))
}

/// Computes the checksum, one sample after the other.
pub fn checksum(audio: Audio, passes: u32) -> u32 {
    let mut checksum = BASIS;
    if audio.is_empty() {
        return checksum;
    }
    for pass in 0..passes {
        // Only the low 16 bits of the pass matter, because only those of the sum are used.
        let offset = OFFSET.wrapping_add(pass as u16);
        for &sample in audio.samples {
            let sample = u16::from_le_bytes(sample).wrapping_add(offset);
            checksum = (checksum ^ u32::from(sample)).wrapping_mul(PRIME);
        }
    }
    checksum
}

/// Computes the result for a known checksum.
pub(crate) fn result_of(audio: Audio, passes: u32, checksum: u32) -> InferenceResult {
    let Levels { sum_squares, crossings } = levels(audio.samples);
    let passes = u64::from(passes);
    let samples = passes * audio.len() as u64;
    let zero_crossings = match (passes, audio.samples) {
        (0, _) | (_, []) => 0,
        (passes, [first, .., last]) => passes * crossings + (passes - 1) * u64::from(crosses(*last, *first)),
        (_, [_]) => 0,
    };
    let mean_square = (u128::from(sum_squares) * u128::from(passes)) as f64 / samples as f64;
    InferenceResult {
        rms: if samples == 0 { 0.0 } else { mean_square.sqrt() },
        zero_crossings,
        checksum,
        samples,
        transcript: WORDS[checksum as usize % WORDS.len()],
        audio_bytes: 2 * audio.len() as u64,
    }
}

/// The values of a single pass.
struct Levels {
    sum_squares: u64,
    crossings: u64,
}

/// Number of samples that are added in narrow sums, which the compiler vectorises. More could overflow them.
const BLOCK: usize = 1 << 12;

fn levels(samples: &[[u8; 2]]) -> Levels {
    let next = samples.get(1..).unwrap_or_default();
    let crossings = |(samples, next): (&[[u8; 2]], &[[u8; 2]])| {
        u64::from(samples.iter().zip(next).map(|(&previous, &next)| crosses(previous, next)).sum::<u16>())
    };
    Levels {
        sum_squares: samples.chunks(BLOCK).map(sum_squares).sum(),
        crossings: samples.chunks(BLOCK).zip(next.chunks(BLOCK)).map(crossings).sum(),
    }
}

/// Sum of the squares of a block. The sum of two squares is split into halves of 16 bits; each step is one instruction.
fn sum_squares(block: &[[u8; 2]]) -> u64 {
    let square = |sample| i32::from(i16::from_le_bytes(sample)).pow(2) as u32;
    let (pairs, odd_sample) = block.as_chunks::<2>();
    let (mut low, mut high) = (0_u32, 0_u32);
    for &[first, second] in pairs {
        let squares = square(first) + square(second);
        low += squares & 0xFFFF;
        high += squares >> 16;
    }
    let odd_sample: u64 = odd_sample.iter().map(|&sample| u64::from(square(sample))).sum();
    u64::from(low) + (u64::from(high) << 16) + odd_sample
}

/// 1 if exactly one of two adjacent samples is negative. Zero isn't negative.
fn crosses(previous: [u8; 2], next: [u8; 2]) -> u16 {
    (u16::from_le_bytes(previous) ^ u16::from_le_bytes(next)) >> 15
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// The definition, implemented literally.
    pub(crate) fn naive(body: &[u8], passes: u32) -> InferenceResult {
        let (mut checksum, mut crossings, mut sum_squares, mut count, mut previous) = (BASIS, 0_u64, 0_i128, 0_u64, 0);
        for pass in 0..passes {
            for sample in body.chunks(2) {
                let sample = i16::from_le_bytes([sample[0], sample[1]]);
                if count > 0 && ((sample < 0 && previous >= 0) || (previous < 0 && sample >= 0)) {
                    crossings += 1;
                }
                let unsigned = (i64::from(sample) + 32_768 + i64::from(pass)) & 0xFFFF;
                checksum = (checksum ^ unsigned as u32).wrapping_mul(16_777_619);
                sum_squares += i128::from(sample) * i128::from(sample);
                count += 1;
                previous = sample;
            }
        }
        InferenceResult {
            rms: if count == 0 { 0.0 } else { (sum_squares as f64 / count as f64).sqrt() },
            zero_crossings: crossings,
            checksum,
            samples: count,
            transcript: WORDS[checksum as usize % 24],
            audio_bytes: body.len() as u64,
        }
    }

    /// Frame number `sequence` of a session, as the protocol defines it.
    pub(crate) fn frame(session: u64, sequence: u64) -> Vec<u8> {
        let base = sequence * 320 + session;
        let sample = |index: u64| ((base + index) * 17 % 20_000) as i16 - 10_000;
        (0..320).flat_map(|index| sample(index).to_le_bytes()).collect()
    }

    fn bytes(samples: &[i16]) -> Vec<u8> {
        samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
    }

    #[test]
    fn the_vectors_of_the_protocol_hold() {
        let second: Vec<u8> = (1..=50).flat_map(|sequence| frame(0, sequence)).collect();
        for (body, passes, rms, zero_crossings, checksum, samples, transcript) in [
            (frame(0, 1), 4, 2425.5023191083533, 7, 1745339397, 1280, "now"),
            (frame(0, 1), 1, 2425.5023191083533, 1, 2841288837, 320, "now"),
            (frame(0, 1), 2, 2425.5023191083533, 3, 1595346885, 640, "now"),
            (frame(7, 11), 4, 7495.243791898966, 7, 1789384901, 1280, "over"),
            (second, 4, 5699.347243325326, 111, 1244816517, 64_000, "now"),
            (bytes(&[0, 100, -100, 200]), 4, 122.47448713915891, 8, 1251606621, 16, "now"),
            (bytes(&[-32768, 32767]), 4, 32767.500003814755, 7, 3827001041, 8, "wait"),
            (frame(0, 1), 0, 0.0, 0, 2166136261, 0, "right"),
            (vec![], 4, 0.0, 0, 2166136261, 0, "right"),
        ] {
            let audio_bytes = body.len() as u64;
            let expected = InferenceResult { rms, zero_crossings, checksum, samples, transcript, audio_bytes };
            assert_eq!(infer(Audio::new(&body).expect("even"), passes), expected);
        }
    }

    #[test]
    fn a_result_is_serialized_without_spaces_in_the_protocols_order() {
        let written = serde_json::to_string(&infer(Audio::new(&frame(0, 1)).expect("even"), 4))
            .expect("a result can be serialized");
        let expected = r#"{"rms":2425.5023191083533,"zero_crossings":7,"checksum":1745339397,"samples":1280,"transcript":"now","audio_bytes":640}"#;
        assert_eq!(written, expected);
    }

    #[test]
    fn half_a_sample_is_an_error() {
        assert_eq!(Audio::new(&[1, 2, 3]).err(), Some(OddLength));
    }

    #[test]
    fn the_loudest_audio_overflows_no_sum() {
        for sample in [-32_768, 32_767] {
            let body = bytes(&vec![sample; 3 * BLOCK + 1]);
            assert_eq!(infer(Audio::new(&body).expect("even"), 3), naive(&body, 3));
        }
        let alternating = bytes(&[-32_768, 32_767].repeat(4 * BLOCK));
        assert_eq!(infer(Audio::new(&alternating).expect("even"), 2), naive(&alternating, 2));
    }

    proptest! {
        #[test]
        fn every_result_equals_that_of_the_definition(samples in vec(any::<i16>(), 0..5000), passes in 0_u32..6) {
            let body = bytes(&samples);
            prop_assert_eq!(infer(Audio::new(&body).expect("even"), passes), naive(&body, passes));
        }

        #[test]
        fn zero_crossings_near_zero_follow_the_definition(samples in vec(-1_i16..=1, 0..200), passes in 0_u32..6) {
            let body = bytes(&samples);
            prop_assert_eq!(infer(Audio::new(&body).expect("even"), passes), naive(&body, passes));
        }
    }

    #[test]
    fn passes_beyond_16_bits_wrap_as_in_the_definition() {
        let body = bytes(&[1, -2]);
        assert_eq!(infer(Audio::new(&body).expect("even"), 70_000), naive(&body, 70_000));
    }
}
