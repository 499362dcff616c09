//! `run.json`: what a run was told, and how far it is.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{environment::Environment, plan::WirePlan, result::Validity, trial::TrialId};

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
    /// Every machine that took part.
    pub machines: Vec<Environment>,
    /// Which CPUs each role had: `service: 0`, `worker: 1`.
    pub cpu_roles: BTreeMap<String, String>,
    /// Every trial of the plan, in climbing order.
    pub trials: Vec<TrialEntry>,
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialEntry {
    /// The trial; its folder is its `Display`.
    pub trial: TrialId,
    /// How it stands.
    pub state: TrialState,
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
