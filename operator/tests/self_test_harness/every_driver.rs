//! Every program that drives trials must report the same reasons as `ladder run`: `wse-bench` on its own, and the
//! clients in Python and TypeScript. `books.rs` and `slow_generator.rs` test the reasons of `ladder run`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use operator::backend::local::cgroup::Hierarchy;
use serde_json::Value;

use crate::{
    outside::StartedByTest,
    run::{MACHINE_REASONS, MAX_ATTEMPTS, checkout, programs},
};

/// A program that drives trials by itself and prints the reasons of its single trial as JSON.
#[derive(Clone, Copy)]
enum Driver {
    Rust,
    Python,
    TypeScript,
}

impl Driver {
    /// The command with the options for a short flood.
    fn command(self) -> Command {
        let root = checkout();
        let (program, arguments): (PathBuf, &[&str]) = match self {
            Self::Rust => (programs().join("wse-bench"), &["--test", "throughput", "--tiers", "4"]),
            Self::Python => {
                (root.join(".venv/bin/python"), &["loadgen/python/bench_single_client.py", "--tests", "throughput"])
            }
            Self::TypeScript => {
                let tsx = ["--import", "tsx", "src/main.ts", "--test", "throughput", "--tiers", "4"];
                return in_folder(Command::new("node"), &root.join("loadgen/typescript"), &tsx);
            }
        };
        in_folder(Command::new(program), &root, arguments)
    }

    /// The reasons why its single trial is invalid, by their names in files.
    fn reasons(self, service: &StartedByTest) -> BTreeSet<String> {
        let mut command = self.command();
        command.args(["--duration", "0.5", "--warmup", "0.1", "--drain", "2", "--output", "json"]);
        command.args(service.flags());
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let printed: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let problems = match self {
            Self::Rust => return kinds_of_problems(&printed),
            Self::Python => &printed[0]["result"]["validity"]["reasons"],
            Self::TypeScript => &printed[0]["results"][0]["extra"]["validity"]["reasons"],
        };
        let reasons = problems.as_array().into_iter().flatten();
        reasons.map(|reason| reason["kind"].as_str().unwrap().to_owned()).collect()
    }
}

fn in_folder(mut command: Command, folder: &Path, arguments: &[&str]) -> Command {
    command.args(arguments).current_dir(folder);
    command
}

/// The kinds of the problems that `wse-bench` prints for its single trial: the text before the colon.
fn kinds_of_problems(printed: &Value) -> BTreeSet<String> {
    let problems = printed[0]["problems"].as_array().unwrap().iter().map(|problem| problem.as_str().unwrap());
    problems.map(|problem| problem.split(':').next().unwrap_or(problem).to_owned()).collect()
}

impl StartedByTest {
    fn with_flaw(flaw: &str) -> Self {
        Self::start("self-test-service", &["--flaw", flaw], &[("JWT_SECRET", "bench-secret-key-for-testing-only")])
    }

    /// The options that point a program at this service.
    fn flags(&self) -> [String; 4] {
        let port = self.started.address.rsplit(':').next().unwrap().to_owned();
        ["--port".into(), port, "--stats-url".into(), format!("http://{}", self.started.metrics_address)]
    }
}

#[test]
fn every_driver_reports_the_same_reasons_as_ladder() {
    for (flaw, expected) in
        [("none", None), ("drop", None), ("silent-drop", Some("unaccounted")), ("liar", Some("unaccounted"))]
    {
        for (name, driver) in [("wse-bench", Driver::Rust), ("Python", Driver::Python), ("npm", Driver::TypeScript)] {
            let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
            let found = undisturbed(|| driver.reasons(&StartedByTest::with_flaw(flaw)));
            assert_eq!(found, expected, "{name} of the service with the flaw {flaw:?}");
        }
    }
}

/// The reasons of the first run that the machine did not disturb, or of the last of several.
fn undisturbed(mut run: impl FnMut() -> BTreeSet<String>) -> BTreeSet<String> {
    let mut found = run();
    for _ in 1..MAX_ATTEMPTS {
        if !MACHINE_REASONS.iter().any(|kind| found.contains(&kind.to_string())) {
            break;
        }
        found = run();
    }
    // "1 messages sent, but lost" has no kind: it is the text for `unaccounted`.
    found.retain(|kind| !kind.contains(' '));
    found
}

/// Runs a program with a fraction of a CPU and returns the JSON that it prints.
fn starved(role: &str, cpus: f64, command: &Command) -> Value {
    let hierarchy = Hierarchy::detect().expect("a slow generator needs a cgroup, and none can be written here");
    let group = hierarchy.create(role, cpus).unwrap();
    let procs_files: Vec<_> =
        group.procs_files().iter().map(|procs_file| format!("echo $$ > {}; ", procs_file.display())).collect();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{}exec \"$@\"", procs_files.concat()), "sh"]).arg(command.get_program());
    shell.args(command.get_args()).current_dir(command.get_current_dir().unwrap_or(&checkout()));
    let output = shell.output().unwrap();
    group.remove();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_slow_generator_by_hand_accuses_itself() {
    let service = StartedByTest::with_flaw("none");
    let mut command = Command::new(programs().join("wse-bench"));
    let flags = "--test ping-latency --tiers 100 --rate 16000 --duration 2 --warmup 0.2 --drain 10 --output json";
    command.args(flags.split(' ')).args(service.flags());
    let kinds = kinds_of_problems(&starved("by-hand", 0.03, &command));
    assert!(kinds.contains("generator_late") || kinds.contains("generator_cpu"), "{kinds:?}");
    assert!(!kinds.contains("unaccounted"), "slowness is no reason to lose messages: {kinds:?}");
}

/// The clients are closed loops, so with little CPU they, and not the service, limit the rate.
#[test]
fn a_slow_client_reports_itself_as_the_bottleneck() {
    for (role, driver, result) in
        [("python", Driver::Python, "/0/result/bound_by"), ("npm", Driver::TypeScript, "/0/results/0/extra/bound_by")]
    {
        let service = StartedByTest::with_flaw("none");
        let mut command = driver.command();
        command.args(["--duration", "1", "--warmup", "0.1", "--drain", "10", "--output", "json"]).args(service.flags());
        let printed = starved(role, 0.2, &command);
        let bound_by = printed.pointer(result).and_then(Value::as_str);
        assert_eq!(bound_by, Some("generator"), "{role}: {printed}");
    }
}
