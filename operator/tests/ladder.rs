//! Tests of `ladder` as a process: its output, its files, its exit codes, and its behaviour when its services and workers fail.

use std::fs;

use bench_format::{
    result::{FixedWork, ReasonKind, TrialResult, Validity},
    run::{CrashCause, RunState, TrialState},
};
use fakes::{Checkout, finished, output_text};

mod fakes;

const RUN: &str = "run fake --run-id r --no-report";

#[test]
fn a_climb_leaves_a_complete_bundle_and_exits_with_success() {
    let checkout = Checkout::new();
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let run = checkout.run_file();
    assert_eq!((run.state, run.trials.len()), (RunState::Finished, 1));
    assert_eq!(run.versions["honest"], "fake 1");
    assert_eq!(run.versions["fake-worker"], "fake-worker 1");
    let result = checkout.result(&run.trials[0].trial);
    assert_eq!(result.validity, Validity::Valid);
    assert_eq!((result.messages.sent, result.messages.delivered), (40, 40));
    assert_eq!(result.reproduce, "ladder run fake --service honest --only throughput/standard/4");
    let folder = checkout.path("results/r/trials/honest/throughput/standard/4-p1-r1");
    for file in
        ["result.json", "trial.json", "service.json", "service.log", "delay_ns.hlog", "workers/0.json", "workers/0.log"]
    {
        assert!(folder.join(file).is_file(), "{file} is missing");
    }
    assert!(String::from_utf8_lossy(&output.stdout).contains("honest/throughput/standard/4-p1-r1  valid"));
}

#[test]
fn fixed_work_is_timed_around_each_trial_and_compared_with_earlier_trials() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nrepeats: 4\n", "");
    let output = checkout.with_rest(RUN).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let work = |result: TrialResult| result.machine.and_then(|machine| machine.fixed_work);
    let works: Vec<FixedWork> = checkout.results().into_iter().filter_map(work).collect();
    assert_eq!(works.len(), 4, "the CPU time of this machine can be read");
    assert!(works.iter().all(|work| work.rounds == works[0].rounds), "the number of rounds is chosen once");
    for (index, work) in works.iter().enumerate() {
        assert!(!work.cpus.is_empty());
        for time in &work.cpus {
            assert!(time.before_ns > 0 && time.after_ns > 0, "{time:?}");
            assert_eq!(time.median_ns.is_some(), index >= 3, "three trials have a median");
        }
    }
    checkout.verify();
}

#[test]
fn two_workers_make_one_result_whose_counts_are_their_sum() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nworkers: 2\n", "");
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let result = &checkout.results()[0];
    assert_eq!((result.workers.len(), result.connections.open, result.messages.sent), (2, 4, 40));
    assert_eq!(result.histograms["delay_ns"].count, 1000);
}

#[test]
fn two_replicas_are_one_service_whose_books_are_compared_connection_by_connection() {
    let checkout = Checkout::new();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../services/replicas.py");
    fs::copy(program, checkout.path("services/replicas.py")).unwrap();
    checkout.plan("fake", "services: [honest, liar]\nworkers: 2\n", "  replicas: 2\n");
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    let [honest, liar] = &checkout.results()[..] else { panic!("{}", output_text(&output)) };
    assert_eq!((&honest.validity, honest.connections.open, honest.messages.sent), (&Validity::Valid, 4, 40));
    let compared = honest.books.connections.as_ref().unwrap();
    assert_eq!((compared.compared, compared.mismatched), (4, 0));
    let Validity::Invalid { reasons } = &liar.validity else { panic!("valid") };
    assert_eq!(reasons[0].kind, ReasonKind::Unaccounted);
    checkout.verify();
}

#[test]
fn each_tier_has_as_many_workers_as_its_connections_take() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nconnections_per_worker: 2\n", "");
    let path = checkout.path("plans/fake.yaml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("tiers: [4]", "tiers: [2, 5]")).unwrap();
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let found: Vec<_> =
        checkout.results().iter().map(|result| (result.connections.open, result.workers.len())).collect();
    assert_eq!(found, [(2, 1), (5, 3)]);
    checkout.verify();
}

