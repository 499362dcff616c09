//! Failures in the middle of a run of sessions: the gateway is killed, and the disk is full. Earlier measurements must
//! be kept, and the failure must be reported with its place.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use bench_format::run::{Run as RunFile, TrialState};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::run::{POLL_INTERVAL, checkout, programs, start};

const GATEWAY: &str = "self-test-gateway-none";
/// Longest wait for a step of ladder.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_gateway_that_dies_in_the_window_costs_only_its_own_trial() {
    let mut climbing = start("stt-deaths");
    let first = climbing.service("gateway-none");
    let second = climbing.service_after("gateway-none", first.pid);
    // More messages than the warm-up has, by half a second of audio of twenty sessions: the window has begun.
    climbing.wait_for_stats(&second, "load in the window", |stats| stats.messages.received > 20 * 50);
    kill_process(Pid::from_raw(second.pid as i32).unwrap(), Signal::KILL).unwrap();
    let run = climbing.finish();
    assert_eq!(run.exit, Some(1), "{}", run.output);
    let states = run.states();
    let [TrialState::Finished { .. }, TrialState::Crashed { reason, .. }] = &states[..] else { panic!("{states:?}") };
    assert_eq!(reason.lines().next(), Some(&*format!("{GATEWAY} ended (signal: 9 (SIGKILL))")));
    // Both trials are listed, and the first one's result can be read.
    for listed in ["10-p1-r1  valid", "20-p1-r1  failed: service_crashed: "] {
        assert!(run.output.contains(listed), "{listed}: {}", run.output);
    }
    assert!(run.trial(GATEWAY, "standard").messages.delivered > 0);
}

/// A run whose results are on a small disk that the test can fill, in a mount namespace of its own.
struct SmallDiskRun {
    ladder: std::process::Child,
    folder: tempfile::TempDir,
}

/// Mounts the disk, runs ladder, and copies the content of the disk at the end, since the mount ends with the process.
const SCRIPT: &str = r#"
mount -t tmpfs -o size=4m tmpfs "$1/disk" || exit 99
"$2" run plans/self-test/stt-deaths.yaml --no-rest --no-report --run-id r --results "$1/disk" 2> "$1/stderr" > "$1/stdout"
code=$?
rm -f "$1/disk/filler"
cp -a "$1/disk/." "$1/copy"
exit $code
"#;

impl SmallDiskRun {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("disk")).unwrap();
        fs::create_dir(folder.path().join("copy")).unwrap();
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if !geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let ladder = command
            .args(["sh", "-c", SCRIPT, "sh"])
            .args([folder.path(), &programs().join("ladder")])
            .current_dir(checkout())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { ladder, folder }
    }

    /// The path of the disk through the process's root.
    fn disk(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.ladder.id());
        PathBuf::from(root + self.folder.path().to_str().unwrap()).join("disk")
    }

    fn output(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    fn wait_until(&mut self, what: &str, is: impl Fn(&RunFile) -> bool) {
        let begun = Instant::now();
        let path = self.disk().join("r/run.json");
        let read = || fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        while !read().as_ref().is_some_and(&is) {
            let ended = self.ladder.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < TIMEOUT, "no {what} ({ended:?}): {}", self.output());
            sleep(POLL_INTERVAL);
        }
    }

    /// Writes until the disk is full.
    fn fill(&self) {
        let mut filler = File::create(self.disk().join("filler")).unwrap();
        for size in [1 << 16, 1] {
            while filler.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }
}

#[test]
fn a_full_disk_costs_only_the_current_trial_and_is_reported() {
    let mut run = SmallDiskRun::start();
    run.wait_until("second trial", |run| {
        matches!(run.trials[0].state, TrialState::Finished { .. })
            && matches!(run.trials[1].state, TrialState::Started { .. })
    });
    run.fill();
    let exit = run.ladder.wait().unwrap();
    assert_eq!(exit.code(), Some(2), "{}", run.output());
    let output = run.output();
    assert!(output.contains("failed to write ") && output.contains("No space left on device"), "{output}");
    assert!(output.contains(run.folder.path().join("disk/r").to_str().unwrap()), "{output}");
    let results = run.folder.path().join("copy/r");
    let file = operator::store::read_run(&results).unwrap();
    assert!(matches!(file.trials[0].state, TrialState::Finished { .. }), "{:?}", file.trials);
    assert!(matches!(file.trials[1].state, TrialState::Started { .. }), "{:?}", file.trials);
    let first = operator::store::read_result(&results, &file.trials[0].trial).unwrap();
    assert!(first.messages.delivered > 0 && first.books.balance(), "{:?}", first.books);
}

impl Drop for SmallDiskRun {
    fn drop(&mut self) {
        // Both calls fail when the process has ended, which is the usual case.
        let _ = self.ladder.kill();
        let _ = self.ladder.wait();
    }
}
