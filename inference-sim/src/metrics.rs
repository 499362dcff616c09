//! What the simulator counts, and its Prometheus text.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::time::{ClockId, clock_gettime};

use crate::{faults, gather::Work};

/// The counters. All but the gauges only grow.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Requests to `/infer` by HTTP version: 1.1 and older, 2.
    pub(crate) requests: [AtomicU64; 2],
    /// Answers that say what was computed.
    pub(crate) answered: AtomicU64,
    /// Requests refused as what they were: odd, too long, too much to compute.
    pub(crate) refused: AtomicU64,
    /// Requests whose sender was gone before the answer.
    pub(crate) abandoned: AtomicU64,
    /// Answers that were computed after they were due.
    pub(crate) late: AtomicU64,
    /// Faults injected, by kind.
    pub(crate) faults: [AtomicU64; faults::KINDS.len()],
    /// Requests received in full that are served now or wait for a permit.
    pub(crate) in_flight: AtomicU64,
    /// The largest number of those so far.
    pub(crate) in_flight_max: AtomicU64,
    /// Connections accepted.
    pub(crate) accepted: AtomicU64,
    /// Connections open now.
    pub(crate) open: AtomicU64,
}

impl Metrics {
    /// Counts a request in; it is counted out when the result is dropped: as abandoned, unless it said it was answered.
    pub(crate) fn enter(&self) -> InFlight<'_> {
        let now = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.in_flight_max.fetch_max(now, Relaxed);
        InFlight { metrics: self, done: false }
    }

    /// The Prometheus text.
    pub(crate) fn exposition(&self, work: &Work) -> String {
        let mut text = String::new();
        let versions = ["1.1", "2"].into_iter().zip(&self.requests);
        labelled(&mut text, "inference_requests_total", "version", versions);
        labelled(&mut text, "inference_faults_total", "kind", faults::KINDS.into_iter().zip(&self.faults));
        for (name, kind, value) in [
            ("inference_answered_total", "counter", &self.answered),
            ("inference_refused_total", "counter", &self.refused),
            ("inference_abandoned_total", "counter", &self.abandoned),
            ("inference_late_total", "counter", &self.late),
            ("inference_in_flight", "gauge", &self.in_flight),
            ("inference_in_flight_max", "gauge", &self.in_flight_max),
            ("inference_connections_accepted_total", "counter", &self.accepted),
            ("inference_connections_open", "gauge", &self.open),
            ("inference_compute_batches_total", "counter", &work.batches),
            ("inference_compute_requests_total", "counter", &work.requests),
        ] {
            writeln!(text, "# TYPE {name} {kind}\n{name} {}", value.load(Relaxed)).expect("a String takes everything");
        }
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        for (name, seconds) in [
            ("inference_compute_busy_seconds_total", work.busy_ns.load(Relaxed) as f64 / 1e9),
            ("inference_process_cpu_seconds_total", cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9),
        ] {
            writeln!(text, "# TYPE {name} counter\n{name} {seconds}").expect("a String takes everything");
        }
        text
    }
}

/// A counter with a label, whose values are our own words and need no escaping.
fn labelled<'a>(
    text: &mut String,
    name: &str,
    label: &str,
    counts: impl Iterator<Item = (&'static str, &'a AtomicU64)>,
) {
    writeln!(text, "# TYPE {name} counter").expect("a String takes everything");
    for (value, count) in counts {
        let count = count.load(Relaxed);
        writeln!(text, "{name}{{{label}=\"{value}\"}} {count}").expect("a String takes everything");
    }
}

/// A request that is being served.
pub(crate) struct InFlight<'a> {
    metrics: &'a Metrics,
    done: bool,
}

impl InFlight<'_> {
    /// The request got what it was meant to get.
    pub(crate) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.fetch_sub(1, Relaxed);
        if !self.done {
            self.metrics.abandoned.fetch_add(1, Relaxed);
        }
    }
}
