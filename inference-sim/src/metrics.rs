//! The simulator's counters and their Prometheus text.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::time::{ClockId, clock_gettime};
use service_contract::Exposition;

use crate::{faults, gather::Work};

/// The counters. They only grow, except for the gauges `in_flight` and `open`.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Requests to `/infer`, by HTTP version: up to 1.1, and 2.
    pub(crate) requests: [AtomicU64; 2],
    /// Responses with a computed result.
    pub(crate) answered: AtomicU64,
    /// Requests refused because of an odd length, a body that is too long, or too many passes.
    pub(crate) refused: AtomicU64,
    /// Requests whose client disconnected before the response.
    pub(crate) abandoned: AtomicU64,
    /// Results that were computed after they were due.
    pub(crate) late: AtomicU64,
    /// Faults injected, by kind (see [`faults::KINDS`]).
    pub(crate) faults: [AtomicU64; faults::KINDS.len()],
    /// Requests that are served now or wait for a permit, after they were received completely.
    pub(crate) in_flight: AtomicU64,
    /// The largest value of `in_flight` so far.
    pub(crate) in_flight_max: AtomicU64,
    /// Connections accepted since the start.
    pub(crate) accepted: AtomicU64,
    /// Connections that are open now.
    pub(crate) open: AtomicU64,
}

impl Metrics {
    /// Counts a request as in flight until the result is dropped. It then counts as abandoned unless [`InFlight::done`]
    /// was called.
    pub(crate) fn enter(&self) -> InFlight<'_> {
        let now = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.in_flight_max.fetch_max(now, Relaxed);
        InFlight { metrics: self, done: false }
    }

    /// The Prometheus text of all counters.
    pub(crate) fn exposition(&self, work: &Work) -> String {
        let read = |counters: &[AtomicU64]| counters.iter().map(|counter| counter.load(Relaxed)).collect::<Vec<_>>();
        let mut text = Exposition::default();
        let versions = ["1.1", "2"].into_iter().zip(read(&self.requests));
        text.counters("inference_requests_total", "Requests to /infer by HTTP version", "version", versions);
        let faults = faults::KINDS.into_iter().zip(read(&self.faults));
        text.counters("inference_faults_total", "Faults injected", "kind", faults);
        for (name, help, count) in [
            ("inference_answered_total", "Requests answered with the computed result", &self.answered),
            ("inference_refused_total", "Requests that can't be computed", &self.refused),
            ("inference_abandoned_total", "Requests whose client disconnected before the response", &self.abandoned),
            ("inference_late_total", "Results computed after their due time", &self.late),
            ("inference_connections_accepted_total", "Connections accepted", &self.accepted),
            ("inference_compute_batches_total", "Batches computed", &work.batches),
            ("inference_compute_requests_total", "Requests computed in batches", &work.requests),
        ] {
            text.counter(name, help, count.load(Relaxed));
        }
        for (name, help, now) in [
            ("inference_in_flight", "Requests served now or waiting for a permit", &self.in_flight),
            ("inference_in_flight_max", "Highest number of requests in flight so far", &self.in_flight_max),
            ("inference_connections_open", "Connections open now", &self.open),
        ] {
            text.gauge(name, help, now.load(Relaxed));
        }
        let busy_seconds = work.busy_ns.load(Relaxed) as f64 / 1e9;
        text.counter("inference_compute_busy_seconds_total", "Time spent computing batches", busy_seconds);
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        text.counter("inference_process_cpu_seconds_total", "CPU time of the process", cpu_seconds);
        text.into_text()
    }
}

/// A request that is being served.
pub(crate) struct InFlight<'a> {
    metrics: &'a Metrics,
    done: bool,
}

impl InFlight<'_> {
    /// Marks the request as answered.
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
