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

    /// The pause after another failed attempt; the caller varies it with [`varied`].
    pub(crate) fn after_failure(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.mul_f64(GROWTH).min(self.longest);
        pause
    }
}

/// Varies a pause at random by up to a fifth.
pub(crate) fn varied(pause: Duration) -> Duration {
    varied_by(pause, chance())
}

/// `chance` is from 0 to 1.
fn varied_by(pause: Duration, chance: f64) -> Duration {
    pause.mul_f64(1.0 + JITTER * (2.0 * chance - 1.0))
}

/// A random number from 0 to 1. It must differ between instances and need not be secret.
fn chance() -> f64 {
    let bits = crate::random::id(0).as_u128() as u32;
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_again_when_somebody_answered() {
        let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(60));
        let told: Vec<u64> = (0..20).map(|_| pauses.after_failure().as_millis() as u64).collect();
        assert_eq!((&told[..4], told[8], told[19]), ([1000, 1500, 2250, 3375].as_slice(), 25_628, 60_000));
        pauses.reset();
        assert_eq!(pauses.after_failure(), Duration::from_secs(1));
    }

    #[test]
    fn a_pause_varies_by_a_fifth() {
        let second = Duration::from_secs(1);
        assert_eq!((varied_by(second, 0.0).as_millis(), varied_by(second, 1.0).as_millis()), (800, 1200));
        let some: Vec<f64> = (0..1000).map(|_| chance()).collect();
        assert!(some.iter().all(|chance| (0.0..=1.0).contains(chance)));
        assert!(some.iter().any(|chance| *chance < 0.25) && some.iter().any(|chance| *chance > 0.75));
    }
}
