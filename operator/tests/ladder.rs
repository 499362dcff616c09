//! Tests of `ladder` as a process: its output, its files, its exit codes, and its behaviour when it is disturbed.

use std::fs;

use bench_format::{
    result::{FixedWork, ReasonKind, TrialResult, Validity},
    run::{CrashCause, RunState, TrialState},
};
use fakes::{Checkout, is_alive, output_text, wait_for};
use rustix::process::{Pid, Signal, kill_process};

mod fakes;

const RUN: &str = "run fake --run-id r --no-report";

fn states(checkout: &Checkout) -> Vec<TrialState> {
    checkout.run_file().trials.into_iter().map(|entry| entry.state).collect()
}

fn finished(state: &TrialState) -> bool {
    matches!(state, TrialState::Finished { .. })
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

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
    assert!(matches!(states(&checkout)[0], TrialState::Finished { validity: Validity::Invalid { .. }, .. }));

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
    let states = states(&checkout);
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
    let states = states(&checkout);
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
    let states = states(&checkout);
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
fn ctrl_c_stops_everything_and_the_run_can_be_resumed() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nrepeats: 3\n", "  window_seconds: 1\n");
    let pid_file = checkout.path("pid");
    let mut ladder = checkout.ladder(RUN).env("FAKE_PID_FILE", &pid_file).spawn().unwrap();
    wait_for("the second trial", || {
        checkout.path("results/r/run.json").exists()
            && states(&checkout).iter().filter(|state| finished(state)).count() == 1
    });
    signal(ladder.id(), Signal::INT);
    assert_eq!(ladder.wait().unwrap().code(), Some(130));
    let service: u32 = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    assert!(!is_alive(service), "the service outlived ladder");
    assert_eq!(checkout.run_file().state, RunState::Running);
    let first = fs::read(checkout.path("results/r/trials/honest/throughput/standard/4-p1-r1/result.json")).unwrap();

    let output = checkout.run("run --resume r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(states(&checkout).iter().all(finished));
    let again = fs::read(checkout.path("results/r/trials/honest/throughput/standard/4-p1-r1/result.json")).unwrap();
    assert!(first == again, "a finished trial was climbed again");
    checkout.verify();
}

#[test]
fn kill_9_ends_the_children_too_and_costs_only_the_trial_in_flight() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nrepeats: 2\n", "  window_seconds: 1\n");
    let pid_file = checkout.path("pid");
    let mut ladder = checkout.ladder(RUN).env("FAKE_PID_FILE", &pid_file).spawn().unwrap();
    wait_for("the second trial", || {
        checkout.path("results/r/run.json").exists()
            && matches!(states(&checkout)[..], [TrialState::Finished { .. }, TrialState::Started { .. }])
    });
    signal(ladder.id(), Signal::KILL);
    ladder.wait().unwrap();
    let service: u32 = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    wait_for("the service's death", || !is_alive(service));
    assert_eq!(states(&checkout)[1], TrialState::Started { attempt: 1 });

    let output = checkout.run("run --resume r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let attempts: Vec<u32> = checkout.results().iter().map(|result| result.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    checkout.verify();
}

/// `run.json` of run `r` after one whole run, with its last trial pending again and a change.
fn reopened(checkout: &Checkout, change: impl FnOnce(&mut serde_json::Value)) {
    let path = checkout.path("results/r/run.json");
    let mut run: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    run["state"] = "running".into();
    run["trials"][0]["state"] = serde_json::json!({"state": "pending"});
    change(&mut run);
    fs::write(&path, serde_json::to_vec(&run).unwrap()).unwrap();
}

#[test]
fn a_bundle_that_would_run_its_own_code_or_leave_its_folder_is_not_resumed() {
    let checkout = Checkout::new();
    assert_eq!(checkout.run(RUN).status.code(), Some(0));
    let victim = checkout.path("results/victim");
    fs::create_dir_all(victim.join("4-p1-r1")).unwrap();
    let changes: [(&str, &str, serde_json::Value); 4] = [
        (
            "PYTHONPATH in its environment makes programs load other code",
            "/plan/ladders/0/service_env",
            serde_json::json!({"PYTHONPATH": "py"}),
        ),
        ("LD_PRELOAD in its environment", "/plan/ladders/0/service_env", serde_json::json!({"LD_PRELOAD": "x.so"})),
        ("is not a name", "/trials/0/trial/variant", "../../../../victim".into()),
        ("is not a trial of its plan", "/trials/0/trial/variant", "other".into()),
    ];
    let whole = fs::read(checkout.path("results/r/run.json")).unwrap();
    for (expected, place, value) in changes {
        fs::write(checkout.path("results/r/run.json"), &whole).unwrap();
        reopened(&checkout, |run| *run.pointer_mut(place).unwrap() = value);
        let output = checkout.run("run --resume r --no-report");
        assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
        assert!(output_text(&output).contains(expected), "{}", output_text(&output));
    }
    assert!(victim.join("4-p1-r1").is_dir());
}

/// Asserts that a bundle with a section that starts a program, `described`, is resumed only with a plan that has the same.
fn assert_runs_only_if_named(checkout: &Checkout, described: impl Fn(&str) -> serde_json::Value) {
    reopened(checkout, |run| run["plan"]["websocket"] = described("touch"));
    let refused = |line: &str| {
        let output = checkout.run(line);
        assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
        output_text(&output).contains("its plan starts programs, which are not those of")
    };
    assert!(refused("run fake --resume r --no-report"), "the plan describes nothing");
    let with = |program: &str| format!("services: [honest]\nwebsocket: {}\n", described(program));
    checkout.plan("other", &with("true"), "");
    assert!(refused("run other --resume r --no-report"), "the plan has another program");
    checkout.plan("same", &with("touch"), "");
    let output = checkout.run("run same --resume r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(!checkout.path("pwned").exists(), "the run has no trial of a described service");
}

#[test]
fn commands_of_a_bundle_run_only_if_the_named_plan_has_them() {
    let checkout = Checkout::new();
    assert_eq!(checkout.run(RUN).status.code(), Some(0));
    let described = |program: &str| {
        serde_json::json!({"services": {"theirs": {
            "url": "ws://127.0.0.1:{port}/", "command": [program, "pwned"], "env": {"PORT": "{port}"}, "version": "1",
        }}})
    };
    assert_runs_only_if_named(&checkout, described);
}

#[test]
fn a_command_for_rows_of_a_bundle_runs_only_if_the_named_plan_has_it() {
    let checkout = Checkout::new();
    assert_eq!(checkout.run(RUN).status.code(), Some(0));
    let described = |program: &str| {
        serde_json::json!({
            "services": {"theirs": {"url": "ws://127.0.0.1:1/", "version": "1"}},
            "connect": {"rows_command": {"command": [program, "pwned"]}},
        })
    };
    assert_runs_only_if_named(&checkout, described);
}

#[test]
fn a_bundle_has_no_secrets_and_a_resumed_run_takes_them_from_the_environment() {
    let checkout = Checkout::new();
    let env = "  service_env: {JWT_SECRET: s3cret, REDIS_URL: \"redis://u:s3cret@redis:6379\"}\n";
    checkout.plan("fake", "services: [honest]\n", env);
    assert_eq!(checkout.run(RUN).status.code(), Some(0));
    let text = fs::read_to_string(checkout.path("results/r/run.json")).unwrap();
    assert!(!text.contains("s3cret") && text.contains("redis://***@redis:6379"), "{text}");
    reopened(&checkout, |_| ());
    let output = checkout.run("run --resume r --no-report");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        output_text(&output).contains("set JWT_SECRET, REDIS_URL in ladder's environment"),
        "{}",
        output_text(&output)
    );
    let secrets = [("JWT_SECRET", "s3cret"), ("REDIS_URL", "redis://u:s3cret@redis:6379")];
    let output = checkout.ladder("run --resume r --no-report").envs(secrets).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(!fs::read_to_string(checkout.path("results/r/run.json")).unwrap().contains("s3cret"));
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
