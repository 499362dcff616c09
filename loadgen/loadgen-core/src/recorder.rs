//! The histograms of one load thread: the whole window, and the same values in intervals of one second.
//!
//! A recorder reads no clock and doesn't allocate per value. The caller must not record what was due outside the
//! window.

use std::{
    collections::{BTreeMap, BTreeSet},
    marker::PhantomData,
    sync::Arc,
};

use bench_format::{Name, histogram::Recorder as Values, result::Interval};

use self::sent::SentIntervals;
use crate::live::LiveCounts;

mod sent;

/// Length of an interval, in nanoseconds.
pub const INTERVAL_NS: u64 = 1_000_000_000;

/// A set of metrics with one histogram each.
pub trait Metrics: Copy + 'static {
    /// Names of the histograms with their units, in the order of [`Self::index`].
    const NAMES: &'static [&'static str];

    /// Position of this metric in [`Self::NAMES`].
    fn index(self) -> usize;

    /// Whether a display shows this metric while the trial runs.
    fn is_shown(self) -> bool;
}

/// The metrics of workloads in which each message has its own reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Time received - time due.
    Response,
    /// Time received - time sent.
    Service,
    /// Time sent - time due: the generator's own lateness, and the delay of a full socket.
    Delay,
    /// Time from the start of a connection attempt until the connection was ready.
    Handshake,
    /// Time received - time published, if the service publishes as fast as it can: the age of its backlog, not a
    /// latency.
    Age,
    /// Time the generator handled a message - time due: its own lateness alone, without the delay of a full socket.
    Lateness,
    /// Time the first part of an answer was received - time due, where answers come in parts.
    First,
    /// Time between two parts of an answer.
    Gap,
    /// Time a connection attempt was started - time it was due: the generator's own lateness.
    AttemptLateness,
    /// Time a connection was ready again - time at which all were cut.
    Reconnected,
}

impl Metrics for Metric {
    const NAMES: &'static [&'static str] = &[
        "response_ns",
        "service_ns",
        "delay_ns",
        "handshake_ns",
        "age_ns",
        "lateness_ns",
        "first_ns",
        "gap_ns",
        "attempt_lateness_ns",
        "reconnected_ns",
    ];

    #[inline]
    fn index(self) -> usize {
        self as usize
    }

    /// A load has one of the two: where connections come while messages are sent, the handshake isn't shown.
    #[inline]
    fn is_shown(self) -> bool {
        matches!(self, Self::Response | Self::Handshake)
    }
}

/// One entry for each metric, in the order of [`Metrics::NAMES`].
type PerMetric<T> = Box<[T]>;
/// Values with their counts: the compact form of one second's histogram.
type Sparse = Vec<(u64, u64)>;

/// The histograms of one thread while it records.
#[derive(Debug)]
pub struct Recorder<M = Metric> {
    metrics: PhantomData<M>,
    window: PerMetric<Values>,
    current: PerMetric<Values>,
    closed: Vec<(u64, PerMetric<Sparse>)>,
    window_start_ns: u64,
    window_end_ns: u64,
    interval_start_ns: u64,
    /// Failures by the start of their interval.
    failed: BTreeMap<u64, u64>,
    sent: SentIntervals,
    live: Arc<LiveCounts>,
}

impl<M: Metrics> Recorder<M> {
    /// Creates empty histograms for a window, given in nanoseconds of the monotonic clock.
    pub fn new(window_start_ns: u64, window_end_ns: u64) -> Self {
        Self {
            metrics: PhantomData,
            window: empty::<M>(),
            current: empty::<M>(),
            closed: Vec::new(),
            window_start_ns,
            window_end_ns,
            interval_start_ns: window_start_ns,
            failed: BTreeMap::new(),
            sent: SentIntervals::new(window_start_ns, window_end_ns),
            live: Arc::default(),
        }
    }

    /// Adds the metric that a display shows to these counts as well.
    pub fn with_live(mut self, live: &Arc<LiveCounts>) -> Self {
        self.live = Arc::clone(live);
        self
    }

    /// Divides the messages sent among the intervals. `count` is the number sent until `now_ns`, at any time before,
    /// in or after the window; the more often this is called, the more exact the division.
    #[inline]
    pub fn note_sent(&mut self, count: u64, now_ns: u64) {
        self.sent.look(count, now_ns);
    }

    /// Records a value that became known at `now_ns`. Values from the drain count in the last interval.
    #[inline]
    pub fn record(&mut self, metric: M, value_ns: u64, now_ns: u64) {
        self.record_n(metric, value_ns, 1, now_ns);
    }

    /// Records a value that `count` messages have in common, as [`Self::record`] does.
    #[inline]
    pub fn record_n(&mut self, metric: M, value_ns: u64, count: u64, now_ns: u64) {
        if now_ns >= self.interval_start_ns + INTERVAL_NS {
            self.close_intervals(now_ns);
        }
        // The whole is the sum of its intervals, so recording into the current one is enough.
        self.current[metric.index()].record_n(value_ns, count);
        if metric.is_shown() {
            self.live.record(value_ns, count);
        }
    }

