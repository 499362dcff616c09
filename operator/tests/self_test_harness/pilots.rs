//! `ladder pilot` must find when the steady state of a service with a known cold start begins.

use std::{cell::Cell, collections::BTreeMap};

use bench_format::run::TrialState;
use serde_json::Value;

use crate::run::{Attempts, Checked, Run, checkout, ensure, is_disturbed, start_command};

/// When the service has answered its late pings: 2 400 at 400 per second.
const COLD_SECONDS: u64 = 6;
/// How much later steady state may be said to begin, in seconds: the answers of the last late pings, and the shortest level.
const LATER: u64 = 3;

/// Pilots of `plans/self-test/pilot.yaml` that are a third as long as usual.
fn pilots() -> Run {
    start_command(&checkout(), &["pilot", "plans/self-test/pilot.yaml", "--seconds", "20", "--json"], &[]).finish()
}

/// Whether no trial, of the doubled ones either, is invalid because of the machine.
fn is_undisturbed(run: &Run) -> bool {
    let undisturbed = |state: &TrialState| match state {
        TrialState::Finished { validity, .. } => !is_disturbed(validity),
        _ => true,
    };
    run.states().iter().all(undisturbed)
}

/// The JSON among the output, which also has the lines for people.
fn printed(run: &Run) -> Value {
    let (from, to) = (run.output.find("\n{").map_or(0, |at| at + 1), run.output.rfind("\n}").map_or(0, |at| at + 2));
    serde_json::from_str(&run.output[from..to]).unwrap_or_else(|error| panic!("{error}:\n{}", run.output))
}

/// The second in which each service's steady state begins; `None` where it has none.
fn starts(printed: &Value) -> BTreeMap<String, Option<u64>> {
    let pilots = printed["ladders"][0]["pilots"].as_array().unwrap();
    let start = |pilot: &Value| (pilot["service"].as_str().unwrap().to_owned(), pilot["start_seconds"].as_u64());
    pilots.iter().map(start).collect()
}

/// Whether a service's steady state begins at this second, or up to `LATER` after it unless it is 0.
fn begins_at(starts: &BTreeMap<String, Option<u64>>, service: &str, second: u64) -> Checked {
    let latest = if second == 0 { 0 } else { second + LATER };
    let start = starts[service];
    ensure(start.is_some_and(|start| (second..=latest).contains(&start)), || {
        format!("{service} begins at {start:?}, not at {second}")
    })
}

#[test]
fn a_cold_service_is_steady_once_it_is_warm_and_an_even_one_from_the_start() {
    // The rule calls 3 % of all steady pilots not steady, or steady later (docs/METHODOLOGY.md, "Warm-up"), and a busy machine
    // more: one of three attempts must be right about both services.
    let attempts = Cell::new(0_u32);
    let is_right = |run: &Run| {
        let starts = starts(&printed(run));
        begins_at(&starts, "self-test-cold", COLD_SECONDS).is_ok() && begins_at(&starts, "self-test-even", 0).is_ok()
    };
    let mut runs = Attempts::with(pilots);
    let run = runs.until(|run| {
        let is_undisturbed = is_undisturbed(run);
        attempts.set(attempts.get() + u32::from(is_undisturbed));
        is_undisturbed && (is_right(run) || attempts.get() >= 3)
    });
    let printed = printed(run);
    let starts = starts(&printed);
    assert_eq!(begins_at(&starts, "self-test-cold", COLD_SECONDS), Ok(()), "\n{}", run.output);
    assert_eq!(begins_at(&starts, "self-test-even", 0), Ok(()), "\n{}", run.output);
    assert!(begins_at(&starts, "self-test-even", COLD_SECONDS).is_err(), "the check can fail");
    assert!(begins_at(&starts, "self-test-cold", 0).is_err(), "the check can fail");
    let warmup = printed["ladders"][0]["warmup_seconds"].as_f64().unwrap();
    assert!(warmup >= 1.5 * COLD_SECONDS as f64, "the warm-up is {warmup} s:\n{}", run.output);
    assert_eq!(run.exit, Some(1), "the plan has no warm-up:\n{}", run.output);
}
