//! `run.json`: the plan and conditions of a run, and the state of its trials and searches.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Name,
    comparison::Comparison,
    environment::Environment,
    plan::{Objective, WirePlan},
    result::{BoundBy, MachineUse, Validity},
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
    /// Whose CPU time and memory the figures have, as a sentence, by service: those of services that ladder didn't start, and
    /// of those whose plan says what to read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<String, String>,
    /// What others used of the trials' CPUs in two seconds of rest before the first trial; absent where it can't be read
    /// and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<MachineUse>,
    /// Addresses of a service that ladder climbed without starting it; absent where ladder started its services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<Outside>,
    /// Requests in a cluster (`run.retry`) that have measured failed trials again; each is followed once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<String>,
    /// Every trial of the plan in climbing order. A search adds its trials as it decides them.
    pub trials: Vec<TrialEntry>,
    /// The searches of the run in order; empty if it climbs tiers.
    #[serde(default)]
    pub searches: Vec<Search>,
    /// The two sides that the run compares in pairs; absent if it compares none. It adds its trials as it decides them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
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
    /// Set only for a pilot trial, which shows when a service's steady state begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<PilotTrial>,
}

impl TrialEntry {
    /// An entry for a trial of a tier that hasn't started.
    pub fn pending(trial: TrialId) -> Self {
        Self { trial, state: TrialState::Pending, search: None, pilot: None }
    }
}

/// A trial without warm-up on a fresh service process. Its `process` is 1 for the first pilot, and one more for each
/// doubling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PilotTrial {
    /// Length of the window, in seconds, instead of the plan's. It begins when all load is offered.
    pub window_seconds: f64,
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
    /// Short trials on one service process look for the load at which the rounds begin.
    Bounds,
    /// A trial of a round, on a fresh service process: the capacity and its interval follow from these.
    Round,
    /// Trials on fresh service processes confirm that a load passes.
    Confirm,
    /// Trials on fresh service processes show that a load fails.
    Fail,
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

/// Outcome of a search: the capacity with its interval, and the loads that trials of their own confirmed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchFound {
    /// The bounds of each objective from short trials on one process. They are where the rounds begin, not a result.
    pub goals: Vec<GoalBounds>,
    /// The smallest conditional throughput of all objectives: load × (1 - loss ratio at the quantile), at the lower
    /// bound of the short trials. Not a result either.
    pub conditional_throughput: Option<f64>,
    /// What the trials on fresh processes show; absent in bundles of schema 2 and in a search that ended before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The load that passed 5 of 5 or 8 of 9 trials of its own. (Up to schema 2: the largest load below the first solid
    /// fail that passed every confirming trial, of two as a rule.)
    pub confirmed: Option<u32>,
    /// Up to schema 2: loads above `confirmed` that passed one confirming trial and failed another. Otherwise empty.
    pub borderline: Vec<u32>,
    /// The load that failed 5 of 5 or 8 of 9 trials of its own. (Up to schema 2: the smallest that failed every one.)
    pub first_solid_fail: Option<u32>,
    /// The confirmed load is the largest that could be offered, so the capacity may be larger (printed `>=`).
    pub at_least: bool,
    /// The objectives that failed trials on fresh processes missed: those that most trials missed first in time come
    /// first. (Up to schema 2: sorted by the factor by which they were missed.)
    pub gates: Vec<Objective>,
    /// Kind of the failure in most of these trials; absent where none failed or the order is not known.
    pub edge: Option<Edge>,
    /// The smallest load under which the service ended; absent where it never did, and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// What limited these trials. It is the generator if it could not offer more before an objective failed.
    pub bound_by: Option<BoundBy>,
    /// The smallest load that the generator could not offer. Loads above it were not tried.
    pub generator_limit: Option<u32>,
    /// The load at which trials repeatedly gave no valid result. It ended the search early.
    pub given_up_at: Option<u32>,
}

