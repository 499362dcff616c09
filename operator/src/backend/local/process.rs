//! One process: started on its CPUs and in its cgroup, bound to ladder's lifetime, and stopped with SIGTERM, then
//! SIGKILL.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::{fd::AsRawFd, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

pub use process_usage::{cpu_ns, rss_bytes, threads};
use procfs::process::Process;
use rustix::{
    process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal},
    thread::{CpuSet, sched_setaffinity},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::cgroup::Cgroup;
use crate::backend::Error;

/// Number of lines of standard error that an error message quotes.
const QUOTED_LINES: usize = 20;
/// Number of bytes at the end of a log that are searched for those lines.
const QUOTED_BYTES: u64 = 16 * 1024;
/// Number of lines of other output that may precede the ready line.
const BANNER_LINES: usize = 100;

/// The use of a process's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdout {
    /// It is read for the ready line.
    Lines,
    /// It is discarded (`/dev/null`).
    Discarded,
}

/// How to start a process.
#[derive(Debug)]
pub struct Launch {
    /// The name of the process in messages.
    pub name: String,
    /// A path relative to `folder`, or a name on `PATH`.
    pub program: String,
    /// Arguments of the program, without its name.
    pub arguments: Vec<String>,
    /// Environment variables, added to our own environment.
    pub env: BTreeMap<String, String>,
    /// The working directory of the process.
    pub folder: PathBuf,
    /// The CPUs on which the process may run.
    pub cpus: Vec<usize>,
    /// The cgroup that the process joins before it runs.
    pub cgroup: Option<Box<dyn Cgroup>>,
    /// The file to which standard error is appended.
    pub log: PathBuf,
    /// The use of standard output.
    pub stdout: Stdout,
}

/// A running process with its process group, log and cgroup. Dropping it kills the group.
#[derive(Debug)]
pub struct RunningProcess {
    name: String,
    child: Child,
    group: Option<Pid>,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    log: PathBuf,
    cgroup: Option<Box<dyn Cgroup>>,
    ended: Option<ExitStatus>,
    /// Processes of this machine that the kernel had killed for memory when this one started.
    oom_kills_before: u64,
}

impl RunningProcess {
    /// Starts the process on its CPUs and in its cgroup.
    pub fn start(launch: Launch) -> Result<Self, Error> {
        let spawn = |source| Error::Spawn { program: launch.program.clone(), source };
        let log = File::options().create(true).append(true).open(&launch.log).map_err(spawn)?;
        let program = if launch.program.contains('/') {
            launch.folder.join(&launch.program)
        } else {
            PathBuf::from(&launch.program)
        };
        let mut command = Command::new(program);
        command
            .args(&launch.arguments)
            .envs(&launch.env)
            .current_dir(&launch.folder)
            .stdin(Stdio::null())
            .stdout(if launch.stdout == Stdout::Lines { Stdio::piped() } else { Stdio::null() })
            .stderr(log)
            // Its own process group: Ctrl-C reaches only ladder, which then stops everything in order.
            .process_group(0)
            .kill_on_drop(true);
        bind(&mut command, &launch.cpus, launch.cgroup.as_deref()).map_err(spawn)?;
        let oom_kills_before = oom_kills();
        let mut child = command.spawn().map_err(spawn)?;
        let group = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Ok(Self {
            name: launch.name,
            child,
            group,
            lines,
            log: launch.log,
            cgroup: launch.cgroup,
            ended: None,
            oom_kills_before,
        })
    }

