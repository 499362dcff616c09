//! A token bucket: limits operations to an average rate and a burst. It has no side effects; the caller passes the
//! time.

/// A bucket of tokens that refills at a constant rate, up to a capacity.
///
/// A negative argument or NaN counts as 0, an infinite one as the largest finite number. So all its values are finite.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    capacity: f64,
    refill_per_second: f64,
    tokens: f64,
    /// The time to which `tokens` refers, in seconds of the caller's clock.
    at_seconds: f64,
}

/// `value` as a finite number that isn't negative; NaN becomes 0.
fn finite_or_zero(value: f64) -> f64 {
    // A comparison with NaN is false.
    if value > 0.0 { value.min(f64::MAX) } else { 0.0 }
}

impl TokenBucket {
    /// A bucket with this capacity and, at first, `tokens` in it (limited to the capacity).
    #[must_use]
    pub fn new(capacity: f64, refill_per_second: f64, tokens: f64, now_seconds: f64) -> Self {
        let capacity = finite_or_zero(capacity);
        Self {
            capacity,
            refill_per_second: finite_or_zero(refill_per_second),
            tokens: finite_or_zero(tokens).min(capacity),
            at_seconds: now_seconds,
        }
    }

    /// Takes `tokens` and returns `true` if there are enough; otherwise takes none.
    ///
    /// A negative number or NaN is refused.
    pub fn acquire(&mut self, tokens: f64, now_seconds: f64) -> bool {
        self.refill(now_seconds);
        let is_available = tokens >= 0.0 && tokens <= self.tokens;
        if is_available {
            self.tokens -= tokens;
        }
        is_available
    }

    /// The number of tokens at this time.
    pub fn tokens(&mut self, now_seconds: f64) -> f64 {
        self.refill(now_seconds);
        self.tokens
    }

    /// The largest number of tokens that the bucket holds.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        self.capacity
    }

    /// How many tokens are added each second.
    #[must_use]
    pub fn refill_per_second(&self) -> f64 {
        self.refill_per_second
    }

    /// Fills the bucket to its capacity.
    pub fn reset(&mut self, now_seconds: f64) {
        self.tokens = self.capacity;
        self.at_seconds = now_seconds;
    }

    fn refill(&mut self, now_seconds: f64) {
        // If the clock goes back, nothing is refilled until it passes its earlier value, so no time counts twice.
        if now_seconds > self.at_seconds {
            let refilled = (now_seconds - self.at_seconds) * self.refill_per_second;
            self.tokens = (self.tokens + refilled).min(self.capacity);
            self.at_seconds = now_seconds;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_takes_the_available_tokens_and_time_refills_them() {
        let mut bucket = TokenBucket::new(3.0, 2.0, 3.0, 100.0);
        assert!((0..3).all(|_| bucket.acquire(1.0, 100.0)));
        assert!(!bucket.acquire(1.0, 100.4));
        assert!(bucket.acquire(1.0, 100.5));
        assert!(!bucket.acquire(1.0, 100.5));
    }

    #[test]
    fn it_never_holds_more_than_its_capacity() {
        let mut bucket = TokenBucket::new(10.0, 1.0, 50.0, 0.0);
        assert_eq!(bucket.tokens(0.0), 10.0);
        assert!(bucket.acquire(4.0, 0.0));
        assert_eq!(bucket.tokens(1e9), 10.0);
        assert_eq!((bucket.capacity(), bucket.refill_per_second()), (10.0, 1.0));
    }

    #[test]
    fn a_request_for_more_than_the_available_tokens_takes_none() {
        let mut bucket = TokenBucket::new(10.0, 0.0, 5.0, 0.0);
        assert!(!bucket.acquire(5.1, 0.0));
        assert_eq!(bucket.tokens(0.0), 5.0);
        assert!(bucket.acquire(0.0, 0.0) && bucket.acquire(5.0, 0.0) && bucket.acquire(0.0, 0.0));
    }

    #[test]
    fn a_clock_that_goes_back_refills_nothing_twice() {
        let mut bucket = TokenBucket::new(10.0, 1.0, 0.0, 100.0);
        assert_eq!(bucket.tokens(105.0), 5.0);
        assert_eq!(bucket.tokens(90.0), 5.0);
        assert_eq!(bucket.tokens(105.0), 5.0);
        assert_eq!(bucket.tokens(106.0), 6.0);
    }

    #[test]
    fn a_reset_fills_it_and_starts_the_clock_again() {
        let mut bucket = TokenBucket::new(10.0, 1.0, 0.0, 0.0);
        bucket.reset(3.0);
        assert_eq!(bucket.tokens(3.0), 10.0);
        assert!(bucket.acquire(10.0, 3.0));
        assert_eq!(bucket.tokens(4.0), 1.0);
    }

    #[test]
    fn an_invalid_number_of_tokens_is_never_available() {
        let mut bucket = TokenBucket::new(f64::INFINITY, f64::NAN, f64::INFINITY, 0.0);
        assert!(!bucket.acquire(-1.0, 0.0) && !bucket.acquire(f64::NAN, 0.0) && !bucket.acquire(f64::INFINITY, 0.0));
        assert!(bucket.acquire(1e300, f64::NAN) && bucket.tokens(5.0).is_finite());
        assert!(!TokenBucket::new(-1.0, f64::INFINITY, 1.0, 0.0).acquire(1.0, 1.0));
    }

    proptest! {
        #[test]
        fn no_sequence_of_calls_takes_more_than_the_burst_and_the_rate_allow(
            capacity in 0.0..1000.0f64,
            rate in 0.0..1000.0f64,
            calls in prop::collection::vec((-1.0..5.0f64, 0.0..50.0f64), 0..200),
        ) {
            let mut bucket = TokenBucket::new(capacity, rate, capacity, 0.0);
            let (mut now, mut latest, mut taken) = (0.0f64, 0.0f64, 0.0);
            for (step, tokens) in calls {
                now += step;
                latest = latest.max(now);
                if bucket.acquire(tokens, now) {
                    taken += tokens;
                }
                prop_assert!((0.0..=capacity).contains(&bucket.tokens(now)));
            }
            prop_assert!(taken <= capacity + rate * latest + 1e-6, "{taken} taken");
        }
    }
}
