//! A run by hand: a service that runs already, and a program as the worker processes that load it.
//!
//! It is driven as any other run: the same coordinator, the same sequence. Blocking, for programs that have no runtime.

use std::{
    fs::File,
    io::{self, Read},
    num::NonZero,
    time::Duration,
};

use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    time::{Instant, sleep},
};

use crate::{
    coordinator::{Coordinator, barrier::Barrier},
    measure::{self, Measured, measure},
    service_client::ServiceClient,
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
        Ok(Self { processes: Processes::default(), client, program, token, coordinator, runtime })
    }

    /// Measures a trial. Workers of the one before are used again, if they are as many.
    ///
    /// # Errors
    /// When there is nothing to judge.
    pub fn trial(&mut self, plan: &TrialPlan) -> Result<Measured, Error> {
        let Self { processes, client, program, token, coordinator, runtime } = self;
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
            Ok(measure(processes, coordinator, client, plan).await?)
        })
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
}

impl Stage for Processes {
    async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
        Ok(None)
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
        Shares { worker_cpus: cpus as f64, isolation: None, shared_with_inference: None }
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
