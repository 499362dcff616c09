//! Runs `ladder` on a plan and reads its bundle.

use std::{
    env,
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use bench_format::{
    histogram::Recorder,
    result::{ReasonKind, TrialResult, Validity, WorkerResult},
    run::TrialState,
    service::{ServiceStats, Started},
};
use serde::de::DeserializeOwned;
use tempfile::TempDir;

/// Longest time for one plan.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Limit of climbs of a plan until a trial is undisturbed.
pub(crate) const MAX_ATTEMPTS: usize = 6;
/// Interval between two polls.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The programs that the tests run.
const PROGRAMS: [&str; 8] = [
    "ladder",
    "wse-bench",
    "ws-bench",
    "self-test-service",
    "stt-loadgen",
    "inference-sim",
    "self-test-gateway",
    "rust-axum",
];
/// The packages that contain all programs but `ladder`.
const PACKAGES: [&str; 6] = ["wse-bench", "ws-bench", "self-test-service", "stt-bench", "inference-sim", "rust-axum"];

/// The result of a check of a bundle; the error says what is wrong.
pub(crate) type Checked = Result<(), String>;

/// `Err` with a message unless `holds`.
pub(crate) fn ensure(holds: bool, description: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(description()) }
}

/// A check that only the result of one service may pass.
pub(crate) type Check = fn(&TrialResult) -> Checked;

/// Climbs a plan of `plans/self-test`, and applies every check to the result of every service: a result must pass its
/// own check and fail the others. `honest` names the service without a flaw; returns its result.
pub(crate) fn distinguish(plan: &str, checks: &[(&str, Check)], honest: &str) -> TrialResult {
    let mut attempts = Attempts::of(plan);
    let mut of_honest = None;
    for (own, _) in checks {
        let (result, run) = attempts.trial(own, "standard");
        assert_eq!(run.exit, Some(2), "a trial is invalid, so the exit code is 2:\n{}", run.output);
        assert_only_own_passes(own, &result, checks, run);
        if *own == honest {
            of_honest = Some(result);
        }
    }
    of_honest.expect("the honest service is one of them")
}

/// Asserts that the result of the service `own` passes its own check and none of the others.
pub(crate) fn assert_only_own_passes(own: &str, result: &TrialResult, checks: &[(&str, Check)], run: &Run) {
    for (service, check) in checks {
        let checked = check(result);
        assert_eq!(checked.is_ok(), *service == own, "{own} under the check of {service}: {checked:?}\n{}", run.output);
    }
}

/// Applies a check to a changed copy of a result.
pub(crate) fn tampered(result: &TrialResult, check: Check, change: fn(&mut TrialResult)) -> Checked {
    let mut tampered = result.clone();
    change(&mut tampered);
    check(&tampered)
}

/// A `ladder run` that may still climb. Only one runs at a time, because two would disturb each other's measurements.
pub(crate) struct Climbing {
    child: Child,
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// A finished `ladder run`.
pub(crate) struct Run {
    folder: TempDir,
    /// The exit code; `None` after a signal.
    pub(crate) exit: Option<i32>,
    /// Standard output and standard error.
    pub(crate) output: String,
}

/// Starts a plan of `plans/self-test`.
pub(crate) fn start(plan: &str) -> Climbing {
    start_in(&checkout(), &format!("plans/self-test/{plan}.yaml"), &[])
}

/// Starts a plan in a folder, with additional options.
pub(crate) fn start_in(root: &Path, plan: &str, flags: &[&str]) -> Climbing {
    start_with(root, plan, flags, &[])
}

/// As [`start_in`], with additional environment variables for ladder, which its workers inherit.
pub(crate) fn start_with(root: &Path, plan: &str, flags: &[&str], variables: &[(&str, &str)]) -> Climbing {
    start_command(root, &[&["run", plan], flags].concat(), variables)
}

/// Starts a command of ladder that makes a bundle, with its arguments, in a folder.
pub(crate) fn start_command(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Climbing {
    static ALONE: Mutex<()> = Mutex::new(());
    // A test that failed while it climbed leaves no state that could affect the next one.
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("evidence")).unwrap();
    let output = File::create(folder.path().join("output")).unwrap();
    let child = Command::new(programs().join("ladder"))
        .args(arguments)
        .args(["--no-rest", "--no-report", "--results"])
        .arg(folder.path().join("results"))
        .envs(variables.iter().copied())
        .env("SELF_TEST_EVIDENCE", folder.path().join("evidence"))
        .current_dir(root)
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    Climbing { child, folder, _alone: alone }
}

/// Runs a plan of `plans/self-test` to its end.
pub(crate) fn run(plan: &str) -> Run {
    start(plan).finish()
}

/// The runs of one plan, repeated until a trial is undisturbed. A trial that is invalid because of the machine says
/// nothing about the harness, so it is repeated (`docs/METHODOLOGY.md`). The decision does not depend on its figures.
pub(crate) struct Attempts<'a> {
    climb: Box<dyn FnMut() -> Run + 'a>,
    runs: Vec<Run>,
}

