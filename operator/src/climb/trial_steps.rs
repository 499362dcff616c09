//! The steps towards a trial's result: start the service, start the workers, measure. A step succeeds, sets the trial's
//! state, or is interrupted, after which the trial is tried again.

use std::{collections::BTreeMap, env, io, iter, time::Duration};

use bench_format::{
    environment::Environment,
    run::{TrialEntry, TrialState},
    timeline::TimelineStep,
    trial::TrialId,
    websocket::WebsocketTask,
};
use driver::{
    coordinator::{Coordinator, Upload, barrier::Barrier},
    http::chain,
    measure::{self, measure},
    readings,
    service_client::ServiceClient,
    stage::{self, Cause},
    trial_plan::{NothingOpen, TrialPlan},
};
use tokio::time::{Instant, sleep};

use super::{
    Climb, ClimbState, Error, Unsaved,
    interruptions::{Place, Retry},
};
use crate::{
    backend::{self, Backend, InferenceSpec, READY_DEADLINE, ServiceSpec, WorkersSpec},
    fixed_work::EarlierWork,
    registry::{BookKeeping, ProtocolCheck},
    seed::seed,
    step::{self, ProcessKey, Step, TierKey},
    store, websocket,
};

/// Limit of consecutive failed starts of a service. Each further attempt would cost its whole deadline.
const MAX_STARTS: u32 = 2;
/// Longest wait for workers to open their connections and to compute the expected replies.
const OPENING_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval between two checks whether the workers have registered.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why a trial has no result. The climb continues with the next trial.
#[derive(Debug, thiserror::Error)]
enum TrialError {
    #[error(transparent)]
    Backend(#[from] backend::Error),
    #[error(transparent)]
    Measure(#[from] measure::Error),
    #[error("failed to merge the workers' results")]
    Merge(#[from] bench_format::histogram::Error),
    #[error("the workers did not register within {seconds} s: {description}")]
    Register { seconds: u64, description: String },
    #[error("not tried: {service} failed to start {MAX_STARTS} times in a row")]
    GivenUp { service: String },
}

impl TrialError {
    /// Whether the cause is external, such as an evicted pod, and therefore says nothing about the trial.
    fn is_interruption(&self) -> bool {
        matches!(
            self,
            Self::Backend(backend::Error::Interrupted(_))
                | Self::Measure(measure::Error::Interrupted(_))
                | Self::Measure(measure::Error::Read(readings::Error::Usage(stage::Error::Interrupted(_))))
        )
    }
}

/// Whether one of the causes is that this process, or the machine, can't open any more files.
fn is_out_of_descriptors(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = iter::successors(Some(error), |error| error.source());
    let mut codes = causes.filter_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error());
    codes.any(|code| code == libc::EMFILE || code == libc::ENFILE)
}

impl<B: Backend> Climb<'_, B> {
    /// Executes one step towards a trial's result. Returns the trial's state once it is known.
    pub(super) async fn take(
        &mut self,
        step: Step,
        index: usize,
        running: &mut ClimbState,
    ) -> Result<Option<TrialState>, Error> {
        let name = match step {
            Step::StartService => TimelineStep::StartService,
            Step::StartWorkers => TimelineStep::StartWorkers,
            _ => TimelineStep::Trial,
        };
        let began = self.announce(name, Some(index));
        let taken = match name {
            TimelineStep::StartService => self.start_service(index, running).await.map(|()| None),
            TimelineStep::StartWorkers => self.start_workers(index, running).await.map(|()| None),
            _ => self.measure(index, running, began).await?.map(Some),
        };
        if name != TimelineStep::Trial {
            self.note(name, Some(index), began);
        }
        taken.or_else(|error| {
            if is_out_of_descriptors(&error) {
                return Err(Error::NoDescriptors(chain(&error)));
            }
            running.tainted |= name != TimelineStep::StartService;
            if name == TimelineStep::Trial {
                self.note(TimelineStep::Interrupted, Some(index), began);
            }
            let place = if name == TimelineStep::Trial { Place::Trial } else { Place::Start };
            Ok(self.failed(error, index, place, running))
        })
    }

    /// The trial's state after an error; `None` if the trial is to be tried again.
    fn failed(&self, error: TrialError, index: usize, place: Place, running: &mut ClimbState) -> Option<TrialState> {
        if let TrialError::Measure(measure::Error::Crashed { cause, description }) = error {
            return Some(TrialState::Crashed { cause, reason: description });
        }
        let reason = chain(&error);
        if !error.is_interruption() {
            return Some(TrialState::Failed { reason });
        }
        match running.interruptions.add(place, self.retry_budget, Instant::now()) {
            Retry::GiveUp(end) => return Some(TrialState::Failed { reason: format!("{end}, the last: {reason}") }),
            Retry::After(pause) => running.pause = Some(pause),
        }
        if running.interruptions.is_news(&reason) {
            self.watcher.interrupted(&self.run.trials[index].trial, &reason);
        }
        running.begun = None;
        // Nothing would clear the flag of processes that don't run.
        running.tainted = running.service.is_some() || running.workers.is_some();
        None
    }

    async fn start_service(&mut self, index: usize, running: &mut ClimbState) -> Result<(), TrialError> {
        let trial = self.run.trials[index].trial.clone();
        let name = &trial.service;
        let failed = running.failed_starts.entry(name.to_string()).or_default();
        if *failed >= MAX_STARTS {
            return Err(TrialError::GivenUp { service: name.to_string() });
        }
        let service = self.registry.services[name].clone();
        let env = self.service_env(&trial);
        let log = self.store.trial_folder(&trial).join("service.log");
        let inference = self.inference_of(&trial);
        let replicas = self.plan.ladder_of(&trial).map_or(1, |ladder| ladder.replicas);
        let spec = ServiceSpec { name: name.to_string(), trial: trial.clone(), service, env, replicas, log, inference };
        let serving = self.backend.start_service(&spec).await.map_err(TrialError::from);
        if serving.as_ref().is_err_and(|error| !error.is_interruption()) {
            *failed += 1;
        }
        let serving = serving?;
        let has_books = spec.service.books != BookKeeping::None;
        running.client = Some(match serving.counters {
            Some(counters) => ServiceClient::of_counters(counters),
            None if has_books => ServiceClient::new(&serving.started.metrics_address),
            None => ServiceClient::none(),
        });
        running.service = Some((ProcessKey::of(&self.run.trials[index]), serving.started));
        running.warm = false;
        running.more_addresses = serving.more_addresses;
        running.failed_starts.remove(name.as_str());
        self.run.versions.extend(serving.versions);
        if let Some(usage) = serving.usage
            && self.run.usage.get(name.as_str()) != Some(&usage)
        {
            self.watcher.usage(name, &usage);
            self.run.usage.insert(name.to_string(), usage);
        }
        self.note_placement();
        Ok(())
    }

    /// Environment variables of a trial's service: the registry's, overridden by the ladder's. It inherits others.
    fn service_env(&self, trial: &TrialId) -> BTreeMap<String, String> {
        let mut env = self.registry.services[&trial.service].env.clone();
        if let Some(ladder) = self.plan.ladder_of(trial) {
            env.extend(ladder.service_env.clone());
        }
        env
    }

    /// The variables of the service's environment that are passed to workers. They are empty for a service that ladder
    /// did not start, since its environment is unknown; workers then use what they inherit.
    fn settings(&self, trial: &TrialId) -> BTreeMap<String, String> {
        if self.run.outside.is_some() {
            return BTreeMap::new();
        }
        let worker_env = &self.registry.protocol_of(&self.registry.services[&trial.service]).worker_env;
        self.service_env(trial).into_iter().filter(|(name, _)| worker_env.contains(name)).collect()
    }

    /// What an assignment says about a service that only the plan describes; `None` for any other service.
    fn task(&self, service: &str, address: &str, more_addresses: &[String]) -> Option<Box<WebsocketTask>> {
        // The check of the plan has found the variables.
        let section = websocket::filled(self.plan.wire.websocket.as_ref()?, |name| env::var(name).ok()).ok()?;
        let task = websocket::task(&section, (service, address), self.printed_rows.as_ref())?;
        Some(Box::new(websocket::with_more_addresses(task, more_addresses)))
    }

    /// The inference service behind a trial's service. Its seed is the same for every service.
    fn inference_of(&self, trial: &TrialId) -> Option<InferenceSpec> {
        let (name, inference) = self.registry.inference_of(&self.registry.services[&trial.service])?;
        let mut env = inference.env.clone();
        env.insert("MODEL_SEED".into(), seed(self.plan.wire.seed, trial).to_string());
        if let Some(ladder) = self.plan.ladder_of(trial) {
            env.extend(ladder.inference_env.clone());
        }
        let log = self.store.trial_folder(trial).join("inference.log");
        Some(InferenceSpec { name: name.into(), inference: inference.clone(), env, log })
    }

    async fn start_workers(&mut self, index: usize, running: &mut ClimbState) -> Result<(), TrialError> {
        let program = self.worker_program(index).to_owned();
        let trial = self.run.trials[index].trial.clone();
        let tier = TierKey::of(&self.run.trials[index], &program);
        let logs = self.store.trial_folder(&trial).join("workers");
        let count = self.plan.workers_of(&trial);
        self.coordinator.expect_new_workers(count);
        // Set before the start, so that a failed start also stops the workers that already run.
        running.workers = Some(tier);
        let spec = WorkersSpec {
            program: program.clone(),
            trial,
            count,
            coordinator: self.coordinator.url(),
            token: self.coordinator.token().clone(),
            logs,
        };
        self.backend.start_workers(&spec).await?;
        registered(&mut self.backend, self.coordinator, count).await?;
        for version in self.coordinator.inspect(Barrier::programs) {
            self.run.versions.insert(program.clone(), version);
        }
        self.note_placement();
        Ok(())
    }

    /// Measures, judges and stores one trial.
    async fn measure(
        &mut self,
        index: usize,
        running: &mut ClimbState,
        began_unix_ns: u64,
    ) -> Result<Result<TrialState, TrialError>, Error> {
        let entry = &self.run.trials[index];
        let plan = self.trial_plan(entry, running);
        let (Some(plan), Some(client)) = (plan, &mut running.client) else {
            return Ok(Err(backend::Error::NoService.into()));
        };
        let mut measured = match measure(&mut self.backend, self.coordinator, client, &plan).await {
            Ok(measured) => measured,
            Err(error) => return Ok(Err(error.into())),
        };
        running.warm = true;
        self.note(TimelineStep::Trial, Some(index), began_unix_ns);
        if let Some(work) = measured.trial.machine.as_mut().and_then(|machine| machine.fixed_work.as_mut()) {
            let earlier = || EarlierWork::of(self.store.folder(), &self.run);
            let earlier = running.earlier_work.get_or_insert_with(earlier);
            earlier.set_medians(work);
            earlier.add(work);
        }
        let nodes = self.backend.placement().nodes;
        self.add_machines(machines_of(&measured.uploads, &measured.trial.pods), &nodes);
        let judged = match measured.judge() {
            Ok(judged) => judged,
            Err(error) => return Ok(Err(error.into())),
        };
        // Kept in memory until it is written, so that a full disk doesn't lose the measurement.
        self.unsaved = Some(Box::new(Unsaved { index, measured, judged }));
        let state = self.unsaved.as_ref().map(|unsaved| store::state_of(&unsaved.judged.result));
        self.save_unsaved()?;
        Ok(state.ok_or_else(|| backend::Error::NoService.into()))
    }

    /// What to measure on the started service; `None` if the trial was not begun or is in no ladder.
    fn trial_plan(&self, entry: &TrialEntry, running: &ClimbState) -> Option<TrialPlan> {
        let (_, started) = running.service.as_ref()?;
        let TrialState::Started { attempt } = entry.state else { return None };
        let ladder = self.plan.ladder_of(&entry.trial)?.for_trial(entry);
        let service_name = entry.trial.service.as_str();
        let service = &self.registry.services[service_name];
        // Short trials of a search share a process, which the first one warms up for the others.
        let warmup = match step::keeps_connections(entry) && running.warm {
            true => ladder.warmup,
            false => ladder.warmup_of(&entry.trial.service),
        };
        Some(TrialPlan {
            run: self.run.id.to_string(),
            trial: entry.trial.clone(),
            attempt,
            address: started.address.clone(),
            keeping: service.books,
            counters: service.reported_counters(),
            connections: ladder.connections_at(entry.trial.tier),
            workers: self.plan.workers_of(&entry.trial),
            worker_cpus: self.plan.cpu.worker.cpus,
            load: ladder.load,
            message: ladder.message,
            seed: seed(self.plan.wire.seed, &entry.trial),
            warmup,
            window: ladder.window,
            drain: self.plan.drain,
            opening: OPENING_TIMEOUT,
            nothing_open: NothingOpen::Abort,
            read_when_open: false,
            close_grace: self.plan.drain,
            objectives: ladder.objectives,
            thresholds: self.plan.validity.clone(),
            settings: self.settings(&entry.trial),
            websocket: self.task(service_name, &started.address, &running.more_addresses),
            keep_connections: step::keeps_connections(entry),
            samples: ladder.samples,
            protocol_check: service.protocol_check == ProtocolCheck::AroundTheLoad,
            reproduce: match self.run.comparison {
                // A single trial of a comparison says nothing without the others.
                Some(_) => self.reproduce_command.clone(),
                None => reproduce(&self.reproduce_command, entry),
            },
        })
    }

    fn note_placement(&mut self) {
        let placement = self.backend.placement();
        self.run.cpu_roles.extend(placement.cpu_roles);
        self.add_machines(placement.machines, &placement.nodes);
    }
}

/// Waits until all workers have registered, one of them ends, or the deadline passes.
async fn registered<B: Backend>(backend: &mut B, coordinator: &Coordinator, count: u32) -> Result<(), TrialError> {
    let deadline = Instant::now() + READY_DEADLINE;
    let register = |description| TrialError::Register { seconds: READY_DEADLINE.as_secs(), description };
    while coordinator.inspect(Barrier::registered) < count {
        match backend.worker_ended() {
            Some(ended) if ended.cause == Cause::Outside => {
                return Err(backend::Error::Interrupted(ended.description).into());
            }
            Some(ended) => return Err(register(ended.description)),
            None if Instant::now() >= deadline && backend.has_remote_workers() => {
                let registered = coordinator.inspect(Barrier::registered);
                return Err(backend::Error::Interrupted(format!(
                    "{registered} of {count} workers registered within {} s, though all run: their network may be cut",
                    READY_DEADLINE.as_secs()
                ))
                .into());
            }
            None if Instant::now() >= deadline => {
                return Err(register(format!("{} of {count} did", coordinator.inspect(Barrier::registered))));
            }
            None => sleep(POLL_INTERVAL).await,
        }
    }
    Ok(())
}

/// The machines on which workers ran. Where workers are pods, a machine's name is its node's.
fn machines_of(uploads: &[Upload], pods: &[bench_format::pod::Pod]) -> Vec<Environment> {
    let machine = |upload: &Upload| {
        let environment = upload.result.environment.clone();
        let pod = pods.iter().find(|pod| pod.worker == Some(upload.result.worker));
        let host = pod.map_or(environment.host.clone(), |pod| pod.node.clone());
        Environment { host, ..environment }
    };
    uploads.iter().map(machine).collect()
}

/// The command that reproduces a trial. For a search it repeats the whole search, since a search decides which loads it
/// measures.
fn reproduce(reproduce_command: &str, entry: &TrialEntry) -> String {
    let TrialId { service, workload, variant, tier, .. } = &entry.trial;
    match entry.search {
        Some(_) => format!("{reproduce_command} --service {service} --only {workload}/{variant}"),
        None => format!("{reproduce_command} --service {service} --only {workload}/{variant}/{tier}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_descriptors_is_no_fault_of_the_service() {
        let spawn = |code| {
            let source = io::Error::from_raw_os_error(code);
            TrialError::from(backend::Error::Spawn { program: "service".into(), source })
        };
        assert!(is_out_of_descriptors(&spawn(libc::EMFILE)) && is_out_of_descriptors(&spawn(libc::ENFILE)));
        assert!(!is_out_of_descriptors(&spawn(libc::ENOENT)));
        assert!(!is_out_of_descriptors(&TrialError::GivenUp { service: "service".into() }));
    }
}
