//! When a session's flush ticks are due, and when its socket is looked at in between. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// Longest time between two looks at a socket. Pings and closes are answered within 500 ms; half of that leaves room.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);

/// Ticks at multiples of an interval after a first one. It doesn't drift, and lateness doesn't add up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// When the next tick is due.
    due: Instant,
    interval: Duration,
}

impl Schedule {
    /// Ticks from `first` on.
    pub(crate) fn new(first: Instant, interval: Duration) -> Self {
        Self { due: first, interval }
    }

    /// When the session should be looked at next: at the tick, or a whole number of pauses before it.
    pub(crate) fn wake(&self, now: Instant) -> Instant {
        let until = self.due.saturating_duration_since(now);
        // The pauses that still fit in between, without the one that would begin now.
        let pauses = until.as_nanos().saturating_sub(1) / PAUSE.as_nanos();
        self.due - PAUSE * u32::try_from(pauses).expect("an interval is no longer than minutes")
    }

    /// How late the tick is that is due at `now`; none is due otherwise. The next is the first in the future.
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
    fn the_socket_is_looked_at_every_pause_and_at_the_tick() {
        let now = Instant::now();
        let schedule = Schedule::new(now + INTERVAL, INTERVAL);
        let mut looks = vec![];
        let mut at = now;
        for _ in 0..4 {
            at = schedule.wake(at);
            looks.push((at - now).as_millis());
        }
        assert_eq!(looks, [250, 500, 750, 1000]);
    }

    #[test]
    fn a_first_tick_that_is_further_off_is_waited_for_with_the_same_pauses() {
        let now = Instant::now();
        let schedule = Schedule::new(now + milliseconds(1_730), INTERVAL);
        assert_eq!(schedule.wake(now) - now, milliseconds(230));
        assert_eq!(schedule.wake(now + milliseconds(1_500)) - now, milliseconds(1_730));
    }

    #[test]
    fn a_tick_runs_once_and_says_how_late_it_was() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now, INTERVAL);
        assert_eq!(schedule.tick(now - milliseconds(1)), None);
        assert_eq!(schedule.tick(now + milliseconds(3)), Some(milliseconds(3)));
        assert_eq!(schedule.tick(now + milliseconds(4)), None);
        assert_eq!(schedule.tick(now + INTERVAL), Some(Duration::ZERO));
    }

    #[test]
    fn missed_ticks_are_not_made_up_for_and_lateness_starts_over() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now, INTERVAL);
        assert_eq!(schedule.tick(now + milliseconds(3_400)), Some(milliseconds(3_400)));
        assert_eq!(schedule.tick(now + milliseconds(3_999)), None);
        assert_eq!(schedule.tick(now + milliseconds(4_002)), Some(milliseconds(2)));
    }
}
