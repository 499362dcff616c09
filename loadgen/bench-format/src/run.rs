//! `run.json`: what a run was told, and how far it is.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    environment::Environment,
    plan::{Objective, WirePlan},
    result::{BoundBy, Validity},
    trial::TrialId,
};

/// A run and the state of each of its trials.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// The run's id, and its folder's name.
    pub id: String,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it ended, RFC 3339.
    pub finished_at: Option<String>,
    /// How it stands.
    pub state: RunState,
    /// The plan as it was when the run started; it doesn't change afterwards.
    pub plan: WirePlan,
    /// The command line that started it.
    pub command: String,
    /// Version of ws-ladder.
    pub version: String,
    /// Commit of the checkout, with `+changes` when it had uncommitted ones; empty outside a checkout.
    pub commit: String,
    /// Programs and their versions: services, generators, Python.
    pub versions: BTreeMap<String, String>,
    /// Lines of code of each service whose folder is in the checkout: neither blank nor only a comment, without tests.
    #[serde(default)]
    pub lines: BTreeMap<String, u64>,
    /// Every machine that took part.
    pub machines: Vec<Environment>,
    /// Which CPUs each role had: `service: 0`, `worker: 1`.
    pub cpu_roles: BTreeMap<String, String>,
    /// Where the service was that ladder climbed without starting it; absent where ladder started its services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<Outside>,
    /// Every trial of the plan, in climbing order; those of searches are added as they are decided.
    pub trials: Vec<TrialEntry>,
    /// The searches of the run, in order; empty when tiers are climbed.
    #[serde(default)]
    pub searches: Vec<Search>,
}

/// A service that somebody else started. Its CPUs are not ladder's to give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Outside {
    /// Where clients connect, `ws://host:port/path`.
    pub url: String,
    /// Its metrics port, `host:port`.
    pub metrics_address: String,
    /// Where `ladder evidence` beside it tells its CPU and memory, `host:port`; absent where they are not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_address: Option<String>,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Climbing, or interrupted.
    Running,
    /// All trials have ended.
    Finished,
    /// Given up, with finished trials kept.
    Failed,
    /// Replaced by a newer run.
    Superseded,
}

/// One trial of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialEntry {
    /// The trial; its folder is its `Display`.
    pub trial: TrialId,
    /// How it stands.
    pub state: TrialState,
    /// What a search wants it for; absent for a tier's trial.
    #[serde(default)]
    pub search: Option<SearchTrial>,
}

impl TrialEntry {
    /// A tier's trial that hasn't started.
    pub fn pending(trial: TrialId) -> Self {
        Self { trial, state: TrialState::Pending, search: None }
    }
}

/// What a search wants a trial for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchTrial {
    /// Which part of the search asks for it.
    pub step: SearchStep,
    /// Its window, in seconds.
    pub window_seconds: f64,
    /// The service ended by itself under this load: it failed it, although there is no result.
    #[serde(default)]
    pub service_ended: bool,
}

/// A part of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SearchStep {
    /// It looks for the bounds, on one service process.
    Bounds,
    /// It confirms them, on fresh ones.
    Confirm,
}

/// One search: for a service in a ladder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// The service.
    pub service: String,
    /// The workload.
    pub workload: String,
    /// The ladder's variant.
    pub variant: String,
    /// What it found; absent until it has.
    pub found: Option<SearchFound>,
}

/// What a search found: `confirmed ↔ borderline ↔ first solid fail`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchFound {
    /// The bounds for each objective, before they were confirmed.
    pub goals: Vec<GoalBounds>,
    /// The smallest conditional throughput of all goals: load × (1 - loss ratio at the quantile) at the lower bound.
    /// Services are compared by it.
    pub conditional_throughput: Option<f64>,
    /// The largest load that passed every confirming trial, below the first solid fail.
    pub confirmed: Option<u32>,
    /// Loads above it that passed one confirming trial and failed another; never in a headline.
    pub borderline: Vec<u32>,
    /// The smallest load that failed every confirming trial.
    pub first_solid_fail: Option<u32>,
    /// Nothing that could be offered failed: the capacity is `confirmed` or more (`>=`).
    pub at_least: bool,
    /// The objectives that failed at the first solid fail (else at the smallest borderline load), the one missed by the
    /// largest factor first.
    pub gates: Vec<Objective>,
    /// What failing looks like there.
    pub edge: Option<Edge>,
    /// What bound the trials there; the generator where it ended the way up before anything failed.
    pub bound_by: Option<BoundBy>,
    /// The smallest load that the generator could not offer: what is above was not searched.
    pub generator_limit: Option<u32>,
    /// The load at which trials stayed without a valid result, which ended the search or its confirmation early.
    pub given_up_at: Option<u32>,
}

/// The relevant bounds of one objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GoalBounds {
    /// The objective.
    pub objective: Objective,
    /// The largest load that meets it, below `upper`; absent when the smallest load doesn't.
    pub lower: Option<u32>,
    /// The smallest load that doesn't; absent when the largest that could be offered does.
    pub upper: Option<u32>,
    /// Load × (1 - loss ratio at the quantile), at `lower`.
    pub conditional_throughput: Option<f64>,
}

/// What failing an objective looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// Too slow and nothing lost: more time would have done.
    Latency,
    /// Messages, connections or the service itself failed.
    Errors,
}

/// How a trial stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TrialState {
    /// Not started.
    Pending,
    /// Started; after a crash it is run again.
    Started {
        /// Which attempt.
        attempt: u32,
    },
    /// `result.json` is there.
    Finished {
        /// Usable or not.
        validity: Validity,
        /// Passed its objectives; absent without a verdict.
        passed: Option<bool>,
    },
    /// It could not be measured: a row with its reason, not a missing line.
    Failed {
        /// Why.
        reason: String,
    },
}
