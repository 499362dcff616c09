//! What a worker has done so far in a trial, for a display while it runs. No result depends on it.
//!
//! Each load thread writes into a [`LiveCounts`] of its own, without locks and system calls: it adds each latency to a
//! coarse bucket, and stores its counters ten times a second when it is awake anyway. The worker's main thread, which would
//! sleep during the window, reads them all and reports them twice a second ([`crate::trial::LiveReports`]).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bench_format::buckets::{BUCKETS, index};

use crate::clock::process_cpu_ns;

/// Interval at which a load thread stores its counters, in nanoseconds.
pub const PUBLISH_INTERVAL_NS: u64 = 100_000_000;

/// Counts of one load thread. Only that thread writes; values may be a moment old.
#[derive(Debug)]
pub struct LiveCounts {
    open: AtomicU64,
    due: AtomicU64,
    sent: AtomicU64,
    answered: AtomicU64,
    errors: AtomicU64,
    latencies: [AtomicU64; BUCKETS],
}

/// The counters of one load thread since the start of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that are open.
    pub open: u64,
    /// Messages that were due; in a closed loop, those that were composed.
    pub due: u64,
    /// Messages that the sockets took.
    pub sent: u64,
    /// Replies, or publications that were received.
    pub answered: u64,
    /// Attempts that failed, connections that ended early, and messages that were answered wrong or could not be sent.
    pub errors: u64,
}

/// What all load threads of a worker have done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveReport {
    /// The sums over all threads.
    pub counters: Counters,
    /// The index of each bucket that isn't empty ([`bench_format::buckets`]), with its count.
    pub latencies: Vec<(u32, u64)>,
    /// CPU time of the worker since it started, in nanoseconds.
    pub cpu_ns: u64,
    /// Number of CPUs that the worker may use.
    pub cpu_limit: f64,
}

impl Default for LiveCounts {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let latencies = std::array::from_fn(|_| zero());
        Self { open: zero(), due: zero(), sent: zero(), answered: zero(), errors: zero(), latencies }
    }
}

impl LiveCounts {
    /// Adds a latency that `count` messages have in common.
    #[inline]
    pub fn record(&self, value_ns: u64, count: u64) {
        let bucket = &self.latencies[index(value_ns)];
        // No other thread writes, so that no locked instruction is needed.
        bucket.store(bucket.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Replaces the counters by later ones.
    pub fn publish(&self, counters: &Counters) {
        let Counters { open, due, sent, answered, errors } = *counters;
        let of = [&self.open, &self.due, &self.sent, &self.answered, &self.errors];
        of.iter().zip([open, due, sent, answered, errors]).for_each(|(counter, value)| counter.store(value, Relaxed));
    }

    /// Sets everything to 0, for the next trial. To be called while the load thread doesn't run.
    pub fn reset(&self) {
        self.publish(&Counters::default());
        self.latencies.iter().for_each(|bucket| bucket.store(0, Relaxed));
    }

    fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Counters {
            open: read(&self.open),
            due: read(&self.due),
            sent: read(&self.sent),
            answered: read(&self.answered),
            errors: read(&self.errors),
        }
    }
}

impl Counters {
    fn add(&mut self, other: Self) {
        self.open += other.open;
        self.due += other.due;
        self.sent += other.sent;
        self.answered += other.answered;
        self.errors += other.errors;
    }
}

impl LiveReport {
    /// What these threads have done so far, in a worker that may use so many CPUs.
    pub fn of(threads: &[Arc<LiveCounts>], cpu_limit: f64) -> Self {
        let mut counters = Counters::default();
        threads.iter().for_each(|thread| counters.add(thread.counters()));
        let sum = |at: usize| threads.iter().map(|thread| thread.latencies[at].load(Relaxed)).sum::<u64>();
        let latencies = (0..BUCKETS).map(|at| (at as u32, sum(at))).filter(|(_, count)| *count > 0).collect();
        Self { counters, latencies, cpu_ns: process_cpu_ns(), cpu_limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_the_sum_over_all_threads() {
        let threads: Vec<_> = (0..2).map(|_| Arc::new(LiveCounts::default())).collect();
        threads[0].record(5_000_000, 2);
        threads[1].record(5_000_000, 1);
        threads[1].record(0, 1);
        threads[1].publish(&Counters { open: 1, due: 2, sent: 3, answered: 4, errors: 5 });
        threads[0].publish(&Counters { open: 10, due: 20, sent: 30, answered: 40, errors: 50 });
        let report = LiveReport::of(&threads, 2.0);
        assert_eq!(report.counters, Counters { open: 11, due: 22, sent: 33, answered: 44, errors: 55 });
        assert_eq!(report.latencies, [(0, 1), (index(5_000_000) as u32, 3)]);
        assert!(report.cpu_ns > 0 && report.cpu_limit == 2.0);
        threads.iter().for_each(|thread| thread.reset());
        let report = LiveReport::of(&threads, 2.0);
        assert_eq!((report.counters, report.latencies), (Counters::default(), vec![]));
    }
}
