//! When a ping is answered: a shortest delay plus an exponential part, from a seed. Pure.

use std::time::Duration;

/// The delays of one connection, in order.
#[derive(Clone, Debug)]
pub struct Delays {
    shortest: Duration,
    tail_mean: Duration,
    state: u64,
}

impl Delays {
    /// Delays of `shortest` plus an exponential part with mean `tail_mean`. Each `stream` of a seed has its own
    /// sequence.
    pub fn new(shortest: Duration, tail_mean: Duration, seed: u64, stream: u64) -> Self {
        // Mixed once more, or adjacent streams would be shifted copies of each other.
        let state = mix(seed ^ mix(stream.wrapping_add(GOLDEN)));
        Self { shortest, tail_mean, state }
    }

    /// Delays that are always zero.
    pub fn none() -> Self {
        Self::new(Duration::ZERO, Duration::ZERO, 0, 0)
    }
}

impl Iterator for Delays {
    type Item = Duration;

    /// The next delay; never `None`.
    fn next(&mut self) -> Option<Duration> {
        self.state = self.state.wrapping_add(GOLDEN);
        Some(self.shortest + self.tail_mean.mul_f64(-fraction(mix(self.state)).ln()))
    }
}

/// A number between 0 and 1 that depends only on the seed and the stream.
pub fn uniform(seed: u64, stream: u64) -> f64 {
    fraction(mix(seed ^ mix(stream.wrapping_add(GOLDEN))))
}

/// A number between 0 and 1 from 53 bits, which fill a double. The added half excludes zero, which has no logarithm.
fn fraction(bits: u64) -> f64 {
    ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// The increment of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of the generator SplitMix64.
fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(seed: u64, stream: u64) -> Delays {
        Delays::new(Duration::from_millis(100), Duration::from_millis(20), seed, stream)
    }

    #[test]
    fn a_seed_gives_the_same_delays_every_time() {
        assert!(delays(7, 3).take(100).eq(delays(7, 3).take(100)));
        assert!(!delays(7, 3).take(100).eq(delays(8, 3).take(100)));
    }

    #[test]
    fn connections_do_not_share_delays() {
        let first: Vec<_> = delays(7, 0).take(100).collect();
        assert!(delays(7, 1).take(100).all(|delay| !first.contains(&delay)));
    }

    #[test]
    fn the_delays_have_the_configured_distribution() {
        let mut all: Vec<f64> =
            (0..100).flat_map(|stream| delays(1, stream).take(1000)).map(|d| d.as_secs_f64()).collect();
        all.sort_by(f64::total_cmp);
        // 100 ms + 20 ms × ln 2 and 100 ms + 20 ms × ln 100.
        for (quantile, expected) in [(0.5, 0.113_863), (0.99, 0.192_103)] {
            let observed = all[(all.len() as f64 * quantile) as usize];
            assert!(
                (observed / expected - 1.0).abs() < 0.02,
                "quantile {quantile}: {observed} s instead of {expected} s"
            );
        }
        assert!(all[0] >= 0.1);
    }

    #[test]
    fn delays_of_none_are_zero() {
        assert!(Delays::none().take(10).all(|delay| delay.is_zero()));
    }
}
