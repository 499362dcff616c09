//! Tests of `ladder search` as a process, against a service of known capacity: its result, and that a resumed search
//! decides the same.

use std::fs;

use bench_format::{
    result::Validity,
    run::{Crash, CrashCause, Edge, Run, RunState, Search, SearchStep, SearchTrial, TrialEntry, TrialState},
    timeline::TimelineStep,
};
use fakes::{Checkout, output_text, wait_for};
use rustix::process::{Pid, Signal, kill_process};

mod fakes;

/// Number of connections up to which the fake service responds in time.
const CAPACITY: &str = "21";

/// A checkout with a plan that searches for the largest number of connections with a median response of at most 100 ms.
fn checkout(services: &str) -> Checkout {
    let checkout = Checkout::new();
    let text = format!(
        "schema: 1
name: fake
why: a test
seed: 1
services: [{services}]
warmup_seconds: 0
window_seconds: 1
drain_seconds: 2
ladders:
  - workload: throughput
    load: {{ model: open, rate_per_second: 10 }}
    objectives:
      - {{ figure: {{ percentile_ms: {{ histogram: response, percentile: 50 }} }}, at_most: 100 }}
    search:
      from: 4
      to: 80
      final_trial_seconds: 0.1
      duration_sum_seconds: 0.1
      width: 0.05
      rounds: {{ window_seconds: 0.2, at_least: 6, at_most: 9 }}
"
    );
    fs::write(checkout.path("plans/fake-search.yaml"), text).unwrap();
    checkout
}

fn search(checkout: &Checkout, arguments: &str) -> std::process::Output {
    checkout.ladder(arguments).env("FAKE_CAPACITY", CAPACITY).output().unwrap()
}

fn is_round(purpose: &Option<SearchTrial>) -> bool {
    purpose.is_some_and(|purpose| purpose.step == SearchStep::Round)
}

/// The decisions of a search: load and purpose of each valid trial. On a busy machine a trial may be invalid and
/// repeated.
fn decisions(run: &Run) -> Vec<(u32, Option<SearchTrial>)> {
    let valid = |state: &TrialState| matches!(state, TrialState::Finished { validity: Validity::Valid, .. });
    let decided = run.trials.iter().filter(|entry| valid(&entry.state));
    decided.map(|entry| (entry.trial.tier, entry.search)).collect()
}

/// The steps of a run's searches, each with the service and the process of its trial.
fn steps(run: &Run) -> Vec<(SearchStep, &str, u32)> {
    let of = |entry: &'_ TrialEntry| entry.search.unwrap().step;
    run.trials.iter().map(|entry| (of(entry), entry.trial.service.as_str(), entry.trial.process)).collect()
}

