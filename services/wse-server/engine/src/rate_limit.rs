//! The rate limit of events to one connection, and the notices that its client gets when tokens run low. The caller
//! passes the time in, so this file has no clock.

use wse_utilities::bucket::TokenBucket;

use crate::config::RateLimit;

/// Part of the capacity below which the client is warned.
const WARNING_SHARE: f64 = 0.2;
/// Shortest time between two notices of the same kind, in seconds.
const NOTICE_SECONDS: f64 = 1.0;

/// A notice to the client about its rate limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Notice {
    /// An event took a token while less than [`WARNING_SHARE`] of the capacity was left. `tokens` is what was there
    /// before.
    Warning { capacity: f64, tokens: f64 },
    /// No token was left, and an event was dropped.
    Limited,
}

impl Notice {
    /// The JSON text of the notice. The order of the keys and the numbers cut to integers are those of the protocol's
    /// reference.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Warning { capacity, tokens } => {
                let (used, limit, left) = ((capacity - tokens) as u64, capacity as u64, tokens as u64);
                format!(
                    r#"{{"c":"WSE","t":"rate_limit_warning","p":{{"current_rate":{used},"limit":{limit},"remaining":{left},"retry_after":1.0}},"v":1}}"#
                )
            }
            Self::Limited => concat!(
                r#"{"c":"WSE","t":"error","p":{"code":"RATE_LIMITED","message":"Rate limit exceeded","#,
                r#""retry_after":1.0},"v":1}"#
            )
            .to_owned(),
        }
    }
}

/// Whether an event may be sent, and the notice that goes to the client before it or instead of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decision {
    pub(crate) is_allowed: bool,
    pub(crate) notice: Option<Notice>,
}

/// The token bucket of one connection, and when its client got each kind of notice last.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    bucket: TokenBucket,
    /// When the client got a [`Notice::Warning`] last, on the caller's clock.
    warned_seconds: f64,
    /// When the client got a [`Notice::Limited`] last, on the caller's clock.
    limited_seconds: f64,
}

impl RateLimiter {
    pub(crate) fn new(limit: RateLimit, now_seconds: f64) -> Self {
        let bucket = TokenBucket::new(limit.capacity, limit.refill_per_second, limit.capacity, now_seconds);
        Self { bucket, warned_seconds: f64::NEG_INFINITY, limited_seconds: f64::NEG_INFINITY }
    }

    /// The part of the capacity that is available, from 0 to 1.
    pub(crate) fn allowance(&mut self, now_seconds: f64) -> f64 {
        self.bucket.tokens(now_seconds) / self.bucket.capacity()
    }

    /// Takes a token for one event; each event costs one.
    pub(crate) fn step(&mut self, now_seconds: f64) -> Decision {
        let (capacity, tokens) = (self.bucket.capacity(), self.bucket.tokens(now_seconds));
        if !self.bucket.acquire(1.0, now_seconds) {
            let notice = is_due(&mut self.limited_seconds, now_seconds).then_some(Notice::Limited);
            return Decision { is_allowed: false, notice };
        }
        let is_low = tokens < capacity * WARNING_SHARE;
        let warns = is_low && is_due(&mut self.warned_seconds, now_seconds);
        Decision { is_allowed: true, notice: warns.then_some(Notice::Warning { capacity, tokens }) }
    }
}

/// Whether a notice may be sent now. If so, `last_seconds` becomes `now_seconds`.
fn is_due(last_seconds: &mut f64, now_seconds: f64) -> bool {
    let is_due = now_seconds - *last_seconds >= NOTICE_SECONDS;
    if is_due {
        *last_seconds = now_seconds;
    }
    is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(capacity: f64, refill_per_second: f64) -> RateLimiter {
        RateLimiter::new(RateLimit { capacity, refill_per_second }, 0.0)
    }

    #[test]
    fn a_burst_gets_a_warning_near_its_end_and_one_message_when_it_is_over() {
        let mut limiter = limiter(10.0, 0.0);
        let steps: Vec<Decision> = (0..13).map(|_| limiter.step(5.0)).collect();
        assert_eq!(steps.iter().filter(|step| step.is_allowed).count(), 10);
        assert_eq!((limiter.allowance(5.0), super::tests::limiter(10.0, 0.0).allowance(5.0)), (0.0, 1.0));
        let notices: Vec<_> = steps.iter().enumerate().filter_map(|(at, step)| Some((at, step.notice?))).collect();
        // As captured from the reference: the tenth of ten events brings a warning, and only the first dropped one a
        // notice.
        assert_eq!(notices, [(9, Notice::Warning { capacity: 10.0, tokens: 1.0 }), (10, Notice::Limited)]);
    }

    #[test]
    fn each_notice_is_sent_once_a_second_at_most() {
        let mut limiter = limiter(10.0, 1.0);
        (0..10).for_each(|_| assert!(limiter.step(0.0).is_allowed));
        let notice_seconds: Vec<f64> = (0..40)
            .map(|n| f64::from(n) / 10.0 + 0.05)
            .filter(|now| limiter.step(*now).notice == Some(Notice::Limited))
            .collect();
        assert_eq!(notice_seconds.len(), 4, "{notice_seconds:?}");
        assert!(notice_seconds.windows(2).all(|pair| pair[1] - pair[0] >= 1.0), "{notice_seconds:?}");
    }

    #[test]
    fn tokens_refill_with_time() {
        let mut limiter = limiter(2.0, 1.0);
        assert_eq!([0.0, 0.0, 0.0, 1.0, 1.0].map(|now| limiter.step(now).is_allowed), [true, true, false, true, false]);
    }

    #[test]
    fn notices_have_the_reference_s_form() {
        let warning = r#"{"c":"WSE","t":"rate_limit_warning","p":{"current_rate":8,"limit":10,"remaining":1,"retry_after":1.0},"v":1}"#;
        assert_eq!(Notice::Warning { capacity: 10.0, tokens: 1.0003 }.text(), warning);
        let limited = r#"{"c":"WSE","t":"error","p":{"code":"RATE_LIMITED","message":"Rate limit exceeded","retry_after":1.0},"v":1}"#;
        assert_eq!(Notice::Limited.text(), limited);
    }
}
