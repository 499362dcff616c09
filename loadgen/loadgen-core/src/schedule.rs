//! When each message is due. Rate, seed and share determine it before the load starts.
//!
//! Pure: nothing that happens under load changes a due time. Latency counts from these times and not from the moment
//! when the socket accepts the bytes, so a service that stalls cannot hide its own delay. All times are nanoseconds
//! after the start.

const NANOS_PER_SECOND: u128 = 1_000_000_000;
/// Rates are stored in millionths of a message per second, so that all divisions are integer divisions.
const MICRO: f64 = 1e6;

/// One share of a load that several threads of several workers offer together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Index of the share, from 0.
    pub index: u64,
    /// Number of shares, at least 1.
    pub of: u64,
}

/// The due times of one share.
#[derive(Clone, Debug)]
pub enum Schedule {
    /// Evenly spaced over all shares: share `i` gets the slots `i`, `i + of`, `i + 2 of`, …
    Constant(ConstantRate),
    /// Exponentially distributed gaps. Shares are independent, and their sum is a Poisson process, too.
    Poisson(PoissonArrivals),
}

impl Schedule {
    /// The next due time, in nanoseconds after the start.
    pub fn next_due_ns(&mut self) -> u64 {
        match self {
            Self::Constant(constant) => constant.next_due_ns(),
            Self::Poisson(poisson) => poisson.next_due_ns(),
        }
    }
}

/// A fixed number of messages per second over all shares.
#[derive(Clone, Debug)]
pub struct ConstantRate {
    rate_micro: u64,
    share: Share,
    next: u64,
}

impl ConstantRate {
    /// `rate_per_second` counts over all shares. It is rounded to a millionth and is at least that.
    pub fn new(rate_per_second: f64, share: Share) -> Self {
        Self { rate_micro: ((rate_per_second * MICRO).round() as u64).max(1), share, next: 0 }
    }

    /// Due time of this share's message `n`, in nanoseconds after the start.
    pub fn due_ns(&self, n: u64) -> u64 {
        let slot = u128::from(n) * u128::from(self.share.of) + u128::from(self.share.index);
        // Divide last: a rounded interval would drift over a long run.
        (slot * NANOS_PER_SECOND * MICRO as u128 / u128::from(self.rate_micro)) as u64
    }

    fn next_due_ns(&mut self) -> u64 {
        let due = self.due_ns(self.next);
        self.next += 1;
        due
    }
}

/// Poisson arrivals from a seed.
#[derive(Clone, Debug)]
pub struct PoissonArrivals {
    random: u64,
    mean_gap_ns: f64,
    // The fraction is kept, because rounding each gap would bias the rate of a dense schedule.
    due_ns: f64,
}

impl PoissonArrivals {
    /// `rate_per_second` counts over all shares. `seed` is the trial's; each share mixes its index into it.
    pub fn new(rate_per_second: f64, share: Share, seed: u64) -> Self {
        let mut random = seed ^ (share.index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        splitmix64(&mut random);
        Self { random, mean_gap_ns: 1e9 * share.of as f64 / rate_per_second, due_ns: 0.0 }
    }

    fn next_due_ns(&mut self) -> u64 {
        // 53 random bits in (0, 1], so that the logarithm of 0 never occurs.
        let uniform = ((splitmix64(&mut self.random) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        self.due_ns -= uniform.ln() * self.mean_gap_ns;
        self.due_ns as u64
    }
}

/// SplitMix64: 64 random bits from a counter (Steele, Lea & Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014).
#[inline]
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Share = Share { index: 0, of: 1 };

    #[test]
    fn a_constant_rate_does_not_drift() {
        let rate = ConstantRate::new(3.0, ALONE);
        assert_eq!([0, 1, 2, 3].map(|n| rate.due_ns(n)), [0, 333_333_333, 666_666_666, 1_000_000_000]);
        // One day of a rate whose interval is not a whole number of nanoseconds.
        let rate = ConstantRate::new(70_001.0, ALONE);
        assert_eq!(rate.due_ns(70_001 * 86_400), 86_400 * 1_000_000_000);
    }

    #[test]
    fn shares_interleave_into_the_whole_schedule() {
        let unshared = ConstantRate::new(1234.5, ALONE);
        let mut shared: Vec<u64> = (0..3)
            .flat_map(|index| {
                let part = ConstantRate::new(1234.5, Share { index, of: 3 });
                (0..100).map(move |n| part.due_ns(n)).collect::<Vec<_>>()
            })
            .collect();
        shared.sort_unstable();
        assert_eq!(shared, (0..300).map(|n| unshared.due_ns(n)).collect::<Vec<_>>());
    }

    #[test]
    fn fractions_of_a_message_per_second_are_kept() {
        assert_eq!(ConstantRate::new(0.5, ALONE).due_ns(3), 6_000_000_000);
    }

    #[test]
    fn poisson_arrivals_repeat_with_the_seed_and_only_with_it() {
        let draw = |seed, index| {
            let mut arrivals = PoissonArrivals::new(1000.0, Share { index, of: 2 }, seed);
            (0..50).map(|_| arrivals.next_due_ns()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(2, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let mut arrivals = PoissonArrivals::new(10_000.0, ALONE, 42);
        let mut last = 0;
        let gaps: Vec<f64> = (0..200_000)
            .map(|_| {
                let due = arrivals.next_due_ns();
                let gap = due - last;
                last = due;
                gap as f64
            })
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // Five standard errors of 200 000 samples are 1.1 %.
        assert!((mean / 100_000.0 - 1.0).abs() < 0.012, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.02, "{deviation}");
    }
}
