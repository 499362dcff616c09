//! The line with which a service announces its addresses when it is ready.

use serde::{Deserialize, Serialize};

/// The JSON line that a service prints on standard output when it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// Name of the event: always `ready`.
    pub event: String,
    /// Address for clients, `host:port`; one per process, separated by commas.
    pub address: String,
    /// Address of `/stats` and the other pages for the harness, `host:port`; one per process in the same order, separated
    /// by commas.
    pub metrics_address: String,
    /// Process id of the service.
    pub pid: u32,
}
