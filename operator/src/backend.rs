//! What starts services and workers and reads their clocks. The climb knows only this trait.
//!
//! [`local`] runs processes on this machine. A backend in a crate of its own can run them elsewhere: everything that
//! crosses here is plain data, and workers find the coordinator by its address.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use bench_format::{environment::Environment, service::Started, trial::TrialId};
use driver::stage::{self, Stage};

use crate::{
    evidence,
    registry::{Inference, Service},
};

pub mod local;
pub mod outside;

/// Longest wait for a service's ready line and its ready path, and for workers that run to register.
pub const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Why something could not be started, stopped or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program can't be run.
    #[error("failed to run {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It ran but never said that it is ready.
    #[error("{name} did not become ready: {reason}{log}")]
    NotReady {
        /// The service or the workers.
        name: String,
        /// What happened instead.
        reason: String,
        /// The last lines of its standard error, on lines of their own.
        log: String,
    },
    /// The worker program isn't there.
    #[error("no program \"{0}\" beside ladder or on PATH; build it: cargo build --release -p {0}")]
    NoWorker(String),
    /// A CPU share can't be given.
    #[error("failed to give {role} {cpus} CPUs: {reason}")]
    Cpu {
        /// The role.
        role: String,
        /// CPUs.
        cpus: f64,
        /// Why.
        reason: String,
    },
    /// The process can't be read any more.
    #[error("failed to read {what} of process {pid}: is it gone?")]
    Usage {
        /// What was to be read.
        what: &'static str,
        /// The process.
        pid: u32,
        /// Why.
        source: std::io::Error,
    },
    /// Asked about a service that isn't running.
    #[error("no service is running")]
    NoService,
    /// A version is not known.
    #[error(transparent)]
    Evidence(#[from] evidence::Error),
    /// What runs things elsewhere refused or didn't answer.
    #[error("failed to {what}: {reason}")]
    Elsewhere {
        /// What was tried.
        what: String,
        /// What it said.
        reason: String,
    },
    /// Somebody else took away or changed what was started: nothing that was measured says anything about the service.
    #[error("{0}")]
    Interrupted(String),
}

/// A service to start.
#[derive(Clone, Debug)]
pub struct ServiceSpec {
    /// Its name in the registry.
    pub name: String,
    /// The first trial that it serves.
    pub trial: TrialId,
    /// Its entry in the registry.
    pub service: Service,
    /// The registry's environment and the ladder's, merged.
    pub env: BTreeMap<String, String>,
    /// How many processes of it, behind one ready line.
    pub replicas: u32,
    /// Where its standard error goes.
    pub log: PathBuf,
    /// What stands behind it; absent where nothing does.
    pub inference: Option<InferenceSpec>,
}

/// An inference simulator to start before its service. It lives as long as that: a fresh service finds a fresh one, whose
/// random choices begin anew.
#[derive(Clone, Debug)]
pub struct InferenceSpec {
    /// Its name in the registry.
    pub name: String,
    /// Its entry in the registry.
    pub inference: Inference,
    /// The registry's environment, the run's seed and the ladder's, merged.
    pub env: BTreeMap<String, String>,
    /// Where its standard error goes.
    pub log: PathBuf,
}

/// A service that was started.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Where it listens.
    pub started: Started,
    /// Versions of what runs, by program.
    pub versions: BTreeMap<String, String>,
}

/// Workers to start.
#[derive(Clone, Debug)]
pub struct WorkersSpec {
    /// The program's name.
    pub program: String,
    /// The first trial that they load.
    pub trial: TrialId,
    /// How many.
    pub count: u32,
    /// The coordinator, `http://host:port`.
    pub coordinator: String,
    /// The folder into which each writes `<index>.log`.
    pub logs: PathBuf,
}

/// A trial asks what was used; that somebody else took it away is told apart from all else.
impl From<Error> for stage::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Interrupted(words) => Self::Interrupted(words),
            other => Self::Unread(Box::new(other)),
        }
    }
}

/// What is known by now of where things ran.
#[derive(Clone, Debug, Default)]
pub struct Whereabouts {
    /// Machines.
    pub machines: Vec<Environment>,
    /// Which CPUs each role has.
    pub cpu_roles: BTreeMap<String, String>,
}

/// Starts and stops what a trial needs. One service and one set of workers at a time.
#[expect(async_fn_in_trait, reason = "the climb is generic over it and runs on one thread")]
pub trait Backend: Stage {
    /// Starts a service and returns when it accepts connections.
    async fn start_service(&mut self, spec: &ServiceSpec) -> Result<Serving, Error>;
    /// Stops the service, if one runs. What runs it may take a moment longer to go; the next start waits for that.
    async fn stop_service(&mut self);
    /// Starts workers; they come to the coordinator by themselves.
    async fn start_workers(&mut self, spec: &WorkersSpec) -> Result<(), Error>;
    /// Stops the workers, if any run; as for the service.
    async fn stop_workers(&mut self);
    /// Leaves everything that was changed as it was found. Called at the end of a climb, however it ended.
    async fn put_back(&mut self) -> Result<(), Error>;
    /// Where things run.
    fn whereabouts(&self) -> Whereabouts;
}
