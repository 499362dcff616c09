//! The checksums of many requests at once, one request per vector lane.
//!
//! The chain `h = (h ^ a) * PRIME` with `a` below 2^16 splits into two of 16 bits, because `PRIME = 2^24 + 403`:
//! with `x = low ^ a`, the new low half is `x * 403`, and the new high half is `high * 403`, plus the carry of
//! `x * 403`, plus `x << 8`. The low half needs nothing of the high one. Multiplications of 16 bits are short and there
//! are as many lanes as in any vector unit, also in the oldest ones; the compiler finds the instructions.

use crate::compute::{self, Answer, Audio, BASIS, OFFSET, PRIME};

/// Requests side by side. Two vectors of AVX2: enough for throughput to count, no longer the multiplication's latency.
pub const LANES: usize = 32;
/// One sample, or one half of the state, of each lane: a cache line, so that no load needs two.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Row([u16; LANES]);
/// The prime without the bit that only moves the lowest byte to the top.
const FACTOR: u16 = 403;
const _: () = assert!(PRIME == (1 << 24) + FACTOR as u32);
/// Samples of so many lanes, and so many of each, are turned from lanes into rows at a time.
const BLOCK: usize = 8;
/// Bytes of one lane's part of a block.
const BLOCK_BYTES: usize = 2 * BLOCK;

/// One request's part.
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a> {
    /// What to go over.
    pub audio: Audio<'a>,
    /// How often.
    pub passes: u32,
}

/// Room for the samples of [`LANES`] requests, kept for the next ones.
pub struct Lanes {
    rows: Vec<Row>,
    width: Width,
}

impl Lanes {
    /// Nothing yet, for the best instructions that this CPU has.
    pub fn new() -> Self {
        Self { rows: Vec::new(), width: Width::best() }
    }

    /// The answer to each request, of which there are [`LANES`] at most.
    pub fn infer(&mut self, chains: &[Chain]) -> Vec<Answer> {
        // The lanes take more than twice as long as a single chain, however few of them are used.
        if chains.len() <= 2 {
            return chains.iter().map(|chain| compute::infer(chain.audio, chain.passes)).collect();
        }
        let checksums = self.checksums(chains);
        let answer = |(chain, checksum): (&Chain, _)| compute::answer(chain.audio, chain.passes, checksum);
        chains.iter().zip(checksums).map(answer).collect()
    }

    /// The checksum of each chain, of which there are [`LANES`] at most.
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

    /// One pass of the lanes that take part in it, the shortest first. The state of every other lane stays as it was.
    fn pass(&self, pass: u16, state: &mut State, by_length: &[usize], chains: &[Chain]) {
        let mut running = *state;
        let mut from = 0;
        for &lane in by_length {
            let to = chains[lane].audio.len();
            if to > from {
                self.width.advance(&self.rows[from..to], OFFSET.wrapping_add(pass), &mut running);
                from = to;
            }
            // Shorter lanes run on over what isn't theirs, so each keeps what it was at its own end.
            (state.low.0[lane], state.high.0[lane]) = (running.low.0[lane], running.high.0[lane]);
        }
    }

    /// Writes the chains' samples into the lanes, and silence behind their ends.
    fn fill(&mut self, chains: &[Chain]) {
        let longest = chains.iter().map(|chain| chain.audio.len()).max().unwrap_or(0);
        let rows = longest.next_multiple_of(BLOCK);
        if self.rows.len() < rows {
            self.rows.resize(rows, Row([0; LANES]));
        }
        for (at, rows) in self.rows[..rows].as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            for (group, chains) in chains.chunks(BLOCK).enumerate() {
                let mut ends = [[0; BLOCK_BYTES]; BLOCK];
                let mut lanes = [&[0; BLOCK_BYTES]; BLOCK];
                for ((lane, end), chain) in lanes.iter_mut().zip(&mut ends).zip(chains) {
                    *lane = block(chain.audio, at, end);
                }
                for (row, samples) in rows.iter_mut().zip(transpose(lanes)) {
                    row.0.as_chunks_mut::<BLOCK>().0[group] = samples;
                }
            }
        }
    }
}

