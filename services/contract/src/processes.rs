//! The processes of a service that consists of several.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /stats/processes`: the processes of a service that consists of several, by what they do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessesStats {
    /// By name: `publisher`, `subscriber`, `redis`.
    pub processes: BTreeMap<String, ProcessStats>,
}

/// What the kernel says of one process of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessStats {
    /// Its process id.
    pub pid: u32,
    /// CPU used since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
}
