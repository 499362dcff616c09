//! What a plan can't show, worked out before it is climbed. Pure.

use bench_format::plan::{Figure, Load, Objective};
use judge::{error_budget::ErrorCounts, verdict::error_budget};
use ws_bench::descriptors::{self, Room};

use super::{Ladder, Plan};

/// Replies of each session per second: a gateway flushes once a second (`services/README.md`, "Gateways").
const REPLIES_PER_SESSION_SECOND: f64 = 1.0;

impl Plan {
    /// A sentence for each error budget that a tier's trials are too few to show, even if none of their messages fails,
    /// and for each tier whose connections come and go so fast that workers with this number of open files may run out of
    /// them.
    pub fn notes(&self, open_files: u64) -> Vec<String> {
        let budgets = self.ladders.iter().flat_map(notes);
        budgets.chain(self.ladders.iter().flat_map(|ladder| self.descriptors(ladder, open_files))).collect()
    }

    fn descriptors(&self, ladder: &Ladder, open_files: u64) -> Vec<String> {
        let of_tier = |&tier: &u32| {
            let (needed, seconds) = descriptors::needed(&ladder.load, tier, self.drain.as_secs_f64())?;
            let Room { open_files, connections } = Room::of(open_files, self.workers_for(ladder, tier));
            (needed > connections).then(|| {
                format!(
                    "{}/{}/{tier}: a service that answers nothing holds each connection for {seconds} s after it had to go, \
                     {needed} together with those of the tier, and {open_files} open files of each worker allow {connections}; \
                     attempts beyond that are not made, which makes a trial invalid: raise `ulimit -n`, use more workers, \
                     or lower drain_seconds",
                    ladder.workload, ladder.variant
                )
            })
        };
        ladder.tiers.iter().filter_map(of_tier).collect()
    }
}

fn notes(ladder: &Ladder) -> Vec<String> {
    let budgets = ladder.objectives.iter().filter(|objective| objective.figure == Figure::ErrorShare);
    let tiers = || ladder.tiers.iter().copied();
    budgets.flat_map(|objective| tiers().filter_map(|tier| note(ladder, tier, objective))).collect()
}

fn note(ladder: &Ladder, tier: u32, objective: &Objective) -> Option<String> {
    let counts = ErrorCounts { messages: replies(ladder, tier)?, ..ErrorCounts::default() };
    let budget = error_budget(objective, &counts)?;
    let (needed, most) = (budget.messages_needed?, objective.at_most?);
    let name = format!("{}/{}/{tier}", ladder.workload, ladder.variant);
    let (replies, bound) = (counts.messages, budget.upper_bound);
    Some(format!(
        "{name}: error_share <= {most} can't be shown: its {replies} replies show {bound:.1e} at best, and {needed} without an error \
         would show it; make the window longer or the repeats more, or allow more"
    ))
}

/// Replies of a tier over all its repeats; `None` where the plan doesn't set their rate.
fn replies(ladder: &Ladder, tier: u32) -> Option<u64> {
    let per_second = match ladder.load {
        Load::Sessions { .. } => f64::from(tier) * REPLIES_PER_SESSION_SECOND,
        Load::Open { rate_per_second, .. } | Load::Churn { rate_per_second, .. } => rate_per_second,
        Load::Closed { .. } | Load::Reconnect { .. } => return None,
    };
    Some((per_second * ladder.window.as_secs_f64() * f64::from(ladder.repeats)).round() as u64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        plan::check::fixture::{machine_limits, minimal, registry},
        registry::LoadModel,
    };

    fn notes_of(replies_per_second: u32, window_seconds: f64, at_most: f64) -> Vec<String> {
        let mut plan = minimal();
        plan.window_seconds = window_seconds;
        let ladder = &mut plan.ladders[0];
        ladder.load = Load::Open { rate_per_second: f64::from(replies_per_second), arrivals: Default::default() };
        ladder.objectives = vec![Objective { figure: Figure::ErrorShare, at_most: Some(at_most), at_least: None }];
        Plan::check(plan, Path::new("p.yaml"), &registry(), &machine_limits()).unwrap().notes(1 << 20)
    }

    #[test]
    fn a_budget_that_too_few_replies_can_show_is_announced() {
        let notes = notes_of(1000, 45.0, 1e-5);
        let expected = "throughput/standard/10: error_share <= 0.00001 can't be shown: its 45000 replies show 6.7e-5 at best, \
                        and 299572 without an error would show it; make the window longer or the repeats more, or allow more";
        assert_eq!(notes, [expected]);
    }

    #[test]
    fn connections_that_may_outnumber_the_descriptors_are_announced() {
        let notes = |open_files| {
            let mut plan = minimal();
            plan.drain_seconds = 10.0;
            let load = "{ model: churn, rate_per_second: 100, connections_per_second: 100 }";
            plan.ladders[0].load = serde_saphyr::from_str(load).unwrap();
            let mut registry = registry();
            registry.protocols.values_mut().for_each(|protocol| protocol.loads.push(LoadModel::Churn));
            Plan::check(plan, Path::new("p.yaml"), &registry, &machine_limits()).unwrap().notes(open_files)
        };
        assert_eq!(notes(1610), Vec::<String>::new());
        let note = notes(1609);
        assert!(
            note[0].starts_with("throughput/standard/10: a service that answers nothing holds each connection"),
            "{note:?}"
        );
        assert!(
            note[0].contains("for 15 s after it had to go, 1510 together with those of the tier, and 1609 open files"),
            "{note:?}"
        );
    }

    #[test]
    fn a_budget_that_can_be_shown_and_one_of_zero_need_no_note() {
        assert_eq!(notes_of(1000, 300.0, 1e-5), Vec::<String>::new());
        assert_eq!(notes_of(1000, 1.0, 0.0), Vec::<String>::new(), "a share of 0 is compared with what was seen");
    }
}