impl<'a> Attempts<'a> {
    /// Runs of a plan of `plans/self-test`.
    pub(crate) fn of(plan: &'a str) -> Self {
        Self::with(move || run(plan))
    }

    /// Runs made by a function.
    pub(crate) fn with(climb: impl FnMut() -> Run + 'a) -> Self {
        Self { climb: Box::new(climb), runs: Vec::new() }
    }

    /// Climbs until `settled` returns true or the limit is reached; returns the last run.
    pub(crate) fn until(&mut self, settled: impl Fn(&Run) -> bool) -> &Run {
        let mut at = 0;
        loop {
            if at == self.runs.len() {
                let run = (self.climb)();
                self.runs.push(run);
            }
            if at + 1 == MAX_ATTEMPTS || settled(&self.runs[at]) {
                return &self.runs[at];
            }
            at += 1;
        }
    }

    /// The only trial of a service in a variant of its ladder, undisturbed, with its run.
    pub(crate) fn trial(&mut self, service: &str, variant: &str) -> (TrialResult, &Run) {
        let run = self.until(|run| !is_disturbed(&run.trial(service, variant).validity));
        (run.trial(service, variant), run)
    }
}

/// Reasons that are caused by the generator or the machine, which was busy with other work.
pub(crate) const MACHINE_REASONS: [ReasonKind; 7] = {
    use ReasonKind::{ClockStep, GeneratorCpu, GeneratorLate, MachineBusy, ReadingLate, SendRate, StartSkew};
    [GeneratorLate, GeneratorCpu, SendRate, StartSkew, ReadingLate, ClockStep, MachineBusy]
};

/// Whether a trial is invalid for such a reason.
pub(crate) fn is_disturbed(validity: &Validity) -> bool {
    match validity {
        Validity::Valid => false,
        Validity::Invalid { reasons } => reasons.iter().any(|reason| MACHINE_REASONS.contains(&reason.kind)),
    }
}

impl Climbing {
    /// Waits for the end of the run.
    pub(crate) fn finish(mut self) -> Run {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < TIMEOUT, "ladder still climbs after {TIMEOUT:?}:\n{}", self.output());
            sleep(POLL_INTERVAL);
        };
        let output = self.output();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        Run { folder, exit: status.code(), output }
    }

    /// The ready line of the service with this flaw.
    pub(crate) fn service(&mut self, flaw: &str) -> Started {
        let path = self.folder.path().join("evidence").join(format!("{flaw}-ready.json"));
        self.wait_for("a ready service", || read_json(&path))
    }

    /// The ready line of the next service process with this flaw, after the one with this process id.
    pub(crate) fn service_after(&mut self, flaw: &str, pid: u32) -> Started {
        let path = self.folder.path().join("evidence").join(format!("{flaw}-ready.json"));
        self.wait_for("another ready service", || read_json(&path).filter(|started: &Started| started.pid != pid))
    }

    /// Polls the service's `/stats` until `is` returns true.
    pub(crate) fn wait_for_stats(&mut self, service: &Started, what: &str, is: impl Fn(&ServiceStats) -> bool) {
        let address = service.metrics_address.clone();
        self.wait_for(what, || stats(&address).filter(&is));
    }

    fn wait_for<T>(&mut self, what: &str, look: impl Fn() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(value) = look() {
                return value;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < TIMEOUT, "no {what}; output of ladder:\n{}", self.output());
            sleep(POLL_INTERVAL);
        }
    }

    fn output(&self) -> String {
        fs::read_to_string(self.folder.path().join("output")).unwrap_or_default()
    }
}

