//! `trial.json`: the conditions of a trial, stored beside `workers/<n>.json` and `service.json`.
//!
//! The driver writes it before the trial is judged. The judge reads nothing but these three kinds of file, so that a
//! trial can be judged again from its folder.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    plan::{Load, Message, Objective, Thresholds},
    pod::Pod,
    result::{MachineUse, Reason},
    terms::Terms,
    trial::TrialId,
    websocket::ReportedCounters,
};

/// Version of the rules by which the judge says what bound a load. Version 2 looks at quotas, threads, waits for a CPU and
/// late inference besides CPU shares, and says it for open loops, too.
pub const BOUND_RULES: u32 = 2;

/// `trial.json`: what a trial had to do, and on which terms it is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialFile {
    /// Version of the format; see [`crate::SCHEMA`].
    pub schema: u32,
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Start of the load, in nanoseconds since the Unix epoch.
    pub started_at_unix_ns: u64,
    /// Seed of the trial's schedules. Absent in older bundles, and where a program other than ladder made the schedules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How load was offered, over all workers.
    pub load: Load,
    /// Format, size and coalescing of the messages.
    pub message: Message,
    /// Conditions that the trial must meet to pass.
    pub objectives: Vec<Objective>,
    /// Limits beyond which the trial is invalid.
    pub thresholds: Thresholds,
    /// The terms on which the workload is judged.
    pub terms: Terms,
    /// How detailed the service's books are.
    pub keeping: BookKeeping,
    /// Which counters the service has by its plan; absent if it keeps the harness's books or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<ReportedCounters>,
    /// Number of workers that were assigned to the trial.
    pub workers: u32,
    /// Duration of the load before the window, in nanoseconds: the ramp until all of it is offered, and the warm-up.
    /// Absent in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_ns: Option<u64>,
    /// Planned length of the window, in nanoseconds.
    pub window_ns: u64,
    /// Connections that were open when load started; 0 where they are opened in the window.
    pub open_at_start: u64,
    /// Highest resident memory of the service that was read, in bytes; 0 where its process can't be read.
    pub rss_peak_bytes: u64,
    /// Resident memory of this service process before its first connection, in bytes; absent if it isn't known.
    #[serde(default)]
    pub rss_at_rest_bytes: Option<u64>,
    /// CPUs that each side could use.
    pub cpus: Cpus,
    /// Version of the rules by which the trial's bound is judged, [`BOUND_RULES`] when it was measured. Absent in older
    /// bundles, which are judged by CPU shares alone, so that their results stay as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_rules: Option<u32>,
    /// What others used of the machine's CPUs during the window; absent where it can't be read and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineUse>,
    /// Ids of the connections that the service had before the trial. Those that no worker knows belong to other
    /// clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Reasons against the trial that were found during the measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Reason>,
    /// The pods that took part; empty on a single machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Pod>,
    /// Command that repeats the trial.
    pub reproduce: String,
}

/// How detailed a service's books are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BookKeeping {
    /// The service counts for each connection.
    #[default]
    Connections,
    /// The service has only sums over all connections, and only those that its counters show.
    Totals,
    /// The service has no counters that can be read.
    None,
}

/// CPUs that each side of a trial could use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cpus {
    /// CPUs of all workers together.
    pub workers: f64,
    /// Workers and service run on the same CPUs, so CPU that one side uses is not available to the other.
    #[serde(default)]
    pub shared_with_service: bool,
    /// CPUs that the service and the inference simulator share; absent if they share none.
    #[serde(default)]
    pub shared_with_inference: Option<f64>,
    /// Why the service shared its CPUs although the plan asked for exclusive ones; absent if it had its own.
    #[serde(default)]
    pub isolation: Option<String>,
}