#[test]
fn a_service_that_lies_makes_the_trial_invalid_and_sets_the_exit_code() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [liar]\n", "");
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    let Validity::Invalid { reasons } = &checkout.results()[0].validity else { panic!("valid") };
    assert_eq!(reasons[0].kind, ReasonKind::Unaccounted);
    assert!(output_text(&output).contains("invalid: unaccounted"), "{}", output_text(&output));
}

#[test]
fn an_objective_that_does_not_hold_fails_the_run_and_the_assertion() {
    let checkout = Checkout::new();
    let objective = "  objectives: [{figure: delivered_per_second, at_least: 1000000}]\n";
    checkout.plan("fake", "services: [honest]\n", objective);
    assert_eq!(checkout.run(RUN).status.code(), Some(1));
    let output = checkout.run("assert results/r --junit junit.xml");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output_text(&output).starts_with("fail    honest/throughput/standard/4-p1-r1: delivered_per_second at least")
    );
    let xml = fs::read_to_string(checkout.path("junit.xml")).unwrap();
    let document = roxmltree::Document::parse(&xml).unwrap();
    assert_eq!(document.descendants().filter(|node| node.has_tag_name("failure")).count(), 1);
}

#[test]
fn a_bundle_is_judged_again_and_one_without_trial_files_is_reported() {
    let checkout = Checkout::new();
    assert_eq!(checkout.run(RUN).status.code(), Some(0));
    let folder = checkout.path("results/r/trials/honest/throughput/standard/4-p1-r1");
    let before = fs::read_to_string(folder.join("result.json")).unwrap();
    let output = checkout.run("judge results/r");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(output_text(&output).starts_with("honest/throughput/standard/4-p1-r1: valid"), "{}", output_text(&output));
    assert_eq!(fs::read_to_string(folder.join("result.json")).unwrap(), before);

    let service = fs::read_to_string(folder.join("service.json")).unwrap();
    fs::write(folder.join("service.json"), service.replace("\"sequence_sum\": ", "\"sequence_sum\": 1")).unwrap();
    assert_eq!(checkout.run("judge results/r").status.code(), Some(2));
    assert!(matches!(checkout.states()[0], TrialState::Finished { validity: Validity::Invalid { .. }, .. }));

    fs::remove_file(folder.join("trial.json")).unwrap();
    let output = checkout.run("judge results/r");
    assert_eq!(output.status.code(), Some(1));
    assert!(output_text(&output).contains("has no trial.json"), "{}", output_text(&output));
}

#[test]
fn a_bundle_that_disagrees_with_itself_is_not_a_pass() {
    let checkout = Checkout::new();
    assert_eq!(checkout.run(RUN).status.code(), Some(0));
    assert_eq!(checkout.run("assert results/r").status.code(), Some(0));
    let path = checkout.path("results/r/trials/honest/throughput/standard/4-p1-r1/result.json");
    fs::remove_file(path).unwrap();
    let output = checkout.run("assert results/r");
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("failed to read"), "{}", output_text(&output));
}

#[test]
fn a_service_that_never_gets_ready_fails_its_trials_and_the_run_continues() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [never-ready, honest]\nrepeats: 3\nservice_process: repeat\n", "");
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    let states = checkout.states();
    let reasons: Vec<&str> = states
        .iter()
        .filter_map(|state| match state {
            TrialState::Failed { reason } => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!((reasons.len(), states.iter().filter(|state| finished(state)).count()), (3, 3));
    assert!(reasons[0].contains("it ended without a ready line (exit status: 3)"), "{}", reasons[0]);
    assert!(reasons[0].contains("this service is never-ready"), "{}", reasons[0]);
    assert!(reasons[2].starts_with("not tried: never-ready failed to start 2 times"), "{}", reasons[2]);
}

#[test]
fn a_service_that_dies_under_load_has_failed_its_trial_with_a_reason() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [dies, honest]\n", "");
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let states = checkout.states();
    let TrialState::Crashed { cause, reason } = &states[0] else { panic!("{:?}", states[0]) };
    assert_eq!(*cause, CrashCause::ServiceCrashed);
    let line = "failed: service_crashed: dies ended";
    assert_eq!(
        output_text(&output).matches(line).count(),
        2,
        "when it happens and at the end: {}",
        output_text(&output)
    );
    checkout.verify();
    assert!(reason.contains("dies ended (exit status: 9)") && reason.contains("dying as configured"), "{reason}");
    assert!(finished(&states[1]), "{:?}", states[1]);
}

