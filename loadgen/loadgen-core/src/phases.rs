//! The phases of a trial on the clock: hold, warm-up, window, drain. Pure.
//!
//! Before them, a worker opens its connections and reports ready. After them, it closes its connections.

/// The start of the load, with the offset between the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartAt {
    /// Start in nanoseconds since the Unix epoch, by the coordinator's clock.
    pub unix_ns: u64,
    /// This machine's clock minus the coordinator's, in nanoseconds.
    pub clock_offset_ns: i64,
    /// Half of the shortest round trip, in nanoseconds.
    pub clock_uncertainty_ns: u64,
    /// How far the clock by which the service publishes is ahead of the coordinator's, in nanoseconds.
    pub publisher_ahead_ns: i64,
}

/// The boundaries of the phases, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// Start of the load.
    pub start_ns: u64,
    /// When the window begins, after the warm-up.
    pub window_start_ns: u64,
    /// End of the window and of new load.
    pub window_end_ns: u64,
    /// Longest duration of the drain after the window, in nanoseconds.
    pub drain_ns: u64,
}

/// A phase of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Connections are open and idle.
    Hold,
    /// Load that isn't measured.
    WarmUp,
    /// Load that is measured.
    Window,
    /// No new load; messages in flight may arrive.
    Drain,
    /// The time for the drain is over.
    Ended,
}

impl Phases {
    /// Computes the phases from the start and the lengths, all in nanoseconds.
    pub fn new(start_ns: u64, warmup_ns: u64, window_ns: u64, drain_ns: u64) -> Self {
        let window_start_ns = start_ns + warmup_ns;
        Self { start_ns, window_start_ns, window_end_ns: window_start_ns.saturating_add(window_ns), drain_ns }
    }

    /// The phase at `now_ns`.
    pub fn at(&self, now_ns: u64) -> Phase {
        match now_ns {
            now if now < self.start_ns => Phase::Hold,
            now if now < self.window_start_ns => Phase::WarmUp,
            now if now < self.window_end_ns => Phase::Window,
            now if now < self.drain_deadline_ns() => Phase::Drain,
            _ => Phase::Ended,
        }
    }

    /// Time at which the drain ends at the latest.
    pub fn drain_deadline_ns(&self) -> u64 {
        self.window_end_ns.saturating_add(self.drain_ns)
    }

    /// Ends the window early, because a load has ended by itself. The window never becomes longer.
    pub fn end_window(&mut self, now_ns: u64) {
        self.window_end_ns = self.window_end_ns.min(now_ns.max(self.window_start_ns));
    }

    /// Whether a message due at this time belongs to the window.
    #[inline]
    pub fn in_window(&self, due_ns: u64) -> bool {
        (self.window_start_ns..self.window_end_ns).contains(&due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_ends_where_the_next_begins() {
        let phases = Phases::new(100, 10, 20, 5);
        let observed = [99, 100, 109, 110, 129, 130, 134, 135].map(|now| phases.at(now));
        let expected = [
            Phase::Hold,
            Phase::WarmUp,
            Phase::WarmUp,
            Phase::Window,
            Phase::Window,
            Phase::Drain,
            Phase::Drain,
            Phase::Ended,
        ];
        assert_eq!(observed, expected);
    }

    #[test]
    fn a_window_that_ends_early_moves_the_drain_with_it() {
        let mut phases = Phases::new(0, 10, 1000, 5);
        phases.end_window(50);
        assert_eq!((phases.window_end_ns, phases.drain_deadline_ns()), (50, 55));
        phases.end_window(60);
        assert_eq!(phases.window_end_ns, 50, "it only ever gets shorter");
    }

    #[test]
    fn a_window_never_ends_before_it_began() {
        let mut phases = Phases::new(0, 10, 1000, 5);
        phases.end_window(3);
        assert_eq!(phases.window_end_ns, 10);
    }

    #[test]
    fn only_messages_due_inside_belong_to_the_window() {
        let phases = Phases::new(0, 10, 20, 5);
        assert_eq!([9, 10, 29, 30].map(|due| phases.in_window(due)), [false, true, true, false]);
    }
}
