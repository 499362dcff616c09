//! The CPU and counters of one side between two moments, taken when the side first notices that an edge has passed.

use bench_format::histogram::Histogram;
use loadgen_core::clock::{monotonic_ns, process_cpu_ns};
use serde::{Deserialize, Serialize};

use crate::load::Timing;

/// Counters of one side. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read or write system calls that moved bytes.
    pub calls: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Complete messages or handshakes, on a side that counts them.
    pub units: u64,
}

/// What one side measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Time between the two readings at the edges of the window, in nanoseconds.
    pub duration_ns: u64,
    /// CPU time of the process in user and kernel mode, in nanoseconds.
    pub cpu_ns: u64,
    /// Read or write system calls that moved bytes inside the window; see [`Counters::calls`].
    pub calls: u64,
    /// Bytes read or written inside the window; see [`Counters::bytes`].
    pub bytes: u64,
    /// Complete messages or handshakes inside the window; see [`Counters::units`].
    pub units: u64,
    /// Time from a message's due time, or the start of a connection, to its reply or response, in nanoseconds.
    pub response: Option<Histogram>,
    /// Time from a message's due time until it was sent, in nanoseconds: the lateness of this side.
    pub delay: Option<Histogram>,
    /// Resident memory before the first connection, in bytes.
    pub rss_before: u64,
    /// Resident memory with all connections open, in bytes.
    pub rss_open: u64,
}

/// Takes the counters at the edges of a load's window.
#[derive(Clone, Debug)]
pub struct Window {
    from_ns: u64,
    to_ns: u64,
    from: Option<Mark>,
    to: Option<Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at_ns: u64,
    cpu_ns: u64,
    counters: Counters,
}

impl Mark {
    fn now(counters: Counters) -> Self {
        Self { at_ns: monotonic_ns(), cpu_ns: process_cpu_ns(), counters }
    }
}

impl Window {
    /// Creates the window of a load that starts at `start_ns` of the monotonic clock. The warm-up comes first.
    pub fn new(start_ns: u64, timing: Timing) -> Self {
        let from_ns = start_ns + nanoseconds(timing.warmup);
        Self { from_ns, to_ns: from_ns + nanoseconds(timing.duration), from: None, to: None }
    }

    /// Creates a window from now until [`Window::end`].
    pub fn until_done() -> Self {
        let from = Mark::now(Counters::default());
        Self { from_ns: from.at_ns, to_ns: u64::MAX, from: Some(from), to: None }
    }

    /// Takes clocks and counters if an edge has passed; returns whether the window is over.
    #[inline]
    pub fn is_over(&mut self, now_ns: u64, counters: Counters) -> bool {
        if now_ns < self.next_edge_ns() {
            return false;
        }
        if self.from.is_none() {
            self.from = Some(Mark::now(counters));
        } else {
            self.end(counters);
        }
        self.to.is_some()
    }

    /// Ends the window now.
    pub fn end(&mut self, counters: Counters) {
        self.to = Some(Mark::now(counters));
    }

    /// Time of the next edge, in nanoseconds of the monotonic clock.
    #[inline]
    pub fn next_edge_ns(&self) -> u64 {
        if self.from.is_none() { self.from_ns } else { self.to_ns }
    }

    /// The planned start and end, in nanoseconds of the monotonic clock.
    pub fn edges_ns(&self) -> (u64, u64) {
        (self.from_ns, self.to_ns)
    }

    /// What happened in the window; all values are 0 unless it has started and ended.
    pub fn reading(&self) -> Reading {
        let (Some(from), Some(to)) = (self.from, self.to) else { return Reading::default() };
        Reading {
            duration_ns: to.at_ns - from.at_ns,
            cpu_ns: to.cpu_ns - from.cpu_ns,
            calls: to.counters.calls - from.counters.calls,
            bytes: to.counters.bytes - from.counters.bytes,
            units: to.counters.units - from.counters.units,
            ..Reading::default()
        }
    }
}

/// Converts seconds of the command line, which are bounded, to nanoseconds.
pub fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing { warmup: 1.0, duration: 2.0 };

    fn counters(bytes: u64) -> Counters {
        Counters { calls: 1, bytes, units: 0 }
    }

    #[test]
    fn only_events_between_the_edges_are_counted() {
        let mut window = Window::new(0, TIMING);
        assert!(!window.is_over(999_999_999, counters(10)));
        assert!(!window.is_over(1_000_000_000, counters(20)));
        assert!(!window.is_over(2_999_999_999, counters(70)));
        assert!(window.is_over(3_000_000_000, counters(80)));
        assert_eq!(window.reading().bytes, 60);
    }

    #[test]
    fn a_side_that_slept_over_both_edges_has_a_short_window() {
        let mut window = Window::new(0, TIMING);
        assert!(!window.is_over(9_000_000_000, counters(5)));
        assert!(window.is_over(9_000_000_000, counters(7)));
        assert_eq!(window.reading().bytes, 2);
    }

    #[test]
    fn a_window_that_never_ended_measured_nothing() {
        let mut window = Window::new(0, TIMING);
        window.is_over(1_000_000_000, counters(5));
        assert_eq!(window.reading(), Reading::default());
    }

    #[test]
    fn cpu_is_that_of_this_process() {
        let mut window = Window::until_done();
        // Other tests of this process also use CPU, so CPU time may pass faster than the clock.
        let start = Mark::now(counters(0));
        while process_cpu_ns() < start.cpu_ns + 2_000_000 || monotonic_ns() < start.at_ns + 2_000_000 {}
        window.end(counters(0));
        let reading = window.reading();
        assert!(reading.cpu_ns >= 2_000_000 && reading.duration_ns >= 2_000_000, "{reading:?}");
    }
}