    /// The first line of standard output that looks like a JSON object; `None` at the end of the output.
    pub async fn first_json_line(&mut self) -> io::Result<Option<String>> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        for _ in 0..BANNER_LINES {
            match lines.next_line().await? {
                Some(line) if line.trim_start().starts_with('{') => return Ok(Some(line)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
        Err(io::Error::other(format!("no JSON object in its first {BANNER_LINES} lines")))
    }

    /// Reads and discards further output, so that the process never blocks on a full pipe.
    pub fn ignore_stdout(&mut self) {
        if let Some(mut lines) = self.lines.take() {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        }
    }

    /// The process's cgroup, if it has one.
    pub fn cgroup(&self) -> Option<&dyn Cgroup> {
        self.cgroup.as_deref()
    }

    /// Id of the process that was started; `None` once its end was noticed.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// How the process ended, with its last lines; `None` while it runs.
    pub fn ended(&mut self) -> Option<String> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.map(|status| format!("{} ended ({status}){}", self.name, self.last_output()))
    }

    /// Whether the process was killed, and the kernel has killed a process of this machine for memory since it started.
    /// False while it runs.
    pub fn ran_out_of_memory(&self) -> bool {
        // A shell in front of a killed program exits with 128 + 9.
        let killed = |status: ExitStatus| status.signal() == Some(libc::SIGKILL) || status.code() == Some(137);
        self.ended.is_some_and(killed) && oom_kills() > self.oom_kills_before
    }

    /// Waits up to a second for a process that closed its output, and returns how it ended.
    pub async fn exit_description(&mut self) -> String {
        match timeout(Duration::from_secs(1), self.child.wait()).await {
            Ok(Ok(status)) => {
                self.ended = Some(status);
                status.to_string()
            }
            _ => "still running".into(),
        }
    }

    /// The last lines of standard error, each on its own line after a line break; empty when there are none.
    pub fn last_output(&self) -> String {
        last_lines(&self.log).map(|lines| format!("\n{lines}")).unwrap_or_default()
    }

    /// Sends SIGTERM, and SIGKILL to the whole group after `grace_period`. Returns when the process is reaped and its
    /// cgroup is removed.
    pub async fn stop(&mut self, grace_period: Duration) {
        if self.ended().is_none() {
            self.signal(Signal::TERM);
            if timeout(grace_period, self.child.wait()).await.is_err() {
                self.signal(Signal::KILL);
                // A process can't ignore SIGKILL; the wait ends as soon as the kernel has cleaned up.
                let _ = self.child.wait().await;
            }
        }
        // Children of a wrapper script are in the same group.
        self.signal(Signal::KILL);
        self.group = None;
        if let Some(cgroup) = self.cgroup.take() {
            cgroup.remove();
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // A group that is gone needs no signal.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if let Some(cgroup) = self.cgroup.take() {
            cgroup.remove();
        }
    }
}

/// Runs between fork and exec: joins the cgroup, sets the CPU affinity, and makes the child die with its parent.
fn bind(command: &mut Command, cpus: &[usize], cgroup: Option<&dyn Cgroup>) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    // Opened here because opening allocates memory, which a forked child must not do.
    let procs_files: Vec<File> = match cgroup {
        Some(cgroup) => cgroup
            .procs_files()
            .iter()
            .map(|procs_file| File::options().write(true).open(procs_file))
            .collect::<io::Result<_>>()?,
        None => Vec::new(),
    };
    let parent = rustix::process::getpid();
    let work = move || {
        for procs_file in &procs_files {
            // "0" stands for the writing process.
            // SAFETY: the buffer is a live byte of static memory and its length is 1; the descriptor is open.
            if unsafe { libc::write(procs_file.as_raw_fd(), b"0".as_ptr().cast(), 1) } != 1 {
                return Err(io::Error::last_os_error());
            }
        }
        sched_setaffinity(None, &set)?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above; then no signal would ever come.
        if getppid() != Some(parent) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    };
    // SAFETY: the closure makes system calls only (write, sched_setaffinity, prctl, getppid): no allocation, no locks,
    // nothing that a fork of a threaded process could have left half-done. Error values from the system carry no heap.
    unsafe { command.pre_exec(work) };
    Ok(())
}

/// A process and all its living descendants: a service may consist of several processes.
pub fn process_tree(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        // A process that ends meanwhile has no children any more. A kernel that doesn't list children gives none.
        let threads = Process::new(parent as i32).and_then(|parent| parent.tasks());
        all.extend(threads.into_iter().flatten().flatten().filter_map(|thread| thread.children().ok()).flatten());
        next += 1;
    }
    all
}

/// The sum of `read` over a family: of [`cpu_ns`], or of [`rss_bytes`], which counts shared pages for each process.
///
/// # Errors
/// When the first process can't be read. Descendants may come and go, so those that can't be read are skipped.
pub fn sum_over(process_tree: &[u32], read: impl Fn(u32) -> io::Result<u64>) -> io::Result<u64> {
    let (first, started) = process_tree.split_first().ok_or(io::ErrorKind::NotFound)?;
    Ok(read(*first)? + started.iter().filter_map(|pid| read(*pid).ok()).sum::<u64>())
}

/// Number of processes that the kernel has killed for memory since it booted; 0 where it doesn't report that.
fn oom_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

fn last_lines(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(QUOTED_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(QUOTED_LINES)..];
    (!last.is_empty()).then(|| last.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n"))
}
