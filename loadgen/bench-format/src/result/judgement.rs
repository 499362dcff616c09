//! What the operator thinks of a trial: whether it may be used, what bound it, and whether it met its objectives.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::Objective;

/// Whether a trial may be used at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Validity {
    /// Usable.
    Valid,
    /// Kept and shown, never in a headline.
    Invalid {
        /// Why; at least one.
        reasons: Vec<Reason>,
    },
}

/// Why a trial is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The rule.
    pub kind: ReasonKind,
    /// What was seen against what is allowed, in words.
    pub detail: String,
}

/// The rules of `docs/METHODOLOGY.md`, "Validity".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// The books don't balance.
    Unaccounted,
    /// A worker didn't deliver a result.
    WorkersMissing,
    /// Workers started too far apart.
    StartSkew,
    /// The generator sent too late.
    GeneratorLate,
    /// The generator ran out of CPU.
    GeneratorCpu,
    /// Too little of the schedule was sent.
    SendRate,
    /// The inference simulator ran out of CPU: what was measured is not the service's.
    InferenceCpu,
    /// The service process died or was replaced during the trial.
    ServiceRestarted,
    /// A clock jumped.
    ClockStep,
    /// The service's counters were not read at the window's edges.
    ReadingLate,
    /// Too few samples for an objective's percentile.
    WindowShort,
    /// The service failed its protocol check.
    Conformance,
    /// A CPU was shared although the plan asked for it exclusively.
    Isolation,
}

impl ReasonKind {
    /// Whether it says that our side, the generator or the inference behind the service, could not offer the load.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::GeneratorLate | Self::GeneratorCpu | Self::SendRate | Self::InferenceCpu)
    }
}

impl fmt::Display for ReasonKind {
    /// Its name in files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)
    }
}

/// Against the objectives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Whether all objectives hold.
    pub passed: bool,
    /// Each objective with what was seen.
    pub objectives: Vec<Judged>,
}

/// One objective and what was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// The objective.
    pub objective: Objective,
    /// The figure; absent when it could not be computed, which fails the objective.
    pub seen: Option<f64>,
    /// Whether it holds.
    pub passed: bool,
}

/// What limited a closed-loop trial or one of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BoundBy {
    /// The service used up its CPU: the figure is its capacity.
    Service,
    /// The generator did: the figure is a lower bound, printed with `>=`.
    Generator,
    /// Both did.
    Both,
    /// Neither did: look for a lock, a window, a single-threaded stage.
    Neither,
    /// The inference simulator behind the service did: the figure says nothing about the service.
    Inference,
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