/// What the trials of a search on fresh service processes show.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// The load at which the rounds began, from short trials on one process.
    pub start: f64,
    /// The estimate from all trials of the rounds and of tests that did not succeed; absent where no trial was needed
    /// because the test of the largest or of the smallest load succeeded at once.
    pub estimate: Option<CapacityEstimate>,
    /// The last test that a load passes; absent if none was made.
    pub confirm: Option<LoadTest>,
    /// The last test that a load fails; absent if none was made.
    pub fail: Option<LoadTest>,
    /// Number of searches that took turns in the run. With fewer than six, the interval holds within this run only:
    /// a service's trials are then too close to each other to show a slow drift of the machine.
    pub in_turn: u32,
}

/// The posterior of the load at which a trial on a fresh process passes with probability 0.5.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapacityEstimate {
    /// The load at which a trial passes with probability 0.5.
    pub load: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of its 95 % interval.
    pub high: f64,
    /// Standard deviation of the logarithm of the load at which a trial begins to fail: from 98 % to 2 % passing takes
    /// 4.1 of it.
    pub spread: f64,
    /// Number of valid trials that the estimate is from.
    pub trials: u32,
}

/// A test of one load by new trials on fresh processes. It succeeds with 5 of 5, or with 8 of 9 where the exception is
/// among the first five. If a trial passed with probability 0.5, that would happen in 4.1 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadTest {
    /// The load that was tested.
    pub load: u32,
    /// Number of its valid trials that met every objective.
    pub passed: u32,
    /// Number of its valid trials that missed an objective.
    pub failed: u32,
    /// Whether the test succeeded.
    pub succeeded: bool,
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

/// Kind of the failure of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// Messages were too slow before any objective about errors was missed, or without one being missed. (Up to schema
    /// 2: and none failed.)
    Latency,
    /// Messages, connections or the service itself failed before messages were too slow. (Up to schema 2: or after.)
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
    /// The service ended under the trial's load. There is no `result.json`, and the verdict is `fail`.
    Crashed {
        /// How the service ended.
        cause: CrashCause,
        /// Message with the process or pod that ended, how, and its last output.
        reason: String,
    },
    /// The trial could not be measured. It keeps its row, with the reason.
    Failed {
        /// Message that says why the trial could not be measured.
        reason: String,
    },
}

/// How a service ended under load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CrashCause {
    /// The kernel killed it because it used more memory than it may.
    ServiceOom,
    /// The node was low on memory and removed its pod.
    ServiceEvicted,
    /// It exited, or a signal ended it.
    ServiceCrashed,
}

impl CrashCause {
    /// The name in files and messages, such as `service_oom`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServiceOom => "service_oom",
            Self::ServiceEvicted => "service_evicted",
            Self::ServiceCrashed => "service_crashed",
        }
    }
}

/// The smallest load of a search under which the service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    /// Tier of the trial: connections, sessions or an open rate.
    pub load: u32,
    /// How the service ended.
    pub cause: CrashCause,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::WireSearch;

    #[test]
    fn a_search_of_schema_2_still_opens() {
        let found = r#"{"goals": [], "conditional_throughput": 512.0, "confirmed": 512, "borderline": [527],
            "first_solid_fail": 543, "at_least": false, "gates": [{"figure": "error_share", "at_most": 0.00001}],
            "edge": "errors", "bound_by": "service", "generator_limit": null, "given_up_at": null}"#;
        let found: SearchFound = serde_json::from_str(found).unwrap();
        assert_eq!((found.capacity, found.borderline), (None, vec![527]));
        let search = r#"{"from": 10, "to": 99, "final_trial_seconds": 6, "duration_sum_seconds": 18,
            "confirm": {"window_seconds": 45, "repeats": 2}}"#;
        let search: WireSearch = serde_json::from_str(search).unwrap();
        assert_eq!(search.confirm.map(|confirm| confirm.repeats), Some(2));
    }
}
