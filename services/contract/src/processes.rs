//! The processes of a service that consists of several.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /stats/processes`: the processes of a service that consists of several, by role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessesStats {
    /// The processes by name: `publisher`, `subscriber`, `redis`.
    pub processes: BTreeMap<String, ProcessStats>,
}

/// CPU and memory of one process, from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessStats {
    /// Process id as the kernel knows it.
    pub pid: u32,
    /// CPU time since the start of the process, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
}
