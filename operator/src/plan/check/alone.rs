//! Checks what a ladder says by itself, for a reader of bundles, who has no registry: that its names are names, and
//! that its times and its search can be computed with. Pure.

use std::{collections::BTreeMap, path::Path};

use bench_format::plan::{WireLadder, WirePlan};

use super::{Check, MachineLimits, Mistake};
use crate::registry::Registry;

/// The mistakes in a ladder's names, times and search; empty if it can be resolved.
pub fn mistakes(ladder: &WireLadder, plan: &WirePlan, path: &Path) -> Vec<Mistake> {
    let machine_limits = MachineLimits { cpus: usize::MAX, no_fractions: None };
    let mut check = Check { path, registry: &empty_registry(), machine_limits: &machine_limits, found: Vec::new() };
    check.times(plan);
    check.folder_name("workload", &ladder.workload);
    check.folder_name("variant", &ladder.variant);
    for (place, seconds) in [("warmup_seconds", ladder.warmup_seconds), ("window_seconds", ladder.window_seconds)] {
        check.seconds(place, seconds.unwrap_or_default(), 0.0);
    }
    check.seconds("load", ladder.load.ramp_seconds(), 0.0);
    check.search("ladder", ladder, plan);
    check.found
}

/// A registry without services.
pub(crate) fn empty_registry() -> Registry {
    let services = BTreeMap::new();
    Registry { root: Default::default(), protocols: BTreeMap::new(), inference: BTreeMap::new(), services }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::check::fixture::minimal;

    #[test]
    fn a_ladder_that_cannot_be_computed_with_is_refused() {
        let found = |change: fn(&mut WireLadder)| {
            let mut plan = minimal();
            change(&mut plan.ladders[0]);
            mistakes(&plan.ladders[0], &plan, Path::new("run.json")).len()
        };
        assert_eq!(found(|_| ()), 0);
        assert_eq!(found(|ladder| ladder.variant = "../x".into()), 1);
        assert_eq!(found(|ladder| ladder.window_seconds = Some(-1.0)), 1);
        assert_eq!(found(|ladder| ladder.warmup_seconds = Some(f64::NAN)), 1);
    }
}
