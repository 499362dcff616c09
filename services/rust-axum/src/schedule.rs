//! When a session's flush ticks are due, and when its socket is read in between. It does no I/O and reads no clock.

use std::time::Duration;

use tokio::time::Instant;

/// Longest time between two visits of a socket. The contract allows 500 ms for the reply to a ping; half of it leaves a
/// margin.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Ticks at multiples of an interval after a first one. The schedule is absolute: it doesn't drift, and lateness
/// doesn't accumulate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// When the next tick is due.
    due: Instant,
    interval: Duration,
}

impl Schedule {
    /// Creates a schedule whose first tick is due at `first`.
    pub(crate) fn new(first: Instant, interval: Duration) -> Self {
        Self { due: first, interval }
    }

    /// When the session must be visited next: at the tick, or a whole number of pauses before it.
    pub(crate) fn next_visit(&self, now: Instant) -> Instant {
        let until_tick = self.due.saturating_duration_since(now);
        // Pauses that still fit in before the tick, without the one that would begin now.
        let pauses = until_tick.as_nanos().saturating_sub(1) / MAX_PAUSE.as_nanos();
        self.due - MAX_PAUSE * u32::try_from(pauses).expect("an interval is no longer than minutes")
    }

    /// Returns the lateness of the tick that is due at `now`, or `None` if no tick is due. The next tick is the first
    /// one in the future.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Duration> {
        let lateness = now.checked_duration_since(self.due)?;
        let missed = lateness.as_nanos() / self.interval.as_nanos();
        let missed = u32::try_from(missed).expect("no process sleeps for years");
        self.due += self.interval * (missed + 1);
        Some(lateness)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_socket_is_visited_after_each_pause_and_at_the_tick() {
        let now = Instant::now();
        let schedule = Schedule::new(now + INTERVAL, INTERVAL);
        let mut visits = vec![];
        let mut at = now;
        for _ in 0..4 {
            at = schedule.next_visit(at);
            visits.push((at - now).as_millis());
        }
        assert_eq!(visits, [250, 500, 750, 1000]);
    }

    #[test]
    fn a_first_tick_after_a_longer_time_has_the_same_pauses() {
        let now = Instant::now();
        let schedule = Schedule::new(now + milliseconds(1_730), INTERVAL);
        assert_eq!(schedule.next_visit(now) - now, milliseconds(230));
        assert_eq!(schedule.next_visit(now + milliseconds(1_500)) - now, milliseconds(1_730));
    }

    #[test]
    fn a_tick_runs_once_and_reports_its_lateness() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now, INTERVAL);
        assert_eq!(schedule.tick(now - milliseconds(1)), None);
        assert_eq!(schedule.tick(now + milliseconds(3)), Some(milliseconds(3)));
        assert_eq!(schedule.tick(now + milliseconds(4)), None);
        assert_eq!(schedule.tick(now + INTERVAL), Some(Duration::ZERO));
    }

    #[test]
    fn missed_ticks_are_skipped_and_lateness_starts_over() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now, INTERVAL);
        assert_eq!(schedule.tick(now + milliseconds(3_400)), Some(milliseconds(3_400)));
        assert_eq!(schedule.tick(now + milliseconds(3_999)), None);
        assert_eq!(schedule.tick(now + milliseconds(4_002)), Some(milliseconds(2)));
    }
}
