//! The line with which a service says where it listens.

use serde::{Deserialize, Serialize};

/// The JSON line that a service prints on standard output when it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// Always `ready`.
    pub event: String,
    /// Where clients connect, `host:port`; of several processes one for each, with commas between them.
    pub address: String,
    /// Where `/stats` and the others are served, `host:port`.
    pub metrics_address: String,
    /// Its process id.
    pub pid: u32,
}
