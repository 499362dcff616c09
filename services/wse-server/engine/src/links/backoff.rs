//! The pauses between attempts to reach an address that doesn't answer: they grow, and differ between instances.

use std::time::Duration;

/// The factor by which the next pause is longer.
const GROWTH: f64 = 1.5;
/// The part by which a pause varies in both directions, so that instances don't retry in step.
const JITTER: f64 = 0.2;

/// An exponential backoff, from the first pause to the longest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Pauses {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest }
    }

    /// Starts again with the first pause, after a success.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The pause after another failed attempt; the caller varies it with [`jittered`].
    pub(crate) fn after_failure(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.mul_f64(GROWTH).min(self.longest);
        pause
    }
}

/// Varies a pause at random by up to a fifth.
pub(crate) fn jittered(pause: Duration) -> Duration {
    jittered_by(pause, random_fraction())
}

/// `random_fraction` is from 0 to 1.
fn jittered_by(pause: Duration, random_fraction: f64) -> Duration {
    pause.mul_f64(1.0 + JITTER * (2.0 * random_fraction - 1.0))
}

/// A random number from 0 to 1. It must differ between instances and need not be secret.
fn random_fraction() -> f64 {
    let bits = crate::random::id(0).as_u128() as u32;
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_start_again_after_a_success() {
        let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(60));
        let delays: Vec<u64> = (0..20).map(|_| pauses.after_failure().as_millis() as u64).collect();
        assert_eq!((&delays[..4], delays[8], delays[19]), ([1000, 1500, 2250, 3375].as_slice(), 25_628, 60_000));
        pauses.reset();
        assert_eq!(pauses.after_failure(), Duration::from_secs(1));
    }

    #[test]
    fn a_pause_varies_by_a_fifth() {
        let second = Duration::from_secs(1);
        assert_eq!((jittered_by(second, 0.0).as_millis(), jittered_by(second, 1.0).as_millis()), (800, 1200));
        let some: Vec<f64> = (0..1000).map(|_| random_fraction()).collect();
        assert!(some.iter().all(|random_fraction| (0.0..=1.0).contains(random_fraction)));
        assert!(
            some.iter().any(|random_fraction| *random_fraction < 0.25)
                && some.iter().any(|random_fraction| *random_fraction > 0.75)
        );
    }
}
