//! The order in which a plan's trials are climbed.

use bench_format::{Name, plan::ServiceProcess, trial::TrialId};

use super::{Ladder, Plan};

impl Plan {
    /// All trials in climbing order.
    ///
    /// With a fresh process per repeat, the services take turns, and their order turns with each repeat (A B, B A, A B),
    /// so that a drift over minutes affects all of them alike. So do ladders that put one load on the same services in
    /// several variants: those of a service follow each other, because they are compared. With one process per tier, a
    /// service's repeats stay together.
    pub fn trials(&self) -> Vec<TrialId> {
        let takes_turns = self.wire.service_process == ServiceProcess::Repeat;
        let mut trials = Vec::new();
        let are_variants = |one: &Ladder, next: &Ladder| one.shared_by_variants() == next.shared_by_variants();
        for variants in self.ladders.chunk_by(|one, next| takes_turns && are_variants(one, next)) {
            let Ladder { tiers, services, repeats, .. } = &variants[0];
            let rounds = if takes_turns { *repeats } else { 1 };
            let turns = tiers.iter().flat_map(|tier| (1..=rounds).map(move |process| (*tier, process)));
            for (tier, process) in turns {
                for service in in_turn(services, process) {
                    for ladder in in_turn(variants, process) {
                        let of = |repeat| ladder.trial(service, tier, process, repeat);
                        trials.extend((1..=repeats / rounds).map(of));
                    }
                }
            }
        }
        trials
    }
}

impl Ladder {
    /// Everything of two variants that is the same: they differ in how their services are started, by variables or in
    /// the number of processes.
    fn shared_by_variants(&self) -> impl PartialEq {
        let Self { workload, tiers, load, message, inference_env, services, .. } = self;
        let Self { repeats, warmup, longer_warmups, window, connections, search, .. } = self;
        let offered = (workload, tiers, load, message, inference_env, services);
        (offered, repeats, warmup, longer_warmups, window, connections, search)
    }

    fn trial(&self, service: &Name, tier: u32, process: u32, repeat: u32) -> TrialId {
        let (service, workload, variant) = (service.clone(), self.workload.clone(), self.variant.clone());
        TrialId { service, workload, variant, tier, process, repeat }
    }
}

/// The items in their order for odd processes, and in the opposite one for even processes.
fn in_turn<T>(items: &[T], process: u32) -> impl Iterator<Item = &T> {
    let last = items.len().saturating_sub(1);
    let is_turned = process.is_multiple_of(2);
    (0..items.len()).map(move |at| &items[if is_turned { last - at } else { at }])
}
