//! The judgement of a trial: its validity, what limited it, and its verdict.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::Objective;

/// Whether the result of a trial may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Validity {
    /// The result may be used.
    Valid,
    /// The result is kept and shown but never appears in a headline.
    Invalid {
        /// The broken rules; at least one.
        reasons: Vec<Reason>,
    },
}

/// Why a trial is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The rule that the trial breaks.
    pub kind: ReasonKind,
    /// What was observed and what is allowed, as a sentence.
    pub detail: String,
}

/// The rules of `docs/METHODOLOGY.md`, "Validity".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// An equation between the counters doesn't hold.
    Unaccounted,
    /// A worker delivered no result.
    WorkersMissing,
    /// The workers' starts are further apart than allowed.
    StartSkew,
    /// The generator sent messages later than allowed.
    GeneratorLate,
    /// The generator used more CPU than allowed or was throttled.
    GeneratorCpu,
    /// Too small a share of the schedule was sent.
    SendRate,
    /// The inference simulator used more CPU than allowed or was throttled, so the figures are not the service's.
    InferenceCpu,
    /// The service process ended or was replaced during the trial.
    ServiceRestarted,
    /// A worker's clock jumped.
    ClockStep,
    /// The service's counters were not read at the start and the end of the window.
    ReadingLate,
    /// The window has too few samples for the percentile of an objective.
    WindowShort,
    /// The service failed its protocol check.
    Conformance,
    /// A CPU was shared although the plan asked for an exclusive one.
    Isolation,
    /// Other programs or the hypervisor used more of the trial's CPUs than the plan allows.
    MachineBusy,
}

impl ReasonKind {
    /// Whether the rule says that the harness (the generator or the inference simulator) could not offer the load.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::GeneratorLate | Self::GeneratorCpu | Self::SendRate | Self::InferenceCpu)
    }
}

impl fmt::Display for ReasonKind {
    /// Writes the rule's name as files spell it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)
    }
}

/// Comparison of a trial with its objectives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Whether all objectives are met.
    pub passed: bool,
    /// Each objective with the value of its figure.
    pub objectives: Vec<Judged>,
}

/// One objective with the value of its figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// The objective that was compared.
    pub objective: Objective,
    /// Value of the figure; absent if it could not be computed, which fails the objective.
    pub seen: Option<f64>,
    /// Whether the objective is met. A budget of errors is met here unless it is shown to be missed; `budget` says
    /// whether it is shown to be met.
    pub passed: bool,
    /// What the errors of the trial show about an error share; absent for other figures, for a budget of 0 and in older
    /// bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<ErrorBudget>,
}

/// What counted errors show about a bound on their share, at 95 % confidence (Clopper & Pearson, 1934).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorBudget {
    /// Failures in the window.
    pub failures: u64,
    /// Replies in the window, among which they are counted.
    pub messages: u64,
    /// Connections with a failure; absent where failures aren't counted by connection.
    pub failing_connections: Option<u64>,
    /// Largest number of failures of one connection; absent where failures aren't counted by connection.
    pub most_failures: Option<u64>,
    /// The share is at most this, 0 to 1.
    pub upper_bound: f64,
    /// Whether these counts show that the budget is met, that it is missed, or neither.
    pub shown: Shown,
    /// Replies that would show that the budget is met, with the failures seen; absent where it is shown or missed.
    pub messages_needed: Option<u64>,
}

/// What counts show about an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Shown {
    /// The share is within the budget.
    Met,
    /// Too few messages were counted to tell.
    NotShown,
    /// The share exceeds the budget.
    Missed,
}

/// What limited a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BoundBy {
    /// The service used up its CPU, its quota or one of its threads, so the figure is its capacity.
    Service,
    /// The generator used up its CPU, its quota or one of its threads, so the figure is a lower bound, printed with `>=`.
    Generator,
    /// Service and generator both did.
    Both,
    /// Nothing that was looked at was used up; the limit may be a lock or a flow-control window.
    Neither,
    /// The inference simulator did, or answered late, so the figure says nothing about the service.
    Inference,
    /// A thread had work and waited for a CPU that others used, so the figure says nothing about the service.
    Machine,
}

/// One thing that was looked at to say what limited a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundCheck {
    /// The side that was looked at.
    pub side: BoundSide,
    /// What was looked at.
    pub measure: BoundMeasure,
    /// The share that was seen, 0 to 1; of several processes of a side, the largest.
    pub share: f64,
    /// The share from which it counts as used up, 0 to 1.
    pub limit: f64,
    /// Name of the thread; absent where no single thread was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

impl BoundCheck {
    /// Whether the share reaches its limit.
    pub fn reached(&self) -> bool {
        self.share >= self.limit
    }
}

/// A side of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BoundSide {
    /// The service with its companions.
    Service,
    /// The workers, all of them together.
    Generator,
    /// The inference simulator behind the service.
    Inference,
}

/// What is looked at on a side of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BoundMeasure {
    /// CPU time, as a share of the CPUs that the side may use.
    Cpu,
    /// Periods of its CPU quota in which the side was throttled, as a share of all periods.
    Quota,
    /// Time in which the busiest thread ran or waited for a CPU, as a share of the window.
    Thread,
    /// Time in which that thread waited for a CPU, as a share of the window.
    Waiting,
    /// Results of the inference simulator that were computed after they were due, as a share of all.
    Late,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_printed_with_its_rules_name_in_files() {
        let reason = Reason { kind: ReasonKind::GeneratorCpu, detail: "it had none left".into() };
        assert_eq!(reason.to_string(), "generator_cpu: it had none left");
    }
}
