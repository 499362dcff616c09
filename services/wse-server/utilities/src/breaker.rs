//! A circuit breaker: stops calls to a dependency that keeps failing. It has no side effects; the caller passes the
//! time.
//!
//! A closed breaker allows all calls. It opens after several failures in a row, and then refuses calls. After a timeout
//! it is half open and allows a few calls as a test. If all of them succeed, it closes; if one fails, it opens for
//! another timeout.

use std::time::Duration;

/// The thresholds at which a breaker opens and closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// The number of failures in a row that opens it; 0 counts as 1.
    pub failure_threshold: u32,
    /// How long it stays open before it allows a test call.
    pub reset_timeout: Duration,
    /// The number of test calls that a half-open breaker allows, all of which must succeed; 0 counts as 1.
    pub success_threshold: u32,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { failure_threshold: 5, reset_timeout: Duration::from_secs(60), success_threshold: 3 }
    }
}

/// The state of a breaker, which decides whether calls are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// All calls are allowed.
    Closed,
    /// No calls are allowed.
    Open,
    /// A few test calls are allowed.
    HalfOpen,
}

impl BreakerState {
    /// The state's name: `closed`, `open` or `half_open`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// With the number of failures since the last success.
    Closed { failures: u32 },
    /// With the time at which it opened, on the caller's clock.
    Open { since: Duration },
    /// With the number of test calls that were allowed, the number that succeeded, and when the last was allowed.
    HalfOpen { allowed: u32, successes: u32, at: Duration },
}

/// A circuit breaker, as the module describes it. Its methods take `now`, the time since any fixed moment. If `now`
/// goes back, the breaker counts no time as elapsed.
#[derive(Clone, Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: State,
}

impl Breaker {
    /// A closed breaker with these thresholds; a threshold of 0 becomes 1.
    #[must_use]
    pub fn new(config: BreakerConfig) -> Self {
        let config = BreakerConfig {
            failure_threshold: config.failure_threshold.max(1),
            success_threshold: config.success_threshold.max(1),
            ..config
        };
        Self { config, state: State::Closed { failures: 0 } }
    }

