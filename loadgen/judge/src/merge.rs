//! Sums the workers' results. Pure, and exact: counts are added and histograms are merged, never averaged.

use std::collections::BTreeMap;

use bench_format::{
    Name,
    histogram::{self, Recorder},
    result::{
        ConnectionCounts, Failures, Interval, MessageCounts, ReceiverBook, Turnover, WindowCounts, WorkerBook,
        WorkerResult, add_counts,
    },
};

use crate::error_budget::ErrorCounts;

/// Intervals are aligned to the second in which they start, in nanoseconds.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Histogram of the delay between a message's due time and the attempt to send it, without the unit.
const OWN_LATENESS: &str = "lateness";

/// The results of all workers of a trial, summed.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// Connection counts, summed over the workers.
    pub connections: ConnectionCounts,
    /// Connections that came and went under load, summed; `None` for other loads.
    pub turnover: Option<Turnover>,
    /// Message counts, summed over the workers.
    pub messages: MessageCounts,
    /// Counts of the window, summed; the duration is the longest.
    pub window: WindowCounts,
    /// Merged histograms by name with unit.
    pub histograms: BTreeMap<Name, Recorder>,
    /// Merged interval histograms: by name, then by start in the window in nanoseconds, with the length in nanoseconds.
    pub intervals: BTreeMap<Name, BTreeMap<u64, (u64, Recorder)>>,
    /// The books of all connections of all workers.
    pub books: Vec<WorkerBook>,
    /// Connections and messages of the protocol checks.
    pub checked: CheckCounts,
    /// Failures by kind, summed.
    pub failures: Failures,
}

/// Connections and messages of the protocol checks. They appear in `books` but in none of the load's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Number of connections that the checks opened.
    pub opened: u64,
    /// Number of the checks' messages that were answered, if the service counts replies.
    pub answered: u64,
    /// The checks' messages that the service dropped and reported, by reason.
    pub dropped: BTreeMap<String, u64>,
}

impl Merged {
    /// Sums the results of all workers of a trial.
    ///
    /// # Errors
    /// [`histogram::Error`] if a histogram can't be read.
    pub fn of<'a>(results: impl IntoIterator<Item = &'a WorkerResult>) -> Result<Self, histogram::Error> {
        let mut merged = Self::default();
        // Known until a worker that doesn't count failures by connection is added.
        (merged.window.failing_connections, merged.window.most_failures) = (Some(0), Some(0));
        for result in results {
            merged.connections.add(&result.connections);
            if let Some(turnover) = &result.turnover {
                merged.turnover.get_or_insert_default().add(turnover);
            }
            merged.messages.add(&result.messages);
            add_window(&mut merged.window, &result.window);
            for (name, histogram) in &result.histograms {
                merged.histograms.entry(name.clone()).or_default().add(&Recorder::decode(histogram)?);
            }
            merged.add_intervals(result)?;
            merged.books.extend_from_slice(&result.books);
            if let Some(check) = &result.conformance {
                merged.checked.opened += check.opened;
                merged.checked.answered += check.answered;
                merged.checked.dropped.add(&check.dropped);
            }
            merged.failures.window.add(&result.failures.window);
            merged.failures.outside.add(&result.failures.outside);
        }
        Ok(merged)
    }

    fn add_intervals(&mut self, result: &WorkerResult) -> Result<(), histogram::Error> {
        for interval in &result.intervals {
            let start = aligned_start_ns(interval);
            for (name, histogram) in &interval.histograms {
                let (length, recorder) = self.intervals.entry(name.clone()).or_default().entry(start).or_default();
                *length = interval.duration_ns.max(*length);
                recorder.add(&Recorder::decode(histogram)?);
            }
        }
        Ok(())
    }

    /// The interval histograms in the order of their starts, as files keep them.
    pub fn intervals_by_start(&self) -> Vec<Interval> {
        let mut all: BTreeMap<u64, Interval> = BTreeMap::new();
        for (name, intervals) in &self.intervals {
            for (&start_ns, (duration_ns, recorder)) in intervals {
                let empty = || Interval { start_ns, duration_ns: 0, failed: 0, sent: 0, histograms: BTreeMap::new() };
                let interval = all.entry(start_ns).or_insert_with(empty);
                interval.duration_ns = interval.duration_ns.max(*duration_ns);
                interval.histograms.insert(name.clone(), recorder.encode());
            }
        }
        all.into_values().collect()
    }

    /// Number of messages without a sequence number (such as `client_hello`) on all connections.
    pub fn unnumbered(&self) -> u64 {
        self.books.iter().map(|book| book.unnumbered).sum()
    }

    /// Number of messages of the load. Those of a connection that publishes are in its book only.
    pub fn numbered(&self) -> u64 {
        self.messages.sent.max(self.books.iter().map(|book| book.sent).sum())
    }

    /// The generator's own delay, and the name of that histogram without its unit.
    ///
    /// It is the delay until the attempt to send if the workers record that. Time that a full socket adds is the
    /// service's delay; if workers don't record the difference, the whole delay counts against the generator.
    pub fn own_lateness(&self) -> Option<(&'static str, &Recorder)> {
        let named = |name| self.histograms.get(&*format!("{name}_ns")).map(|recorder| (name, recorder));
        named(OWN_LATENESS).or_else(|| named("delay"))
    }

    /// Messages due in the window that the generator tried to send, if the workers record that, otherwise those that it
    /// sent. A message that was tried but not accepted by the socket is the service's failure, and an outcome.
    pub fn attempted_sends(&self) -> u64 {
        let lateness = self.histograms.get(&*format!("{OWN_LATENESS}_ns"));
        lateness.map_or(self.window.sent, Recorder::total)
    }

    /// The failures and replies of the window.
    pub fn errors(&self) -> ErrorCounts {
        ErrorCounts::of(&self.window, self.failures.window.values().sum())
    }

    /// The books of the connections that receive published messages.
    pub fn receivers(&self) -> impl Iterator<Item = &ReceiverBook> {
        self.books.iter().filter_map(|book| book.receiver.as_ref())
    }

    /// Sum of all sequence numbers sent, modulo 2^64.
    pub fn sequence_sum(&self) -> u64 {
        self.books.iter().fold(0, |sum, book| sum.wrapping_add(book.sequence_sum))
    }
}

