//! The CPU time and memory of what the plan names as the service: processes, a cgroup or a container of this machine.
//!
//! What is named is found once, when the service is started or found. A process that ended is looked for again, so that a
//! restart shows as another process id.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bench_format::{result::ThreadReading, websocket::UsageSource};
use driver::{
    service_process::{AllowedCpus, ServiceProcess},
    stage::Usage,
};
use process_usage::{cgroup::CpuCgroup, group::Group};
use procfs::process::Process;
use regex::Regex;
use tokio::{process::Command, time::timeout};

use super::process::{cpu_ns, process_tree, rss_bytes, sum_over, threads};

/// Longest wait for a program that inspects a container.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Programs that inspect containers, in the order in which they are asked.
const INSPECTORS: [&str; 2] = ["podman", "docker"];

/// What is read as the service's CPU time and memory.
#[derive(Debug)]
pub struct Watched {
    target: Target,
    allowed_cpus: AllowedCpus,
    /// Whose CPU time and memory they are, as a sentence.
    description: String,
}

#[derive(Debug)]
enum Target {
    /// Processes with their descendants; `roots` are those that were found last, the oldest first.
    Processes { find: Find, roots: Mutex<Vec<u32>> },
    /// All processes of a cgroup; `main` is the one whose end is a restart.
    Group { group: Group, main: u32 },
}

/// How processes are found.
#[derive(Clone, Debug)]
enum Find {
    Pid(u32),
    File(PathBuf),
    /// Those whose command line matches, except ladder's own.
    Command {
        pattern: Regex,
        others: BTreeSet<u32>,
    },
}

impl Watched {
    /// Finds what the plan names. `root` is the folder of relative paths, and `workers` are processes that are not the
    /// service's, regardless of their command line.
    ///
    /// # Errors
    /// The field that names nothing, why, and what to do.
    pub async fn find(source: &UsageSource, root: &Path, workers: &[u32]) -> Result<Self, String> {
        match source {
            UsageSource { pid: Some(pid), .. } => Self::of_processes(Find::Pid(*pid), "usage.pid"),
            UsageSource { pid_file: Some(file), .. } => {
                Self::of_processes(Find::File(root.join(file)), "usage.pid_file")
            }
            UsageSource { command: Some(pattern), .. } => {
                let pattern = Regex::new(pattern).map_err(|error| format!("usage.command: {error}"))?;
                let others = ladders_own().chain(workers.iter().copied()).collect();
                Self::of_processes(Find::Command { pattern, others }, "usage.command")
            }
            UsageSource { cgroup: Some(path), .. } => {
                let none = || {
                    let advice = "give a path as in /proc/PID/cgroup, or that of its folder below /sys/fs/cgroup";
                    format!("usage.cgroup {path}: there is no such cgroup; {advice}")
                };
                let group = Group::at(path).ok_or_else(none)?;
                let what = format!("cgroup {}", group.folder().display());
                Self::of_group(group, None, &what).map_err(|reason| format!("usage.cgroup {path}: {reason}"))
            }
            UsageSource { container: Some(name), .. } => Self::of_container(name).await,
            _ => Err("usage names nothing; give one of pid, pid_file, command, cgroup, container".into()),
        }
    }

    fn of_processes(find: Find, field: &str) -> Result<Self, String> {
        let roots = find.roots().map_err(|reason| format!("{field}: {reason}"))?;
        let described: Vec<String> = roots.iter().map(|pid| format!("process {pid} ({})", name(*pid))).collect();
        let description = format!("CPU and memory are those of {} and what it started", described.join(", "));
        let allowed_cpus = allowed_cpus(&roots).ok_or_else(|| format!("{field}: process {} has ended", roots[0]))?;
        Ok(Self { target: Target::Processes { find, roots: Mutex::new(roots) }, allowed_cpus, description })
    }

    /// All processes of a cgroup. `main` is known where the cgroup is that of a container.
    fn of_group(group: Group, main: Option<u32>, what: &str) -> Result<Self, String> {
        let pids = group.pids();
        if pids.contains(&std::process::id()) {
            return Err("ladder runs in it, too, and would be measured; give the service a cgroup of its own".into());
        }
        let main = main.or_else(|| oldest_first(pids.clone()).first().copied());
        let main = main.ok_or("no process runs in it; is the service started?")?;
        let allowed_cpus = allowed_cpus(&pids).ok_or("its processes can't be read; has it ended?")?;
        let memory = match group.memory_bytes() {
            Some(_) => "",
            None => "; no controller counts its memory, so that of its processes is added up",
        };
        let description = format!("CPU and memory are those of {what}{memory}");
        Ok(Self { target: Target::Group { group, main }, allowed_cpus, description })
    }

    /// A container by the cgroup of its main process, or by that process where it has no cgroup of its own.
    async fn of_container(name: &str) -> Result<Self, String> {
        let pid = main_process(name).await?;
        if let Some(group) = Group::of(pid) {
            let what = format!("container {name}, cgroup {}", group.folder().display());
            if let Ok(watched) = Self::of_group(group, Some(pid), &what) {
                return Ok(watched);
            }
        }
        let watched = Self::of_processes(Find::Pid(pid), &format!("usage.container {name}"))?;
        let description = format!("{}: container {name} has no cgroup of its own", watched.description);
        Ok(Self { description, ..watched })
    }

