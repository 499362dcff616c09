//! The CPU time of the whole machine: of each CPU, of each process, and what a hypervisor took.
//!
//! The time of a CPU comes from a counter in nanoseconds, never from ticks: of the root cgroup in version 1, of
//! `/proc/schedstat`, or of the root cgroup in version 2, which has one number for all CPUs. In a container the root of
//! the mounted tree is not the machine's, so it is used only where the kernel marks it as the root.

use std::{collections::BTreeMap, fs, path::Path, time::Instant};

use crate::cpu_ns;

/// Folders that may be the root of the controller `cpuacct` of cgroup version 1.
const CPUACCT: [&str; 2] = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"];
/// Nanoseconds of a tick in `/proc/stat`.
const TICK_NS: u64 = 10_000_000;
/// Process of which all threads of the kernel are children.
const KTHREADD: u32 = 2;

/// Where the CPU time of the machine comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `cpuacct.usage_percpu` of the root cgroup, version 1.
    Cpuacct,
    /// `/proc/schedstat`, its seventh number.
    Schedstat,
    /// `cpu.stat` of the root cgroup, version 2: one number for all CPUs.
    Cgroup,
}

/// The counters of the machine at one moment.
#[derive(Clone, Debug)]
pub struct MachineReading {
    /// The moment of the reading.
    pub at: Instant,
    /// Where `busy_ns` comes from.
    pub source: Source,
    /// CPU time of each CPU since the start of the machine, in nanoseconds; a single entry with [`Source::Cgroup`].
    pub busy_ns: Vec<u64>,
    /// Time that a hypervisor took from each CPU, in nanoseconds; counted in ticks of 10 ms.
    pub steal_ns: Vec<u64>,
    /// CPU time of each process since its start, in nanoseconds, by process id.
    pub processes: BTreeMap<u32, u64>,
}

impl MachineReading {
    /// Reads the machine; `None` if it has no exact counter of its CPUs.
    pub fn read() -> Option<Self> {
        let (source, busy_ns) = busy_ns()?;
        let steal_ns = steal_ns();
        let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // A process may end in between.
        let processes = pids.filter_map(|pid: u32| Some((pid, cpu_ns(pid).ok()?))).collect();
        Some(Self { at: Instant::now(), source, busy_ns, steal_ns, processes })
    }
}

/// Where a process runs and what it is, by its `stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessKind {
    /// Name of the process.
    pub name: String,
    /// Whether it is a thread of the kernel.
    pub is_kernel: bool,
    /// The CPU on which it ran last.
    pub cpu: usize,
}

/// What a process is; `None` if it has ended.
pub fn kind(pid: u32) -> Option<ProcessKind> {
    kind_of(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 2, 4 and 39 of `stat`: name, parent and CPU. The name may contain any character.
fn kind_of(pid: u32, stat: &str) -> Option<ProcessKind> {
    let (head, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let parent: u32 = fields.get(1)?.parse().ok()?;
    Some(ProcessKind {
        name: head.split_once('(')?.1.to_owned(),
        is_kernel: pid == KTHREADD || parent == KTHREADD,
        cpu: fields.get(36)?.parse().ok()?,
    })
}

fn busy_ns() -> Option<(Source, Vec<u64>)> {
    let cpuacct = CPUACCT.iter().map(Path::new).find_map(cpuacct);
    let schedstat = || schedstat(&fs::read_to_string("/proc/schedstat").ok()?);
    let cgroup = || cgroup(Path::new("/sys/fs/cgroup"));
    let found = cpuacct.map(|busy_ns| (Source::Cpuacct, busy_ns));
    let found = found.or_else(|| Some((Source::Schedstat, schedstat()?)));
    found.or_else(|| Some((Source::Cgroup, vec![cgroup()?])))
}

/// Only the root of a tree of version 1 has `release_agent`.
fn cpuacct(root: &Path) -> Option<Vec<u64>> {
    if !root.join("release_agent").exists() {
        return None;
    }
    let text = fs::read_to_string(root.join("cpuacct.usage_percpu")).ok()?;
    let busy_ns: Option<Vec<u64>> = text.split_whitespace().map(|field| field.parse().ok()).collect();
    busy_ns.filter(|busy_ns| !busy_ns.is_empty())
}

/// The seventh number of each CPU: time that its tasks ran.
fn schedstat(text: &str) -> Option<Vec<u64>> {
    let of_cpu = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields[0].starts_with("cpu") && fields.len() > 7).then(|| fields[7].parse::<u64>().ok())?
    };
    let busy_ns: Vec<u64> = text.lines().filter(|line| line.starts_with("cpu")).filter_map(of_cpu).collect();
    busy_ns.iter().any(|busy| *busy > 0).then_some(busy_ns)
}

/// Every cgroup of version 2 but the root has `cgroup.type`.
fn cgroup(root: &Path) -> Option<u64> {
    if root.join("cgroup.type").exists() {
        return None;
    }
    let text = fs::read_to_string(root.join("cpu.stat")).ok()?;
    let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok())?;
    Some(usage * 1000)
}

