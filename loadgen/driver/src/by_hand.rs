//! Runs trials by hand: against a service that runs already, with a program as the worker processes that load it.
//!
//! Coordinator and sequence are those of any other run. All functions block, for programs that have no runtime.

use std::{io, num::NonZero, time::Duration};

use bench_format::{
    service::{PublisherStats, ServiceStats},
    trial_file::BookKeeping,
};
use judge::delta::ServiceDelta;
use process_usage::KernelMemory;
use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, sleep},
};

use crate::{
    coordinator::{Coordinator, barrier::Barrier},
    measure::{self, Measured, measure},
    service_client::{self, ServiceClient},
    service_process::{AllowedCpus, ServiceProcess},
    stage::{self, Details, Ended, Shares, Stage, Usage},
    trial_plan::TrialPlan,
    workers::{WorkerProgram, Workers},
};

/// Id of every run by hand.
pub const RUN: &str = "by-hand";
/// Longest wait for workers to register.
const REGISTER_DEADLINE: Duration = Duration::from_secs(30);
/// Interval at which registrations are checked.
const REGISTER_POLL: Duration = Duration::from_millis(2);
/// Interval at which the service is checked for connections that it still has.
const REST_POLL: Duration = Duration::from_millis(20);
/// Time for a service without counters to release its connections, and for one with counters to process what it
/// received.
const REST: Duration = Duration::from_secs(1);

