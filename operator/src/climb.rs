//! The climb: trial after trial, with the service and the workers that each needs. The one sequence.
//!
//! [`step::next`] decides what comes next; here it is done ([`take`] takes the steps towards a result), and the store
//! is told before and after.

use std::{collections::BTreeMap, fmt};

use bench_format::{
    environment::Environment,
    run::{Run, RunState, TrialState},
    service::Started,
    timeline::{TimelineEntry, TimelineStep},
};
use driver::{clock, coordinator::Coordinator, measure::Measured, service_client::ServiceClient, stage::Ended};
use judge::Judged;

use crate::{
    backend::Backend,
    plan::Plan,
    registry::Registry,
    rejudge,
    search::losses::Brief,
    signals::{Stop, StopSignal},
    step::{self, Health, ProcessKey, Seen, Step, TierKey, Wanted},
    store::{self, Store},
    watcher::Watcher,
};

mod search;
mod take;

/// Why a climb ended before its last trial.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bundle can't be written.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The bundle's trials are those of another search.
    #[error(transparent)]
    Diverged(#[from] crate::search::Diverged),
}

/// How a climb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No trial is left.
    Finished,
    /// Somebody asked us to stop; the run can be resumed.
    Stopped(StopSignal),
}

/// Everything that a climb works with.
pub struct Climb<'a, B> {
    /// What to climb.
    pub plan: &'a Plan,
    /// How services are found.
    pub registry: &'a Registry,
    /// What starts services and workers.
    pub backend: B,
    /// What workers talk to.
    pub coordinator: &'a Coordinator,
    /// Where everything is kept.
    pub store: Store,
    /// How far the run is.
    pub run: Run,
    /// The command that climbs the plan again; what picks one trial is added.
    pub again: String,
    /// Who is told how it goes.
    pub watcher: &'a dyn Watcher,
    /// When somebody asked for this climb, unix nanoseconds.
    pub asked_at_unix_ns: u64,
    /// A trial that was measured but could not be written: it is written when the climb is taken up again.
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

/// What runs at the moment.
#[derive(Default)]
struct Running {
    service: Option<(ProcessKey, Started)>,
    /// Its metrics port, and what is remembered of its process.
    client: Option<ServiceClient>,
    workers: Option<TierKey>,
    /// The trial that was begun, by its place in the run.
    begun: Option<usize>,
    /// Something went wrong with what runs: it is not used again.
    tainted: bool,
    failed_starts: BTreeMap<String, u32>,
    /// How often the trial at hand was interrupted.
    interruptions: u32,
    /// What a search's trials showed, by their place in the run.
    briefs: BTreeMap<usize, Brief>,
}

