//! The terms of a workload: the rules that differ between protocols, as data.
//!
//! A protocol's worker states them for each of its workloads when it registers. The judge and the driver read them and
//! know no protocol and no workload by name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    plan::{Figure, Objective},
    witness::Witness,
};

/// The rules that the judge and the driver apply to a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The party that confirms that a message arrived.
    pub witness: Witness,
    /// The service counts replies. The workers' counts of answered messages, and of dropped messages by reason, must
    /// then equal the service's counts of delivered and dropped messages. This holds for gateways, whose replies come
    /// from inference.
    #[serde(default)]
    pub counts_answers: bool,
    /// Reasons of drops that no reply can report to a worker, because the connection has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreported_drops: Vec<String>,
    /// Connections are opened inside the window and the workload measures the opening. None is open when load starts.
    #[serde(default)]
    pub opens_in_window: bool,
    /// The `mode` that the service's publisher must report (`/stats/publisher`); absent where services don't publish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publishes_by: Option<String>,
    /// One connection, the first of the first worker, publishes at the load's rate, and all others receive. The rate is
    /// not divided among the workers.
    #[serde(default, skip_serializing_if = "is_false")]
    pub one_publisher: bool,
    /// Name, without its unit, of the histogram whose largest objective decides when a reply is `late`; absent if no
    /// reply can be late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_by: Option<String>,
    /// Name, without its unit, of the histogram that has one value for each message due in the window, answered or not;
    /// absent where unanswered messages enter no histogram. Only with it the share of late messages is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ages: Option<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Terms {
    /// The age after which a message is late, in nanoseconds: the longest that an objective on the histogram `late_by`
    /// allows; `None` without such an objective.
    pub fn late_after_ns(&self, objectives: &[Objective]) -> Option<u64> {
        let late_by = self.late_by.as_deref()?;
        let allowed = objectives.iter().filter_map(|objective| match &objective.figure {
            Figure::PercentileMs { histogram, .. } if histogram == late_by => objective.at_most,
            _ => None,
        });
        allowed.reduce(f64::max).map(|allowed_ms| (allowed_ms * 1e6) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_late_after_the_longest_response_that_an_objective_allows() {
        let objective = |histogram: &str, percentile, at_most| Objective {
            figure: Figure::PercentileMs { histogram: histogram.into(), percentile },
            at_most: Some(at_most),
            at_least: None,
        };
        let objectives =
            [objective("response", 50.0, 2.0), objective("response", 99.0, 10.5), objective("delay", 99.0, 50.0)];
        let terms = Terms { late_by: Some("response".into()), ..Terms::default() };
        assert_eq!(terms.late_after_ns(&objectives), Some(10_500_000));
        assert_eq!(terms.late_after_ns(&objectives[2..]), None);
        assert_eq!(Terms::default().late_after_ns(&objectives), None, "no reply of such a workload can be late");
    }
}
