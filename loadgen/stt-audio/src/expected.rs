//! Computes the inference result that a piece of audio must have, from its definition, and caches it.
//!
//! The stream is periodic, so a batch is identified by the phase at which it begins and its number of frames. Energy
//! and zero crossings of a batch are differences of running sums. The checksum is a chain in which each step needs the
//! previous one: [`Expected::prepare`] computes many chains in parallel for batches that will be common, other
//! checksums are computed when they are needed.

use crate::audio::{FRAME_BYTES, FRAME_SAMPLES, PERIOD, phase, sample};

/// The words of the simulated transcripts; the checksum selects one.
pub const WORDS: [&str; 24] = [
    "the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "hello", "world", "yes", "no", "okay", "right",
    "left", "stop", "go", "wait", "ready", "done", "again", "now", "later", "never",
];
/// Largest relative difference of `rms`, because intermediate values may have been rounded.
const RMS_TOLERANCE: f64 = 1e-6;
/// Longest batch whose checksum is cached, in frames. The checksum of a longer batch is computed each time.
const REMEMBERED_FRAMES: u64 = 256;
/// FNV-1a with 32 bits: the initial value and the multiplier of each step.
const FNV_OFFSET: u32 = 2_166_136_261;
const FNV_PRIME: u32 = 16_777_619;
/// The period of 20 000 samples divided by its greatest common divisor with the 320 samples of a frame, and that
/// divisor.
const PHASES_OF_A_SESSION: u64 = 125;
const SESSIONS_TO_ALL_PHASES: u64 = 160;
/// Number of chains that are computed in parallel.
const LANES: usize = 32;

/// The inference result of one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InferenceResult {
    /// FNV-1a checksum over the samples of all passes; it selects the word from [`WORDS`].
    pub checksum: u32,
    /// Number of sign changes between samples, including those between two passes.
    pub zero_crossings: u64,
    /// Root of the mean square of the samples.
    pub rms: f64,
    /// Number of samples over all passes.
    pub samples: u64,
    /// Bytes of one pass.
    pub audio_bytes: u64,
}

impl InferenceResult {
    /// The word that the checksum selects.
    pub fn transcript(&self) -> &'static str {
        WORDS[self.checksum as usize % WORDS.len()]
    }

    /// Whether `rms` matches within the tolerance.
    pub fn has_rms(&self, rms: f64) -> bool {
        (rms - self.rms).abs() <= self.rms * RMS_TOLERANCE
    }
}

/// The expected results for one number of passes, with a cache of checksums.
#[derive(Clone, Debug)]
pub struct Expected {
    passes: u32,
    /// Samples of two periods and [`LANES`] more, as the checksum uses them: shifted so that none is negative.
    shifted: Box<[u16]>,
    /// `squares[n]`: sum of the squares of the first `n` samples, over two periods.
    squares: Box<[u64]>,
    /// `crossings[n]`: number of sign changes from each of the first `n` samples to the next, over two periods.
    crossings: Box<[u64]>,
    /// Cached checksums, by the batch's number of frames, then by phase.
    checksums: Vec<Option<Box<[Option<u32>]>>>,
}

impl Expected {
    /// Creates the table for gateways that request `passes` passes.
    pub fn new(passes: u32) -> Self {
        let running = |value: fn(usize) -> u64| {
            let mut sum = 0;
            let sums = (0..2 * PERIOD).map(|at| {
                sum += value(at);
                sum
            });
            std::iter::once(0).chain(sums).collect()
        };
        Self {
            passes,
            shifted: (0..2 * PERIOD + LANES).map(shifted).collect(),
            squares: running(|at| u64::from(sample(at).unsigned_abs()).pow(2)),
            crossings: running(|at| u64::from(crosses(at, at + 1))),
            checksums: vec![None; REMEMBERED_FRAMES as usize + 1],
        }
    }

    /// Number of passes over the audio that gateways request.
    pub fn passes(&self) -> u32 {
        self.passes
    }

    /// Computes the checksums of batches of these lengths that the sessions from index `first` can send; returns
    /// whether any was missing. Each session reaches 125 phases, and 160 sessions reach all of them.
    pub fn prepare_sessions(&mut self, first: u64, count: u64, frames: &[u64]) -> bool {
        let mut reached = vec![false; PERIOD];
        for session in first..first + count.min(SESSIONS_TO_ALL_PHASES) {
            (0..PHASES_OF_A_SESSION).for_each(|seq| reached[phase(session, seq)] = true);
        }
        let mut any = false;
        for frames in frames {
            let known = self.checksums[*frames as usize].as_ref();
            let missing = |at: &usize| reached[*at] && known.is_none_or(|known| known[*at].is_none());
            let missing: Vec<usize> = (0..PERIOD).filter(missing).collect();
            any |= !missing.is_empty();
            self.prepare(*frames, &missing);
        }
        any
    }

