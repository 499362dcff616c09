//! The checksums of many requests at once, one request per vector lane.
//!
//! The chain `h = (h ^ a) * PRIME` with `a` below 2^16 splits into two chains of 16 bits, because `PRIME = 2^24 + 403`:
//! with `x = low ^ a`, the new low half is `x * 403`, and the new high half is `high * 403`, plus the carry of
//! `x * 403`, plus `x << 8`. The low half doesn't depend on the high half. Multiplications of 16 bits have a short
//! latency, and every vector unit, even an old one, has as many lanes as needed; the compiler selects the instructions.

use std::iter;

use crate::compute::{self, Audio, BASIS, InferenceResult, OFFSET, PRIME};

/// Number of requests side by side. Two vectors of AVX2 are enough to be limited by throughput and not by the latency
/// of the multiplication.
pub const LANES: usize = 32;
/// One sample, or one half of the state, of each lane. A row is a cache line, so that no load touches two.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Row([u16; LANES]);
/// The prime without the bit that only moves the lowest byte to the top.
const FACTOR: u16 = 403;
const _: () = assert!(PRIME == (1 << 24) + FACTOR as u32);
/// A block is this number of lanes with this number of samples each. Blocks are transposed from lanes to rows.
const BLOCK: usize = 8;
/// Bytes of one lane's part of a block.
const BLOCK_BYTES: usize = 2 * BLOCK;

/// The input of one lane.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// The samples of the request.
    pub audio: Audio<'a>,
    /// Number of passes over them.
    pub passes: u32,
}

/// Buffers for the samples of [`LANES`] requests, reused for the next ones.
pub struct Lanes {
    rows: Vec<Row>,
    width: Width,
}

impl Lanes {
    /// Creates empty buffers that use the best instructions of this CPU.
    pub fn new() -> Self {
        Self { rows: Vec::new(), width: Width::best() }
    }

    /// Computes the result of each request; there are at most [`LANES`].
    pub fn infer(&mut self, chains: &[Chain]) -> Vec<InferenceResult> {
        // Lanes take more than twice as long as a single chain, even if only a few of them are used.
        if chains.len() <= 2 {
            return chains.iter().map(|chain| compute::infer(chain.audio, chain.passes)).collect();
        }
        let checksums = self.checksums(chains);
        let result_of = |(chain, checksum): (&Chain, _)| compute::result_of(chain.audio, chain.passes, checksum);
        chains.iter().zip(checksums).map(result_of).collect()
    }

    /// Computes the checksum of each chain; there are at most [`LANES`].
    fn checksums(&mut self, chains: &[Chain]) -> [u32; LANES] {
        assert!(chains.len() <= LANES, "{} chains in {LANES} lanes", chains.len());
        self.fill(chains);
        let mut by_length: Vec<usize> = (0..chains.len()).collect();
        by_length.sort_unstable_by_key(|&lane| chains[lane].audio.len());
        let mut state = State { low: Row([BASIS as u16; LANES]), high: Row([(BASIS >> 16) as u16; LANES]) };
        for pass in 0.. {
            by_length.retain(|&lane| chains[lane].passes > pass);
            if by_length.is_empty() {
                break;
            }
            self.pass(pass as u16, &mut state, &by_length, chains);
        }
        std::array::from_fn(|lane| u32::from(state.low.0[lane]) | u32::from(state.high.0[lane]) << 16)
    }

    /// Computes one pass of the lanes in `by_length`, the shortest first. The state of every other lane doesn't change.
    fn pass(&self, pass: u16, state: &mut State, by_length: &[usize], chains: &[Chain]) {
        let mut running = *state;
        let mut from = 0;
        for &lane in by_length {
            let to = chains[lane].audio.len();
            if to > from {
                self.width.advance(&self.rows[from..to], OFFSET.wrapping_add(pass), &mut running);
                from = to;
            }
            // Shorter lanes continue over data that isn't theirs, so each lane's state is saved at its own end.
            (state.low.0[lane], state.high.0[lane]) = (running.low.0[lane], running.high.0[lane]);
        }
    }

    /// Copies the chains' samples to the lanes, followed by silence.
    fn fill(&mut self, chains: &[Chain]) {
        let longest = chains.iter().map(|chain| chain.audio.len()).max().unwrap_or(0);
        let rows = longest.next_multiple_of(BLOCK);
        if self.rows.len() < rows {
            self.rows.resize(rows, Row([0; LANES]));
        }
        for (at, rows) in self.rows[..rows].as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            for (group, chains) in chains.chunks(BLOCK).enumerate() {
                let mut tails = [[0; BLOCK_BYTES]; BLOCK];
                let mut lanes = [&[0; BLOCK_BYTES]; BLOCK];
                for ((lane, tail), chain) in lanes.iter_mut().zip(&mut tails).zip(chains) {
                    *lane = block(chain.audio, at, tail);
                }
                for (row, samples) in rows.iter_mut().zip(transpose(lanes)) {
                    row.0.as_chunks_mut::<BLOCK>().0[group] = samples;
                }
            }
        }
    }
}

/// Block `at` of the audio. An incomplete block is copied to `tail` and filled with silence.
#[inline(always)]
fn block<'a>(audio: Audio<'a>, at: usize, tail: &'a mut [u8; BLOCK_BYTES]) -> &'a [u8; BLOCK_BYTES] {
    let bytes = audio.samples().as_flattened();
    let remaining = bytes.get(at * BLOCK_BYTES..).unwrap_or_default();
    remaining.first_chunk().unwrap_or_else(|| {
        tail[..remaining.len()].copy_from_slice(remaining);
        tail
    })
}