#[test]
fn a_worker_that_dies_fails_its_trial_with_its_last_output() {
    let checkout = Checkout::new();
    let output = checkout.ladder(RUN).env("FAKE_WORKER_FLAW", "dies").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    let states = checkout.states();
    let TrialState::Failed { reason } = &states[0] else { panic!("{:?}", states[0]) };
    assert!(reason.contains("worker 0 ended (exit status: 5)"), "{reason}");
    assert!(reason.contains("worker 0 dies as configured"), "{reason}");
}

#[test]
fn a_missing_worker_program_is_an_error_that_names_the_build_command() {
    let checkout = Checkout::new();
    fs::remove_file(checkout.path("bin/fake-worker")).unwrap();
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(2));
    let output_text = output_text(&output);
    assert!(
        output_text.contains("no program \"fake-worker\" beside ladder or on PATH; build it: cargo build"),
        "{output_text}"
    );
}

#[test]
fn a_plan_check_reports_every_mistake_at_once() {
    let checkout = Checkout::new();
    checkout.plan("bad", "services: [honset]\nrepeats: 0\n", "  objectives: [{figure: failed_share}]\n");
    let output = checkout.run("plan check plans/bad.yaml plans/fake.yaml");
    assert_eq!(output.status.code(), Some(2));
    let output_text = output_text(&output);
    assert!(
        output_text.contains("plans/bad.yaml: services[0]: no service \"honset\"; did you mean \"honest\"?"),
        "{output_text}"
    );
    assert!(output_text.contains("plans/bad.yaml: repeats: 0 trials measure nothing"), "{output_text}");
    assert!(output_text.contains("plans/bad.yaml: ladders[0].objectives[0]: no bound"), "{output_text}");
    assert!(output_text.contains("plans/fake.yaml: 1 trials"), "{output_text}");
}

#[test]
fn a_service_on_the_command_line_takes_the_place_of_the_plans() {
    let checkout = Checkout::new();
    checkout.service("other", "honest");
    let output = checkout.run(&format!("{RUN} --service other"));
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert_eq!(checkout.run_file().trials[0].trial.service, "other");
    let output = checkout.run("run fake --service ohter --no-report");
    assert!(output_text(&output).contains("did you mean \"other\"?"), "{}", output_text(&output));
}

#[test]
fn a_run_id_is_not_used_twice() {
    let checkout = Checkout::new();
    assert_eq!(checkout.run(RUN).status.code(), Some(0));
    let output = checkout.run(RUN);
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("resume it with --resume r"), "{}", output_text(&output));
}

#[test]
fn the_report_command_gets_the_bundle_and_its_failure_does_not_change_the_verdict() {
    let checkout = Checkout::new();
    let output = checkout.run("run fake --run-id r --report-command ls");
    let printed = String::from_utf8_lossy(&output.stdout);
    // `ls` lists the bundle that it gets as its argument.
    assert!(printed.contains("run.json\ntimeline.jsonl\ntrials\n"), "{printed}");
    assert!(printed.trim_end().ends_with("results/r/report/report.html"), "{printed}");
    let output = checkout.run("run fake --run-id r2 --report-command false");
    assert_eq!(output.status.code(), Some(0));
    assert!(output_text(&output).contains("failed to make the report"), "{}", output_text(&output));
}