/// Why a run by hand, or a trial of it, failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runtime, the port or the random token is not available.
    #[error("failed to start the coordinator")]
    Coordinator(#[source] io::Error),
    /// A worker process can't be started.
    #[error("failed to start a worker from this program's own file")]
    Worker(#[source] io::Error),
    /// A worker ended before it registered, or not all workers registered before the deadline.
    #[error("the workers did not register within {seconds} s: {description}", seconds = REGISTER_DEADLINE.as_secs())]
    Register {
        /// How a worker ended, or how many workers registered.
        description: String,
    },
    /// The trial has no result.
    #[error(transparent)]
    Measure(#[from] measure::Error),
}

/// A run by hand: the service, its workers and their coordinator. The workers are kept from trial to trial.
#[derive(Debug)]
pub struct ByHand {
    // This field is first, so that workers end before their coordinator.
    processes: Processes,
    client: ServiceClient,
    /// Connections that the service had before the first trial; absent if it has no counters.
    open_at_rest: Option<u64>,
    program: WorkerProgram,
    coordinator: Coordinator,
    runtime: Runtime,
}

impl ByHand {
    /// Creates a run from the client of a service's metrics port and the worker program.
    ///
    /// # Errors
    /// [`Error::Coordinator`] if the runtime, the port or the token is not available.
    pub fn new(client: ServiceClient, program: WorkerProgram) -> Result<Self, Error> {
        // One thread serves the workers while the calling thread waits.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Error::Coordinator)?;
        let coordinator = runtime.block_on(Coordinator::start(RUN)).map_err(Error::Coordinator)?;
        let processes = Processes::default();
        Ok(Self { processes, client, open_at_rest: None, program, coordinator, runtime })
    }

    /// Adds the service's process, whose CPU and memory are then read, too.
    pub fn with_service_process(mut self, service: Option<ServiceProcess>) -> Self {
        self.processes.service = service;
        self
    }

    /// Checks that the service's metrics port can be read, if there is one; returns how detailed its books are.
    ///
    /// # Errors
    /// [`service_client::Error`] if the port can't be read, or if an instance that should publish doesn't.
    pub fn check(&mut self) -> Result<BookKeeping, service_client::Error> {
        let Self { client, open_at_rest, runtime, .. } = self;
        runtime.block_on(async {
            client.check().await?;
            let keeping = client.keeping().await;
            if keeping != BookKeeping::None {
                *open_at_rest = Some(client.stats().await?.connections.open);
            }
            Ok(keeping)
        })
    }

    /// The service's publisher counters; `None` if it doesn't publish or has no metrics port.
    ///
    /// # Errors
    /// [`service_client::Error`] if the counters can't be read.
    pub fn publisher(&mut self) -> Result<Option<PublisherStats>, service_client::Error> {
        let Self { client, runtime, .. } = self;
        runtime.block_on(client.publisher())
    }

    /// Waits until the service has released the last trial's connections, for at most `patience`. A service that can't
    /// be read is noticed in the next trial.
    pub fn wait_until_idle(&mut self, patience: Duration) {
        let Self { client, open_at_rest, runtime, .. } = self;
        runtime.block_on(async {
            match *open_at_rest {
                Some(at_rest) => wait_while(client, patience, |now| now.connections.open > at_rest).await,
                None => sleep(REST).await,
            }
        });
    }

    /// Measures a trial. The workers of the previous trial are used again if their number is the same.
    ///
    /// # Errors
    /// [`Error`] if there is nothing to judge.
    pub fn trial(&mut self, plan: &TrialPlan) -> Result<Measured, Error> {
        let Self { processes, client, program, coordinator, runtime, .. } = self;
        runtime.block_on(async {
            if processes.workers.as_ref().is_none_or(|workers| workers.count() != plan.workers) {
                // The old workers end first, because both together may exceed the user's limits.
                processes.workers = None;
                coordinator.expect_new_workers(plan.workers);
                let workers = Workers::start(program, plan.workers, coordinator).map_err(Error::Worker)?;
                processes.workers = Some(workers);
                registered(processes, coordinator, plan.workers).await?;
            }
            processes.allowed_cpus = processes.service.as_ref().and_then(ServiceProcess::allowed_cpus);
            if plan.keeping != BookKeeping::None {
                // A reading during the handshake of a first connection would show a message as received and not yet
                // consumed. A service that never accounts for all that it received makes this wait time out after a
                // second.
                wait_while(client, REST, is_processing).await;
            }
            Ok(measure(processes, coordinator, client, plan).await?)
        })
    }
}

/// Whether the service has received messages that have no outcome yet.
fn is_processing(now: &ServiceStats) -> bool {
    !ServiceDelta::between(&ServiceStats::default(), now).settled(0)
}

/// Waits while `condition` holds for the service's counters, for at most `patience`.
async fn wait_while(client: &ServiceClient, patience: Duration, condition: impl Fn(&ServiceStats) -> bool) {
    let deadline = Instant::now() + patience;
    while let Ok(now) = client.stats().await
        && condition(&now)
        && Instant::now() < deadline
    {
        sleep(REST_POLL).await;
    }
}

async fn registered(processes: &mut Processes, coordinator: &Coordinator, count: u32) -> Result<(), Error> {
    let deadline = Instant::now() + REGISTER_DEADLINE;
    loop {
        let registered_count = coordinator.inspect(Barrier::registered);
        if registered_count >= count {
            return Ok(());
        }
        if let Some(Ended { description, .. }) = processes.worker_ended() {
            return Err(Error::Register { description });
        }
        if Instant::now() >= deadline {
            return Err(Error::Register { description: format!("{registered_count} of {count} registered") });
        }
        sleep(REGISTER_POLL).await;
    }
}

/// The processes around a trial: the workers belong to this run, the service doesn't.
#[derive(Debug, Default)]
struct Processes {
    workers: Option<Workers>,
    service: Option<ServiceProcess>,
    /// The CPUs that the service may use, read before the trial.
    allowed_cpus: Option<AllowedCpus>,
}

impl Stage for Processes {
    async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
        Ok(self.service.as_ref().zip(self.allowed_cpus).and_then(|(service, allowed_cpus)| service.usage(allowed_cpus)))
    }

    async fn details(&self) -> Details {
        Details { service: self.service.as_ref().and_then(ServiceProcess::threads), ..Details::default() }
    }

    /// Read only if the service runs on this machine: otherwise the service's share of the memory isn't known.
    fn kernel_bytes(&self) -> Option<u64> {
        self.service.as_ref()?;
        KernelMemory::read().map(KernelMemory::total_bytes)
    }

    /// Always `None`: a service that ends is noticed by its connections.
    fn service_ended(&mut self) -> Option<Ended> {
        None
    }

    fn worker_ended(&mut self) -> Option<Ended> {
        self.workers.as_mut().and_then(Workers::ended)
    }

    async fn confirm(&mut self) -> Option<Ended> {
        self.worker_ended()
    }

    /// The workers share the CPUs of this process.
    fn shares(&self) -> Shares {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        Shares {
            worker_cpus: cpus as f64,
            shared_with_service: self.allowed_cpus.is_some_and(|allowed_cpus| allowed_cpus.shared),
            isolation: None,
            shared_with_inference: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use bench_format::plan::Load;

    use super::*;
    use crate::{coordinator::upload::fixture, trial_plan::fixture::plan};

    fn by_hand(program: &str) -> ByHand {
        let program = WorkerProgram { program: program.into(), arguments: Vec::new(), env: Vec::new() };
        ByHand::new(ServiceClient::none(), program).unwrap()
    }

    fn closed() -> TrialPlan {
        plan(fixture::trial(), Load::Closed { messages_per_connection: None, in_flight: 1 })
    }

    #[test]
    fn a_worker_that_ends_before_it_registers_is_named() {
        let error = by_hand("/bin/false").trial(&closed()).unwrap_err();
        // Either worker may be the first to end.
        let named = |description: &str| ["worker 0", "worker 1"].iter().any(|worker| description.starts_with(worker));
        assert!(
            matches!(&error, Error::Register { description } if named(description) && description.ends_with("ended (exit status: 1)")),
            "{error}"
        );
    }

    #[test]
    fn a_missing_worker_program_is_an_error() {
        let error = by_hand("/no/such/program").trial(&closed()).unwrap_err();
        assert!(matches!(error, Error::Worker(_)), "{error}");
    }
}
