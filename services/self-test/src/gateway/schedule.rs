//! When ticks are due: whole intervals after a fixed beginning, independent of earlier ticks. Pure.

use std::time::{Duration, Instant};

use super::config::Flaw;

/// The ticks of a session.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    begin: Instant,
    interval: Duration,
    flaw: Flaw,
    /// Number of the next tick, from 1.
    next: u32,
    /// Number of ticks so far.
    done: u32,
}

impl Schedule {
    /// Ticks are due each `interval` after `begin`.
    pub fn new(begin: Instant, interval: Duration, flaw: Flaw) -> Self {
        let interval = if flaw == Flaw::DriftingTimer { interval.mul_f64(1.03) } else { interval };
        Self { begin, interval, flaw, next: 1, done: 0 }
    }

    /// When the next tick is due.
    pub fn due(&self) -> Instant {
        self.begin + self.interval * self.next
    }

    /// Takes a tick at `now` and returns how late it is. Ticks that were missed until `now` are skipped.
    pub fn tick(&mut self, now: Instant) -> Duration {
        let due = self.due();
        self.done += 1;
        let since = now.saturating_duration_since(self.begin);
        let passed = (since.as_nanos() / self.interval.as_nanos()) as u32;
        self.next = passed.max(self.next) + 1;
        let counted_from = match self.flaw {
            Flaw::AccumulatingLateness => self.begin + self.interval * self.done,
            _ => due,
        };
        now.saturating_duration_since(counted_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lateness(flaw: Flaw, ticks: &[u64]) -> Vec<u128> {
        let begin = Instant::now();
        let mut schedule = Schedule::new(begin, Duration::from_millis(100), flaw);
        ticks.iter().map(|ms| schedule.tick(begin + Duration::from_millis(*ms)).as_millis()).collect()
    }

    #[test]
    fn a_missed_tick_is_skipped_and_lateness_starts_over() {
        assert_eq!(lateness(Flaw::None, &[101, 200, 655, 700, 801]), [1, 0, 355, 0, 1]);
    }

    #[test]
    fn the_flaw_accumulating_lateness_adds_up_missed_ticks() {
        assert_eq!(lateness(Flaw::AccumulatingLateness, &[101, 200, 655, 700, 801]), [1, 0, 355, 300, 301]);
    }
}
