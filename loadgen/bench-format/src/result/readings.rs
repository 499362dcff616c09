//! The service's side of a trial: readings of its counters, CPU and memory.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ThreadReading;
use crate::service::{ConnectionBook, LinksStats, ProcessStats, PublisherStats, ServiceStats};

/// Readings of the service before, during and after a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceReadings {
    /// Before the workers connect.
    pub before: Option<Reading>,
    /// When all connections are open, before load starts; absent if the workload doesn't need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Reading>,
    /// At the start of the window.
    pub window_start: Option<Reading>,
    /// At the end of the window.
    pub window_end: Option<Reading>,
    /// After the drain, when the service has settled.
    pub after: Option<Reading>,
}

/// `service.json`: the service's side of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceFile {
    /// Version of the format; see [`crate::SCHEMA`].
    pub schema: u32,
    /// Readings of the service's counters, CPU and memory.
    pub readings: ServiceReadings,
    /// The service's counts of each connection; absent if it has none.
    pub connections: Option<Vec<ConnectionBook>>,
    /// The clock by which the service publishes; absent if it doesn't publish, if that clock is the coordinator's, if it
    /// can't be read, and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher_clock: Option<PublisherClock>,
}

/// The clock by which a service publishes, on another machine than the coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublisherClock {
    /// That clock minus the coordinator's when load starts, in nanoseconds. Latencies are corrected by it.
    pub ahead_ns: i64,
    /// Half of the shortest round trip, in nanoseconds: the larger one of the readings before and after the load.
    pub uncertainty_ns: u64,
    /// By how much it was further ahead after the drain, in nanoseconds; absent if it couldn't be read then.
    pub drift_ns: Option<i64>,
}

/// One reading of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Time of the reading, in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// Process id of the service; a change means a restart. This field and the next three are absent if ladder didn't
    /// start the service and can't read its process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// CPU time since the start of the process, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: Option<u64>,
    /// Resident memory, in bytes.
    #[serde(default)]
    pub rss_bytes: Option<u64>,
    /// Memory that the kernel holds for the sockets of the whole machine, in bytes; absent if it wasn't requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<u64>,
    /// Number of CPUs that the service may use.
    #[serde(default)]
    pub cpu_limit: Option<f64>,
    /// CPU periods so far in which the service was throttled; absent without a CPU quota.
    pub throttled_periods: Option<u64>,
    /// All CPU periods so far; absent without a CPU quota.
    #[serde(default)]
    pub periods: Option<u64>,
    /// Time in which the service was throttled so far, summed over its CPUs, in nanoseconds; absent without a CPU quota
    /// and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// The threads of the service that ran so far; read at the window's edges. Absent if they can't be read, if there
    /// are too many, and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<ThreadReading>>,
    /// The counters that the service reports.
    pub stats: ServiceStats,
    /// Counters that the plan maps and that the service's page didn't have, by name, with the text of the plan. `stats`
    /// has 0 in their place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
    /// The publisher's counters; absent if the service doesn't publish by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<PublisherStats>,
    /// Counters of the links between the service's instances; absent if it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinksStats>,
    /// The service's processes by name, if it reports them. `cpu_ns` and `rss_bytes` cover all of them and the process
    /// that started them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub processes: BTreeMap<String, ProcessStats>,
    /// The inference simulator behind the service at the same moment; absent if there is none or it can't be read.
    #[serde(default)]
    pub inference: Option<ProcessReading>,
    /// The service's companions (other instances, a broker) at the same moment, by name. The fields above cover the
    /// service's own process only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub companions: BTreeMap<String, ProcessReading>,
    /// The service's replicas where each is a pod, by name; read at the window's edges. The fields above are their sums.
    /// Empty where there is one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, ProcessReading>,
}

/// CPU and memory of a process, from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessReading {
    /// Process id; a change means a restart.
    pub pid: u32,
    /// CPU time since the start of the process, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Number of CPUs that the process may use.
    pub cpu_limit: f64,
    /// CPU periods so far in which the process was throttled; absent without a CPU quota.
    pub throttled_periods: Option<u64>,
    /// All CPU periods so far; absent without a CPU quota.
    pub periods: Option<u64>,
    /// Time in which the process was throttled so far, summed over its CPUs, in nanoseconds; absent without a CPU quota
    /// and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// The threads of the process that ran so far; read at the window's edges. Absent if they can't be read, if there
    /// are too many, and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<Vec<ThreadReading>>,
    /// What the process counted by itself, if it is the inference simulator; read at the window's edges. Absent if it
    /// can't be read and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<InferenceCounts>,
}

/// What the inference simulator counts by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InferenceCounts {
    /// Requests that it answered with a computed result (`inference_answered_total`).
    pub answered: u64,
    /// Results that it computed after they were due (`inference_late_total`).
    pub late: u64,
}