impl<B: Backend> Climb<'_, B> {
    /// Climbs until no trial is left or somebody asks us to stop. Whatever happens, the backend puts back what it
    /// changed.
    ///
    /// # Errors
    /// When the bundle can't be written: what can't be kept isn't worth measuring. Climbing again goes on where it was.
    pub async fn climb(&mut self, stop: &mut Stop) -> Result<End, Error> {
        self.note(TimelineStep::Prepare, None, self.asked_at_unix_ns);
        let climbed = self.all_trials(stop).await;
        // The backend says itself what it could not put back.
        let _ = self.backend.put_back().await;
        self.coordinator.finish();
        climbed
    }

    async fn all_trials(&mut self, stop: &mut Stop) -> Result<End, Error> {
        if self.save_unsaved()? {
            self.save_run()?;
        }
        let mut running = Running::default();
        loop {
            if stop.seen().is_none() {
                self.search(&mut running)?;
            }
            let index = self.run.trials.iter().position(|entry| step::is_open(&entry.state));
            let seen = self.look(index, &running, stop);
            match (step::next(&seen), index) {
                (Step::StopWorkers, _) => self.stop_workers(index, &mut running).await,
                (Step::StopService, _) => self.stop_service(index, &mut running).await,
                (Step::End, _) | (_, None) => return self.end(stop),
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
                }
            }
        }
    }

    fn look(&mut self, index: Option<usize>, running: &Running, stop: &Stop) -> Seen {
        let health =
            |ended: Option<Ended>| if ended.is_some() || running.tainted { Health::Dead } else { Health::Alive };
        let wanted = index.map(|index| {
            let entry = &self.run.trials[index];
            Wanted {
                state: entry.state.clone(),
                begun: running.begun == Some(index),
                process: ProcessKey::of(entry),
                tier: TierKey::of(entry, self.worker_program(index)),
            }
        });
        let (service, workers) = (health(self.backend.service_ended()), health(self.backend.worker_ended()));
        Seen {
            wanted,
            service: running.service.as_ref().map(|(key, _)| (key.clone(), service)),
            workers: running.workers.clone().map(|key| (key, workers)),
            stopping: stop.seen().is_some(),
        }
    }

    fn worker_program(&self, index: usize) -> &str {
        let service = &self.registry.services[&self.run.trials[index].trial.service];
        &self.registry.protocol_of(service).worker
    }

    async fn stop_workers(&mut self, index: Option<usize>, running: &mut Running) {
        let began = self.announce(TimelineStep::StopWorkers, index);
        self.backend.stop_workers().await;
        self.note(TimelineStep::StopWorkers, index, began);
        running.workers = None;
        running.tainted &= running.service.is_some();
    }

    async fn stop_service(&mut self, index: Option<usize>, running: &mut Running) {
        let began = self.announce(TimelineStep::StopService, index);
        self.backend.stop_service().await;
        self.note(TimelineStep::StopService, index, began);
        (running.service, running.client) = (None, None);
        running.tainted &= running.workers.is_some();
    }

    fn begin(&mut self, index: usize, attempt: u32, running: &mut Running) -> Result<(), Error> {
        self.run.trials[index].state = TrialState::Started { attempt };
        self.save_run()?;
        self.store.begin_trial(&self.run.trials[index].trial)?;
        running.begun = Some(index);
        Ok(())
    }

    fn finish(&mut self, index: usize, state: TrialState, running: &mut Running) -> Result<(), Error> {
        if let TrialState::Failed { reason } = &state {
            self.watcher.failed(&self.run.trials[index].trial, reason);
            let ended = running.service.is_some() && self.backend.service_ended().is_some();
            if let Some(purpose) = &mut self.run.trials[index].search {
                purpose.service_ended = ended;
            }
        }
        self.run.trials[index].state = state;
        (running.begun, running.interruptions) = (None, 0);
        self.save_run()
    }

    /// Writes the trial that could not be written before, if there is one.
    fn save_unsaved(&mut self) -> Result<bool, Error> {
        let Some(unsaved) = &self.unsaved else { return Ok(false) };
        let Unsaved { index, measured, judged } = &**unsaved;
        self.store.save_trial(measured, judged)?;
        self.run.trials[*index].state = rejudge::state_of(&judged.result);
        self.watcher.result(&judged.result);
        self.unsaved = None;
        Ok(true)
    }

    fn save_run(&mut self) -> Result<(), Error> {
        self.store.save_run(&self.run)?;
        self.watcher.run(&self.run);
        Ok(())
    }

    fn end(&mut self, stop: &Stop) -> Result<End, Error> {
        let open = self.run.trials.iter().any(|entry| step::is_open(&entry.state))
            || self.run.searches.iter().any(|search| search.found.is_none());
        if let (true, Some(signal)) = (open, stop.seen()) {
            return Ok(End::Stopped(signal));
        }
        self.run.state = RunState::Finished;
        self.run.finished_at = Some(clock::rfc3339(clock::unix_ns()));
        self.save_run()?;
        Ok(End::Finished)
    }

    /// Tells that a step begins, and returns when.
    fn announce(&self, step: TimelineStep, index: Option<usize>) -> u64 {
        self.watcher.step(step, index.map(|index| &self.run.trials[index].trial));
        clock::unix_ns()
    }

    /// Puts a step that is over into the timeline.
    fn note(&self, step: TimelineStep, index: Option<usize>, start_unix_ns: u64) {
        let trial = index.map(|index| self.run.trials[index].trial.clone());
        let entry = TimelineEntry { step, trial, start_unix_ns, end_unix_ns: clock::unix_ns() };
        // No figure depends on it; a store that can't be written says so at the next file that counts.
        let _ = self.store.append_to_timeline(&entry);
    }

    /// Keeps what is known of machines; one is known by its name.
    fn note_machines(&mut self, found: impl IntoIterator<Item = Environment>) {
        for machine in found {
            if !self.run.machines.iter().any(|known| known.host == machine.host) {
                self.run.machines.push(machine);
            }
        }
    }
}
