//! The climb: trial after trial, with the service and the workers that each needs. The one sequence.
//!
//! [`step::next`] decides what comes next; here it is done, and the store is told before and after.

use std::collections::BTreeMap;

use bench_format::{
    result::{TrialResult, Validity},
    run::{Run, RunState, TrialState},
    service::Started,
};
use tokio::time::timeout;

use crate::{
    backend::{self, Backend, READY_DEADLINE, ServiceSpec, WorkersSpec},
    clock,
    coordinator::{Coordinator, barrier::Barrier},
    evidence,
    judge::judge,
    measure::{self, Spec, measure},
    plan::Plan,
    print,
    registry::Registry,
    roles::Roles,
    signals::{Stop, StopSignal},
    step::{self, Health, ProcessKey, Seen, Step, TierKey, Wanted},
    store::{self, Store},
};

/// After so many failed starts in a row a service gets no more: each would cost its whole deadline.
const STARTS: u32 = 2;

/// Why a climb ended before its last trial.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bundle can't be written.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Why one trial has no result; the climb goes on.
#[derive(Debug, thiserror::Error)]
enum TrialError {
    #[error(transparent)]
    Backend(#[from] backend::Error),
    #[error(transparent)]
    Evidence(#[from] evidence::Error),
    #[error(transparent)]
    Measure(#[from] measure::Error),
    #[error("failed to merge the workers' results")]
    Merge(#[from] bench_format::histogram::Error),
    #[error("the workers did not register within {seconds} s: {words}")]
    Register { seconds: u64, words: String },
    #[error("not tried: {service} failed to start {STARTS} times in a row")]
    GivenUp { service: String },
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
#[derive(Debug)]
pub struct Climb<'a, B> {
    /// What to climb.
    pub plan: &'a Plan,
    /// How services are found.
    pub registry: &'a Registry,
    /// CPUs of each role.
    pub roles: &'a Roles,
    /// What starts services and workers.
    pub backend: B,
    /// What workers talk to.
    pub coordinator: Coordinator,
    /// Where everything is kept.
    pub store: Store,
    /// How far the run is.
    pub run: Run,
    /// The plan as the command line named it, to say how a trial is repeated.
    pub plan_argument: String,
}

/// What runs at the moment.
#[derive(Default)]
struct Running {
    service: Option<(ProcessKey, Started)>,
    workers: Option<TierKey>,
    /// The trial that was begun, by its place in the run.
    begun: Option<usize>,
    /// Something went wrong with what runs: it is not used again.
    tainted: bool,
    failed_starts: BTreeMap<String, u32>,
}

impl<B: Backend> Climb<'_, B> {
    /// Climbs until no trial is left or somebody asks us to stop.
    ///
    /// # Errors
    /// When the bundle can't be written: what can't be kept isn't worth measuring.
    pub async fn climb(&mut self, stop: &mut Stop) -> Result<End, Error> {
        let mut running = Running::default();
        loop {
            let index = self.run.trials.iter().position(|entry| step::is_open(&entry.state));
            let seen = self.look(index, &running, stop);
            match (step::next(&seen), index) {
                (Step::StopWorkers, _) => self.stop_workers(&mut running, seen.wanted.is_none()).await,
                (Step::StopService, _) => {
                    self.backend.stop_service().await;
                    running.service = None;
                    running.tainted &= running.workers.is_some();
                }
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
            |ended: Option<String>| if ended.is_some() || running.tainted { Health::Dead } else { Health::Alive };
        let wanted = index.map(|index| {
            let entry = &self.run.trials[index];
            Wanted {
                state: entry.state.clone(),
                begun: running.begun == Some(index),
                process: ProcessKey::of(&entry.trial),
                tier: TierKey::of(&entry.trial, self.worker_program(index)),
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

    async fn stop_workers(&mut self, running: &mut Running, last: bool) {
        if last {
            self.coordinator.finish();
        }
        self.backend.stop_workers().await;
        running.workers = None;
        running.tainted &= running.service.is_some();
    }

    fn begin(&mut self, index: usize, attempt: u32, running: &mut Running) -> Result<(), Error> {
        self.run.trials[index].state = TrialState::Started { attempt };
        self.store.save_run(&self.run)?;
        self.store.begin_trial(&self.run.trials[index].trial)?;
        running.begun = Some(index);
        Ok(())
    }

    /// Takes one step towards a trial's result; its state, once that is known.
    async fn take(&mut self, step: Step, index: usize, running: &mut Running) -> Result<Option<TrialState>, Error> {
        let taken = match step {
            Step::StartService => self.start_service(index, running).await.map(|()| None),
            Step::StartWorkers => self.start_workers(index, running).await.map(|()| None),
            _ => match self.measure(index, running).await? {
                Ok(result) => Ok(Some(result)),
                Err(error) => {
                    running.tainted = true;
                    Err(error)
                }
            },
        };
        Ok(taken.unwrap_or_else(|error| Some(TrialState::Failed { reason: words(&error) })))
    }

    async fn start_service(&mut self, index: usize, running: &mut Running) -> Result<(), TrialError> {
        let trial = self.run.trials[index].trial.clone();
        let name = &trial.service;
        let failed = running.failed_starts.entry(name.clone()).or_default();
        if *failed >= STARTS {
            return Err(TrialError::GivenUp { service: name.clone() });
        }
        *failed += 1;
        let service = &self.registry.services[name];
        if !self.run.versions.contains_key(name) {
            let version = evidence::service_version(&self.registry.root, name, service)?;
            self.run.versions.insert(name.clone(), version);
            if let Some(python) = evidence::python_version(&self.registry.root, service) {
                self.run.versions.insert(format!("python of {name}"), python);
            }
        }
        let mut env = service.env.clone();
        if let Some(ladder) = self.plan.ladder_of(&trial) {
            env.extend(ladder.service_env.clone());
        }
        let log = self.store.trial_folder(&trial).join("service.log");
        let spec = ServiceSpec { name: name.clone(), command: service.command.clone(), env, log };
        let started = self.backend.start_service(&spec).await?;
        running.service = Some((ProcessKey::of(&trial), started));
        running.failed_starts.remove(name);
        Ok(())
    }

    async fn start_workers(&mut self, index: usize, running: &mut Running) -> Result<(), TrialError> {
        let program = self.worker_program(index).to_owned();
        let trial = &self.run.trials[index].trial;
        let tier = TierKey::of(trial, &program);
        let logs = self.store.trial_folder(trial).join("workers");
        let count = self.plan.workers;
        self.coordinator.expect_new_workers();
        // From here on some may run, so that a failure stops them.
        running.workers = Some(tier);
        let spec = WorkersSpec { program: program.clone(), count, coordinator: self.coordinator.url(), logs };
        let registered = async {
            self.backend.start_workers(&spec).await?;
            let all = self.coordinator.wait_until(|barrier| (barrier.registered() >= count).then_some(()));
            if timeout(READY_DEADLINE, all).await.is_ok() {
                return Ok(());
            }
            let have = self.coordinator.ask(Barrier::registered);
            let words = self.backend.worker_ended().unwrap_or_else(|| format!("{have} of {count} did"));
            Err(TrialError::Register { seconds: READY_DEADLINE.as_secs(), words })
        };
        let registered = registered.await;
        running.tainted |= registered.is_err();
        registered?;
        for version in self.coordinator.ask(Barrier::programs) {
            self.run.versions.insert(program.clone(), version);
        }
        Ok(())
    }

    /// Measures, judges and keeps one trial.
    async fn measure(&mut self, index: usize, running: &Running) -> Result<Result<TrialState, TrialError>, Error> {
        let entry = &self.run.trials[index];
        let (Some((_, started)), Some(ladder)) = (&running.service, self.plan.ladder_of(&entry.trial)) else {
            return Ok(Err(backend::Error::NoService.into()));
        };
        let TrialState::Started { attempt } = entry.state else { return Ok(Err(backend::Error::NoService.into())) };
        let reproduce = reproduce(&self.plan_argument, &entry.trial);
        let spec = Spec {
            run: &self.run.id,
            plan: self.plan,
            ladder,
            trial: &entry.trial,
            attempt,
            service: started,
            keeping: self.registry.services[&entry.trial.service].books,
            roles: self.roles,
            reproduce: &reproduce,
        };
        let measured = match measure(&mut self.backend, &self.coordinator, &spec).await {
            Ok(measured) => measured,
            Err(error) => return Ok(Err(error.into())),
        };
        let (result, merged) = match judge(&measured) {
            Ok(judged) => judged,
            Err(error) => return Ok(Err(error.into())),
        };
        self.store.save_trial(&measured, &result, &merged)?;
        eprintln!("{}", print::line(&result));
        Ok(Ok(state_of(&result)))
    }

    fn finish(&mut self, index: usize, state: TrialState, running: &mut Running) -> Result<(), Error> {
        if let TrialState::Failed { reason } = &state {
            eprintln!("{}: failed: {reason}", self.run.trials[index].trial);
        }
        self.run.trials[index].state = state;
        running.begun = None;
        Ok(self.store.save_run(&self.run)?)
    }

    fn end(&mut self, stop: &Stop) -> Result<End, Error> {
        let open = self.run.trials.iter().any(|entry| step::is_open(&entry.state));
        if let (true, Some(signal)) = (open, stop.seen()) {
            return Ok(End::Stopped(signal));
        }
        self.run.state = RunState::Finished;
        self.run.finished_at = Some(clock::rfc3339(clock::unix_ns()));
        self.store.save_run(&self.run)?;
        Ok(End::Finished)
    }
}

fn state_of(result: &TrialResult) -> TrialState {
    let passed = result.verdict.as_ref().map(|verdict| verdict.passed);
    TrialState::Finished {
        validity: result.validity.clone(),
        passed: passed.filter(|_| result.validity == Validity::Valid),
    }
}

fn reproduce(plan: &str, trial: &bench_format::trial::TrialId) -> String {
    let bench_format::trial::TrialId { service, workload, variant, tier, .. } = trial;
    format!("ladder run {plan} --service {service} --only {workload}/{variant}/{tier}")
}

/// An error with its causes, on one line.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words = format!("{words}: {cause_words}");
        }
        source = cause.source();
    }
    words
}
