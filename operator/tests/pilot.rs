//! Tests of `ladder pilot` as a process: which trials it makes, that it can be resumed, and what decides its exit code.
//! A script takes the place of the analysis, whose rule has its own tests.

use std::fs;

use bench_format::{
    run::{Run, RunState, TrialState},
    timeline::TimelineStep,
};
use driver::fixture::write_program;
use fakes::{Checkout, output_text, wait_for};
use rustix::process::{Pid, Signal, kill_process};

mod fakes;

/// A checkout with a plan of two tiers and a warm-up, and an analysis that calls every pilot of the service `liar` not
/// steady.
fn checkout() -> Checkout {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest, liar]\nrepeats: 2\n", "  warmup_seconds: 30\n");
    let path = checkout.path("plans/fake.yaml");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("tiers: [4]", "tiers: [2, 4]")).unwrap();
    let pilot =
        |process: u32| format!(r#"{{"trial": "liar/throughput/standard/4-p{process}-r1", "state": "not-steady"}}"#);
    let pilots: Vec<String> = (1..=3).map(pilot).collect();
    let script = format!(
        "#!/bin/sh\n[ \"$2\" = --json ] && echo '{{\"ladders\": [{{\"pilots\": [{}]}}]}}' || echo \"levels of $3\"\nexit 1\n",
        pilots.join(", ")
    );
    write_program(&checkout.path("bin/analysis"), &script);
    checkout
}

/// Starts the pilots, stops them in the first trial, and makes their windows short.
fn interrupted() -> Checkout {
    let checkout = checkout();
    let mut child = checkout.ladder("pilot fake --run-id r --no-rest").spawn().unwrap();
    let started = |run: Run| matches!(run.trials[0].state, TrialState::Started { .. });
    wait_for("the first pilot", || operator::store::read_run(&checkout.path("results/r")).is_ok_and(started));
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(shape(&checkout.run_file()), [("honest", 4, 1, 60.0), ("liar", 4, 1, 60.0)]);
    let path = checkout.path("results/r/run.json");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("\"window_seconds\": 60.0", "\"window_seconds\": 0.2"))
        .unwrap();
    checkout
}

/// Service, tier, process and window of each trial.
fn shape(run: &Run) -> Vec<(&str, u32, u32, f64)> {
    let of = |entry: &'_ bench_format::run::TrialEntry| {
        (entry.trial.tier, entry.trial.process, entry.pilot.expect("all trials are pilots").window_seconds)
    };
    let named = run.trials.iter().map(|entry| (entry.trial.service.as_str(), of(entry)));
    named.map(|(service, (tier, process, seconds))| (service, tier, process, seconds)).collect()
}

/// Numbers of the processes of a service that were started.
fn processes(checkout: &Checkout, service: &str) -> Vec<u32> {
    let timeline = operator::store::read_timeline(&checkout.path("results/r"));
    let starts = timeline.into_iter().filter(|entry| entry.step == TimelineStep::StartService);
    starts.filter_map(|entry| entry.trial).filter(|trial| trial.service == service).map(|trial| trial.process).collect()
}

#[test]
fn pilots_without_a_steady_state_are_made_again_twice_as_long_on_fresh_processes() {
    let checkout = interrupted();
    let output = checkout.run("run --resume r --report-command bin/analysis");
    assert_eq!(output.status.code(), Some(1), "the analysis decides:\n{}", output_text(&output));
    let run = checkout.run_file();
    let expected = [("honest", 4, 1, 0.2), ("liar", 4, 1, 0.2), ("liar", 4, 2, 0.4), ("liar", 4, 3, 0.8)];
    assert_eq!((shape(&run), run.state), (expected.into(), RunState::Finished));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("levels of "), "{}", output_text(&output));
    let results = checkout.results();
    assert_eq!(results[1].reproduce, "ladder pilot fake --service liar --only throughput/standard/4");
    assert_eq!(processes(&checkout, "liar"), [1, 2, 3], "each pilot has a fresh process");
    // With the plan's warm-up of 30 s this test would still run.
    checkout.verify();
}

#[test]
fn pilots_whose_analysis_fails_are_not_measured_and_can_be_judged_later() {
    let checkout = interrupted();
    let output = checkout.run("run --resume r --report-command false");
    assert_eq!(output.status.code(), Some(2));
    let text = output_text(&output);
    assert!(text.contains("failed to look for the steady state of the pilots"), "{text}");
    assert_eq!((checkout.run_file().trials.len(), checkout.run_file().state), (2, RunState::Running));
    let output = checkout.run("run --resume r --report-command bin/analysis");
    assert_eq!((output.status.code(), checkout.run_file().trials.len()), (Some(1), 4), "{}", output_text(&output));
}

#[test]
fn pilots_that_no_run_makes_are_not_resumed() {
    let checkout = interrupted();
    let path = checkout.path("results/r/run.json");
    let whole: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (place, value) in [
        ("/trials/0/trial/process", serde_json::json!(4)),
        ("/trials/0/trial/tier", serde_json::json!(5)),
        ("/trials/0/pilot/window_seconds", serde_json::json!(1e300)),
        ("/trials/0/pilot/window_seconds", serde_json::json!(-1)),
    ] {
        let mut changed = whole.clone();
        *changed.pointer_mut(place).unwrap() = value;
        fs::write(&path, serde_json::to_vec(&changed).unwrap()).unwrap();
        let output = checkout.run("run --resume r --report-command bin/analysis");
        assert_eq!(output.status.code(), Some(2), "{place}");
        assert!(output_text(&output).contains("is not a trial of its plan"), "{}", output_text(&output));
    }
}

#[test]
fn a_plan_or_tier_without_trials_has_no_pilots() {
    let checkout = checkout();
    let output = checkout.run("pilot fake --only throughput/standard/9 --no-rest");
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("plans/fake.yaml is left to climb"), "{}", output_text(&output));
}