#[test]
fn the_capacity_of_a_service_is_found_and_confirmed() {
    let checkout = checkout("honest");
    let output = search(&checkout, "search honest --run-id r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let run = checkout.run_file();
    let found = run.searches[0].found.as_ref().unwrap();
    let capacity = found.capacity.as_ref().unwrap();
    let estimate = capacity.estimate.unwrap();
    assert!(estimate.low < 22.0 && estimate.high > 21.0, "{found:?}");
    assert!(found.confirmed.is_some_and(|load| (16..=21).contains(&load)), "{found:?}");
    assert!(found.first_solid_fail.is_some_and(|load| (22..=28).contains(&load)), "{found:?}");
    assert_eq!((found.edge, found.gates.len(), found.at_least), (Some(Edge::Latency), 1, false));
    assert_eq!((capacity.start.floor(), capacity.in_turn), (21.0, 1));
    let text = output_text(&output);
    assert!(text.contains("(95 %) within this run, spread") && text.contains("gate response p50 <= 100 ms"), "{text}");
    // One process for all short trials, and one for each other trial.
    let full: Vec<_> = steps(&run).into_iter().filter(|(step, ..)| *step != SearchStep::Bounds).collect();
    let timeline = operator::store::read_timeline(&checkout.path("results/r"));
    let starts = timeline.iter().filter(|entry| entry.step == TimelineStep::StartService).count();
    assert_eq!(starts, 1 + full.len());
    assert_eq!(checkout.result(&run.trials.last().unwrap().trial).figures.window_seconds, 0.2);
    assert_eq!(checkout.run("assert results/r").status.code(), Some(0), "failed trials of a search count as failures");
    assert!(checkout.verify().contains("ok      searches   1 decided again\n"));
}

#[test]
fn a_forged_capacity_is_found_by_deciding_the_search_again() {
    let checkout = checkout("honest");
    search(&checkout, "search honest --run-id r --no-report");
    let path = checkout.path("results/r/run.json");
    let mut run: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let confirmed = run["searches"][0]["found"]["confirmed"].take();
    run["searches"][0]["found"]["confirmed"] = 40.into();
    fs::write(&path, operator::store::json_text(&run)).unwrap();
    let output = checkout.run("verify results/r");
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("run.json: searches[0].found.confirmed: it has 40, and the trial's files give {confirmed}");
    assert!(output_text(&output).contains(&expected), "{}", output_text(&output));
}

#[test]
fn services_take_turns_after_their_short_trials() {
    let checkout = checkout("honest, second");
    checkout.service("second", "honest");
    let output = search(&checkout, "search fake-search --run-id r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let run = checkout.run_file();
    let steps = steps(&run);
    let short = steps.iter().take_while(|(step, ..)| *step == SearchStep::Bounds).count();
    assert!(steps[short..].iter().all(|(step, ..)| *step != SearchStep::Bounds), "{steps:?}");
    let order: Vec<&str> = steps[short..].iter().map(|(_, service, _)| *service).collect();
    assert_eq!(order[..6], ["honest", "second", "second", "honest", "honest", "second"]);
    let in_turn = |search: &Search| search.found.as_ref().unwrap().capacity.as_ref().unwrap().in_turn;
    assert_eq!(run.searches.iter().map(in_turn).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn the_first_short_trial_of_a_process_has_the_warm_up_that_its_service_needs() {
    let checkout = checkout("honest");
    let path = checkout.path("services/services.toml");
    let registry = fs::read_to_string(&path).unwrap();
    let entry = "[services.honest]\n";
    assert!(registry.contains(entry), "{registry}");
    fs::write(&path, registry.replace(entry, &format!("{entry}warmup_seconds = 0.3\n"))).unwrap();
    let output = search(&checkout, "search honest --run-id r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let warmups: Vec<(SearchStep, u64)> = checkout
        .run_file()
        .trials
        .iter()
        .map(|entry| (entry.search.unwrap().step, warmup_ns(&checkout, entry)))
        .collect();
    let short: Vec<u64> = warmups.iter().take_while(|(step, _)| *step == SearchStep::Bounds).map(|one| one.1).collect();
    assert_eq!(short[0], 300_000_000);
    assert!(short.len() > 1 && short[1..].iter().all(|warmup| *warmup == 0), "{short:?}");
    assert!(
        warmups[short.len()..].iter().all(|(_, warmup)| *warmup == 300_000_000),
        "a fresh process each: {warmups:?}"
    );
}

/// The warm-up of a trial, in nanoseconds.
fn warmup_ns(checkout: &Checkout, entry: &TrialEntry) -> u64 {
    let path = checkout.path(&format!("results/r/trials/{}/trial.json", entry.trial));
    let trial: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    trial["warmup_ns"].as_u64().unwrap()
}

#[test]
fn a_resumed_search_makes_the_same_decisions() {
    let uninterrupted = checkout("honest");
    search(&uninterrupted, "search honest --run-id r --no-report");
    let resumed = checkout("honest");
    let mut command = resumed.ladder("search fake-search --run-id r --no-report");
    let mut child = command.env("FAKE_CAPACITY", CAPACITY).spawn().unwrap();
    let many = || {
        let run = operator::store::read_run(&resumed.path("results/r"));
        run.is_ok_and(|run| decisions(&run).iter().filter(|(_, purpose)| is_round(purpose)).count() >= 3)
    };
    wait_for("a few rounds", many);
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(resumed.run_file().searches[0].found.is_none());
    let output = search(&resumed, "run --resume r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let bundle = resumed;
    let (uninterrupted, resumed) = (uninterrupted.run_file(), bundle.run_file());
    assert_eq!((decisions(&resumed), &resumed.searches), (decisions(&uninterrupted), &uninterrupted.searches));
    assert_eq!(resumed.state, RunState::Finished);
    bundle.verify();
}

#[test]
fn a_service_that_dies_under_the_smallest_load_has_no_capacity() {
    let checkout = checkout("dies");
    let output = search(&checkout, "search fake-search --run-id r --no-report");
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let run = checkout.run_file();
    let found = run.searches[0].found.as_ref().unwrap();
    assert_eq!((found.confirmed, found.first_solid_fail, found.edge), (None, Some(4), Some(Edge::Errors)));
    assert_eq!(found.crash, Some(Crash { load: 4, cause: CrashCause::ServiceCrashed }));
    assert!(output_text(&output).contains("ended at 4 (service_crashed)"), "{}", output_text(&output));
    let fails = steps(&run).iter().filter(|(step, ..)| *step == SearchStep::Fail).count();
    assert_eq!(fails, 5, "a load that fails five times of five needs no rounds");
    checkout.verify();
}

#[test]
fn a_plan_that_cannot_be_searched_is_refused_with_the_reason() {
    let checkout = checkout("honest");
    let output = checkout.run("search nothing");
    assert!(
        output_text(&output).contains("\"nothing\" is neither a plan in plans/ nor a service"),
        "{}",
        output_text(&output)
    );
    let output = checkout.run("search fake");
    assert!(
        output_text(&output).contains("plans/fake.yaml has a search; plans/stt-search.yaml shows one"),
        "{}",
        output_text(&output)
    );
    let output = checkout.run("run fake-search");
    assert!(output_text(&output).contains("it has no tiers: use ladder search"), "{}", output_text(&output));
    let output = checkout.run("search honest --from 90");
    assert!(
        output_text(&output).contains("ladders[0].search.to: 80 is not above from (90)"),
        "{}",
        output_text(&output)
    );
}
