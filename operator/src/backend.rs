//! The interface through which services and workers are started and their resource use is read. The climb knows only
//! this trait.
//!
//! [`local`] runs processes on this machine; a backend in another crate can run them elsewhere. Everything that crosses
//! the trait is plain data, and workers find the coordinator by its address.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use bench_format::{
    environment::{Environment, NodeFacts},
    service::Started,
    trial::TrialId,
};
use driver::{
    coordinator::Token,
    counters::MappedCounters,
    stage::{self, Stage},
};

use crate::{
    evidence,
    registry::{Inference, Service},
};

pub mod local;
pub mod outside;

/// Longest wait for the ready line and the ready path of a service with a whole CPU, and for running workers to register.
pub const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Longest wait for a service that has this number of CPUs: a start is CPU time, of which a share of a CPU gives less.
pub fn ready_deadline(cpus: f64) -> Duration {
    READY_DEADLINE.div_f64(cpus.clamp(0.01, 1.0))
}

/// Why a service or workers could not be started, stopped or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program can't be executed.
    #[error("failed to run {program}")]
    Spawn {
        /// The program, or its path.
        program: String,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The process was started but did not become ready.
    #[error("{name} did not become ready: {reason}{log}")]
    NotReady {
        /// Name of the service, or of the workers.
        name: String,
        /// What happened instead, such as the end of the process.
        reason: String,
        /// The last lines of its standard error, each on its own line; empty if there are none.
        log: String,
    },
    /// The worker program is neither beside `ladder` nor on `PATH`.
    #[error("no program \"{0}\" beside ladder or on PATH; build it: cargo build --release -p {0}")]
    NoWorker(String),
    /// A CPU share can't be set.
    #[error("failed to give {role} {cpus} CPUs: {reason}")]
    Cpu {
        /// The role that the share is for.
        role: String,
        /// The share, in CPUs.
        cpus: f64,
        /// Why it can't be set.
        reason: String,
    },
    /// The resource use of a process can't be read, usually because it is gone.
    #[error("failed to read {what} of process {pid}: has it ended?")]
    Usage {
        /// What was read: CPU time or memory.
        what: &'static str,
        /// Id of the process that was read.
        pid: u32,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// An operation needs a running service, and none is running.
    #[error("no service is running")]
    NoService,
    /// The version of a program is unknown.
    #[error(transparent)]
    Evidence(#[from] evidence::Error),
    /// A remote system, such as the Kubernetes API, refused a request or didn't respond.
    #[error("failed to {what}: {reason}")]
    Remote {
        /// The operation that failed.
        what: String,
        /// The reason, as the remote system reported it.
        reason: String,
    },
    /// Another party removed or changed a process or pod that was started, so the measurement says nothing about the
    /// service.
    #[error("{0}")]
    Interrupted(String),
}

/// A service to start.
#[derive(Clone, Debug)]
pub struct ServiceSpec {
    /// Name of the service in the registry.
    pub name: String,
    /// The first trial that the service serves.
    pub trial: TrialId,
    /// The service's entry in the registry.
    pub service: Service,
    /// Environment variables: those of the registry merged with those of the ladder.
    pub env: BTreeMap<String, String>,
    /// Number of processes of the service, behind one ready line.
    pub replicas: u32,
    /// The file that gets the service's standard error.
    pub log: PathBuf,
    /// The inference service to start with it; absent where the service needs none.
    pub inference: Option<InferenceSpec>,
}

/// An inference simulator to start before its service. It lives as long as the service, so that a fresh service gets a
/// fresh simulator whose random sequence starts from the beginning.
#[derive(Clone, Debug)]
pub struct InferenceSpec {
    /// Name of the inference service in the registry.
    pub name: String,
    /// The entry in the registry.
    pub inference: Inference,
    /// Environment variables: those of the registry and the ladder, and the run's seed.
    pub env: BTreeMap<String, String>,
    /// The file that gets the standard error.
    pub log: PathBuf,
}

/// A service that was started.
#[derive(Clone, Debug)]
pub struct StartedService {
    /// The addresses and the process id of the ready line.
    pub started: Started,
    /// Versions of the programs that run, by program.
    pub versions: BTreeMap<String, String>,
    /// Further addresses of the same URL, `host:port`, which connections take in turn with the ready line's; empty where
    /// there is one.
    pub more_addresses: Vec<String>,
    /// The service's own counters, if its plan maps them.
    pub counters: Option<MappedCounters>,
    /// Whose CPU time and memory are read, as a sentence; absent for the processes that were started.
    pub usage: Option<String>,
}

/// A set of workers to start.
#[derive(Clone, Debug)]
pub struct WorkersSpec {
    /// Name of the worker program.
    pub program: String,
    /// The first trial that the workers load.
    pub trial: TrialId,
    /// Number of workers to start.
    pub count: u32,
    /// Address of the coordinator, `http://host:port`.
    pub coordinator: String,
    /// The token that workers present to the coordinator.
    pub token: Token,
    /// The folder into which each worker's standard error is written, as `<index>.log`.
    pub logs: PathBuf,
}

/// Keeps an interruption distinguishable from other errors when a trial reads resource use.
impl From<Error> for stage::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Interrupted(description) => Self::Interrupted(description),
            other => Self::Unread(Box::new(other)),
        }
    }
}

/// Where services and workers run, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The machines on which services and workers run.
    pub machines: Vec<Environment>,
    /// The CPUs of each role, as text.
    pub cpu_roles: BTreeMap<String, String>,
    /// What a cluster says of its nodes, by name.
    pub nodes: BTreeMap<String, NodeFacts>,
}

/// Starts and stops what a trial needs: one service and one set of workers at a time.
#[expect(async_fn_in_trait, reason = "the climb is generic over it and runs on one thread")]
pub trait Backend: Stage {
    /// Starts a service and returns when it accepts connections.
    async fn start_service(&mut self, spec: &ServiceSpec) -> Result<StartedService, Error>;
    /// Stops the service, if one runs. Its pod may take a moment longer to go; the next start waits for that.
    async fn stop_service(&mut self);
    /// Starts workers. They register with the coordinator by themselves.
    async fn start_workers(&mut self, spec: &WorkersSpec) -> Result<(), Error>;
    /// Stops the workers, if any run, in the same way as the service.
    async fn stop_workers(&mut self);
    /// Restores everything that the climb changed. Called once, at the end of a climb, however it ended.
    async fn put_back(&mut self) -> Result<(), Error>;
    /// The machines and CPUs that services and workers use.
    fn placement(&self) -> Placement;
}
