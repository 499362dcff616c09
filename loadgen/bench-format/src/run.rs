//! `run.json`: the plan and conditions of a run, and the state of its trials and searches.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Name,
    environment::Environment,
    plan::{Objective, WirePlan},
    result::{BoundBy, Validity},
    trial::TrialId,
};

/// A run and the state of each of its trials.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Version of the format; see [`crate::SCHEMA`].
    pub schema: u32,
    /// The run's id, which is also the name of its folder.
    pub id: Name,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// End time, RFC 3339; absent while the run isn't over.
    pub finished_at: Option<String>,
    /// State of the run.
    pub state: RunState,
    /// The plan as it was at the start of the run. It doesn't change afterwards.
    pub plan: WirePlan,
    /// The command line that started the run.
    pub command: String,
    /// Version of ws-ladder that started the run.
    pub version: String,
    /// Git commit of the checkout, with `+changes` if it had uncommitted changes; empty outside a checkout.
    pub commit: String,
    /// Version of each program by name: services, generators, Python.
    pub versions: BTreeMap<String, String>,
    /// Lines of code of each service whose folder is in the checkout, without blank lines, comment lines and tests.
    #[serde(default)]
    pub lines: BTreeMap<String, u64>,
    /// Every machine that took part.
    pub machines: Vec<Environment>,
    /// The CPUs of each role, as the kernel lists them: `service: 0`, `worker: 1`.
    pub cpu_roles: BTreeMap<String, String>,
    /// Addresses of a service that ladder climbed without starting it; absent where ladder started its services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<Outside>,
    /// Every trial of the plan in climbing order. A search adds its trials as it decides them.
    pub trials: Vec<TrialEntry>,
    /// The searches of the run in order; empty if it climbs tiers.
    #[serde(default)]
    pub searches: Vec<Search>,
}

/// A service that ladder didn't start and whose CPUs it therefore doesn't set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Outside {
    /// URL to which clients connect, `ws://host:port/path`.
    pub url: String,
    /// Address of the service's metrics port, `host:port`.
    pub metrics_address: String,
    /// Address, `host:port`, at which `ladder evidence` beside the service reports its CPU and memory; absent where
    /// they are not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_address: Option<String>,
}

/// The state of a run, as `run.json` records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// The run is under way, or was interrupted.
    Running,
    /// All trials have ended.
    Finished,
    /// Ended early; the finished trials are kept.
    Failed,
    /// Replaced by a newer run.
    Superseded,
}

/// One trial of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialEntry {
    /// Id of the trial; its `Display` is the folder's name.
    pub trial: TrialId,
    /// State of the trial.
    pub state: TrialState,
    /// What a search needs the trial for; absent for a trial of a tier.
    #[serde(default)]
    pub search: Option<SearchTrial>,
}

impl TrialEntry {
    /// An entry for a trial of a tier that hasn't started.
    pub fn pending(trial: TrialId) -> Self {
        Self { trial, state: TrialState::Pending, search: None }
    }
}

/// What a search needs a trial for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchTrial {
    /// The part of the search that requested the trial.
    pub step: SearchStep,
    /// Length of the window, in seconds.
    pub window_seconds: f64,
    /// The service process ended by itself under this load. That counts as a failure although there is no result.
    #[serde(default)]
    pub service_ended: bool,
}

/// A part of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SearchStep {
    /// The search looks for the bounds, on one service process.
    Bounds,
    /// The search confirms the bounds, on fresh service processes.
    Confirm,
}

/// One search: one service on one ladder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// Name of the service in the registry.
    pub service: Name,
    /// Name of the workload.
    pub workload: Name,
    /// Variant of the ladder.
    pub variant: Name,
    /// Outcome of the search; absent until the search has ended.
    pub found: Option<SearchFound>,
}

/// Outcome of a search: `confirmed ↔ borderline ↔ first solid fail`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchFound {
    /// The bounds of each objective before the confirmation.
    pub goals: Vec<GoalBounds>,
    /// The smallest conditional throughput of all objectives: load × (1 - loss ratio at the quantile), at the lower
    /// bound. Services are compared by this figure.
    pub conditional_throughput: Option<f64>,
    /// The largest load below the first solid fail that passed every confirming trial.
    pub confirmed: Option<u32>,
    /// Loads above `confirmed` that passed one confirming trial and failed another. They never appear in a headline.
    pub borderline: Vec<u32>,
    /// The smallest load that failed every confirming trial.
    pub first_solid_fail: Option<u32>,
    /// No load that could be offered failed, so the capacity is `confirmed` or more (printed `>=`).
    pub at_least: bool,
    /// The objectives that failed at the first solid fail (or else at the smallest borderline load), sorted by the
    /// factor by which they were missed, largest first.
    pub gates: Vec<Objective>,
    /// Kind of the failure at that load.
    pub edge: Option<Edge>,
    /// What limited the trials at that load. It is the generator if it could not offer more before an objective failed.
    pub bound_by: Option<BoundBy>,
    /// The smallest load that the generator could not offer. Loads above it were not tried.
    pub generator_limit: Option<u32>,
    /// The load at which trials repeatedly gave no valid result. It ended the search or its confirmation early.
    pub given_up_at: Option<u32>,
}

/// The bounds that decide one objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GoalBounds {
    /// The objective that the bounds belong to.
    pub objective: Objective,
    /// The largest load below `upper` that meets the objective; absent if the smallest load doesn't meet it.
    pub lower: Option<u32>,
    /// The smallest load that doesn't meet the objective; absent if the largest load that could be offered meets it.
    pub upper: Option<u32>,
    /// Load × (1 - loss ratio at the quantile), at `lower`.
    pub conditional_throughput: Option<f64>,
}

/// Kind of the failure of an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// Messages were too slow but none was lost: a longer limit would have passed.
    Latency,
    /// Messages, connections or the service itself failed.
    Errors,
}

/// The state of a trial, from pending to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TrialState {
    /// The trial has not started.
    Pending,
    /// The trial has started. After a crash of the operator it runs again.
    Started {
        /// Number of the attempt, from 1.
        attempt: u32,
    },
    /// The trial's `result.json` exists.
    Finished {
        /// Whether the result may be used.
        validity: Validity,
        /// Whether the trial met its objectives; absent without a verdict.
        passed: Option<bool>,
    },
    /// The trial could not be measured. It keeps its row, with the reason.
    Failed {
        /// Message that says why the trial could not be measured.
        reason: String,
    },
}