    /// Records a value that a display doesn't show, as [`Self::record`] does.
    #[cold]
    pub fn record_unshown(&mut self, metric: M, value_ns: u64, now_ns: u64) {
        if now_ns >= self.interval_start_ns + INTERVAL_NS {
            self.close_intervals(now_ns);
        }
        self.current[metric.index()].record(value_ns);
    }

    /// Records a failure that occurred at `now_ns`; one outside the window is not recorded.
    pub fn record_failure(&mut self, now_ns: u64) {
        if (self.window_start_ns..self.window_end_ns).contains(&now_ns) {
            let start_ns = (now_ns - self.window_start_ns) / INTERVAL_NS * INTERVAL_NS;
            *self.failed.entry(start_ns).or_default() += 1;
        }
    }

    /// Sets an earlier end of the window.
    pub fn end_window(&mut self, window_end_ns: u64) {
        self.window_end_ns = window_end_ns;
        self.sent.end_window(window_end_ns);
    }

    #[cold]
    fn close_intervals(&mut self, now_ns: u64) {
        let mut next = self.interval_start_ns;
        while now_ns >= next + INTERVAL_NS && next + INTERVAL_NS < self.window_end_ns {
            next += INTERVAL_NS;
        }
        if next > self.interval_start_ns {
            self.close_interval();
            self.interval_start_ns = next;
        }
    }

    fn close_interval(&mut self) {
        for (window, current) in self.window.iter_mut().zip(&self.current).filter(|(_, current)| current.total() > 0) {
            window.add(current);
        }
        let sparse = self.current.iter_mut().map(take).collect();
        self.closed.push((self.interval_start_ns - self.window_start_ns, sparse));
    }

    /// Ends recording and returns the histograms.
    pub fn finish(mut self) -> Recorded<M> {
        self.close_interval();
        Recorded {
            metrics: PhantomData,
            window: self.window,
            intervals: self.closed.into_iter().collect(),
            failed: self.failed,
            sent: self.sent.finish(),
            window_ns: self.window_end_ns.saturating_sub(self.window_start_ns),
        }
    }
}

fn empty<M: Metrics>() -> PerMetric<Values> {
    M::NAMES.iter().map(|_| Values::new()).collect()
}

fn take(values: &mut Values) -> Sparse {
    if values.total() == 0 {
        // A reset would make the kernel provide the memory of a histogram that is never used.
        return Sparse::new();
    }
    let sparse =
        values.values().iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value())).collect();
    values.reset();
    sparse
}

/// The histograms that a thread recorded. Those of several threads can be added.
#[derive(Debug)]
pub struct Recorded<M = Metric> {
    metrics: PhantomData<M>,
    window: PerMetric<Values>,
    intervals: BTreeMap<u64, PerMetric<Sparse>>,
    failed: BTreeMap<u64, u64>,
    sent: BTreeMap<u64, u64>,
    window_ns: u64,
}

impl<M: Metrics> Recorded<M> {
    /// Adds the histograms of another thread, without loss of precision.
    pub fn add(&mut self, other: Recorded<M>) {
        for (sum, added) in self.window.iter_mut().zip(&other.window) {
            sum.add(added);
        }
        for (start, added) in other.intervals {
            let sum = self.intervals.entry(start).or_insert_with(|| M::NAMES.iter().map(|_| Sparse::new()).collect());
            for (sum, added) in sum.iter_mut().zip(added) {
                sum.extend(added);
            }
        }
        for (start, added) in other.failed {
            *self.failed.entry(start).or_default() += added;
        }
        for (start, added) in other.sent {
            *self.sent.entry(start).or_default() += added;
        }
        self.window_ns = self.window_ns.max(other.window_ns);
    }

    /// Counts values that are only known to exceed every recorded one, because their end wasn't observed. They are in
    /// the whole window's histogram, in no interval.
    pub fn censor(&mut self, metric: M, count: u64) {
        self.window[metric.index()].censor(count);
    }

    /// The values of one metric over the window.
    pub fn values(&self, metric: M) -> &Values {
        &self.window[metric.index()]
    }

    /// Encodes the histograms by name, without empty ones.
    pub fn histograms(&self) -> BTreeMap<Name, bench_format::histogram::Histogram> {
        encode::<M>(&self.window)
    }