impl Drop for Climbing {
    fn drop(&mut self) {
        // Both calls fail when the process has ended, which is the usual case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Run {
    /// The only trial of a service in a variant of its ladder.
    pub(crate) fn trial(&self, service: &str, variant: &str) -> TrialResult {
        let path = self.trial_folder(service, variant).join("result.json");
        read_json(&path).unwrap_or_else(|| panic!("{} is not a trial result", path.display()))
    }

    /// The folder of the only trial of a service in a variant.
    pub(crate) fn trial_folder(&self, service: &str, variant: &str) -> PathBuf {
        let trial_path = format!("/trials/{service}/");
        let mut found = Vec::new();
        find(&self.folder.path().join("results"), "result.json", &mut found);
        let of_service = |path: &&PathBuf| {
            let text = path.to_string_lossy();
            text.contains(&trial_path) && text.contains(&format!("/{variant}/"))
        };
        let path = found.iter().find(of_service);
        let path = path.unwrap_or_else(|| panic!("no result of {service}/{variant} among {found:?}:\n{}", self.output));
        path.parent().expect("a file is in a folder").to_path_buf()
    }

    /// The folder with the results and the services' evidence.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The run's `run.json`.
    pub(crate) fn file(&self) -> bench_format::run::Run {
        let mut found = Vec::new();
        find(&self.folder.path().join("results"), "run.json", &mut found);
        found.first().and_then(|path| read_json(path)).expect("a run leaves a run.json")
    }

    /// The states of all trials of the run.
    pub(crate) fn states(&self) -> Vec<TrialState> {
        self.file().trials.into_iter().map(|trial| trial.state).collect()
    }

    /// The results that the workers uploaded for the only trial of a service in a variant.
    pub(crate) fn workers(&self, service: &str, variant: &str) -> Vec<WorkerResult> {
        let folder = self.trial_folder(service, variant).join("workers");
        let result = |index: usize| read_json(&folder.join(format!("{index}.json")));
        (0..).map_while(result).collect()
    }

    /// The response times that the service with this flaw recorded.
    pub(crate) fn recorded(&self, flaw: &str) -> Recorder {
        self.read_recorded(&format!("{flaw}-recorded.json"))
    }

    /// A histogram that a service wrote.
    pub(crate) fn read_recorded(&self, file: &str) -> Recorder {
        let path = self.folder.path().join("evidence").join(file);
        let histogram = read_json(&path).unwrap_or_else(|| panic!("no {}:\n{}", path.display(), self.output));
        Recorder::decode(&histogram).unwrap()
    }
}

/// A histogram of a result.
pub(crate) fn histogram(result: &TrialResult, name: &str) -> Result<Recorder, String> {
    let histogram = result.histograms.get(name).ok_or_else(|| format!("the result has no {name}"))?;
    Recorder::decode(histogram).map_err(|error| error.to_string())
}

/// Why a trial is invalid; empty when it is valid.
pub(crate) fn reasons(result: &TrialResult) -> Vec<ReasonKind> {
    match &result.validity {
        Validity::Valid => Vec::new(),
        Validity::Invalid { reasons } => reasons.iter().map(|reason| reason.kind).collect(),
    }
}

/// `Err` unless the trial is valid, has books and all their equations hold.
pub(crate) fn sound(result: &TrialResult) -> Checked {
    ensure(result.validity == Validity::Valid, || format!("{:?}", result.validity))?;
    ensure(result.books.balance(), || format!("the books don't balance: {:?}", result.books))?;
    ensure(!result.books.equations.is_empty(), || "there are no books".into())
}

/// The folder of the programs: `LADDER_BIN`, otherwise the one in which this test was built; missing programs are built
/// first.
pub(crate) fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = env::var_os("LADDER_BIN").map(PathBuf::from) {
            for program in PROGRAMS {
                assert!(folder.join(program).is_file(), "no {program} in LADDER_BIN={}", folder.display());
            }
            return folder;
        }
        let folder = Path::new(env!("CARGO_BIN_EXE_ladder")).parent().unwrap().to_path_buf();
        let profile = if folder.ends_with("debug") { "dev" } else { "release" };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--profile", profile])
            .args(PACKAGES.iter().flat_map(|package| ["-p", package]))
            .arg("--target-dir")
            .arg(folder.parent().unwrap())
            .current_dir(checkout())
            .status()
            .unwrap();
        assert!(built.success(), "failed to build the workers and the self-test services");
        folder
    })
}

/// The root of the checkout.
pub(crate) fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn find(folder: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, name, found);
        } else if path.file_name().is_some_and(|file| file == name) {
            found.push(path);
        }
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The response to `/stats`; `None` if the service doesn't respond.
pub(crate) fn stats(metrics_address: &str) -> Option<ServiceStats> {
    let mut stream = TcpStream::connect(metrics_address).ok()?;
    write!(stream, "GET /stats HTTP/1.1\r\nHost: self-test\r\nConnection: close\r\n\r\n").ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    serde_json::from_str(response.split_once("\r\n\r\n")?.1).ok()
}
