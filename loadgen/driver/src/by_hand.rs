//! A run by hand: a service that runs already, and a program as the worker processes that load it.
//!
//! It is driven as any other run: the same coordinator, the same sequence. Blocking, for programs that have no runtime.

use std::{
    fs::File,
    io::{self, Read},
    num::NonZero,
    time::Duration,
};

use bench_format::{
    service::{PublisherStats, ServiceStats},
    trial_file::BookKeeping,
};
use judge::delta::ServiceDelta;
use process_usage::KernelMemory;
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    time::{Instant, sleep},
};

use crate::{
    coordinator::{Coordinator, barrier::Barrier},
    measure::{self, Measured, measure},
    service_client::{self, ServiceClient},
    service_process::{Room, ServiceProcess},
    stage::{self, Ended, Shares, Stage, Usage},
    trial_plan::TrialPlan,
    workers::{WorkerProgram, Workers},
};

/// The run's id.
pub const RUN: &str = "by-hand";
/// Longest wait for workers to register.
const REGISTER_DEADLINE: Duration = Duration::from_secs(30);
/// Between two looks at workers that are to register.
const LOOK: Duration = Duration::from_millis(2);
/// Between two looks at a service that is to let go of its connections.
const REST_LOOK: Duration = Duration::from_millis(20);
/// How long a service that can't be asked gets to let go of them, and one that can to place what it received.
const REST: Duration = Duration::from_secs(1);

/// Why a run by hand, or a trial of it, came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no runtime, port or randomness to be had.
    #[error("failed to start the coordinator")]
    Coordinator(#[source] io::Error),
    /// A worker can't be started.
    #[error("failed to start a worker from this program's own file")]
    Worker(#[source] io::Error),
    /// Workers didn't come.
    #[error("the workers did not register within {seconds} s: {words}", seconds = REGISTER_DEADLINE.as_secs())]
    Register {
        /// What became of them.
        words: String,
    },
    /// The trial has no result.
    #[error(transparent)]
    Measure(#[from] measure::Error),
}

/// See the module.
#[derive(Debug)]
pub struct ByHand {
    // First, so that workers end before their coordinator.
    processes: Processes,
    client: ServiceClient,
    /// Connections that the service had before the first trial; absent where nobody can ask it.
    open_at_rest: Option<u64>,
    program: WorkerProgram,
    token: String,
    coordinator: Coordinator,
    runtime: Runtime,
}

impl ByHand {
    /// With a service's metrics port, and what is started as workers.
    ///
    /// # Errors
    /// When the machine has no room for a coordinator.
    pub fn new(client: ServiceClient, program: WorkerProgram) -> Result<Self, Error> {
        // One thread answers workers whatever the other waits for.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Error::Coordinator)?;
        let token = token().map_err(Error::Coordinator)?;
        let coordinator = runtime.block_on(serve(&token)).map_err(Error::Coordinator)?;
        let processes = Processes::default();
        Ok(Self { processes, client, open_at_rest: None, program, token, coordinator, runtime })
    }

    /// The same with a service whose process is read, too.
    pub fn beside(mut self, service: Option<ServiceProcess>) -> Self {
        self.processes.service = service;
        self
    }

    /// Looks whether the service's metrics port can be read, where there is one; returns what its books can answer.
    ///
    /// # Errors
    /// When it can't, or an instance that should publish doesn't.
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

    /// What the service has published by itself; nothing where it doesn't, or nobody can ask it.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn publisher(&mut self) -> Result<Option<PublisherStats>, service_client::Error> {
        let Self { client, runtime, .. } = self;
        runtime.block_on(client.publisher())
    }

    /// Waits until the service has let go of the last trial's connections, or patience is over. What can't be read shows in the
    /// next trial.
    pub fn rest(&mut self, patience: Duration) {
        let Self { client, open_at_rest, runtime, .. } = self;
        runtime.block_on(async {
            match *open_at_rest {
                Some(at_rest) => wait_while(client, patience, |now| now.connections.open > at_rest).await,
                None => sleep(REST).await,
            }
        });
    }

    /// Measures a trial. Workers of the one before are used again, if they are as many.
    ///
    /// # Errors
    /// When there is nothing to judge.
    pub fn trial(&mut self, plan: &TrialPlan) -> Result<Measured, Error> {
        let Self { processes, client, program, token, coordinator, runtime, .. } = self;
        runtime.block_on(async {
            if processes.workers.as_ref().is_none_or(|workers| workers.count() != plan.workers) {
                // First the old ones end: both together may be more than this user may have.
                processes.workers = None;
                coordinator.expect_new_workers();
                let workers =
                    Workers::start(program, plan.workers, &coordinator.url(), token).map_err(Error::Worker)?;
                processes.workers = Some(workers);
                registered(processes, coordinator, plan.workers).await?;
            }
            processes.room = processes.service.as_ref().and_then(ServiceProcess::room);
            if plan.keeping != BookKeeping::None {
                // A reading in the middle of a first connection's greeting would have it received and not yet consumed. One
                // that doesn't tell of all that it received is waited for in vain, and not for long.
                wait_while(client, REST, is_placing).await;
            }
            Ok(measure(processes, coordinator, client, plan).await?)
        })
    }
}

/// Whether the service has received something that it hasn't placed yet.
fn is_placing(now: &ServiceStats) -> bool {
    !ServiceDelta::between(&ServiceStats::default(), now).settled(0)
}

/// Waits while something is so of a service's counters, at most as long as patience lasts.
async fn wait_while(client: &ServiceClient, patience: Duration, is_so: impl Fn(&ServiceStats) -> bool) {
    let deadline = Instant::now() + patience;
    while let Ok(now) = client.stats().await
        && is_so(&now)
        && Instant::now() < deadline
    {
        sleep(REST_LOOK).await;
    }
}

/// Serves workers of this machine that show a token.
async fn serve(token: &str) -> io::Result<Coordinator> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    Ok(Coordinator::serve(listener, RUN, &url, Some(token)))
}

