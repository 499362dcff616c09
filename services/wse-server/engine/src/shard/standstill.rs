//! Notices an application that takes no messages although some wait, and reports it once.

use std::time::Duration;

use super::{Core, Shard};
use crate::config::Delivery;

/// How long an application may take nothing before it is reported, in milliseconds: longer than any pause of a working
/// one, and shorter than clients wait.
const STANDSTILL_MILLIS: u64 = 10_000;

/// What was seen of the application so far.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    /// How often it had asked for messages at the last look.
    drains: usize,
    /// When that number changed last, or nothing waited, in milliseconds of the shard's clock.
    since_millis: u64,
    is_reported: bool,
}

impl Standstill {
    /// Looks at the application. Returns whether a standstill is to be reported now, which happens once for each.
    fn look(&mut self, drains: usize, has_waiting: bool, now_millis: u64) -> bool {
        if drains != self.drains || !has_waiting {
            *self = Self { drains, since_millis: now_millis, is_reported: false };
        }
        let is_over = now_millis - self.since_millis >= STANDSTILL_MILLIS;
        is_over && !std::mem::replace(&mut self.is_reported, true)
    }
}

impl Shard {
    /// Reports an application that stands still. One shard does so for all.
    pub(super) fn look_at_application(&mut self, now_millis: u64) {
        let Core { shared, index, .. } = &self.core;
        if *index != 0 || shared.config.delivery != Delivery::Queue {
            return;
        }
        let waiting = shared.inbound.usage.messages();
        if self.standstill.look(shared.inbound.drains(), waiting > 0, now_millis) {
            tracing::warn!(
                waiting,
                seconds = Duration::from_millis(STANDSTILL_MILLIS).as_secs(),
                policy = ?shared.config.inbound_overflow,
                "the application takes no messages: drain the server, or set another inbound_overflow"
            );
            self.core.counters.standstills += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_that_stands_still_is_reported_once_until_it_goes_on() {
        let mut standstill = Standstill::default();
        let mut look = |drains, seconds: u64| standstill.look(drains, true, seconds * 1000);
        assert_eq!([1, 5, 11, 15, 60].map(|seconds| look(7, seconds)), [false, false, true, false, false]);
        assert_eq!([61, 70, 71, 90].map(|seconds| look(8, seconds)), [false, false, true, false]);
    }

    #[test]
    fn an_application_for_which_nothing_waits_does_not_stand_still() {
        let mut standstill = Standstill::default();
        assert!([1, 50, 99].iter().all(|seconds| !standstill.look(7, false, seconds * 1000)));
        assert!(!standstill.look(7, true, 105_000), "something waits for six seconds only");
    }
}
