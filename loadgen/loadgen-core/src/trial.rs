//! One trial of one worker: threads, the barrier, the window, the result.
//!
//! The code is generic over the workload. [`Gate`] hides what holds the barrier: a coordinator, a parent process or
//! nothing.

mod gate;
mod live_reports;
mod threads;

use std::{collections::BTreeMap, thread, time::Duration};

use bench_format::{
    environment::Environment,
    result::{
        ConnectionCounts, Failures, MessageCounts, RECEIVER_BEHIND, Witness, WorkerBook, WorkerEvidence, WorkerResult,
    },
    trial::Assignment,
};

use self::threads::Threads;
pub use self::{
    gate::{Edge, Gate, ImmediateGate},
    live_reports::LiveReports,
};
pub use crate::phases::StartAt;
use crate::{
    clock::monotonic_ns,
    connect::resolve,
    error::Error,
    evidence::Baseline,
    load_thread::{Command, ThreadResult},
    pattern::Pattern,
    workload::Workload,
};

/// Runs an assignment and returns this worker's result.
///
/// # Errors
/// An [`Error`] if there is no result: the address can't be resolved, the gate refuses the start, or a thread fails.
pub fn run<W: Workload>(
    workload: W,
    assignment: &Assignment,
    pattern: Pattern,
    witness: Witness,
    program: &str,
    gate: &mut dyn Gate,
) -> Result<WorkerResult, Error> {
    let baseline = Baseline::read();
    let opening_from_ns = monotonic_ns();
    let threads = Threads::start(workload, assignment, pattern, baseline.cpu_limit, baseline.wall_offset_ns)?;
    let prepared = threads.prepared()?;
    let storm = matches!(pattern, Pattern::Storm { .. });
    let opening_ns = (!storm).then(|| monotonic_ns() - opening_from_ns);
    let nothing_open = !storm && prepared.open == 0 && assignment.connections > 0;
    let problem = nothing_open.then(|| nothing_open_problem(assignment, &prepared.failed));
    let start = gate.ready(prepared.open, problem).inspect_err(|_| threads.abandon())?;
    let phases = baseline.phases(assignment, start);
    threads.command(|| Command::Start(phases, start));

    let mut live = threads.live_reports(baseline.cpu_limit);
    live.sleep_until(phases.window_start_ns, gate);
    let usage_at_start = baseline.usage();
    gate.window_edge(Edge::Start);
    let finished_early = threads.window_ended(&mut live, phases.window_end_ns, gate)?;
    let usage_at_end = baseline.usage();
    gate.window_edge(Edge::End);
    if pattern.may_end_early() {
        gate.window_over();
        threads.command(|| Command::Drain);
    }
    let mut merged = threads.finished(finished_early)?;

    merged.window.cpu_ns = usage_at_end.cpu_ns - usage_at_start.cpu_ns;
    let evidence = WorkerEvidence {
        program: program.to_owned(),
        opening_ns,
        start_skew_ns: merged.skew_ns,
        congestion_control: prepared.congestion_control.unwrap_or_else(|| Environment::read().congestion_control),
        extensions: std::mem::take(&mut merged.connections.extensions),
        ..baseline.evidence(start, &usage_at_start, &usage_at_end)
    };
    Ok(result(assignment, witness, merged, evidence))
}

fn nothing_open_problem(assignment: &Assignment, failed: &BTreeMap<String, u64>) -> String {
    let error = match resolve(&assignment.address) {
        Ok(address) => Error::NothingOpen { requested: assignment.connections, address, reasons: description(failed) },
        Err(error) => error,
    };
    error.to_string()
}

fn result(assignment: &Assignment, witness: Witness, merged: ThreadResult, evidence: WorkerEvidence) -> WorkerResult {
    let messages = if witness == Witness::Receiver { received(&merged) } else { sent(&merged, witness) };
    let failures = failures(&merged);
    WorkerResult {
        schema: bench_format::SCHEMA,
        run: assignment.run.clone(),
        trial: assignment.trial.clone(),
        attempt: assignment.attempt,
        worker: assignment.worker,
        witness,
        connections: ConnectionCounts {
            attempted: merged.connections.attempted,
            open: merged.connections.opened,
            failed: merged.connections.failed,
            closed_early: merged.connections.closed_early,
        },
        turnover: merged.turnover.as_ref().map(|turnover| turnover.counts.clone()),
        messages,
        window: merged.window,
        histograms: merged.recorded.as_ref().map(|recorded| recorded.histograms()).unwrap_or_default(),
        intervals: merged.recorded.as_ref().map(|recorded| recorded.intervals()).unwrap_or_default(),
        failures,
        books: merged.books,
        error_samples: Vec::new(),
        conformance: None,
        evidence,
        environment: Environment::read(),
    }
}

/// The counts of a worker that sends.
fn sent(merged: &ThreadResult, witness: Witness) -> MessageCounts {
    let tally = merged.tally;
    let replies_counted = witness == Witness::Reply;
    let answered = if replies_counted { tally.replies + tally.wrong } else { 0 };
    MessageCounts {
        due: tally.due,
        sent: tally.sent,
        delivered: if replies_counted { tally.replies - tally.late } else { 0 },
        late: if replies_counted { tally.late } else { 0 },
        wrong: tally.wrong,
        lost: if replies_counted { tally.sent - answered } else { 0 },
        unsent: tally.unsent,
        duplicates: tally.duplicates,
        reorders: tally.reorders,
        bytes_sent: tally.bytes_sent,
        bytes_received: tally.bytes_received,
        ..MessageCounts::default()
    }
}

/// The counts of a worker that receives what a service publishes.
fn received(merged: &ThreadResult) -> MessageCounts {
    let mut counts = MessageCounts {
        bytes_sent: merged.tally.bytes_sent,
        bytes_received: merged.tally.bytes_received,
        ..MessageCounts::default()
    };
    for book in merged.books.iter().filter_map(|book| book.receiver.as_ref()) {
        counts.due += book.expected() + book.wrong;
        counts.delivered += book.received;
        counts.wrong += book.wrong;
        counts.lost += book.missing;
        counts.duplicates += book.duplicated;
        counts.reorders += book.reordered;
    }
    counts
}

/// Failures by kind: receivers that are behind, or what went wrong while connections came and went.
fn failures(merged: &ThreadResult) -> Failures {
    match &merged.turnover {
        Some(turnover) => turnover.failures.clone(),
        None => Failures { window: behind(&merged.books), ..Failures::default() },
    }
}

/// The number of connections that did not get everything published up to the end of the window.
fn behind(books: &[WorkerBook]) -> BTreeMap<String, u64> {
    let count = books.iter().filter(|book| book.receiver.as_ref().is_some_and(|book| !book.reached)).count() as u64;
    if count > 0 { BTreeMap::from([(RECEIVER_BEHIND.to_owned(), count)]) } else { BTreeMap::new() }
}

/// The reasons with their counts, as text.
pub fn description(reasons: &BTreeMap<String, u64>) -> String {
    let description: Vec<_> = reasons.iter().map(|(reason, count)| format!("{count} x {reason}")).collect();
    if description.is_empty() { "no attempt ended".into() } else { description.join(", ") }
}

/// Sleeps until a time of the monotonic clock, in nanoseconds.
pub fn sleep_until(moment_ns: u64) {
    let now = monotonic_ns();
    if moment_ns > now {
        thread::sleep(Duration::from_nanos(moment_ns - now));
    }
}
