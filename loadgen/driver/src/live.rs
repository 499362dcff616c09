//! What is known of the trial that runs, for a display. Nothing of it is stored or judged.
//!
//! `measure` says which phase the trial is in and what the service used, the coordinator adds what its workers report. A
//! display takes a [`LiveTrial`] now and then. Without a display there is no [`Live`], and the coordinator answers
//! workers that it needs no reports.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bench_format::{
    plan::Load,
    trial::{Progress, TrialId},
};

use crate::{stage::Usage, trial_plan::TrialPlan};

/// Number of readings that are kept of each process, for rates: about three seconds.
const KEPT: usize = 7;
/// Least time between two readings of the service that are kept.
const SERVICE_INTERVAL: Duration = Duration::from_millis(500);

/// A phase of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LivePhase {
    /// Connections are opened; no load is offered yet.
    Opening,
    /// Load is offered and not measured yet.
    WarmUp,
    /// The measured time, with load.
    Window,
    /// Messages in flight may arrive, connections close, and results are collected.
    Drain,
}

/// What a process had used at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuReading {
    /// When it was read.
    pub at: Instant,
    /// CPU time so far, in nanoseconds.
    pub cpu_ns: u64,
    /// Number of CPUs that the process may use.
    pub cpu_limit: f64,
}

/// What is known of a trial while it runs.
#[derive(Clone, Debug)]
pub struct LiveTrial {
    /// Service, ladder, tier and repeat.
    pub trial: TrialId,
    /// Number of connections of all workers.
    pub connections: u32,
    /// The load of all workers.
    pub load: Load,
    /// Which of its phases the trial is in.
    pub phase: LivePhase,
    /// When the phase began.
    pub since: Instant,
    /// When the phase ends by plan; absent where that isn't known.
    pub until: Option<Instant>,
    /// The last reports of each worker, oldest first, with the moments at which they came.
    pub workers: BTreeMap<u32, VecDeque<(Instant, Progress)>>,
    /// The last readings of the service, oldest first; empty if its process can't be read.
    pub service: VecDeque<CpuReading>,
}

/// The trial that runs, shared by those who know something of it and a display.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<Mutex<Option<LiveTrial>>>);

impl Live {
    /// The trial that runs, as it is known at the moment; `None` between trials.
    pub fn trial(&self) -> Option<LiveTrial> {
        self.lock().clone()
    }

    /// Begins a trial, whose connections are opened first.
    pub fn begin(&self, plan: &TrialPlan) {
        *self.lock() = Some(LiveTrial {
            trial: plan.trial.clone(),
            connections: plan.connections,
            load: plan.load.clone(),
            phase: LivePhase::Opening,
            since: Instant::now(),
            until: None,
            workers: BTreeMap::new(),
            service: VecDeque::new(),
        });
    }

    /// Forgets the trial, because it has ended.
    pub fn end(&self) {
        *self.lock() = None;
    }

    /// Begins a phase, which ends at `until` by plan.
    pub(crate) fn phase(&self, phase: LivePhase, since: tokio::time::Instant, until: Option<tokio::time::Instant>) {
        if let Some(trial) = &mut *self.lock() {
            (trial.phase, trial.since) = (phase, since.into_std());
            trial.until = until.map(tokio::time::Instant::into_std);
        }
    }

    /// Adds what a worker reports.
    pub(crate) fn worker(&self, worker: u32, progress: Progress) {
        if let Some(trial) = &mut *self.lock() {
            keep(trial.workers.entry(worker).or_default(), (Instant::now(), progress));
        }
    }

    /// Adds a reading of the service, unless the last one is too young.
    pub(crate) fn service(&self, usage: &Usage) {
        let at = Instant::now();
        if let Some(trial) = &mut *self.lock()
            && trial.service.back().is_none_or(|last| at - last.at >= SERVICE_INTERVAL)
        {
            keep(&mut trial.service, CpuReading { at, cpu_ns: usage.cpu_ns, cpu_limit: usage.cpu_limit });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<LiveTrial>> {
        // No code panics while it holds the lock, and a display could do with any state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep<T>(readings: &mut VecDeque<T>, reading: T) {
    if readings.len() == KEPT {
        readings.pop_front();
    }
    readings.push_back(reading);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        coordinator::upload::fixture::{progress, trial},
        trial_plan::fixture::plan,
    };

    #[test]
    fn only_a_trial_that_runs_takes_reports_and_only_the_last_ones_are_kept() {
        let live = Live::default();
        live.worker(0, progress(1));
        live.service(&Usage::default());
        assert!(live.trial().is_none());
        live.begin(&plan(trial(), Load::Closed { messages_per_connection: None, in_flight: 1 }));
        (0..=KEPT as u64).for_each(|sent| live.worker(1, Progress { sent, ..progress(1) }));
        let known = live.trial().unwrap();
        let sent: Vec<u64> = known.workers[&1].iter().map(|(_, progress)| progress.sent).collect();
        assert_eq!(sent, (1..=KEPT as u64).collect::<Vec<_>>());
        live.end();
        assert!(live.trial().is_none());
    }

    #[test]
    fn the_service_is_noted_at_most_twice_a_second() {
        let live = Live::default();
        live.begin(&plan(trial(), Load::Closed { messages_per_connection: None, in_flight: 1 }));
        (0..3).for_each(|_| live.service(&Usage::default()));
        assert_eq!(live.trial().unwrap().service.len(), 1);
    }
}
