//! Plan files: mistakes are reported, each with its file, and a plan without mistakes can be counted and written again.
#![no_main]

use std::{path::Path, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use operator::{
    plan::{Plan, TrialFilter, check::MachineLimits, read},
    registry::Registry,
};

/// The registry of this checkout.
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../services/services.toml");
    Registry::load(Path::new(path)).expect("the registry is valid")
});
const MACHINE: MachineLimits = MachineLimits { cpus: 2, no_fractions: None };

fuzz_target!(|text: &str| {
    let path = Path::new("plan.yaml");
    let checked = read::parse(text, path).and_then(|wire| Plan::check(wire, path, &REGISTRY, &MACHINE));
    match checked {
        Err(mistakes) => {
            assert!(!mistakes.0.is_empty());
            assert!(mistakes.0.iter().all(|mistake| mistake.file == path && !mistake.message.is_empty()));
        }
        Ok(plan) => {
            plan.trials();
            plan.searches(&TrialFilter::default());
            assert!(plan.seconds().is_finite() && plan.seconds_of_rounds().is_finite());
            plan.notes();
            let written = serde_json::to_string(&plan.wire).expect("a plan can be stored");
            let again = read::parse(&written, path).and_then(|wire| Plan::check(wire, path, &REGISTRY, &MACHINE));
            assert!(again.is_ok(), "{written}");
        }
    }
});
