//! A `run.json` in which values are changed, as `ladder run --resume` reads it: it is refused, or it has only trials of
//! its plan, and is stored as it was read.
#![no_main]

use std::path::Path;

use bench_format::run::Run;
use libfuzzer_sys::fuzz_target;
use operator::{plan::Plan, resume};
use ws_ladder_fuzz::{MACHINE, REGISTRY, changed};

/// The file of a run of `plans/smoke.yaml`.
const RUN: &str = include_str!("../documents/run.json");

fuzz_target!(|input: &[u8]| {
    let Ok(run) = serde_json::from_value::<Run>(changed(RUN, input)) else { return };
    let stored = serde_json::to_string(&run).expect("a run can be stored");
    let again: Run = serde_json::from_str(&stored).unwrap_or_else(|error| panic!("{error}: {stored}"));
    assert_eq!(serde_json::to_string(&again).expect("a run can be stored"), stored);
    let Ok(plan) = Plan::check(run.plan.clone(), Path::new("run.json"), &REGISTRY, &MACHINE) else { return };
    if resume::check(&run, &plan, &REGISTRY).is_ok() {
        assert!(run.trials.iter().all(|entry| plan.ladder_of(&entry.trial).is_some()), "{stored}");
    }
});