    /// Computes the checksums of all batches of `frames` frames that begin at one of these phases, which must be in
    /// rising order.
    pub fn prepare(&mut self, frames: u64, phases: &[usize]) {
        let mut rest = phases;
        while let Some(&start) = rest.first() {
            let run = rest.iter().zip(start..).take(LANES).take_while(|(phase, next)| **phase == *next).count();
            if run == 1 {
                self.checksum(start, frames);
            } else {
                for (lane, checksum) in self.chains::<LANES>(start, frames).into_iter().enumerate() {
                    self.remember(frames, (start + lane) % PERIOD, checksum);
                }
            }
            rest = &rest[run..];
        }
    }

    /// The inference result of `frames` frames from `phase` on; `None` for 0 frames or if the length overflows.
    pub fn answer(&mut self, phase: usize, frames: u64) -> Option<InferenceResult> {
        if frames == 0 {
            return None;
        }
        let phase = phase % PERIOD;
        let passes = u64::from(self.passes);
        let length = frames.checked_mul(FRAME_SAMPLES)?;
        let samples = length.checked_mul(passes)?;
        let in_a_pass = stretch(&self.crossings, phase, length - 1);
        let last = phase + ((length - 1) % PERIOD as u64) as usize;
        let at_seams = u64::from(crosses(last, phase)) * passes.saturating_sub(1);
        let energy = u128::from(stretch(&self.squares, phase, length)) * u128::from(passes);
        Some(InferenceResult {
            checksum: self.checksum(phase, frames),
            zero_crossings: in_a_pass * passes + at_seams,
            rms: if samples == 0 { 0.0 } else { (energy as f64 / samples as f64).sqrt() },
            samples,
            audio_bytes: frames * FRAME_BYTES as u64,
        })
    }

    /// Whether the checksum is cached, so that `answer` is cheap.
    pub fn knows(&self, phase: usize, frames: u64) -> bool {
        let of_size = self.checksums.get(frames as usize).and_then(Option::as_ref);
        of_size.is_some_and(|known| known[phase % PERIOD].is_some())
    }

    fn checksum(&mut self, phase: usize, frames: u64) -> u32 {
        let known = self.checksums.get(frames as usize).and_then(Option::as_ref).and_then(|known| known[phase]);
        known.unwrap_or_else(|| {
            let [checksum] = self.chains(phase, frames);
            self.remember(frames, phase, checksum);
            checksum
        })
    }

    fn remember(&mut self, frames: u64, phase: usize, checksum: u32) {
        if let Some(known) = self.checksums.get_mut(frames as usize) {
            known.get_or_insert_with(|| vec![None; PERIOD].into_boxed_slice())[phase] = Some(checksum);
        }
    }

    /// Computes the chains that begin at `N` consecutive phases, in parallel.
    fn chains<const N: usize>(&self, start: usize, frames: u64) -> [u32; N] {
        let length = (frames * FRAME_SAMPLES) as usize;
        let mut states = [FNV_OFFSET; N];
        for pass in 0..self.passes {
            // One period at a time, so that no chain runs past the end of the table.
            for from in (0..length).step_by(PERIOD) {
                let at = (start + from) % PERIOD;
                step(&mut states, &self.shifted[at..at + PERIOD.min(length - from) + N - 1], pass as u16);
            }
        }
        states
    }
}

/// Advances chain `n` through the samples from the `n`th on. All chains take the same number of steps.
fn step<const N: usize>(states: &mut [u32; N], samples: &[u16], pass: u16) {
    #[cfg(target_arch = "x86_64")]
    if N > 1 && is_x86_feature_detected!("avx2") {
        // SAFETY: `is_x86_feature_detected!` has confirmed on the line before that the processor has AVX2.
        return unsafe { step_wide(states, samples, pass) };
    }
    step_each(states, samples, pass);
}

/// The same, compiled for AVX2, which multiplies eight numbers at once: five times as fast.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn step_wide<const N: usize>(states: &mut [u32; N], samples: &[u16], pass: u16) {
    step_each(states, samples, pass);
}