/// Nobody else on this machine may spoil a trial.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

async fn registered(processes: &mut Processes, coordinator: &Coordinator, count: u32) -> Result<(), Error> {
    let deadline = Instant::now() + REGISTER_DEADLINE;
    loop {
        let came = coordinator.ask(Barrier::registered);
        if came >= count {
            return Ok(());
        }
        if let Some(Ended { words, .. }) = processes.worker_ended() {
            return Err(Error::Register { words });
        }
        if Instant::now() >= deadline {
            return Err(Error::Register { words: format!("{came} of {count} did") });
        }
        sleep(LOOK).await;
    }
}

/// The processes around a trial: the workers are ours, the service is somebody else's.
#[derive(Debug, Default)]
struct Processes {
    workers: Option<Workers>,
    service: Option<ServiceProcess>,
    /// The CPUs that the service may use, as they were before the trial.
    room: Option<Room>,
}

impl Stage for Processes {
    async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
        Ok(self.service.as_ref().zip(self.room).and_then(|(service, room)| service.usage(room)))
    }

    /// Both ends of each connection are on this machine, or nobody knows what is the service's.
    fn kernel_bytes(&self) -> Option<u64> {
        self.service.as_ref()?;
        KernelMemory::read().map(KernelMemory::total_bytes)
    }

    /// Whether it lives shows in its connections.
    fn service_ended(&mut self) -> Option<Ended> {
        None
    }

    fn worker_ended(&mut self) -> Option<Ended> {
        self.workers.as_mut().and_then(Workers::ended)
    }

    async fn confirm(&mut self) -> Option<Ended> {
        self.worker_ended()
    }

    /// Workers share the CPUs that this process may use.
    fn shares(&self) -> Shares {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        Shares {
            worker_cpus: cpus as f64,
            shared_with_service: self.room.is_some_and(|room| room.shared),
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
        // Either of the two may be the first.
        let named = |words: &str| ["worker 0", "worker 1"].iter().any(|worker| words.starts_with(worker));
        assert!(
            matches!(&error, Error::Register { words } if named(words) && words.ends_with("ended (exit status: 1)")),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_no_worker() {
        let error = by_hand("/no/such/program").trial(&closed()).unwrap_err();
        assert!(matches!(error, Error::Worker(_)), "{error}");
    }
}
