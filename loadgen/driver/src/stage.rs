//! What a trial needs to know of the processes around it: what they used, how they ended, how CPUs were shared out.

use std::collections::BTreeMap;

use bench_format::pod::Pod;
use serde::{Deserialize, Serialize};

/// Why nobody can say what something used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else took away or changed what was started: nothing that was measured says anything about the service.
    #[error("{0}")]
    Interrupted(String),
    /// It can't be read.
    #[error(transparent)]
    Unread(Box<dyn std::error::Error + Send + Sync>),
}

/// What a service has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// All CPU periods so far; absent where no quota is in force.
    #[serde(default)]
    pub periods: Option<u64>,
}

/// How something that was started ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which, how, and its last words.
    pub words: String,
    /// Whose doing it was.
    pub cause: Cause,
}

/// Whose doing an end was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its own: that is a finding about the trial.
    Itself,
    /// Somebody else's, or nobody can tell: the trial is repeated.
    Outside,
}

/// How CPUs were shared out, as far as a trial is judged by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// CPUs that all workers have together.
    pub worker_cpus: f64,
    /// Whether the service runs on the same CPUs as the workers.
    pub shared_with_service: bool,
    /// Why the service doesn't have its CPU to itself; absent when it has.
    pub isolation: Option<String>,
    /// CPUs that service and inference have together, where they share some.
    pub shared_with_inference: Option<f64>,
}

/// The processes around a trial.
#[expect(async_fn_in_trait, reason = "a trial is generic over it and runs on one thread")]
pub trait Stage {
    /// What the service has used so far; absent where its process can't be read, because somebody else runs it.
    async fn service_usage(&self) -> Result<Option<Usage>, Error>;
    /// What the inference behind the service has used so far; absent where there is none or it can't be read.
    async fn inference_usage(&self) -> Result<Option<Usage>, Error> {
        Ok(None)
    }
    /// What each companion of the service has used so far, by name; none where it has none.
    async fn companions_usage(&self) -> Result<BTreeMap<String, Usage>, Error> {
        Ok(BTreeMap::new())
    }
    /// Memory that the kernel of this machine holds for sockets, in bytes; absent where nobody asks for it.
    fn kernel_bytes(&self) -> Option<u64> {
        None
    }
    /// How the service, or what stands behind it, ended; absent while all of it runs or when none was started.
    fn service_ended(&mut self) -> Option<Ended>;
    /// How a worker ended; absent while all run.
    fn worker_ended(&mut self) -> Option<Ended>;
    /// Looks once more, with certainty, whether all that was started still runs as it was started.
    async fn confirm(&mut self) -> Option<Ended>;
    /// How CPUs are shared out.
    fn shares(&self) -> Shares;
    /// Pods of the service, of what stands behind it, and of the workers that run; none on a single machine.
    fn pods(&self) -> Vec<Pod> {
        Vec::new()
    }
}
