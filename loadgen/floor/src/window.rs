//! What an end used and moved between two moments: its clocks and counters, taken when it first sees an edge passed.

use bench_format::histogram::Histogram;
use loadgen_core::clock::{monotonic_ns, process_cpu_ns};
use serde::{Deserialize, Serialize};

use crate::load::Timing;

/// Counters of one end. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read or write system calls that moved bytes.
    pub calls: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Whole messages or handshakes, where an end knows them.
    pub units: u64,
}

/// What one end has to say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Between the moments at which it saw the edges, in nanoseconds.
    pub duration_ns: u64,
    /// CPU of the process, kernel included, in nanoseconds.
    pub cpu_ns: u64,
    /// See [`Counters::calls`].
    pub calls: u64,
    /// See [`Counters::bytes`].
    pub bytes: u64,
    /// See [`Counters::units`].
    pub units: u64,
    /// From when a message was due, or a connection begun, until its answer was there, in nanoseconds.
    pub response: Option<Histogram>,
    /// From when a message was due until it was sent, in nanoseconds: how late this end itself was.
    pub delay: Option<Histogram>,
    /// Resident memory before the first connection, in bytes.
    pub rss_before: u64,
    /// Resident memory with all connections open, in bytes.
    pub rss_open: u64,
}

/// Cuts a load at the edges of its window.
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
    /// After the warm-up of a load that starts at `start_ns` of the monotonic clock.
    pub fn new(start_ns: u64, timing: Timing) -> Self {
        let from_ns = start_ns + nanoseconds(timing.warmup);
        Self { from_ns, to_ns: from_ns + nanoseconds(timing.duration), from: None, to: None }
    }

    /// From now until [`Window::end`].
    pub fn until_done() -> Self {
        let from = Mark::now(Counters::default());
        Self { from_ns: from.at_ns, to_ns: u64::MAX, from: Some(from), to: None }
    }

    /// Takes clocks and counters where an edge has been passed; says whether the window is over.
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

    /// Ends it.
    pub fn end(&mut self, counters: Counters) {
        self.to = Some(Mark::now(counters));
    }

    /// When somebody has to look again.
    #[inline]
    pub fn next_edge_ns(&self) -> u64 {
        if self.from.is_none() { self.from_ns } else { self.to_ns }
    }

    /// Its two ends, as planned.
    pub fn edges_ns(&self) -> (u64, u64) {
        (self.from_ns, self.to_ns)
    }

    /// What happened in it; all zeros unless it has begun and ended.
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

/// Seconds of the command line, where they are bounded.
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
    fn only_what_lies_between_the_edges_counts() {
        let mut window = Window::new(0, TIMING);
        assert!(!window.is_over(999_999_999, counters(10)));
        assert!(!window.is_over(1_000_000_000, counters(20)));
        assert!(!window.is_over(2_999_999_999, counters(70)));
        assert!(window.is_over(3_000_000_000, counters(80)));
        assert_eq!(window.reading().bytes, 60);
    }

    #[test]
    fn an_end_that_slept_over_both_edges_has_a_short_window_and_not_a_negative_one() {
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
        // Other tests of this process use CPU as well, so that it may pass faster than the clock.
        let begun = Mark::now(counters(0));
        while process_cpu_ns() < begun.cpu_ns + 2_000_000 || monotonic_ns() < begun.at_ns + 2_000_000 {}
        window.end(counters(0));
        let reading = window.reading();
        assert!(reading.cpu_ns >= 2_000_000 && reading.duration_ns >= 2_000_000, "{reading:?}");
    }
}
