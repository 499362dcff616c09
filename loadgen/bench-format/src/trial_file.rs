//! `trial.json`: what a trial's numbers are judged by, beside `workers/<n>.json` and `service.json`.
//!
//! The driver writes it before the trial is judged. With the two others it is all that the judge reads: whoever has a
//! trial's folder can judge it again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    plan::{Load, Message, Objective, Thresholds},
    pod::Pod,
    result::Reason,
    terms::Terms,
    trial::TrialId,
};

/// `trial.json`: what was asked of a trial, and on which terms it is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialFile {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// The run's id.
    pub run: String,
    /// The trial.
    pub trial: TrialId,
    /// The attempt.
    pub attempt: u32,
    /// When load started, unix nanoseconds.
    pub started_at_unix_ns: u64,
    /// How load was offered, over all workers.
    pub load: Load,
    /// What the messages were.
    pub message: Message,
    /// What the trial must reach.
    pub objectives: Vec<Objective>,
    /// Limits beyond which it is invalid.
    pub thresholds: Thresholds,
    /// On which terms its workload is judged.
    pub terms: Terms,
    /// What the service's books can answer.
    pub keeping: BookKeeping,
    /// Workers that were to take part.
    pub workers: u32,
    /// Load before the window, in nanoseconds: until all of it is offered, and the warm-up after that; absent in bundles
    /// from before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_ns: Option<u64>,
    /// Length of the window by the plan, in nanoseconds.
    pub window_ns: u64,
    /// Connections that were open when load started: 0 where they are opened in the window.
    pub open_at_start: u64,
    /// Highest resident memory of the service that was seen, in bytes; 0 where its process can't be read.
    pub rss_peak_bytes: u64,
    /// Resident memory of this service process before its first connection, in bytes; absent where it isn't known.
    #[serde(default)]
    pub rss_at_rest_bytes: Option<u64>,
    /// CPUs that each side could have used.
    pub cpus: Cpus,
    /// Ids of connections that the service knew before the trial: those that no worker knows belong to other clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Reasons against the trial that were found while it was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Reason>,
    /// The pods that took part; none on a single machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Pod>,
    /// The command that repeats the trial.
    pub reproduce: String,
}

/// What a service's books can answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BookKeeping {
    /// Every connection.
    #[default]
    Connections,
    /// Only sums over all connections, and of those only what its counters show.
    Totals,
    /// Nothing: the service has no counters that could be read.
    None,
}

/// CPUs that each side of a trial could have used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cpus {
    /// CPUs that all workers have together.
    pub workers: f64,
    /// Workers and service run on the same CPUs: what one of them uses the other can't.
    #[serde(default)]
    pub shared_with_service: bool,
    /// CPUs that service and inference have together; absent where they share none.
    #[serde(default)]
    pub shared_with_inference: Option<f64>,
    /// Why the service did not have its CPUs to itself although the plan asked for it; absent when it had.
    #[serde(default)]
    pub isolation: Option<String>,
}