    /// Encodes the intervals, without empty ones.
    pub fn intervals(&self) -> Vec<Interval> {
        // An interval in which everything failed has no values, and nor has one of a load without replies.
        let starts = self.intervals.keys().chain(self.failed.keys()).chain(self.sent.keys());
        let starts: BTreeSet<u64> = starts.copied().collect();
        let interval = |start_ns: u64| {
            let dense: Vec<_> = self.intervals.get(&start_ns).into_iter().flatten().map(dense).collect();
            Interval {
                start_ns,
                duration_ns: self.window_ns.saturating_sub(start_ns).min(INTERVAL_NS),
                failed: self.failed.get(&start_ns).copied().unwrap_or(0),
                sent: self.sent.get(&start_ns).copied().unwrap_or(0),
                histograms: encode::<M>(&dense),
            }
        };
        let is_used = |interval: &Interval| !interval.histograms.is_empty() || interval.failed + interval.sent > 0;
        starts.into_iter().map(interval).filter(is_used).collect()
    }
}

fn dense(sparse: &Sparse) -> Values {
    let mut values = Values::new();
    sparse.iter().for_each(|(value, count)| values.record_n(*value, *count));
    values
}

fn encode<M: Metrics>(values: &[Values]) -> BTreeMap<Name, bench_format::histogram::Histogram> {
    M::NAMES
        .iter()
        .zip(values)
        .filter(|(_, values)| values.total() > 0)
        .map(|(name, values)| (Name::from_static(name), values.encode()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = INTERVAL_NS;

    fn decode(interval: &Interval) -> Values {
        Values::decode(&interval.histograms["response_ns"]).unwrap()
    }

    #[test]
    fn a_stall_shows_in_every_message_that_was_due_during_it() {
        // A message is due every millisecond for 10 s; the service is stopped from second 4 to second 6.
        let mut recorder = Recorder::<Metric>::new(0, 10 * SECOND);
        for due in (0..10_000).map(|n| n * 1_000_000) {
            let frozen = (4 * SECOND..6 * SECOND).contains(&due);
            let received = if frozen { 6 * SECOND } else { due + 100_000 };
            recorder.record(Metric::Response, received - due, received);
        }
        let recorded = recorder.finish();
        let values = recorded.values(Metric::Response).values();
        // A fifth of all messages waited between 0 and 2 s, evenly distributed: the 90th percentile is half of the
        // stop.
        let p90 = values.value_at_quantile(0.9) as f64 / 1e9;
        assert!((p90 - 1.0).abs() < 0.01, "{p90}");
        assert!((values.max() as f64 / 1e9 - 2.0).abs() < 0.01);
    }

    #[test]
    fn intervals_add_up_to_the_window() {
        let mut recorder = Recorder::<Metric>::new(SECOND, 4 * SECOND);
        for n in 0..3000 {
            recorder.record(Metric::Response, n + 1, SECOND + n * 1_000_000);
        }
        // This value becomes known during the drain.
        recorder.record(Metric::Response, 77, 9 * SECOND);
        let recorded = recorder.finish();
        let intervals = recorded.intervals();
        assert_eq!(intervals.iter().map(|i| i.start_ns / SECOND).collect::<Vec<_>>(), [0, 1, 2]);
        let mut sum = Values::new();
        intervals.iter().for_each(|interval| sum.add(&decode(interval)));
        assert_eq!(sum.encode(), recorded.values(Metric::Response).encode());
    }

    #[test]
    fn threads_add_up_interval_by_interval() {
        let thread = |value| {
            let mut recorder = Recorder::<Metric>::new(0, 2 * SECOND);
            recorder.record(Metric::Response, value, 10);
            recorder.record(Metric::Response, value, SECOND + 10);
            recorder.finish()
        };
        let mut recorded = thread(5);
        recorded.add(thread(6));
        assert_eq!(recorded.intervals().iter().map(|i| decode(i).count()).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(recorded.values(Metric::Response).count(), 4);
    }

    #[test]
    fn failures_count_in_their_interval_of_the_window() {
        let mut recorder = Recorder::<Metric>::new(SECOND, 4 * SECOND);
        recorder.record(Metric::Response, 5, SECOND + 10);
        for now_ns in [10, SECOND + 1, 3 * SECOND, 3 * SECOND + 1, 4 * SECOND] {
            recorder.record_failure(now_ns);
        }
        let failed: Vec<_> = recorder
            .finish()
            .intervals()
            .iter()
            .map(|interval| (interval.start_ns / SECOND, interval.failed))
            .collect();
        assert_eq!(failed, [(0, 1), (2, 2)]);
    }

    #[test]
    fn empty_histograms_do_not_travel() {
        let recorded = Recorder::<Metric>::new(0, SECOND).finish();
        assert!(recorded.histograms().is_empty() && recorded.intervals().is_empty());
    }

    #[test]
    fn the_last_interval_is_as_long_as_the_window_lets_it() {
        let mut recorder = Recorder::<Metric>::new(0, SECOND + SECOND / 2);
        recorder.record(Metric::Response, 1, 0);
        recorder.record(Metric::Response, 1, SECOND + 1);
        let lengths: Vec<_> = recorder.finish().intervals().iter().map(|i| i.duration_ns).collect();
        assert_eq!(lengths, [SECOND, SECOND / 2]);
    }
}
