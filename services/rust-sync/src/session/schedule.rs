//! When a session's flush ticks are due, and when its socket is visited in between. It does no I/O and reads no clock.

use std::time::{Duration, Instant};

/// An absolute schedule: tick `k` is due at `start + k × interval`, independent of earlier ticks.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    due: Instant,
    interval: Duration,
    /// Time between two visits; the interval divided evenly.
    step: Duration,
}

impl Schedule {
    /// Creates the schedule of a session that starts at `start`, which includes its random offset. Visits are at each
    /// tick and between ticks, at most `visit_interval` apart.
    pub fn new(start: Instant, interval: Duration, visit_interval: Duration) -> Self {
        let visits = interval.as_nanos().div_ceil(visit_interval.as_nanos());
        let step = interval / u32::try_from(visits).unwrap_or(u32::MAX);
        Self { due: start + interval, interval, step }
    }

    /// Returns the lateness of the tick that is due, or `None`. The next tick is then the first one in the future;
    /// missed ticks are not made up for.
    pub fn take_due(&mut self, now: Instant) -> Option<Duration> {
        let lateness = now.checked_duration_since(self.due)?;
        let passed = lateness.as_nanos() / self.interval.as_nanos() + 1;
        // Less than a day divided by at least a millisecond fits. If it doesn't, the clock has jumped and all times are
        // wrong.
        self.due += self.interval * u32::try_from(passed).unwrap_or(u32::MAX);
        Some(lateness)
    }

    /// When the next visit is due: at the tick, or a whole number of steps before it.
    pub fn next_visit(&self, now: Instant) -> Instant {
        let remaining = self.due.saturating_duration_since(now).as_nanos();
        // Visits within the next half step are skipped, because they would find no new bytes.
        let near = self.step.as_nanos() / 2;
        let steps = remaining.saturating_sub(near) / self.step.as_nanos();
        self.due - self.step * u32::try_from(steps).unwrap_or(0)
    }
}
