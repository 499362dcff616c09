//! Tests of what a plan names as a service's CPU time and memory, with small real processes. They have a program of their
//! own, because processes that start would disturb tests of files beside them.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use bench_format::websocket::UsageSource;
use operator::backend::local::usage::Watched;

/// A process that sleeps, and ends with the test.
struct Sleeping(Child);

impl Sleeping {
    /// `seconds` distinguishes its command line from those of other tests.
    fn start(seconds: &str) -> Self {
        let sleeping = Self(Command::new("sleep").arg(seconds).spawn().unwrap());
        sleeping.until_asleep();
        sleeping
    }

    /// Waits until it sleeps by its own name: the kernel lets the parent go on before it has renamed the process, and
    /// before it has counted CPU time of it.
    fn until_asleep(&self) {
        let stat = format!("/proc/{}/stat", self.0.id());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !fs::read_to_string(&stat).unwrap().contains("(sleep) S") {
            assert!(Instant::now() < deadline, "the process isn't asleep");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        // Both calls fail when the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn find(source: UsageSource, root: &Path) -> Result<Watched, String> {
    Watched::find(&source, root, &[]).await
}

#[tokio::test]
async fn a_process_of_a_pid_file_is_read_and_its_successor_has_another_id() {
    let folder = tempfile::tempdir().unwrap();
    let first = Sleeping::start("1000.1");
    let write = |process: &Sleeping| fs::write(folder.path().join("pid"), format!("{}\n", process.0.id())).unwrap();
    write(&first);
    let source = UsageSource { pid_file: Some("pid".into()), ..UsageSource::default() };
    let watched = find(source, folder.path()).await.unwrap();
    let usage = watched.usage().unwrap();
    assert_eq!(usage.pid, first.0.id());
    assert!(usage.cpu_ns > 0 && usage.rss_bytes > 0 && usage.cpu_limit >= 0.1, "{usage:?}");
    drop(first);
    assert_eq!(watched.usage(), None);
    let second = Sleeping::start("1000.1");
    write(&second);
    assert_eq!(watched.usage().unwrap().pid, second.0.id());
}

#[tokio::test]
async fn processes_are_found_by_their_command_lines_and_workers_are_left_out() {
    let processes = [Sleeping::start("1000.21"), Sleeping::start("1000.22")];
    let source = UsageSource { command: Some(r"^sleep 1000\.2[0-9]$".into()), ..UsageSource::default() };
    let watched = find(source.clone(), Path::new("/")).await.unwrap();
    assert_eq!(watched.usage().unwrap().pid, processes[0].0.id(), "the one that started first");
    for process in &processes {
        assert!(watched.description().contains(&format!("process {} (sleep)", process.0.id())));
    }
    let without_worker = Watched::find(&source, Path::new("/"), &[processes[0].0.id()]).await.unwrap();
    assert_eq!(without_worker.usage().unwrap().pid, processes[1].0.id());
}

#[tokio::test]
async fn ladder_itself_is_not_the_service_even_if_its_command_line_matches() {
    let own = fs::read_to_string("/proc/self/cmdline").unwrap();
    let program = own.split('\0').next().unwrap().rsplit('/').next().unwrap().to_owned();
    let reason = find(UsageSource { command: Some(program), ..Default::default() }, Path::new("/")).await.unwrap_err();
    assert!(reason.starts_with("usage.command: no command line of a process matches"), "{reason}");
}

#[tokio::test]
async fn what_names_no_process_is_an_error_with_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let file = UsageSource { pid_file: Some("pid".into()), ..UsageSource::default() };
    let reason = find(file.clone(), folder.path()).await.unwrap_err();
    assert!(reason.starts_with("usage.pid_file: failed to read ") && reason.contains("/pid: "), "{reason}");
    fs::write(folder.path().join("pid"), "starting\n").unwrap();
    assert!(find(file, folder.path()).await.unwrap_err().ends_with("/pid has no process id but \"starting\""));
    // Above the largest process id of Linux (2^22).
    let pid = UsageSource { pid: Some(5_000_000), ..UsageSource::default() };
    let reason = find(pid, folder.path()).await.unwrap_err();
    assert_eq!(reason, "usage.pid: no process 5000000 runs; is the service started?");
    let root = UsageSource { cgroup: Some("/".into()), ..UsageSource::default() };
    let reason = find(root, folder.path()).await.unwrap_err();
    assert!(reason.contains("there is no such cgroup; give a path as in /proc/PID/cgroup"), "{reason}");
}