/// Counts that are added field by field.
trait Sum {
    fn add(&mut self, other: &Self);
}

impl Sum for BTreeMap<String, u64> {
    fn add(&mut self, other: &Self) {
        add_counts(self, other);
    }
}

impl Sum for ConnectionCounts {
    fn add(&mut self, other: &Self) {
        let Self { attempted, open, failed, closed_early } = other;
        self.attempted += attempted;
        self.open += open;
        self.failed.add(failed);
        self.closed_early.add(closed_early);
    }
}

impl Sum for MessageCounts {
    fn add(&mut self, other: &Self) {
        // All fields are named, so a new field that isn't added doesn't compile.
        let Self {
            due,
            sent,
            delivered,
            late,
            wrong,
            dropped,
            lost,
            unsent,
            duplicates,
            reorders,
            bytes_sent,
            bytes_received,
        } = other;
        self.due += due;
        self.sent += sent;
        self.delivered += delivered;
        self.late += late;
        self.wrong += wrong;
        self.dropped.add(dropped);
        self.lost += lost;
        self.unsent += unsent;
        self.duplicates += duplicates;
        self.reorders += reorders;
        self.bytes_sent += bytes_sent;
        self.bytes_received += bytes_received;
    }
}

/// The start of the second to which an interval belongs, in nanoseconds from the start of the window: the windows of
/// workers start a few nanoseconds apart.
pub fn aligned_start_ns(interval: &Interval) -> u64 {
    (interval.start_ns + INTERVAL_NS / 2) / INTERVAL_NS * INTERVAL_NS
}

fn add_window(sum: &mut WindowCounts, other: &WindowCounts) {
    let WindowCounts {
        duration_ns,
        due,
        sent,
        replies,
        answered,
        writes,
        reads,
        bytes_read,
        cpu_ns,
        failing_connections,
        most_failures,
    } = *other;
    sum.duration_ns = sum.duration_ns.max(duration_ns);
    sum.due += due;
    sum.sent += sent;
    sum.replies += replies;
    sum.answered += answered;
    sum.writes += writes;
    sum.reads += reads;
    sum.bytes_read += bytes_read;
    sum.cpu_ns += cpu_ns;
    sum.failing_connections = sum.failing_connections.zip(failing_connections).map(|(one, other)| one + other);
    sum.most_failures = sum.most_failures.zip(most_failures).map(|(one, other)| one.max(other));
}

#[cfg(test)]
mod tests {
    use bench_format::result::{Conformance, Witness};

    use super::*;
    use bench_format::trial::TrialId;

    /// The upload of a worker without any load.
    fn worker_result() -> WorkerResult {
        let trial = TrialId {
            service: Name::from_static("s"),
            workload: Name::from_static("w"),
            variant: Name::from_static("v"),
            tier: 1,
            process: 1,
            repeat: 1,
        };
        WorkerResult {
            schema: bench_format::SCHEMA,
            run: "r".into(),
            trial,
            attempt: 1,
            worker: 0,
            witness: Witness::Reply,
            connections: ConnectionCounts::default(),
            turnover: None,
            messages: MessageCounts::default(),
            window: WindowCounts::default(),
            histograms: BTreeMap::new(),
            intervals: Vec::new(),
            books: Vec::new(),
            failures: Default::default(),
            error_samples: Vec::new(),
            conformance: None,
            evidence: Default::default(),
            environment: Default::default(),
        }
    }