/// Block `at` of the audio. One that isn't whole is filled up with silence in `end`.
#[inline(always)]
fn block<'a>(audio: Audio<'a>, at: usize, end: &'a mut [u8; BLOCK_BYTES]) -> &'a [u8; BLOCK_BYTES] {
    let bytes = audio.samples().as_flattened();
    let rest = bytes.get(at * BLOCK_BYTES..).unwrap_or_default();
    rest.first_chunk().unwrap_or_else(|| {
        end[..rest.len()].copy_from_slice(rest);
        end
    })
}

/// Turns a row of samples per lane into a row of lanes per sample.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn transpose(lanes: [&[u8; BLOCK_BYTES]; BLOCK]) -> [[u16; BLOCK]; BLOCK] {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_unpackhi_epi16, _mm_unpacklo_epi16};

    /// Each row and the one half the block behind it, interleaved: the low halves and then the high ones.
    #[inline(always)]
    fn interleave(rows: [__m128i; BLOCK]) -> [__m128i; BLOCK] {
        std::array::from_fn(|row| {
            let (first, second) = (rows[row / 2], rows[row / 2 + BLOCK / 2]);
            // SAFETY: every CPU of this architecture has SSE2.
            unsafe {
                match row % 2 {
                    0 => _mm_unpacklo_epi16(first, second),
                    _ => _mm_unpackhi_epi16(first, second),
                }
            }
        })
    }
    // The compiler doesn't find these instructions by itself: one sample at a time takes three times as long.
    // SAFETY: a reference to 16 bytes may be read from, and this load needs no alignment.
    let rows = lanes.map(|lane| unsafe { _mm_loadu_si128(lane.as_ptr().cast()) });
    // Three rounds, as there are 2^3 rows.
    let columns = interleave(interleave(interleave(rows)));
    // SAFETY: both are 128 bytes without padding, and any bits are valid in either.
    unsafe { std::mem::transmute(columns) }
}

/// Turns a row of samples per lane into a row of lanes per sample.
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

/// The instructions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    /// What every CPU of the architecture has.
    Plain,
    /// Two vectors of 16. One of 32 (AVX-512) was measured to be slower.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Width {
    /// All that this CPU has, the best last.
    fn all() -> Vec<Self> {
        let mut all = vec![Width::Plain];
        #[cfg(target_arch = "x86_64")]
        all.extend(is_x86_feature_detected!("avx2").then_some(Width::Avx2));
        all
    }

    fn best() -> Self {
        *Self::all().last().expect("there is always the plain one")
    }

    fn advance(self, rows: &[Row], offset: u16, state: &mut State) {
        match self {
            Width::Plain => advance(rows, offset, state),
            // SAFETY: only `all` makes this variant, and only if the CPU has the feature.
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

/// Takes every lane through the rows. Inlined into its callers, which differ in the instructions they may use.
#[inline(always)]
fn advance(rows: &[Row], offset: u16, state: &mut State) {
    // Copies, so that they live in registers.
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

    /// Every set of instructions, on chains of bodies that are used twice over, so that old rows lie about.
    fn check(bodies: &[(Vec<u8>, u32)]) {
        for width in Width::all() {
            let mut lanes = Lanes { rows: Vec::new(), width };
            let whole: Vec<Chain> = bodies.iter().map(|(body, passes)| chain(body, *passes)).collect();
            for chains in [&whole[..], &whole[whole.len() / 2..]] {
                let found = lanes.checksums(chains);
                for (chain, found) in chains.iter().zip(found) {
                    assert_eq!(found, naive(chain.audio.samples().as_flattened(), chain.passes).checksum, "{width:?}");
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
        fn side_by_side_gives_what_one_by_one_gives(
            bodies in vec((vec(any::<[u8; 2]>(), 0..400).prop_map(|it| it.concat()), 0_u32..6), 0..=LANES),
        ) {
            check(&bodies);
        }
    }

    #[test]
    fn lanes_of_one_length_all_end_at_once() {
        let body = |lane: u8| (0..640).map(|at| (at as u8).wrapping_mul(lane)).collect();
        check(&(0..LANES as u8).map(|lane| (body(lane), 4)).collect::<Vec<_>>());
    }
}