#[inline(always)]
fn step_each<const N: usize>(states: &mut [u32; N], samples: &[u16], pass: u16) {
    let mut chains = *states;
    for window in samples.array_windows::<N>() {
        for (state, sample) in chains.iter_mut().zip(window) {
            *state = (*state ^ u32::from(sample.wrapping_add(pass))).wrapping_mul(FNV_PRIME);
        }
    }
    *states = chains;
}

fn shifted(phase: usize) -> u16 {
    (i32::from(sample(phase)) + 32_768) as u16
}

fn crosses(from: usize, to: usize) -> bool {
    (sample(from) < 0) != (sample(to) < 0)
}

/// Sum over `length` samples from `phase`, from running sums over two periods.
fn stretch(sums: &[u64], phase: usize, length: u64) -> u64 {
    let (whole, rest) = (length / PERIOD as u64, (length % PERIOD as u64) as usize);
    whole * sums[PERIOD] + sums[phase + rest] - sums[phase]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, computed sample by sample.
    fn plain(phase: usize, frames: u64, passes: u32) -> InferenceResult {
        let (mut checksum, mut crossings, mut squares, mut count, mut previous) =
            (2_166_136_261_u32, 0, 0_i128, 0_u64, 0);
        for pass in 0..passes {
            for at in 0..(frames * 320) as usize {
                let s = sample(phase + at);
                if count > 0 && ((s < 0 && previous >= 0) || (previous < 0 && s >= 0)) {
                    crossings += 1;
                }
                let a = (i64::from(s) + 32_768 + i64::from(pass)) as u64 & 0xFFFF;
                checksum = (checksum ^ a as u32).wrapping_mul(16_777_619);
                squares += i128::from(s) * i128::from(s);
                count += 1;
                previous = s;
            }
        }
        let rms = (squares as f64 / count as f64).sqrt();
        InferenceResult { checksum, zero_crossings: crossings, rms, samples: count, audio_bytes: frames * 640 }
    }

    fn answer(session: u64, seq: u64, frames: u64, passes: u32) -> InferenceResult {
        Expected::new(passes).answer(phase(session, seq), frames).unwrap()
    }

    fn assert_published(
        answer: InferenceResult,
        (rms, crossings, checksum, samples, word): (f64, u64, u32, u64, &str),
    ) {
        assert!((answer.rms - rms).abs() < 1e-9, "{} for {rms}", answer.rms);
        let seen = (answer.zero_crossings, answer.checksum, answer.samples, answer.transcript());
        assert_eq!(seen, (crossings, checksum, samples, word));
    }

    #[test]
    fn published_answers_come_out() {
        let one = 2425.5023191083533;
        assert_published(answer(0, 1, 1, 4), (one, 7, 1_745_339_397, 1280, "now"));
        assert_published(answer(0, 1, 1, 1), (one, 1, 2_841_288_837, 320, "now"));
        assert_published(answer(0, 1, 1, 2), (one, 3, 1_595_346_885, 640, "now"));
        assert_published(answer(7, 11, 1, 4), (7495.243791898966, 7, 1_789_384_901, 1280, "over"));
        assert_published(answer(0, 1, 50, 4), (5699.347243325326, 111, 1_244_816_517, 64_000, "now"));
        assert_eq!(answer(0, 1, 50, 4).audio_bytes, 32_000);
    }

    #[test]
    fn every_batch_equals_its_definition() {
        let mut expected = Expected::new(4);
        for (phase, frames) in [(0, 1), (19_999, 3), (12_345, 62), (7, 63), (19_680, 125), (4_000, 300)] {
            assert_eq!(expected.answer(phase, frames), Some(plain(phase, frames, 4)), "{frames} from {phase}");
        }
    }

    #[test]
    fn prepared_answers_equal_computed_ones() {
        let runs = (19_990..PERIOD).chain(0..LANES + 5).chain([700, 900]);
        let mut phases: Vec<usize> = runs.collect();
        phases.sort_unstable();
        let mut prepared = Expected::new(4);
        prepared.prepare(50, &phases);
        let mut lazy = Expected::new(4);
        for phase in phases {
            assert!(prepared.checksums[50].as_ref().unwrap()[phase].is_some());
            assert_eq!(prepared.answer(phase, 50), lazy.answer(phase, 50));
        }
    }

    #[test]
    fn nonsense_lengths_have_no_answer_or_no_end() {
        let mut expected = Expected::new(4);
        assert_eq!(expected.answer(5, 0), None);
        assert_eq!(expected.answer(5, u64::MAX), None);
    }
}
