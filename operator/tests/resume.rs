//! Tests of `ladder` as a process that is stopped or killed, and of `--resume`: what it goes on with, and what it doesn't run.

use std::fs;

use bench_format::run::{RunState, TrialState};
use fakes::{Checkout, finished, is_alive, output_text, wait_for};
use rustix::process::{Pid, Signal, kill_process};

mod fakes;

const RUN: &str = "run fake --run-id r --no-report";

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[test]
fn ctrl_c_stops_everything_and_the_run_can_be_resumed() {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nrepeats: 3\n", "  window_seconds: 1\n");
    let pid_file = checkout.path("pid");
    let mut ladder = checkout.ladder(RUN).env("FAKE_PID_FILE", &pid_file).spawn().unwrap();
    wait_for("the second trial", || {
        checkout.path("results/r/run.json").exists()
            && checkout.states().iter().filter(|state| finished(state)).count() == 1
    });
    signal(ladder.id(), Signal::INT);
    assert_eq!(ladder.wait().unwrap().code(), Some(130));
    let service: u32 = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    assert!(!is_alive(service), "the service outlived ladder");
    assert_eq!(checkout.run_file().state, RunState::Running);
    let first = fs::read(checkout.path("results/r/trials/honest/throughput/standard/4-p1-r1/result.json")).unwrap();

    let output = checkout.run("run --resume r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(checkout.states().iter().all(finished));
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
            && matches!(checkout.states()[..], [TrialState::Finished { .. }, TrialState::Started { .. }])
    });
    signal(ladder.id(), Signal::KILL);
    ladder.wait().unwrap();
    let service: u32 = fs::read_to_string(&pid_file).unwrap().parse().unwrap();
    wait_for("the service's death", || !is_alive(service));
    assert_eq!(checkout.states()[1], TrialState::Started { attempt: 1 });

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
