//! On which terms a workload is judged: what one family of services does differently from another, as data.
//!
//! A family states them once for each of its workloads. The judge and the driver know no family and no workload by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::witness::Witness;

/// What the judge and the driver have to know of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Who says that a message arrived.
    pub witness: Witness,
    /// The service counts answers: what it delivers, and what it drops by kind, is what the workers count as answered and
    /// as dropped of the same kind. So with gateways, whose answers come out of inference.
    #[serde(default)]
    pub counts_answers: bool,
    /// Reasons of drops that no answer can report to a worker: those of a connection that has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreported_drops: Vec<String>,
    /// Connections are opened inside the window: none is open when load starts, and opening them is what is measured.
    #[serde(default)]
    pub opens_in_window: bool,
    /// The `mode` in which the service's publisher must publish (`/stats/publisher`); absent where services don't publish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publishes_by: Option<String>,
    /// The histogram, without its unit, whose largest objective makes an answer `late`; absent where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_by: Option<String>,
}
