//! `comparison` in `run.json`: two sides that are measured in pairs until an always-valid interval decides.
//!
//! A pair is one fresh process of each side, measured one after the other; its number is the `process` of both trials.
//! Log ratios are ln(A / B).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

/// What a run compares, and what its pairs have shown so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The side that is the numerator of every ratio.
    pub a: ComparedSide,
    /// The side that is the denominator, and may be shown to be worse.
    pub b: ComparedSide,
    /// Name of the workload.
    pub workload: Name,
    /// Variant of the ladder.
    pub variant: Name,
    /// The load at which both sides are measured.
    pub tier: u32,
    /// Number of valid pairs after which the comparison ends undecided.
    pub pairs_at_most: u32,
    /// The figures that the command line asked for; empty if those of the load decide.
    pub asked: Vec<ComparedFigure>,
    /// What the pairs have shown so far.
    pub progress: ComparisonProgress,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparedSide {
    /// The service's name in the run's plan and trials.
    pub service: Name,
    /// The service's name in the registry that it is from.
    pub registered: Name,
    /// The checkout that the service is from.
    pub source: SideSource,
    /// Git commit of that checkout, with `+changes` if it had uncommitted changes; empty outside a checkout.
    pub commit: String,
}

/// The checkout that a side is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SideSource {
    /// The checkout of the run.
    Registry,
    /// Another checkout of this machine.
    Checkout {
        /// Path of its root.
        path: String,
    },
    /// A commit, which ladder checked out and built.
    Commit {
        /// The revision as it was given.
        revision: String,
    },
}

/// What the pairs of a comparison have shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparisonProgress {
    /// The figures that decide, each at its share of the 5 %; empty before the first pair.
    pub figures: Vec<ComparedFigure>,
    /// What each valid pair added, in order.
    pub looks: Vec<Look>,
    /// Pairs that don't count because one of their trials was invalid. Each was measured again.
    pub dropped: Vec<DroppedPair>,
    /// How the comparison ended; absent while it hasn't.
    pub end: Option<ComparisonEnd>,
}

/// The deciding figures after one more pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Number of the pair that was added: the `process` of its trials.
    pub pair: u32,
    /// Each deciding figure. One that is decided stays as it was then.
    pub figures: Vec<FigureLook>,
}

/// One figure of both sides over the pairs that it was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FigureLook {
    /// Which of the comparison's deciding figures it is.
    pub figure: ComparedFigure,
    /// Number of valid pairs that the rest is from.
    pub pairs: u32,
    /// Geometric mean over A's processes, in the figure's unit.
    pub a: f64,
    /// Geometric mean over B's processes, in the figure's unit.
    pub b: f64,
    /// Geometric mean of the pairs' ratios A / B.
    pub ratio: f64,
    /// The ratio's always-valid interval; absent while it is unbounded.
    pub interval: Option<RatioInterval>,
    /// What the interval says.
    pub verdict: ComparisonVerdict,
    /// Number of pairs, fixed beforehand, that would show a difference of 5 % with a probability of 0.9; absent unless
    /// no difference was shown, and where it would take more than 100 000.
    pub pairs_needed: Option<u32>,
}

/// Both ends of an always-valid interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RatioInterval {
    /// Smallest ratio that the pairs allow.
    pub low: f64,
    /// Largest ratio that the pairs allow.
    pub high: f64,
}

/// A pair that doesn't count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DroppedPair {
    /// Number of the pair: the `process` of its trials.
    pub pair: u32,
    /// Name of the service whose trial was invalid, in the run's plan.
    pub service: Name,
    /// Why the trial doesn't count.
    pub reason: String,
}

/// What the interval of a ratio says about two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonVerdict {
    /// The interval leaves out 1.
    Differs,
    /// The interval lies within 5 % of 1.
    Same,
    /// Neither, and no more pairs are measured.
    NotShown,
    /// Neither, and more pairs may decide.
    Undecided,
    /// The generator limited a rate, so that more pairs would not tell.
    GeneratorBound,
}

/// How a comparison ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "end", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ComparisonEnd {
    /// Every deciding figure was decided.
    Decided,
    /// The largest number of pairs was measured, and at least one figure is not decided.
    PairsAtMost,
    /// There is nothing to compare.
    NotComparable {
        /// Message that says why there is nothing to compare.
        reason: String,
    },
}

/// A figure by which two sides can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ComparedFigure {
    /// Connections opened per second.
    AcceptedPerSecond,
    /// Messages per second that the witness confirms as delivered.
    DeliveredPerSecond,
    /// Messages per second that the service received.
    ReceivedPerSecond,
    /// Median of the response time, in nanoseconds.
    P50OfResponse,
    /// 99th percentile of the response time, in nanoseconds.
    P99OfResponse,
    /// Median of the age of the newest audio of a reply, in nanoseconds.
    P50OfNewest,
    /// 95th percentile of the age of the newest audio of a reply, in nanoseconds.
    P95OfNewest,
    /// Median of the time to open a connection, in nanoseconds.
    P50OfHandshake,
    /// 99th percentile of the time to open a connection, in nanoseconds.
    P99OfHandshake,
    /// CPU seconds of the service per million messages.
    CpuPerMillion,
    /// Memory of the service per open connection, in bytes.
    MemoryPerConnection,
}

impl ComparedFigure {
    /// All figures, in the order of a table.
    pub const ALL: [Self; 11] = [
        Self::AcceptedPerSecond,
        Self::DeliveredPerSecond,
        Self::ReceivedPerSecond,
        Self::P50OfResponse,
        Self::P99OfResponse,
        Self::P50OfNewest,
        Self::P95OfNewest,
        Self::P50OfHandshake,
        Self::P99OfHandshake,
        Self::CpuPerMillion,
        Self::MemoryPerConnection,
    ];

    /// The name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::AcceptedPerSecond => "accepted-per-second",
            Self::DeliveredPerSecond => "delivered-per-second",
            Self::ReceivedPerSecond => "received-per-second",
            Self::P50OfResponse => "p50-of-response",
            Self::P99OfResponse => "p99-of-response",
            Self::P50OfNewest => "p50-of-newest",
            Self::P95OfNewest => "p95-of-newest",
            Self::P50OfHandshake => "p50-of-handshake",
            Self::P99OfHandshake => "p99-of-handshake",
            Self::CpuPerMillion => "cpu-per-million",
            Self::MemoryPerConnection => "memory-per-connection",
        }
    }

    /// Whether the figure is a rate, which a schedule sets and which the generator can limit.
    pub fn is_rate(self) -> bool {
        matches!(self, Self::AcceptedPerSecond | Self::DeliveredPerSecond | Self::ReceivedPerSecond)
    }

    /// Whether the side with the larger figure is the better one.
    pub fn more_is_better(self) -> bool {
        self.is_rate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_figure_is_the_one_in_files() {
        for figure in ComparedFigure::ALL {
            assert_eq!(serde_json::to_value(figure).unwrap(), figure.name());
        }
    }
}
