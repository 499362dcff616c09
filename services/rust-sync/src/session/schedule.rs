//! When a session's flush ticks are due, and when its socket is visited between them. Pure.

use std::time::{Duration, Instant};

/// Tick `k` is due at `start + k × interval`, whatever happened to those before.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    due: Instant,
    interval: Duration,
    /// Time between visits: the interval divided evenly.
    step: Duration,
}

impl Schedule {
    /// The schedule of a session that starts at `start` (its phase offset included). It is visited at each tick and between
    /// ticks, never more than `visit_interval` apart.
    pub fn new(start: Instant, interval: Duration, visit_interval: Duration) -> Self {
        let visits = interval.as_nanos().div_ceil(visit_interval.as_nanos());
        let step = interval / u32::try_from(visits).unwrap_or(u32::MAX);
        Self { due: start + interval, interval, step }
    }

    /// How late the tick is that is due, if one is. The next tick is then the first in the future: missed ones are not made
    /// up for.
    pub fn take_due(&mut self, now: Instant) -> Option<Duration> {
        let lateness = now.checked_duration_since(self.due)?;
        let passed = lateness.as_nanos() / self.interval.as_nanos() + 1;
        // Less than a day divided by at least a millisecond fits; if not, the clock jumped and no time is right.
        self.due += self.interval * u32::try_from(passed).unwrap_or(u32::MAX);
        Some(lateness)
    }

    /// When the socket is read next: at the tick, or a whole number of steps before it.
    pub fn next_visit(&self, now: Instant) -> Instant {
        let remaining = self.due.saturating_duration_since(now).as_nanos();
        // A visit that comes at once again would find nothing: what is nearer than half a step is left out.
        let near = self.step.as_nanos() / 2;
        let steps = remaining.saturating_sub(near) / self.step.as_nanos();
        self.due - self.step * u32::try_from(steps).unwrap_or(0)
    }
}
