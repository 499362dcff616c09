//! The audio that sessions send: a saw tooth that differs for each session and frame and is cheap to generate.
//!
//! Sample `n` of a session's stream is `(n × 17 mod 20 000) - 10 000`. The stream therefore repeats after 20 000
//! samples, and any part of it is a slice of one table. Pure.

/// Samples per frame: 20 ms at 16 kHz.
pub const FRAME_SAMPLES: u64 = 320;
/// Bytes per frame: samples of 16 bits, little-endian.
pub const FRAME_BYTES: usize = 640;
/// Time between two frames, in nanoseconds.
pub const FRAME_NS: u64 = 20_000_000;
/// Number of samples after which the stream repeats.
pub const PERIOD: usize = 20_000;

const STEP: usize = 17;
const MIDDLE: i32 = 10_000;

/// The sample at a position of the stream; positions repeat after [`PERIOD`].
pub fn sample(phase: usize) -> i16 {
    ((phase % PERIOD * STEP % PERIOD) as i32 - MIDDLE) as i16
}

/// The position in the stream at which frame `seq` (from 1) of a session begins.
#[inline]
pub fn phase(session: u64, seq: u64) -> usize {
    (seq.wrapping_mul(FRAME_SAMPLES).wrapping_add(session) % PERIOD as u64) as usize
}

/// One period of the stream as bytes, extended by one frame.
#[derive(Clone, Debug)]
pub struct Audio {
    bytes: Box<[u8]>,
}

impl Audio {
    /// Computes the table of one period and one frame.
    pub fn new() -> Self {
        let samples = PERIOD + FRAME_SAMPLES as usize;
        Self { bytes: (0..samples).flat_map(|phase| sample(phase).to_le_bytes()).collect() }
    }

    /// The payload of frame `seq` (from 1) of a session.
    #[inline]
    pub fn frame(&self, session: u64, seq: u64) -> &[u8; FRAME_BYTES] {
        let from = phase(session, seq) * 2;
        self.bytes[from..].first_chunk().expect("the table is a frame longer than its last phase")
    }
}

impl Default for Audio {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(frame: &[u8]) -> Vec<i16> {
        frame.as_chunks::<2>().0.iter().map(|bytes| i16::from_le_bytes(*bytes)).collect()
    }

    #[test]
    fn the_first_frame_is_the_published_one() {
        let audio = Audio::new();
        let frame = audio.frame(0, 1);
        assert_eq!(frame[..6], [0x30, 0xee, 0x41, 0xee, 0x52, 0xee]);
        let samples = samples(frame);
        assert_eq!(samples[..3], [-4560, -4543, -4526]);
        assert_eq!(samples[317..], [829, 846, 863]);
    }

    #[test]
    fn every_frame_follows_the_formula() {
        let audio = Audio::new();
        for (session, seq) in [(0, 1), (7, 11), (19_999, 62), (4_400, 5_000), (3, u64::MAX / 321)] {
            let base = seq * 320 + session;
            let plain: Vec<i16> =
                (0..320).map(|at| ((((base + at) % 20_000 * 17) % 20_000) as i32 - 10_000) as i16).collect();
            assert_eq!(samples(audio.frame(session, seq)), plain, "session {session}, frame {seq}");
        }
    }

    #[test]
    fn frames_join_without_a_seam() {
        let audio = Audio::new();
        let joined: Vec<i16> = (1..200).flat_map(|seq| samples(audio.frame(5, seq))).collect();
        assert!(joined.iter().enumerate().all(|(at, value)| *value == sample(320 + 5 + at)));
    }
}
