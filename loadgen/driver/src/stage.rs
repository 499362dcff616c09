//! The processes around a trial: what they used, how they ended, and how CPUs are divided among them.

use std::{collections::BTreeMap, time::Duration};

use bench_format::{
    pod::Pod,
    result::{InferenceCounts, ThreadReading},
    run::CrashCause,
    trial::ClockOffset,
};
use serde::{Deserialize, Serialize};

use crate::{fixed_work::Timing, nodes::MachineSnapshot};

/// Why the usage of a process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another program stopped or changed a process, so the measurement says nothing about the service. Contains a
    /// message.
    #[error("{0}")]
    Interrupted(String),
    /// The usage can't be read.
    #[error(transparent)]
    Unread(Box<dyn std::error::Error + Send + Sync>),
}

/// CPU and memory of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Process id; a change means a restart. 0 if the usage is that of whole pods.
    pub pid: u32,
    /// CPU time since the start of the process, over all threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Number of CPUs that the process may use.
    pub cpu_limit: f64,
    /// CPU periods so far in which the process was throttled; absent without a CPU quota.
    pub throttled_periods: Option<u64>,
    /// All CPU periods so far; absent without a CPU quota.
    #[serde(default)]
    pub periods: Option<u64>,
    /// Time in which the process was throttled so far, summed over its CPUs, in nanoseconds; absent without a CPU quota.
    #[serde(default)]
    pub throttled_ns: Option<u64>,
}

impl Usage {
    /// What all replicas of a service use together, under the process id of the first; `None` for none.
    pub fn sum(replicas: impl IntoIterator<Item = Self>) -> Option<Self> {
        let both = |first: Option<u64>, second: Option<u64>| first.zip(second).map(|(first, second)| first + second);
        replicas.into_iter().reduce(|all, one| Self {
            pid: all.pid,
            cpu_ns: all.cpu_ns + one.cpu_ns,
            rss_bytes: all.rss_bytes + one.rss_bytes,
            cpu_limit: all.cpu_limit + one.cpu_limit,
            throttled_periods: both(all.throttled_periods, one.throttled_periods),
            periods: both(all.periods, one.periods),
            throttled_ns: both(all.throttled_ns, one.throttled_ns),
        })
    }
}

/// What is read at the edges of the window only, because it takes longer. What can't be read is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// The threads of the service.
    pub service: Option<Vec<ThreadReading>>,
    /// CPU and memory of each pod of the service, by name; empty where it has one, or is on this machine.
    pub replicas: BTreeMap<String, Usage>,
    /// The threads of each companion of the service, by name.
    pub companions: BTreeMap<String, Vec<ThreadReading>>,
    /// The threads of the inference simulator.
    pub inference: Option<Vec<ThreadReading>>,
    /// What the inference simulator counts by itself.
    pub inference_counts: Option<InferenceCounts>,
}

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Message: which process ended, how, and its last output.
    pub description: String,
    /// What caused the end.
    pub cause: Cause,
}

impl Ended {
    /// An end that another program caused, or something unknown.
    pub fn outside(description: impl Into<String>) -> Self {
        Self { description: description.into(), cause: Cause::Outside }
    }

    /// The end of a service: its own failure where `crash` says how it failed.
    pub fn of_service(description: String, crash: Option<CrashCause>) -> Self {
        Self { description, cause: crash.map_or(Cause::Outside, Cause::Service) }
    }
}

/// What caused the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The service itself, under load: the trial has failed.
    Service(CrashCause),
    /// A worker or the inference simulator itself. The trial can't be measured.
    Itself,
    /// Another program, or an unknown cause. The trial is repeated.
    Outside,
}

/// How CPUs are divided, as far as the judge needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shares {
    /// Number of CPUs of all workers together.
    pub worker_cpus: f64,
    /// Whether the service runs on the same CPUs as the workers.
    pub shared_with_service: bool,
    /// Why the service shares its CPUs although the plan asks for exclusive ones; absent if it has its own.
    pub isolation: Option<String>,
    /// Number of CPUs that service and inference simulator share; absent if they share none.
    pub shared_with_inference: Option<f64>,
}

/// Access to the processes around a trial.
#[expect(async_fn_in_trait, reason = "a trial is generic over it and runs on one thread")]
pub trait Stage {
    /// CPU and memory of the service, over all its replicas; absent if its process can't be read because ladder didn't start it.
    async fn service_usage(&self) -> Result<Option<Usage>, Error>;
    /// CPU and memory of the inference simulator; absent if there is none or it can't be read.
    async fn inference_usage(&self) -> Result<Option<Usage>, Error> {
        Ok(None)
    }
    /// CPU and memory of each companion of the service, by name; empty without companions.
    async fn companions_usage(&self) -> Result<BTreeMap<String, Usage>, Error> {
        Ok(BTreeMap::new())
    }
    /// Threads of the processes, and what the inference simulator counts.
    async fn details(&self) -> Details {
        Details::default()
    }
    /// The clock by which the service publishes; absent where it is this machine's, or can't be read.
    async fn publisher_clock(&self) -> Option<ClockOffset> {
        None
    }
    /// What the machine, or the nodes of a cluster, and the trial's processes on it used so far; absent where it isn't known
    /// which these are.
    async fn machine(&self) -> Option<MachineSnapshot> {
        None
    }
    /// Times the fixed work on each CPU of the trial's roles; absent where these CPUs are not known. To be called while no
    /// load is offered.
    async fn fixed_work(&mut self) -> Option<Timing> {
        None
    }
    /// Memory that the kernel of this machine holds for sockets, in bytes; absent if it isn't recorded.
    fn kernel_bytes(&self) -> Option<u64> {
        None
    }
    /// How the service, its companions or the inference simulator ended; absent while all of them run or if none was
    /// started.
    fn service_ended(&mut self) -> Option<Ended>;
    /// How a worker ended; absent while all workers run.
    fn worker_ended(&mut self) -> Option<Ended>;
    /// Checks again, reliably, whether every process that was started still runs unchanged; returns the end of one that
    /// doesn't.
    async fn confirm(&mut self) -> Option<Ended>;
    /// Whether workers reach the coordinator over a network that may be cut while they run.
    fn has_remote_workers(&self) -> bool {
        false
    }
    /// Longest time until the end of a process shows; zero where it shows at once.
    fn notice_time(&self) -> Duration {
        Duration::ZERO
    }
    /// How CPUs are divided.
    fn shares(&self) -> Shares;
    /// Pods of the service, its companions, the inference simulator and the workers; empty on a single machine.
    fn pods(&self) -> Vec<Pod> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_use_what_they_use_together() {
        let of = |pid, count, throttled: Option<u64>| Usage {
            pid,
            cpu_ns: count,
            rss_bytes: count,
            cpu_limit: 0.5,
            throttled_periods: throttled,
            periods: Some(count),
            throttled_ns: throttled,
        };
        let sum = Usage::sum([of(7, 1, Some(1)), of(8, 2, Some(2))]);
        assert_eq!(sum, Some(Usage { cpu_limit: 1.0, ..of(7, 3, Some(3)) }));
        let unknown = Usage::sum([of(7, 1, None), of(8, 2, Some(2))]).unwrap();
        assert_eq!(unknown.throttled_periods, None, "a part of a sum is no sum");
        assert_eq!(Usage::sum([]), None);
    }
}