/// Time that a hypervisor took from each CPU of the machine, in nanoseconds; counted in ticks of 10 ms. A CPU without such
/// a counter has 0, so there are as many as CPUs.
pub fn steal_ns() -> Vec<u64> {
    steal_ns_in(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The eighth number of each CPU in `/proc/stat`.
fn steal_ns_in(stat: &str) -> Vec<u64> {
    let of_cpu = |line: &str| line.split_whitespace().nth(8).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0);
    let is_cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    stat.lines().filter(is_cpu).map(|line| of_cpu(line) * TICK_NS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_version_1_has_the_time_of_each_cpu_and_another_group_is_not_taken_for_it() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cpuacct.usage_percpu"), "18245 18745 \n").unwrap();
        assert_eq!(cpuacct(root.path()), None, "a container's own group");
        fs::write(root.path().join("release_agent"), "\n").unwrap();
        assert_eq!(cpuacct(root.path()), Some(vec![18_245, 18_745]));
    }

    #[test]
    fn schedstat_has_the_time_of_each_cpu_in_its_seventh_number() {
        let text = "version 17\ntimestamp 4295\ncpu0 1 0 3 4 5 6 700 8 9\ndomain0 MC 3 1 2\ncpu1 1 0 3 4 5 6 900 8 9\n";
        assert_eq!(schedstat(text), Some(vec![700, 900]));
        assert_eq!(schedstat("version 17\ncpu0 0 0 0 0 0 0 0 0 0\n"), None, "counting is turned off");
    }

    #[test]
    fn the_root_of_version_2_has_one_number_for_all_cpus() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cpu.stat"), "usage_usec 12\nuser_usec 7\n").unwrap();
        assert_eq!(cgroup(root.path()), Some(12_000));
        fs::write(root.path().join("cgroup.type"), "domain\n").unwrap();
        assert_eq!(cgroup(root.path()), None, "a container's own group");
    }

    #[test]
    fn stolen_time_is_read_for_each_cpu() {
        let stat = "cpu  9 9 9 9 9 9 9 483 0 0\ncpu0 1 1 1 1 1 0 1 239 0 0\ncpu1 1 1 1 1 1 0 1 243 0 0\nintr 5\n";
        assert_eq!(steal_ns_in(stat), [2_390_000_000, 2_430_000_000]);
    }

    #[test]
    fn threads_of_the_kernel_are_told_from_processes() {
        let stat = |parent: u32| format!("14 (a) (b) S {parent}{} 1 7 0", " 0".repeat(34));
        let process = kind_of(14, &stat(1)).unwrap();
        assert_eq!((process.name.as_str(), process.is_kernel, process.cpu), ("a) (b", false, 1));
        assert!(kind_of(14, &stat(2)).unwrap().is_kernel);
        let own = kind(std::process::id()).unwrap();
        assert!(!own.is_kernel && !own.name.is_empty());
    }

    #[test]
    fn this_machine_has_processes_with_cpu_time() {
        if let Some(reading) = MachineReading::read() {
            assert!(reading.busy_ns.iter().sum::<u64>() > 0);
            assert!(reading.processes[&std::process::id()] > 0);
        }
    }
}
