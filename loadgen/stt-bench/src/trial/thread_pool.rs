//! The load threads of a worker: each runs on a thread of its own while sessions open, during a trial, and when they end.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use bench_format::{plan::Load, trial::Assignment};
use loadgen_core::{
    Error,
    clock::monotonic_ns,
    connect::{Sources, UpgradeRequest},
    evidence::{Baseline, Usage},
    phases::Phases,
    trial::{Edge, Gate, LiveReports},
};

use crate::{
    context::LoadState,
    load_thread::{LoadThread, ThreadResult},
    metrics::recorder,
    samples::Feed,
    schedule::Start,
};

/// The load threads, with their sessions, between trials; in a trial each runs on a thread of its own.
pub(super) struct ThreadPool {
    pub(super) run: String,
    pub(super) address: String,
    pub(super) upgrade: UpgradeRequest,
    pub(super) sources: Sources,
    pub(super) threads: Vec<LoadThread>,
    pub(super) random: u64,
}

impl ThreadPool {
    pub(super) fn alive(&self) -> u32 {
        self.threads.iter().map(LoadThread::alive).sum()
    }

    /// Runs a function on every load thread at once and collects the results.
    fn each<T: Send>(
        &mut self,
        work: impl Fn(usize, &mut LoadThread) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        thread::scope(|scope| {
            let work = &work;
            let running: Vec<_> = self
                .threads
                .iter_mut()
                .enumerate()
                .map(|(index, thread)| scope.spawn(move || work(index, thread)))
                .collect();
            running.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::ThreadDied))).collect()
        })
    }

    pub(super) fn open(&mut self, assignment: &Assignment) -> Result<(), Error> {
        let count = self.threads.len() as u32;
        let in_flight = match assignment.load {
            Load::Sessions { in_flight, .. } => (in_flight / count).max(1),
            _ => 1,
        };
        let Assignment { first_connection, connections, .. } = *assignment;
        self.each(|index, thread| {
            let (from, to) = (part(connections, index as u32, count), part(connections, index as u32 + 1, count));
            thread.open(to - from, first_connection + from, in_flight)
        })?;
        Ok(())
    }

    /// Offers the load and waits for the last answers; returns the process's CPU use at both edges of the window, and
    /// when the window ended (before its planned end, if no session was left).
    pub(super) fn work(
        &mut self,
        assignment: &Assignment,
        phases: Phases,
        gate: &mut dyn Gate,
        before: &Baseline,
        feed: &impl Fn() -> Option<Feed>,
    ) -> Result<(Usage, Usage, u64), Error> {
        let count = self.threads.len() as u32;
        let ramp_ns = (assignment.load.ramp_seconds() * 1e9) as u64;
        // A worker's sessions are a part of the trial's; the tier is the number of all of them.
        let of = u64::from(assignment.trial.tier.max(assignment.first_connection + assignment.connections));
        let (over, ended) = mpsc::channel();
        self.threads.iter().for_each(|thread| thread.cx.live.reset());
        let of_threads = self.threads.iter().map(|thread| Arc::clone(&thread.cx.live)).collect();
        let mut live = LiveReports::new(of_threads, before.cpu_limit);
        thread::scope(|scope| {
            let running: Vec<_> = self
                .threads
                .iter_mut()
                .enumerate()
                .map(|(index, thread)| {
                    let first = assignment.first_connection + part(assignment.connections, index as u32, count);
                    let start = Start { first: u64::from(first), of, ramp_ns, seed: assignment.seed };
                    let load = LoadState {
                        phases,
                        recorder: recorder(&phases, &thread.cx.live),
                        recorded_deferred: None,
                        rows: feed(),
                    };
                    let over = over.clone();
                    scope.spawn(move || {
                        thread.work(load, start, || {
                            // The receiver is dropped only when nothing waits any more.
                            let _ = over.send(());
                        })
                    })
                })
                .collect();
            drop(over);
            let mut left = count;
            wait(phases.window_start_ns, &ended, &mut left, (&mut live, &mut *gate));
            let from = before.usage();
            gate.window_edge(Edge::Start);
            wait(phases.window_end_ns, &ended, &mut left, (&mut live, &mut *gate));
            let to = before.usage();
            let ended_ns = monotonic_ns().min(phases.window_end_ns);
            gate.window_edge(Edge::End);
            for thread in running {
                thread.join().unwrap_or(Err(Error::ThreadDied))?;
            }
            Ok((from, to, ended_ns))
        })
    }

    /// Closes all connections, or with `keep` only those that are not at rest.
    pub(super) fn end_trial(&mut self, keep: bool) -> Result<(), Error> {
        self.each(|_, thread| thread.close(if keep { usize::MAX } else { 0 })).map(|_| ())
    }

    pub(super) fn close_all(&mut self) -> Result<(), Error> {
        self.end_trial(false)
    }

    pub(super) fn report(&mut self) -> Result<ThreadResult, Error> {
        let results = self.threads.iter_mut().filter_map(LoadThread::report);
        results
            .reduce(|mut all, result| {
                all.add(result);
                all
            })
            .ok_or(Error::ThreadDied)
    }
}

/// Waits until an edge of the window, or until every thread has ended its load, and reports meanwhile what the threads have
/// done.
fn wait(edge_ns: u64, ended: &mpsc::Receiver<()>, left: &mut u32, (live, gate): (&mut LiveReports, &mut dyn Gate)) {
    while *left > 0 {
        let now = monotonic_ns();
        if now >= edge_ns {
            return;
        }
        let wake_ns = live.wake_ns(edge_ns);
        match ended.recv_timeout(Duration::from_nanos(wake_ns.saturating_sub(now))) {
            Ok(()) => *left -= 1,
            Err(mpsc::RecvTimeoutError::Timeout) if wake_ns < edge_ns => live.report(edge_ns, gate),
            Err(mpsc::RecvTimeoutError::Timeout) => return,
            Err(mpsc::RecvTimeoutError::Disconnected) => *left = 0,
        }
    }
}

/// First element of part `index` when `whole` is divided evenly into `of` parts.
fn part(whole: u32, index: u32, of: u32) -> u32 {
    (u64::from(whole) * u64::from(index) / u64::from(of)) as u32
}
