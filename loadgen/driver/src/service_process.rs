//! The process that listens at the loaded address, if it runs on this machine: its CPU, memory and allowed CPUs.
//!
//! All values come from the kernel, without the process's help. Values that this user may not read are absent, never
//! estimated.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use bench_format::result::ThreadReading;
use process_usage::{cgroup::CpuCgroup, cpu_ns, rss_bytes, threads};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity},
};

use crate::stage::Usage;

/// State TCP_LISTEN in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The processes that share one listening port: one, or several with SO_REUSEPORT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceProcess {
    pids: Vec<u32>,
}

/// The CPUs that a process may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllowedCpus {
    /// Number of CPUs, by affinity and quota.
    pub cpus: f64,
    /// Whether the current process may also run on some of them.
    pub shared: bool,
}

impl ServiceProcess {
    /// The processes that listen at this address; `None` if it isn't a loopback address or this user may not see the
    /// processes.
    pub fn listening(address: SocketAddr) -> Option<Self> {
        if !address.ip().is_loopback() {
            return None;
        }
        let sockets: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| listeners(&table, address.port()))
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        let holds = |pid: &u32| links(&PathBuf::from(format!("/proc/{pid}/fd"))).any(|link| sockets.contains(&link));
        let mut pids: Vec<u32> = if sockets.is_empty() { Vec::new() } else { processes().filter(holds).collect() };
        pids.sort_unstable();
        (!pids.is_empty()).then_some(Self { pids })
    }

    /// These processes; `None` without any.
    pub fn of(pids: Vec<u32>) -> Option<Self> {
        (!pids.is_empty()).then_some(Self { pids })
    }

    /// Description for a person: the name of the first process and all process ids.
    pub fn description(&self) -> String {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.pids[0])).unwrap_or_default();
        let pids: Vec<_> = self.pids.iter().map(u32::to_string).collect();
        format!("{} (process {})", name.trim(), pids.join(", "))
    }

    /// CPU time of the processes since their start, in user and kernel mode, in nanoseconds; `None` if one has ended.
    pub fn cpu_ns(&self) -> Option<u64> {
        self.pids.iter().map(|pid| cpu_ns(*pid).ok()).sum()
    }

    /// Resident memory in bytes; shared pages count for each process. `None` if a process has ended.
    pub fn rss_bytes(&self) -> Option<u64> {
        self.pids.iter().map(|pid| rss_bytes(*pid).ok()).sum()
    }

    /// Number of files that the processes may open together; each connection needs one. `None` if a process has ended.
    pub fn open_files(&self) -> Option<u64> {
        let limit = |pid: &u32| {
            let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
            let soft = |line: &str| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse::<u64>().ok();
            limits.lines().find_map(soft)
        };
        self.pids.iter().map(limit).sum::<Option<u64>>()
    }

    /// CPU and memory of the processes together, with the CPUs that they may use; `None` if a process has ended.
    pub fn usage(&self, allowed_cpus: AllowedCpus) -> Option<Usage> {
        // Processes of one port are replicas in one cgroup, or by hand; the first one's quota stands for all.
        let throttling = CpuCgroup::of(&self.pids[0].to_string()).and_then(|cgroup| cgroup.throttling());
        Some(Usage {
            pid: self.pids[0],
            cpu_ns: self.cpu_ns()?,
            rss_bytes: self.rss_bytes()?,
            cpu_limit: allowed_cpus.cpus,
            throttled_periods: throttling.map(|throttling| throttling.throttled),
            periods: throttling.map(|throttling| throttling.periods),
            throttled_ns: throttling.map(|throttling| throttling.throttled_ns),
        })
    }

    /// The threads of the processes; `None` if they can't be read.
    pub fn threads(&self) -> Option<Vec<ThreadReading>> {
        threads(&self.pids)
    }

    /// The CPUs that the processes may use; `None` if a process has ended.
    pub fn allowed_cpus(&self) -> Option<AllowedCpus> {
        let own = sched_getaffinity(None).ok()?;
        let mut all = CpuSet::new();
        for pid in &self.pids {
            let process_cpus = sched_getaffinity(Pid::from_raw(*pid as i32)).ok()?;
            cpus(&process_cpus).for_each(|cpu| all.set(cpu));
        }
        let quotas = self.pids.iter().filter_map(|pid| CpuCgroup::of(&pid.to_string()));
        let tightest = quotas.map(|cgroup| cgroup.quota_cpus).fold(f64::INFINITY, f64::min);
        let shared = cpus(&all).any(|cpu| own.is_set(cpu));
        Some(AllowedCpus { cpus: f64::from(all.count()).min(tightest), shared })
    }
}

fn cpus(set: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu))
}

/// Inodes of the sockets that listen on a port, from the text of `/proc/net/tcp`.
fn listeners(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == LISTENING;
        listens.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Targets of the links in a folder of file descriptors; empty if the folder can't be read.
fn links(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_is_found_with_cpu_memory_and_cpus() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let found = ServiceProcess::listening(listener.local_addr().unwrap()).unwrap();
        assert_eq!(found.pids, [std::process::id()]);
        assert!(found.cpu_ns().unwrap() > 0 && found.rss_bytes().unwrap() > 100_000);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        assert_eq!(found.open_files(), limit, "the limit is that of this process");
        let allowed_cpus = found.allowed_cpus().unwrap();
        assert!(allowed_cpus.cpus > 0.0 && allowed_cpus.shared, "this process shares its own CPUs: {allowed_cpus:?}");
    }

    #[test]
    fn processes_of_other_machines_are_not_found() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(ServiceProcess::listening(free), None);
        assert_eq!(ServiceProcess::listening("192.0.2.1:80".parse().unwrap()), None);
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     0: 0100007F:138E 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 71 1 x\n\
                     1: 0100007F:138E 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 72 1 x\n\
                     2: 0100007F:138F 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 73 1 x\n";
        assert_eq!(listeners(table, 5006), ["71"]);
    }

    #[test]
    fn an_ended_process_has_neither_cpu_time_nor_memory() {
        // Above the largest process id of Linux (2^22).
        let ended = ServiceProcess { pids: vec![5_000_000] };
        assert_eq!((ended.cpu_ns(), ended.rss_bytes(), ended.allowed_cpus()), (None, None, None));
    }
}