/// Transposes a row of samples per lane to a row of lanes per sample.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn transpose(lanes: [&[u8; BLOCK_BYTES]; BLOCK]) -> [[u16; BLOCK]; BLOCK] {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_unpackhi_epi16, _mm_unpacklo_epi16};

    /// Interleaves each row with the row half a block after it: first the low halves, then the high halves.
    #[inline(always)]
    fn interleave(rows: [__m128i; BLOCK]) -> [__m128i; BLOCK] {
        std::array::from_fn(|row| {
            let (first, second) = (rows[row / 2], rows[row / 2 + BLOCK / 2]);
            // SAFETY: every x86-64 CPU has SSE2.
            unsafe {
                match row % 2 {
                    0 => _mm_unpacklo_epi16(first, second),
                    _ => _mm_unpackhi_epi16(first, second),
                }
            }
        })
    }
    // The compiler doesn't select these instructions by itself; one sample at a time takes three times as long.
    // SAFETY: a reference to 16 bytes is valid for reads, and this load has no alignment requirement.
    let rows = lanes.map(|lane| unsafe { _mm_loadu_si128(lane.as_ptr().cast()) });
    // Three rounds, because there are 2^3 rows.
    let columns = interleave(interleave(interleave(rows)));
    // SAFETY: both types have 128 bytes without padding, and every bit pattern is valid in both.
    unsafe { std::mem::transmute(columns) }
}

/// Transposes a row of samples per lane to a row of lanes per sample.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn transpose(lanes: [&[u8; BLOCK_BYTES]; BLOCK]) -> [[u16; BLOCK]; BLOCK] {
    std::array::from_fn(|column| lanes.map(|lane| u16::from_le_bytes(lane.as_chunks::<2>().0[column])))
}

impl Default for Lanes {
    fn default() -> Self {
        Self::new()
    }
}

/// Both halves of all checksums.
#[derive(Clone, Copy)]
struct State {
    low: Row,
    high: Row,
}

/// The instruction set that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// The instructions that every CPU of the architecture has.
    Plain,
    /// Two vectors of 16 values. One vector of 32 (AVX-512) was measured to be slower.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Width {
    /// All instruction sets of this CPU, the best last.
    fn all() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let wider = is_x86_feature_detected!("avx2").then_some(Width::Avx2);
        #[cfg(not(target_arch = "x86_64"))]
        let wider = None;
        iter::once(Width::Plain).chain(wider).collect()
    }

    fn best() -> Self {
        *Self::all().last().expect("there is always the plain one")
    }

    fn advance(self, rows: &[Row], offset: u16, state: &mut State) {
        match self {
            Width::Plain => advance(rows, offset, state),
            // SAFETY: only `all` creates this variant, and only if the CPU has the feature.
            #[cfg(target_arch = "x86_64")]
            Width::Avx2 => unsafe { advance_avx2(rows, offset, state) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn advance_avx2(rows: &[Row], offset: u16, state: &mut State) {
    advance(rows, offset, state);
}

/// Advances every lane through the rows. It is inlined into its callers, which are compiled for different instruction
/// sets.
#[inline(always)]
fn advance(rows: &[Row], offset: u16, state: &mut State) {
    // Copies, so that the compiler keeps them in registers.
    let State { low: Row(mut low), high: Row(mut high) } = *state;
    for Row(row) in rows {
        for lane in 0..LANES {
            let mixed = low[lane] ^ row[lane].wrapping_add(offset);
            let product = u32::from(mixed) * u32::from(FACTOR);
            low[lane] = mixed.wrapping_mul(FACTOR);
            let carried = ((product >> 16) as u16).wrapping_add(mixed << 8);
            high[lane] = high[lane].wrapping_mul(FACTOR).wrapping_add(carried);
        }
    }
    *state = State { low: Row(low), high: Row(high) };
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::compute::tests::naive;

    /// Checks every instruction set. The lanes are used twice, so that the second use finds old rows.
    fn check(bodies: &[(Vec<u8>, u32)]) {
        for width in Width::all() {
            let mut lanes = Lanes { rows: Vec::new(), width };
            let all_chains: Vec<Chain> = bodies.iter().map(|(body, passes)| chain(body, *passes)).collect();
            for chains in [&all_chains[..], &all_chains[all_chains.len() / 2..]] {
                let checksums = lanes.checksums(chains);
                for (chain, checksum) in chains.iter().zip(checksums) {
                    assert_eq!(
                        checksum,
                        naive(chain.audio.samples().as_flattened(), chain.passes).checksum,
                        "{width:?}"
                    );
                }
            }
        }
    }

    fn chain(body: &[u8], passes: u32) -> Chain<'_> {
        Chain { audio: Audio::new(body).expect("the test's bodies are even"), passes }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn chains_in_parallel_lanes_give_the_same_as_one_by_one(
            bodies in vec((vec(any::<[u8; 2]>(), 0..400).prop_map(|it| it.concat()), 0_u32..6), 0..=LANES),
        ) {
            check(&bodies);
        }
    }

    #[test]
    fn lanes_of_equal_length_finish_together() {
        let body = |lane: u8| (0..640).map(|at| (at as u8).wrapping_mul(lane)).collect();
        check(&(0..LANES as u8).map(|lane| (body(lane), 4)).collect::<Vec<_>>());
    }
}
