//! Turns the counters of a worker's threads into its result. Pure, except that it reads the environment.

use std::collections::BTreeMap;

use bench_format::{
    Name, SCHEMA,
    environment::Environment,
    histogram::{Histogram, Recorder},
    result::{ConnectionCounts, MessageCounts, WindowCounts, Witness, WorkerEvidence, WorkerResult},
    trial::Assignment,
};

use crate::load_thread::ThreadResult;

impl ThreadResult {
    /// Adds another thread's counts and values; of the two skews the larger one is kept.
    pub(crate) fn add(&mut self, other: Self) {
        self.tally.add(&other.tally);
        self.attempts.add(&other.attempts);
        self.recorded.add(other.recorded);
        self.handshakes.add(&other.handshakes);
        crate::books::add(&mut self.failures.window, &other.failures.window);
        crate::books::add(&mut self.failures.outside, &other.failures.outside);
        // A session belongs to one thread.
        self.failing_sessions += other.failing_sessions;
        self.most_failures = self.most_failures.max(other.most_failures);
        other.errors.0.into_iter().for_each(|sample| self.errors.add(sample));
        self.books.extend(other.books);
        if other.skew_ns.abs() > self.skew_ns.abs() {
            self.skew_ns = other.skew_ns;
        }
    }

    /// Sets the end of the window: earlier than planned when no session was left.
    pub(crate) fn window_ended(&mut self, ended_ns: u64) {
        self.phases.end_window(ended_ns);
    }
}

/// The result of a worker from the sum of its threads.
pub(crate) fn result(
    assignment: &Assignment,
    done: ThreadResult,
    window_cpu_ns: u64,
    evidence: WorkerEvidence,
) -> WorkerResult {
    let ThreadResult {
        tally,
        attempts,
        phases,
        recorded,
        handshakes,
        failures,
        failing_sessions,
        most_failures,
        books,
        ..
    } = done;
    let mut histograms = recorded.histograms();
    histograms.extend(named(Name::from_static("handshake_ns"), &handshakes));
    WorkerResult {
        schema: SCHEMA,
        run: assignment.run.clone(),
        trial: assignment.trial.clone(),
        attempt: assignment.attempt,
        worker: assignment.worker,
        witness: Witness::Reply,
        turnover: None,
        connections: ConnectionCounts {
            attempted: attempts.attempted,
            open: attempts.opened,
            failed: attempts.failed,
            closed_early: attempts.closed_early,
        },
        messages: MessageCounts {
            due: tally.due,
            sent: tally.moving.sent,
            delivered: tally.delivered,
            late: tally.late,
            wrong: tally.wrong,
            dropped: tally.dropped,
            lost: tally.lost,
            unsent: tally.unsent,
            duplicates: tally.duplicates,
            reorders: 0,
            bytes_sent: tally.moving.bytes_sent,
            bytes_received: tally.bytes_received,
        },
        window: WindowCounts {
            duration_ns: phases.window_end_ns - phases.window_start_ns,
            due: tally.window_due,
            sent: tally.window.sent,
            replies: tally.window.replies,
            answered: tally.window.answered,
            writes: tally.window.writes,
            cpu_ns: window_cpu_ns,
            failing_connections: Some(failing_sessions),
            most_failures: Some(most_failures),
            ..WindowCounts::default()
        },
        histograms,
        intervals: recorded.intervals(),
        books,
        failures,
        error_samples: Vec::new(),
        conformance: None,
        evidence,
        environment: Environment::read(),
    }
}

fn named(name: Name, values: &Recorder) -> BTreeMap<Name, Histogram> {
    if values.total() == 0 {
        return BTreeMap::new();
    }
    BTreeMap::from([(name, values.encode())])
}
