//! A fake service and a fake worker that implement the contracts over plain HTTP, and a checkout on disk that contains
//! them.
//!
//! They use no WebSockets, because the tests only test `ladder`. The test binary starts itself again as the service or
//! the worker, through two one-line scripts, so that no other program has to be built.
#![allow(unreachable_pub, reason = "several test files share this folder")]
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use bench_format::{
    result::TrialResult,
    run::{Run, TrialState},
    trial::TrialId,
};
use driver::fixture::write_program;
use tempfile::TempDir;

pub mod bundle;
pub mod service;
pub mod terminal;
pub mod worker;

/// Runs as the service when the script starts this binary.
#[test]
#[ignore = "a service for other tests, not a test"]
fn fake_service() {
    service::run();
}

/// Runs as the worker when the script starts this binary.
#[test]
#[ignore = "a worker for other tests, not a test"]
fn fake_worker() {
    worker::run();
}

/// A checkout with a registry of fake services and one plan.
pub struct Checkout {
    pub folder: TempDir,
}

impl Checkout {
    /// A checkout with the services `honest`, `liar`, `never-ready` and `dies`, and a plan of one ladder with one tier.
    pub fn new() -> Self {
        let checkout = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["services", "plans", "bin", "results"] {
            fs::create_dir(checkout.path(folder)).unwrap();
        }
        checkout.script("bin/fake-service", "fakes::fake_service");
        checkout.script("bin/fake-worker", "fakes::fake_worker");
        fs::write(
            checkout.path("services/services.toml"),
            "[protocols.fake]\nworker = \"fake-worker\"\nworkloads = [\"throughput\"]\nformats = [\"json\"]\n",
        )
        .unwrap();
        for flaw in ["honest", "liar", "never-ready", "dies"] {
            checkout.service(flaw, flaw);
        }
        checkout.plan("fake", "services: [honest]\n", "");
        checkout
    }

    /// Registers a service with a flaw.
    pub fn service(&self, name: &str, flaw: &str) {
        self.service_of("fake", name, flaw);
    }

    fn service_of(&self, protocol: &str, name: &str, flaw: &str) {
        let entry = format!(
            "[services.{name}]\ndescription = \"a fake\"\nprotocol = \"{protocol}\"\ncommand = [\"bin/fake-service\"]\n\
             version = [\"echo\", \"fake 1\"]\nenv = {{ FAKE_FLAW = \"{flaw}\" }}\n"
        );
        let path = self.path("services/services.toml");
        fs::write(&path, fs::read_to_string(&path).unwrap() + &entry).unwrap();
    }

    /// Registers a service with its own protocol, and an inference service with a flaw behind it.
    pub fn gateway(&self, name: &str, inference_flaw: &str) {
        let entry = format!(
            "[protocols.{name}]\nworker = \"fake-worker\"\nworkloads = [\"throughput\"]\ninference = \"behind-{name}\"\n\
             plan = \"fake\"\n[inference.behind-{name}]\ndescription = \"a fake\"\ncommand = [\"bin/fake-service\"]\n\
             version = [\"echo\", \"inference 1\"]\n\
             env = {{ FAKE_FLAW = \"{inference_flaw}\", FAKE_PID_FILE = \"inference-pid\", FAKE_SETTING = \"registry\" }}\n"
        );
        let path = self.path("services/services.toml");
        fs::write(&path, fs::read_to_string(&path).unwrap() + &entry).unwrap();
        self.service_of(name, name, "honest");
    }

    /// Writes a plan of one throughput ladder with one tier of four connections; `head` and `ladder` add lines.
    pub fn plan(&self, name: &str, head: &str, ladder: &str) {
        let text = format!(
            "schema: 1\nname: {name}\nwhy: a test\nseed: 1\nwarmup_seconds: 0\nwindow_seconds: 0.2\ndrain_seconds: 2\n\
             {head}ladders:\n- workload: throughput\n  tiers: [4]\n  load: {{model: closed}}\n{ladder}"
        );
        fs::write(self.path(&format!("plans/{name}.yaml")), text).unwrap();
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// The command `ladder` with these arguments, in this checkout.
    pub fn ladder(&self, arguments: &str) -> Command {
        let mut command = self.with_rest(arguments);
        // What else runs on this machine is no part of these tests.
        if arguments.starts_with("run ") || arguments.starts_with("search ") || arguments.contains("--plan ") {
            command.arg("--no-rest");
        }
        command
    }

    /// The same command, which also looks at the machine before the first trial and around each.
    pub fn with_rest(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ladder"));
        let path = format!("{}:{}", self.path("bin").display(), env::var("PATH").unwrap_or_default());
        command.args(arguments.split_whitespace()).current_dir(self.folder.path()).env("PATH", path);
        command
    }

    /// Runs `ladder` to its end.
    pub fn run(&self, arguments: &str) -> Output {
        self.ladder(arguments).output().unwrap()
    }

    /// Asserts that `ladder verify` finds nothing wrong in run `r`, and returns what it printed.
    pub fn verify(&self) -> String {
        let output = self.run("verify results/r");
        assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
        output_text(&output)
    }

    /// Starts `ladder` in the background.
    pub fn start(&self, arguments: &str) -> Child {
        self.ladder(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// `run.json` of run `r`.
    pub fn run_file(&self) -> Run {
        operator::store::read_run(&self.path("results/r")).unwrap()
    }

    /// The states of the trials of run `r`, in their order.
    pub fn states(&self) -> Vec<TrialState> {
        self.run_file().trials.into_iter().map(|entry| entry.state).collect()
    }

    /// A trial's result in run `r`.
    pub fn result(&self, trial: &TrialId) -> TrialResult {
        operator::store::read_result(&self.path("results/r"), trial).unwrap()
    }

    /// Results of all trials of run `r`.
    pub fn results(&self) -> Vec<TrialResult> {
        self.run_file().trials.iter().map(|entry| self.result(&entry.trial)).collect()
    }

    fn script(&self, name: &str, test: &str) {
        let path = self.path(name);
        let exe = env::current_exe().unwrap();
        let text =
            format!("#!/bin/sh\nFAKE_ARGUMENTS=\"$*\" exec {} --exact --ignored --nocapture {test}\n", exe.display());
        write_program(&path, &text);
    }
}

/// The standard output and standard error of a process.
pub fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Polls `done` until it returns true; panics after 30 s.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs; a zombie doesn't count.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

/// Whether a trial has a result.
pub fn finished(state: &TrialState) -> bool {
    matches!(state, TrialState::Finished { .. })
}
