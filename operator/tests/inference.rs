//! Tests of the inference simulator behind a gateway: how `ladder run` starts, measures and stops it, and what a plan
//! or a service's name on the command line selects.

use std::fs;

use bench_format::run::TrialState;
use fakes::{Checkout, is_alive, output_text, wait_for};
use rustix::process::{Pid, Signal, kill_process};

mod fakes;

const RUN: &str = "run fake --run-id r --no-report";

/// The process id that the last started inference wrote to a file.
fn pid(checkout: &Checkout) -> Option<u32> {
    fs::read_to_string(checkout.path("inference-pid")).ok()?.parse().ok()
}

/// The values of a variable in a log of a trial.
fn logged(checkout: &Checkout, service: &str, log: &str, name: &str) -> Vec<String> {
    let path = checkout.path(&format!("results/r/trials/{service}/throughput/standard/4-p1-r1/{log}"));
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter_map(|line| line.strip_prefix(&format!("{name}="))).map(str::to_owned).collect()
}

#[test]
fn a_gateway_gets_the_url_of_its_inference_and_both_are_measured_and_stopped() {
    let checkout = Checkout::new();
    checkout.gateway("gateway", "honest");
    checkout.plan("fake", "services: [gateway]\n", "  inference_env: {FAKE_SETTING: ladder}\n");
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let url = logged(&checkout, "gateway", "service.log", "INFERENCE_URL");
    assert!(url[0].starts_with("http://127.0.0.1:"), "{url:?}");
    assert_eq!(logged(&checkout, "gateway", "inference.log", "FAKE_SETTING"), ["ladder"]);
    let run = checkout.run_file();
    assert_eq!(run.versions["behind-gateway"], "inference 1");
    assert!(run.cpu_roles.contains_key("inference"), "{:?}", run.cpu_roles);
    let service = &checkout.results()[0].service;
    let read = [&service.before, &service.window_start, &service.window_end, &service.after];
    let pids = read.map(|reading| reading.as_ref().unwrap().inference.as_ref().unwrap().pid);
    assert_eq!(pids, [pid(&checkout).unwrap(); 4]);
    assert!(checkout.results()[0].figures.inference_cpu_share.is_some());
    assert!(!is_alive(pids[0]), "inference outlived ladder");
}

#[test]
fn every_service_of_a_tier_gets_a_fresh_inference_with_the_same_seed() {
    let checkout = Checkout::new();
    checkout.gateway("one", "honest");
    checkout.gateway("two", "honest");
    checkout.plan("fake", "services: [one, two]\n", "");
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let seed = |service: &str| logged(&checkout, service, "inference.log", "MODEL_SEED");
    assert_eq!((seed("one"), seed("one").len()), (seed("two"), 1));
    let pids: Vec<u32> = checkout
        .results()
        .iter()
        .map(|result| result.service.before.as_ref().unwrap().inference.as_ref().unwrap().pid)
        .collect();
    assert_ne!(pids[0], pids[1]);
}

#[test]
fn inference_that_does_not_become_ready_fails_the_trial_and_its_service_is_not_started() {
    let checkout = Checkout::new();
    checkout.gateway("gateway", "never-ready");
    checkout.plan("fake", "services: [gateway]\n", "");
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    let TrialState::Failed { reason } = &checkout.run_file().trials[0].state else {
        panic!("{}", output_text(&output))
    };
    assert!(reason.contains("inference did not become ready: it ended without a ready line"), "{reason}");
    assert!(!checkout.path("results/r/trials/gateway/throughput/standard/4-p1-r1/service.log").exists());
}

#[test]
fn inference_that_dies_in_the_window_fails_only_that_trial_and_the_reason_is_reported() {
    let checkout = Checkout::new();
    checkout.gateway("gateway", "honest");
    checkout.plan("fake", "services: [gateway, honest]\n", "  window_seconds: 3\n");
    let mut ladder = checkout.ladder(RUN);
    let ladder = ladder.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let log = checkout.path("results/r/trials/gateway/throughput/standard/4-p1-r1/workers/0.log");
    wait_for("load", || fs::read_to_string(&log).is_ok_and(|text| text.contains("was released")));
    kill_process(Pid::from_raw(pid(&checkout).unwrap() as i32).unwrap(), Signal::KILL).unwrap();
    let output = ladder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    let run = checkout.run_file();
    let TrialState::Failed { reason } = &run.trials[0].state else { panic!("{}", output_text(&output)) };
    assert!(reason.contains("inference ended (signal: 9 (SIGKILL))"), "{reason}");
    assert!(output_text(&output).contains("inference ended"), "{}", output_text(&output));
    assert!(matches!(run.trials[1].state, TrialState::Finished { .. }), "{:?}", run.trials[1].state);
}

#[test]
fn a_service_name_in_place_of_a_plan_climbs_the_plan_of_its_protocol() {
    let checkout = Checkout::new();
    checkout.gateway("gateway", "honest");
    let output = checkout.run("run gateway --run-id r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let result = &checkout.results()[0];
    assert_eq!(result.reproduce, "ladder run fake --service gateway --only throughput/standard/4");
    checkout.plan("gateway", "services: [gateway]\n", "");
    let output = checkout.run("run gateway --no-report");
    assert!(output_text(&output).contains("\"gateway\" is both a plan and a service"), "{}", output_text(&output));
}

#[test]
fn an_unknown_name_is_an_error_with_a_suggestion() {
    let checkout = Checkout::new();
    let output = checkout.run("run honset --no-report");
    assert_eq!(output.status.code(), Some(2));
    let found = output_text(&output);
    assert!(
        found.contains("\"honset\" is neither a plan in plans/ nor a service; did you mean \"honest\"?"),
        "{found}"
    );
    let output = checkout.run("run zzzz --no-report");
    assert!(
        output_text(&output).contains("plans: fake; services: dies, honest, liar, never-ready"),
        "{}",
        output_text(&output)
    );
}
