//! The climb: runs the trials one after the other, each with the service and the workers that it needs.
//!
//! [`step::next`] decides the next step and this module executes it ([`trial_steps`] executes the steps towards a result). The
//! store is written before and after each trial, so that an interrupted run can be resumed.

use std::{collections::BTreeMap, fmt, time::Duration};

use bench_format::{
    environment::{Environment, NodeFacts},
    run::{Run, RunState, TrialState},
    service::Started,
    timeline::{TimelineEntry, TimelineStep},
    websocket::PrintedRows,
};
use driver::{clock, coordinator::Coordinator, measure::Measured, service_client::ServiceClient, stage::Ended};
use judge::Judged;
use tokio::time::timeout;

use crate::{
    backend::Backend,
    compare::course::FinishedTrial,
    fixed_work::EarlierWork,
    plan::Plan,
    registry::Registry,
    search::losses::TrialSummary,
    search_trial,
    signals::{Stop, StopSignal},
    step::{self, Health, NextTrial, ProcessKey, Step, StepInput, TierKey},
    store::{self, Store},
    watcher::Watcher,
};

mod compare;
mod interruptions;
mod pilot;
mod search;
mod trial_steps;

use interruptions::Interruptions;

pub use interruptions::RetryBudget;
pub use pilot::PilotJudge;

/// Why a climb ended before its last trial.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bundle can't be written or read.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The files of a search's trial can't be read.
    #[error(transparent)]
    SearchTrial(#[from] search_trial::Error),
    /// The bundle's trials are not those that the plan's search would have chosen.
    #[error(transparent)]
    Diverged(#[from] crate::search::Diverged),
    /// The bundle's trials are not those that its comparison would have measured.
    #[error(transparent)]
    OtherPairs(#[from] crate::compare::course::Diverged),
    /// This process can't open any more files. That says nothing about a trial, which a resumed run measures again.
    #[error(
        "ladder has no file descriptors left, so the run can't go on: {0}; raise the limit (`ulimit -n`) and resume it"
    )]
    NoDescriptors(String),
    /// The analysis could not decide which pilots are steady; with its error.
    #[error("failed to look for the steady state of the pilots: {0}")]
    Pilots(String),
}

/// How a climb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClimbEnd {
    /// No trial is left.
    Finished,
    /// A signal stopped the climb; the run can be resumed.
    Stopped(StopSignal),
}

/// State and collaborators of a climb.
pub struct Climb<'a, B> {
    /// The plan to climb.
    pub plan: &'a Plan,
    /// Looks up services and protocols by name.
    pub registry: &'a Registry,
    /// Starts and stops services and workers.
    pub backend: B,
    /// Serves the workers' requests.
    pub coordinator: &'a Coordinator,
    /// The run's bundle on disk.
    pub store: Store,
    /// The run's state, as `run.json` keeps it.
    pub run: Run,
    /// The command that climbs the plan again; the options that select a trial are appended.
    pub reproduce_command: String,
    /// Receives the progress of the climb, for the terminal or the live page.
    pub watcher: &'a dyn Watcher,
    /// When the climb was requested, in nanoseconds since the Unix epoch.
    pub requested_at_unix_ns: u64,
    /// Decides which pilots are steady; absent where the run makes no pilots.
    pub pilots: Option<PilotJudge<'a>>,
    /// What the command of the plan's `websocket.connect.rows_command` printed; absent without one. No file of the bundle
    /// has it.
    pub printed_rows: Option<PrintedRows>,
    /// How long it tries again after interruptions.
    pub retry_budget: RetryBudget,
    /// A trial that was measured but could not be written; it is written when the climb resumes.
    pub unsaved: Option<Box<Unsaved>>,
}

/// A trial that was measured but could not be written.
#[derive(Debug)]
pub struct Unsaved {
    index: usize,
    measured: Measured,
    judged: Judged,
}

impl<B: fmt::Debug> fmt::Debug for Climb<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Climb").field("backend", &self.backend).field("run", &self.run.id).finish_non_exhaustive()
    }
}