    fn recorder(values: std::ops::Range<u64>) -> Recorder {
        let mut recorder = Recorder::new();
        values.for_each(|value| recorder.record(value));
        recorder
    }

    #[test]
    fn counts_are_sums_and_the_window_is_the_longest() {
        let (mut left, mut right) = (worker_result(), worker_result());
        (left.messages.sent, right.messages.sent) = (3, 4);
        left.connections.failed.insert("timeout".into(), 1);
        right.connections.failed.insert("timeout".into(), 2);
        right.window.duration_ns += 5;
        let merged = Merged::of([&left, &right]).unwrap();
        assert_eq!((merged.messages.sent, merged.connections.failed["timeout"]), (7, 3));
        assert_eq!(merged.window.duration_ns, right.window.duration_ns);
    }

    #[test]
    fn the_messages_of_protocol_checks_are_accounted_separately() {
        let checked = |opened, answered, dropped: u64| {
            let dropped = [("timeout".to_owned(), dropped)].into();
            let check = Conformance { opened, answered, dropped, ..Conformance::default() };
            WorkerResult { conformance: Some(check), ..worker_result() }
        };
        let merged = Merged::of([&checked(2, 1, 1), &worker_result(), &checked(2, 2, 0)]).unwrap();
        assert_eq!(merged.checked, CheckCounts { opened: 4, answered: 3, dropped: [("timeout".to_owned(), 1)].into() });
        assert_eq!((merged.connections, merged.messages), Default::default());
    }

    #[test]
    fn a_merged_histogram_is_the_one_that_a_single_worker_would_have_recorded() {
        let (mut left, mut right) = (worker_result(), worker_result());
        left.histograms.insert(Name::from_static("response_ns"), recorder(1..500).encode());
        right.histograms.insert(Name::from_static("response_ns"), recorder(500..900).encode());
        let merged = Merged::of([&left, &right]).unwrap();
        assert_eq!(merged.histograms["response_ns"].encode(), recorder(1..900).encode());
    }

    #[test]
    fn intervals_that_start_a_moment_apart_are_merged() {
        let interval = |start_ns| Interval {
            start_ns,
            duration_ns: INTERVAL_NS,
            failed: 0,
            sent: 0,
            histograms: [(Name::from_static("response_ns"), recorder(1..11).encode())].into(),
        };
        let (mut left, mut right) = (worker_result(), worker_result());
        left.intervals = vec![interval(0), interval(INTERVAL_NS + 3)];
        right.intervals = vec![interval(7), interval(INTERVAL_NS - 4)];
        let merged = Merged::of([&left, &right]).unwrap();
        let counts: Vec<u64> = merged.intervals["response_ns"].values().map(|(_, recorder)| recorder.count()).collect();
        assert_eq!(counts, [20, 20]);
        let starts: Vec<u64> = merged.intervals_by_start().iter().map(|interval| interval.start_ns).collect();
        assert_eq!(starts, [0, INTERVAL_NS]);
    }

    #[test]
    fn an_interval_keeps_all_its_histograms() {
        let histograms: BTreeMap<_, _> =
            ["delay_ns", "response_ns"].map(|name| (Name::from_static(name), recorder(1..11).encode())).into();
        let mut result = worker_result();
        let interval = Interval { start_ns: 0, duration_ns: 7, failed: 0, sent: 0, histograms };
        result.intervals = vec![interval.clone()];
        let merged = Merged::of([&result]).unwrap();
        assert_eq!(merged.intervals_by_start(), [interval]);
    }

    #[test]
    fn a_generator_that_reports_its_attempts_is_judged_by_them() {
        let mut merged = Merged::default();
        merged.window.sent = 3;
        merged.histograms.insert(Name::from_static("delay_ns"), recorder(1..5));
        let name = |merged: &Merged| merged.own_lateness().map(|(name, recorder)| (name, recorder.count()));
        assert_eq!((name(&merged), merged.attempted_sends()), (Some(("delay", 4)), 3));
        merged.histograms.insert(Name::from_static("lateness_ns"), recorder(1..8));
        assert_eq!((name(&merged), merged.attempted_sends()), (Some(("lateness", 7)), 7));
        assert_eq!(name(&Merged::default()), None);
    }

    #[test]
    fn sequence_sums_wrap() {
        let mut result = worker_result();
        let book = |sequence_sum| WorkerBook { sequence_sum, ..WorkerBook::default() };
        result.books = vec![book(u64::MAX), book(3)];
        assert_eq!(Merged::of([&result]).unwrap().sequence_sum(), 2);
    }
}