    /// Whose CPU time and memory they are, as a sentence.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// CPU and memory; `None` if nothing of it runs any more.
    pub fn usage(&self) -> Option<Usage> {
        let (main, pids) = self.pids()?;
        let (cpu_ns, rss_bytes) = match &self.target {
            Target::Processes { .. } => (sum_over(&pids, cpu_ns).ok()?, sum_over(&pids, rss_bytes).ok()?),
            Target::Group { group, .. } => {
                let rss_bytes = group.memory_bytes().or_else(|| sum_over(&pids, rss_bytes).ok());
                (group.cpu_ns()?, rss_bytes?)
            }
        };
        let throttling = CpuCgroup::of(&main.to_string()).and_then(|cgroup| cgroup.throttling());
        Some(Usage {
            pid: main,
            cpu_ns,
            rss_bytes,
            cpu_limit: self.allowed_cpus.cpus,
            throttled_periods: throttling.map(|throttling| throttling.throttled),
            periods: throttling.map(|throttling| throttling.periods),
            throttled_ns: throttling.map(|throttling| throttling.throttled_ns),
        })
    }

    /// The threads of its processes; `None` if they can't be read.
    pub fn threads(&self) -> Option<Vec<ThreadReading>> {
        threads(&self.pids()?.1)
    }

    /// Whether it may run on CPUs on which this process may run.
    pub fn shares_cpus(&self) -> bool {
        self.allowed_cpus.shared
    }

    /// The process whose end is a restart, and all processes with that one first.
    fn pids(&self) -> Option<(u32, Vec<u32>)> {
        match &self.target {
            Target::Processes { find, roots } => {
                let mut roots = roots.lock().unwrap_or_else(PoisonError::into_inner);
                if roots.iter().any(|pid| cpu_ns(*pid).is_err()) {
                    *roots = find.roots().ok()?;
                }
                let mut pids: Vec<u32> = roots.iter().flat_map(|pid| process_tree(*pid)).collect();
                let mut seen = BTreeSet::new();
                pids.retain(|pid| seen.insert(*pid));
                Some((roots[0], pids))
            }
            Target::Group { group, main } => {
                let mut pids = oldest_first(group.pids());
                if let Some(index) = pids.iter().position(|pid| pid == main) {
                    pids[..=index].rotate_right(1);
                }
                Some((*pids.first()?, pids))
            }
        }
    }
}

impl Find {
    /// The processes, the oldest first; at least one.
    fn roots(&self) -> Result<Vec<u32>, String> {
        let found = match self {
            Self::Pid(pid) => vec![*pid],
            Self::File(file) => {
                let place = file.display();
                let text = fs::read_to_string(file).map_err(|error| format!("failed to read {place}: {error}"))?;
                let pid =
                    text.trim().parse().map_err(|_| format!("{place} has no process id but {:?}", text.trim()))?;
                vec![pid]
            }
            Self::Command { pattern, others } => {
                // A process that ladder is just starting has ladder's command line until it has its own program.
                let own = command_line(std::process::id());
                let is_found = |line: &str| line != own && pattern.is_match(line);
                processes().filter(|pid| !others.contains(pid) && is_found(&command_line(*pid))).collect()
            }
        };
        let running = oldest_first(found.clone());
        match (running.is_empty(), self) {
            (false, _) => Ok(running),
            (true, Self::Command { pattern, .. }) => {
                Err(format!("no command line of a process matches {:?}; is the service started?", pattern.as_str()))
            }
            (true, _) => Err(format!("no process {} runs; is the service started?", found[0])),
        }
    }
}

/// Processes that still run, in the order of their starts.
fn oldest_first(pids: Vec<u32>) -> Vec<u32> {
    let started = |pid: u32| Some((Process::new(pid as i32).ok()?.stat().ok()?.starttime, pid));
    let mut running: Vec<(u64, u32)> = pids.into_iter().filter_map(started).collect();
    running.sort_unstable();
    running.into_iter().map(|(_, pid)| pid).collect()
}

/// This process and those that started it: their command lines may have the pattern as an argument.
fn ladders_own() -> impl Iterator<Item = u32> {
    let parent = |pid: &u32| {
        let parent = Process::new(*pid as i32).ok()?.stat().ok()?.ppid;
        u32::try_from(parent).ok().filter(|parent| *parent > 0)
    };
    std::iter::successors(Some(std::process::id()), parent)
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The arguments of a process with one space between them; empty for a thread of the kernel.
fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ")
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn allowed_cpus(pids: &[u32]) -> Option<AllowedCpus> {
    ServiceProcess::of(pids.to_vec())?.allowed_cpus()
}

/// The main process of a container that runs.
async fn main_process(name: &str) -> Result<u32, String> {
    let mut reasons = Vec::new();
    for program in INSPECTORS {
        match inspect(program, name).await {
            Ok(pid) => return Ok(pid),
            Err(reason) => reasons.push(format!("{program}: {reason}")),
        }
    }
    let advice = "or name what runs in it otherwise: `cgroup`, `pid_file`, `pid` or `command`";
    Err(format!("usage.container {name}: {}; check the name and that it runs, {advice}", reasons.join("; ")))
}

async fn inspect(program: &str, name: &str) -> Result<u32, String> {
    let mut command = Command::new(program);
    command.args(["inspect", "--type", "container", "--format", "{{.State.Pid}}", name]);
    let run = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = match timeout(INSPECT_TIMEOUT, run).await {
        Err(_) => return Err(format!("it did not answer within {} s", INSPECT_TIMEOUT.as_secs())),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return Err("it is not installed".into()),
        Ok(output) => output.map_err(|error| error.to_string())?,
    };
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        return Err(last.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned()));
    }
    match String::from_utf8_lossy(&output.stdout).trim().parse() {
        Ok(0) => Err("the container doesn't run".into()),
        Ok(pid) => Ok(pid),
        Err(_) => Err("it printed no process id".into()),
    }
}
