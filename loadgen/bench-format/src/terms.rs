//! The terms of a workload: the rules that differ between protocols, as data.
//!
//! A protocol's worker states them for each of its workloads when it registers. The judge and the driver read them and
//! know no protocol and no workload by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::witness::Witness;

/// The rules that the judge and the driver apply to a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The party that confirms that a message arrived.
    pub witness: Witness,
    /// The service counts replies. The workers' counts of answered messages, and of dropped messages by reason, must
    /// then equal the service's counts of delivered and dropped messages. This holds for gateways, whose replies come
    /// from inference.
    #[serde(default)]
    pub counts_answers: bool,
    /// Reasons of drops that no reply can report to a worker, because the connection has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreported_drops: Vec<String>,
    /// Connections are opened inside the window and the workload measures the opening. None is open when load starts.
    #[serde(default)]
    pub opens_in_window: bool,
    /// The `mode` that the service's publisher must report (`/stats/publisher`); absent where services don't publish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publishes_by: Option<String>,
    /// Name, without its unit, of the histogram whose largest objective decides when a reply is `late`; absent if no
    /// reply can be late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_by: Option<String>,
}