/// What runs at the moment, and what was learned since the climb began.
#[derive(Default)]
struct ClimbState {
    service: Option<(ProcessKey, Started)>,
    /// Whether a trial has ended on the service that runs.
    warm: bool,
    /// Further addresses of the service.
    more_addresses: Vec<String>,
    /// Client of the service's metrics port, with the state it keeps about the service's processes.
    client: Option<ServiceClient>,
    workers: Option<TierKey>,
    /// Index of the trial that was begun, in the run's list.
    begun: Option<usize>,
    /// A failure occurred while the current processes ran, so they must not be used for another trial.
    tainted: bool,
    failed_starts: BTreeMap<String, u32>,
    interruptions: Interruptions,
    /// Pause before the next step, after an interruption.
    pause: Option<Duration>,
    /// Summaries of the finished trials of a search, by their index in the run's list.
    summaries: BTreeMap<usize, TrialSummary>,
    /// The finished trials of a comparison, in order.
    pairs: Vec<FinishedTrial>,
    /// Times of the fixed work in finished trials; absent before the first trial of this climb.
    earlier_work: Option<EarlierWork>,
}

impl<B: Backend> Climb<'_, B> {
    /// Climbs until no trial is left or a signal stops the climb. In every case the backend then restores what it
    /// changed.
    ///
    /// # Errors
    /// [`Error::Store`] when the bundle can't be written or read: a measurement that can't be stored is useless. A new
    /// call resumes at the same trial. [`Error::Pilots`] when the analysis fails. [`Error::Diverged`] and [`Error::OtherPairs`] when the bundle's
    /// trials are those of another search or comparison.
    pub async fn climb(&mut self, stop: &mut Stop) -> Result<ClimbEnd, Error> {
        self.note(TimelineStep::Prepare, None, self.requested_at_unix_ns);
        let climbed = self.all_trials(stop).await;
        // The backend itself reports what it could not restore.
        let _ = self.backend.put_back().await;
        self.coordinator.finish();
        climbed
    }

    async fn all_trials(&mut self, stop: &mut Stop) -> Result<ClimbEnd, Error> {
        if self.save_unsaved()? {
            self.save_run()?;
        }
        let mut running = ClimbState::default();
        loop {
            if stop.observed().is_none() {
                self.search(&mut running)?;
                self.compare(&mut running)?;
            }
            let index = self.run.trials.iter().position(|entry| step::is_open(&entry.state));
            let observed = self.step_input(index, &running, stop);
            match (step::next(&observed), index) {
                (Step::StopWorkers, _) => self.stop_workers(index, &mut running).await,
                (Step::StopService, _) => self.stop_service(index, &mut running).await,
                (Step::Finish, _) | (_, None) => {
                    if stop.observed().is_some() || !self.add_pilots()? {
                        return self.end(stop);
                    }
                }
                (Step::Begin { attempt }, Some(index)) => self.begin(index, attempt, &mut running)?,
                (step, Some(index)) => {
                    let done = tokio::select! {
                        biased;
                        () = stop.wait() => continue,
                        done = self.take(step, index, &mut running) => done,
                    };
                    if let Some(state) = done? {
                        self.finish(index, state, &mut running)?;
                    }
                    Self::pause(&mut running, stop).await;
                }
            }
        }
    }

    /// Pauses after an interruption. A signal ends the pause early.
    async fn pause(running: &mut ClimbState, stop: &mut Stop) {
        if let Some(pause) = running.pause.take() {
            let _ = timeout(pause, stop.wait()).await;
        }
    }

    fn step_input(&mut self, index: Option<usize>, running: &ClimbState, stop: &Stop) -> StepInput {
        let health =
            |ended: Option<Ended>| if ended.is_some() || running.tainted { Health::Dead } else { Health::Alive };
        let next_trial = index.map(|index| {
            let entry = &self.run.trials[index];
            NextTrial {
                state: entry.state.clone(),
                begun: running.begun == Some(index),
                process: ProcessKey::of(entry),
                tier: TierKey::of(entry, self.worker_program(index)),
            }
        });
        let (service, workers) = (health(self.backend.service_ended()), health(self.backend.worker_ended()));
        StepInput {
            next_trial,
            service: running.service.as_ref().map(|(key, _)| (key.clone(), service)),
            workers: running.workers.clone().map(|key| (key, workers)),
            stopping: stop.observed().is_some(),
        }
    }

    fn worker_program(&self, index: usize) -> &str {
        let service = &self.registry.services[&self.run.trials[index].trial.service];
        &self.registry.protocol_of(service).worker
    }

    async fn stop_workers(&mut self, index: Option<usize>, running: &mut ClimbState) {
        let began = self.announce(TimelineStep::StopWorkers, index);
        self.backend.stop_workers().await;
        self.note(TimelineStep::StopWorkers, index, began);
        running.workers = None;
        running.tainted &= running.service.is_some();
    }

    async fn stop_service(&mut self, index: Option<usize>, running: &mut ClimbState) {
        let began = self.announce(TimelineStep::StopService, index);
        self.backend.stop_service().await;
        self.note(TimelineStep::StopService, index, began);
        (running.service, running.client) = (None, None);
        running.tainted &= running.workers.is_some();
    }

    fn begin(&mut self, index: usize, attempt: u32, running: &mut ClimbState) -> Result<(), Error> {
        self.run.trials[index].state = TrialState::Started { attempt };
        self.save_run()?;
        self.store.begin_trial(&self.run.trials[index].trial)?;
        running.begun = Some(index);
        Ok(())
    }

    fn finish(&mut self, index: usize, state: TrialState, running: &mut ClimbState) -> Result<(), Error> {
        let crashed = matches!(state, TrialState::Crashed { .. });
        match &state {
            TrialState::Failed { reason } => self.watcher.failed(&self.run.trials[index].trial, reason),
            TrialState::Crashed { cause, reason } => {
                self.watcher.crashed(&self.run.trials[index].trial, *cause, reason);
            }
            TrialState::Pending | TrialState::Started { .. } | TrialState::Finished { .. } => {}
        }
        if let Some(purpose) = &mut self.run.trials[index].search {
            purpose.service_ended = crashed;
        }
        self.run.trials[index].state = state;
        running.begun = None;
        match self.run.trials[index].state {
            TrialState::Finished { .. } | TrialState::Crashed { .. } => running.interruptions.over(),
            _ => running.interruptions.next_trial(),
        }
        self.save_run()
    }

    /// Writes the trial that could not be written before, if there is one. Returns whether there was one.
    fn save_unsaved(&mut self) -> Result<bool, Error> {
        let Some(unsaved) = &self.unsaved else { return Ok(false) };
        let Unsaved { index, measured, judged } = &**unsaved;
        self.store.save_trial(measured, judged)?;
        self.run.trials[*index].state = store::state_of(&judged.result);
        self.watcher.result(&judged.result);
        self.unsaved = None;
        Ok(true)
    }

    fn save_run(&mut self) -> Result<(), Error> {
        self.store.save_run(&self.run)?;
        self.watcher.run(&self.run);
        Ok(())
    }

    fn end(&mut self, stop: &Stop) -> Result<ClimbEnd, Error> {
        let open = self.run.trials.iter().any(|entry| step::is_open(&entry.state))
            || self.run.searches.iter().any(|search| search.found.is_none())
            || self.run.comparison.as_ref().is_some_and(|comparison| comparison.progress.end.is_none());
        if let (true, Some(signal)) = (open, stop.observed()) {
            return Ok(ClimbEnd::Stopped(signal));
        }
        self.run.state = RunState::Finished;
        self.run.finished_at = Some(clock::rfc3339(clock::unix_ns()));
        self.store.save_ended_run(&self.run)?;
        self.watcher.run(&self.run);
        Ok(ClimbEnd::Finished)
    }

    /// Reports to the watcher that a step begins, and returns its start in nanoseconds since the Unix epoch.
    fn announce(&self, step: TimelineStep, index: Option<usize>) -> u64 {
        self.watcher.step(step, index.map(|index| &self.run.trials[index].trial));
        clock::unix_ns()
    }

    /// Appends a finished step to the timeline.
    fn note(&self, step: TimelineStep, index: Option<usize>, start_unix_ns: u64) {
        let trial = index.map(|index| self.run.trials[index].trial.clone());
        let entry = TimelineEntry { step, trial, start_unix_ns, end_unix_ns: clock::unix_ns() };
        // No figure depends on the timeline. If the store can't be written, the next file that matters reports it.
        let _ = self.store.append_to_timeline(&entry);
    }

    /// Adds machines to the run that are not in it yet, and what a cluster says of its nodes; the host name identifies a
    /// machine.
    fn add_machines(&mut self, found: impl IntoIterator<Item = Environment>, nodes: &BTreeMap<String, NodeFacts>) {
        for machine in found {
            if !self.run.machines.iter().any(|known| known.host == machine.host) {
                self.run.machines.push(machine);
            }
        }
        for machine in &mut self.run.machines {
            machine.node = machine.node.take().or_else(|| nodes.get(&machine.host).cloned());
        }
    }
}
