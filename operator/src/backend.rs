//! What starts services and workers and reads their clocks. The climb knows only this trait.
//!
//! [`local`] runs processes on this machine. A backend in a crate of its own can run them elsewhere: everything that
//! crosses here is plain data, and workers find the coordinator by its address.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use bench_format::service::Started;

pub mod local;

/// Longest wait for a service's ready line and its ready path.
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
        /// The service.
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
}

/// A service to start.
#[derive(Clone, Debug)]
pub struct ServiceSpec {
    /// Its name in the registry.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The registry's environment and the ladder's, merged.
    pub env: BTreeMap<String, String>,
    /// Where its standard error goes.
    pub log: PathBuf,
}

/// Workers to start.
#[derive(Clone, Debug)]
pub struct WorkersSpec {
    /// The program's name.
    pub program: String,
    /// How many.
    pub count: u32,
    /// The coordinator, `http://host:port`.
    pub coordinator: String,
    /// The folder into which each writes `<index>.log`.
    pub logs: PathBuf,
}

/// What a service has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Its process id.
    pub pid: u32,
    /// CPU since its start, all threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// CPUs that it may use.
    pub cpu_limit: f64,
    /// Throttled CPU periods so far; absent where no quota is in force.
    pub throttled_periods: Option<u64>,
}

/// Starts and stops what a trial needs. One service and one set of workers at a time.
#[expect(async_fn_in_trait, reason = "the climb is generic over it and runs on one thread")]
pub trait Backend {
    /// Starts a service and returns when it accepts connections.
    async fn start_service(&mut self, spec: &ServiceSpec) -> Result<Started, Error>;
    /// Stops the service, if one runs, and returns when it is gone.
    async fn stop_service(&mut self);
    /// Starts workers; they come to the coordinator by themselves.
    async fn start_workers(&mut self, spec: &WorkersSpec) -> Result<(), Error>;
    /// Stops the workers, if any run, and returns when they are gone.
    async fn stop_workers(&mut self);
    /// What the service has used so far.
    async fn service_usage(&self) -> Result<Usage, Error>;
    /// How the service ended, with its last words; absent while it runs or when none was started.
    fn service_ended(&mut self) -> Option<String>;
    /// How a worker ended, with its last words; absent while all run.
    fn worker_ended(&mut self) -> Option<String>;
}