    /// Whether a call may be made now. If so, the caller must report its outcome with [`Self::success`] or
    /// [`Self::failure`].
    pub fn allow(&mut self, now: Duration) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { since } if now.saturating_sub(since) < self.config.reset_timeout => false,
            State::Open { .. } => self.probe(0, 0, now),
            State::HalfOpen { allowed, successes, .. } if allowed < self.config.success_threshold => {
                self.probe(allowed, successes, now)
            }
            // Without this, test calls whose outcome is never reported would keep it half open for ever.
            State::HalfOpen { at, .. } if now.saturating_sub(at) >= self.config.reset_timeout => self.probe(0, 0, now),
            State::HalfOpen { .. } => false,
        }
    }

    fn probe(&mut self, allowed: u32, successes: u32, now: Duration) -> bool {
        self.state = State::HalfOpen { allowed: allowed + 1, successes, at: now };
        true
    }

    /// Reports that a call succeeded.
    pub fn success(&mut self, _now: Duration) {
        match &mut self.state {
            State::Closed { failures } => *failures = 0,
            // The call was allowed before the breaker opened, so it says nothing about the current state.
            State::Open { .. } => {}
            State::HalfOpen { successes, .. } => {
                *successes += 1;
                if *successes >= self.config.success_threshold {
                    self.state = State::Closed { failures: 0 };
                }
            }
        }
    }

    /// Reports that a call failed.
    pub fn failure(&mut self, now: Duration) {
        match &mut self.state {
            State::Closed { failures } => {
                *failures += 1;
                if *failures >= self.config.failure_threshold {
                    self.state = State::Open { since: now };
                }
            }
            State::Open { .. } => {}
            State::HalfOpen { .. } => self.state = State::Open { since: now },
        }
    }

    /// The current state. It is open while it refuses calls, and half open from the end of the timeout on.
    #[must_use]
    pub fn state(&self, now: Duration) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { since } if now.saturating_sub(since) < self.config.reset_timeout => BreakerState::Open,
            State::Open { .. } | State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// How much longer it refuses calls, as far as time alone decides; zero if the next call is allowed.
    #[must_use]
    pub fn refuses_for(&self, now: Duration) -> Duration {
        let remaining = |since: Duration| self.config.reset_timeout.saturating_sub(now.saturating_sub(since));
        match self.state {
            State::Closed { .. } => Duration::ZERO,
            State::Open { since } => remaining(since),
            State::HalfOpen { allowed, at, .. } if allowed >= self.config.success_threshold => remaining(at),
            State::HalfOpen { .. } => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn breaker() -> Breaker {
        Breaker::new(BreakerConfig { failure_threshold: 3, reset_timeout: seconds(60), success_threshold: 2 })
    }

    fn opened_at(now: Duration) -> Breaker {
        let mut breaker = breaker();
        (0..3).for_each(|_| breaker.failure(now));
        breaker
    }

    #[test]
    fn consecutive_failures_open_the_breaker_and_a_success_resets_the_count() {
        let mut breaker = breaker();
        for _ in 0..10 {
            breaker.failure(seconds(1));
            breaker.failure(seconds(1));
            breaker.success(seconds(1));
        }
        assert!(breaker.allow(seconds(1)) && breaker.state(seconds(1)) == BreakerState::Closed);
        (0..3).for_each(|_| breaker.failure(seconds(2)));
        assert!(!breaker.allow(seconds(2)) && breaker.state(seconds(2)) == BreakerState::Open);
        assert_eq!(breaker.refuses_for(seconds(12)), seconds(50));
    }

    #[test]
    fn after_the_timeout_as_many_calls_pass_as_must_succeed_to_close_it() {
        let mut breaker = opened_at(seconds(5));
        assert!(!breaker.allow(seconds(64)));
        assert_eq!(breaker.state(seconds(65)), BreakerState::HalfOpen);
        assert_eq!([(); 3].map(|()| breaker.allow(seconds(65))), [true, true, false]);
        breaker.success(seconds(66));
        assert_eq!(breaker.state(seconds(66)), BreakerState::HalfOpen);
        breaker.success(seconds(66));
        assert_eq!(breaker.state(seconds(66)), BreakerState::Closed);
        assert!((0..100).all(|_| breaker.allow(seconds(66))));
    }

    #[test]
    fn a_failure_while_half_open_restarts_the_timeout() {
        let mut breaker = opened_at(seconds(0));
        assert!(breaker.allow(seconds(60)));
        breaker.failure(seconds(61));
        assert!(!breaker.allow(seconds(120)) && breaker.allow(seconds(121)));
    }

    #[test]
    fn calls_that_never_finish_do_not_block_a_half_open_breaker() {
        let mut breaker = opened_at(seconds(0));
        assert_eq!([(); 3].map(|()| breaker.allow(seconds(60))), [true, true, false]);
        assert_eq!(breaker.refuses_for(seconds(90)), seconds(30));
        assert!(!breaker.allow(seconds(119)) && breaker.allow(seconds(120)));
    }

    #[test]
    fn results_of_calls_that_began_before_it_opened_are_ignored() {
        let mut breaker = opened_at(seconds(10));
        breaker.success(seconds(11));
        breaker.failure(seconds(50));
        assert_eq!(breaker.state(seconds(69)), BreakerState::Open);
        assert_eq!(breaker.state(seconds(70)), BreakerState::HalfOpen);
    }

    #[test]
    fn thresholds_of_zero_count_as_one() {
        let none = BreakerConfig { failure_threshold: 0, reset_timeout: seconds(1), success_threshold: 0 };
        let mut breaker = Breaker::new(none);
        breaker.failure(seconds(0));
        assert!(!breaker.allow(seconds(0)) && breaker.allow(seconds(1)) && !breaker.allow(seconds(1)));
        breaker.success(seconds(1));
        assert_eq!(breaker.state(seconds(1)), BreakerState::Closed);
    }

    proptest! {
        #[test]
        fn an_open_breaker_refuses_calls_exactly_until_its_timeout(
            steps in prop::collection::vec((0..4_u8, 0..40_u64), 0..200),
        ) {
            let mut breaker = breaker();
            let mut now = seconds(0);
            for (call, pause) in steps {
                now += seconds(pause);
                let refuses_for = breaker.refuses_for(now);
                prop_assert!(refuses_for <= seconds(60));
                match call {
                    0 => breaker.success(now),
                    1 | 2 => breaker.failure(now),
                    _ => prop_assert_eq!(breaker.allow(now), refuses_for.is_zero()),
                }
                let later = now + breaker.refuses_for(now);
                prop_assert!(breaker.clone().allow(later));
            }
        }
    }
}
