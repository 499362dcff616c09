//! Plan files: mistakes are reported, each with its file, and a plan without mistakes can be counted and written again.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use operator::plan::{Plan, TrialFilter, read};
use ws_ladder_fuzz::{MACHINE, REGISTRY};

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
            plan.notes(1 << 20);
            let written = serde_json::to_string(&plan.wire).expect("a plan can be stored");
            let again = read::parse(&written, path).and_then(|wire| Plan::check(wire, path, &REGISTRY, &MACHINE));
            assert!(again.is_ok(), "{written}");
        }
    }
});
