//! The service's side of a trial: its counters, CPU and memory as they were read around it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::service::{ConnectionBook, LinksStats, ProcessStats, PublisherStats, ServiceStats};

/// Readings of the service around a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceReadings {
    /// Before the workers connected.
    pub before: Option<Reading>,
    /// Once all connections were open, before load started; absent where nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Reading>,
    /// At the window's start.
    pub window_start: Option<Reading>,
    /// At the window's end.
    pub window_end: Option<Reading>,
    /// After the drain.
    pub after: Option<Reading>,
}

/// `service.json`: the service's side of a trial, as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceFile {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// Its counters, CPU and memory around the trial.
    pub readings: ServiceReadings,
    /// Its books on each connection; absent where it keeps none.
    pub connections: Option<Vec<ConnectionBook>>,
}

/// One reading of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// When, unix nanoseconds.
    pub unix_ns: u64,
    /// Its process id: another one means that it was restarted. This and the next three are absent where ladder didn't
    /// start the service and can't read its process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// CPU used since its start, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: Option<u64>,
    /// Resident memory, in bytes.
    #[serde(default)]
    pub rss_bytes: Option<u64>,
    /// Memory that the kernel holds for sockets of the whole machine, in bytes; absent where nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<u64>,
    /// CPUs that it may use.
    #[serde(default)]
    pub cpu_limit: Option<f64>,
    /// Throttled CPU periods so far; absent where no quota is in force.
    pub throttled_periods: Option<u64>,
    /// All CPU periods so far; absent where no quota is in force.
    #[serde(default)]
    pub periods: Option<u64>,
    /// Its own counters.
    pub stats: ServiceStats,
    /// What it has published; absent where it publishes nothing by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publisher: Option<PublisherStats>,
    /// What carried that between its instances; absent where it consists of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinksStats>,
    /// Its processes by name, where it tells them apart. `cpu_ns` and `rss_bytes` are of all of them and of what started them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub processes: BTreeMap<String, ProcessStats>,
    /// The inference simulator behind it at the same moment; absent where there is none or it can't be read.
    #[serde(default)]
    pub inference: Option<ProcessReading>,
    /// The companions that belong to it, at the same moment, by name: other instances, a broker. What stands above is the
    /// service's own process without them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub companions: BTreeMap<String, ProcessReading>,
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProcessReading {
    /// Its process id.
    pub pid: u32,
    /// CPU used since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// CPUs that it may use.
    pub cpu_limit: f64,
    /// Throttled CPU periods so far; absent where no quota is in force.
    pub throttled_periods: Option<u64>,
    /// All CPU periods so far; absent where no quota is in force.
    pub periods: Option<u64>,
}
