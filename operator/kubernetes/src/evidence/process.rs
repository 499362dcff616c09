//! Finds and reads the service's process, from a container that shares its process namespace.
//!
//! In such a namespace, the pod's own process is number 1, and the first process of every container has no parent. The
//! service is the one of these that started first, apart from this process: processes that are executed in the pod
//! later start later. Outside a cluster, in the namespace of the service's own container, there is no such process, and
//! number 1 is the service.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use bench_format::result::ThreadReading;
use driver::stage::Usage;
use operator::backend::local::{cgroup::found_in, process};
use process_usage::cpus_in;

/// Why the use of the service can't be reported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No process of a service was found.
    #[error(
        "no process of a service was found; does this container share the service's process namespace (in a pod: \
         shareProcessNamespace: true), and does the service run?"
    )]
    NoService,
    /// The process can't be read.
    #[error("failed to read {what} of process {pid}")]
    Read {
        /// What was read: CPU time or memory.
        what: &'static str,
        /// Id of the process that can't be read.
        pid: u32,
        /// The operating system's error.
        source: io::Error,
    },
}

/// The first process of a service.
#[derive(Debug)]
pub struct Service {
    pid: u32,
    folder: PathBuf,
}

/// The properties of a process that identify the service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessIdentity {
    pid: u32,
    parent: u32,
    started: u64,
}

impl Service {
    /// Finds the service's process.
    ///
    /// # Errors
    /// [`Error::NoService`] when there is none.
    pub fn find() -> Result<Self, Error> {
        let processes: Vec<ProcessIdentity> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| read(Path::new("/proc"), pid))
            .collect();
        let pid = choose(&processes, std::process::id()).ok_or(Error::NoService)?;
        Ok(Self { pid, folder: Path::new("/proc").join(pid.to_string()) })
    }

    /// The resource use of the service so far. CPU time is that of its container's cgroup, which includes ended
    /// children, or of the process where the cgroup can't be read.
    ///
    /// # Errors
    /// [`Error::Read`] when the process is gone.
    pub fn usage(&self) -> Result<Usage, Error> {
        let pid = self.pid;
        let failed = |what| move |source| Error::Read { what, pid, source };
        let cgroup = found_in(&self.folder.join("root/sys/fs/cgroup"));
        let cpu_ns = match cgroup.as_ref().and_then(|cgroup| cgroup.cpu_ns()) {
            Some(cpu_ns) => cpu_ns,
            None => process::cpu_ns(pid).map_err(failed("CPU time"))?,
        };
        let rss_bytes = process::rss_bytes(pid).map_err(failed("memory"))?;
        let affinity = f64::from(cpus_in(&self.cpus_allowed()).max(1));
        let quota = cgroup.as_ref().and_then(|cgroup| cgroup.quota_cpus());
        let quota_cgroup = cgroup.as_deref().filter(|_| quota.is_some());
        Ok(Usage {
            pid,
            cpu_ns,
            rss_bytes,
            cpu_limit: quota.map_or(affinity, |quota| quota.min(affinity)),
            throttled_periods: quota_cgroup.and_then(|cgroup| cgroup.throttled_periods()),
            periods: quota_cgroup.and_then(|cgroup| cgroup.periods()),
            throttled_ns: quota_cgroup.and_then(|cgroup| cgroup.throttled_ns()),
        })
    }

    /// The threads of the service and its descendants; `None` if they can't be read or are too many.
    pub fn threads(&self) -> Option<Vec<ThreadReading>> {
        process::threads(&process::process_tree(self.pid))
    }

    /// The CPUs on which the process may run, in the kernel's list format; empty if unknown.
    pub fn cpus_allowed(&self) -> String {
        let status = fs::read_to_string(self.folder.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.map(|list| list.trim().to_owned()).unwrap_or_default()
    }
}

fn choose(processes: &[ProcessIdentity], own: u32) -> Option<u32> {
    let first = || processes.iter().filter(|identity| identity.parent == 0 && identity.pid != own);
    let apart_from_the_pods =
        first().filter(|identity| identity.pid != 1).min_by_key(|identity| (identity.started, identity.pid));
    apart_from_the_pods.or_else(|| first().next()).map(|identity| identity.pid)
}

/// Parent and start time of a process, from fields 4 and 22 of its `stat`. They are counted after the name, which may
/// contain any character.
fn read(proc: &Path, pid: u32) -> Option<ProcessIdentity> {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(ProcessIdentity { pid, parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_is_the_oldest_first_process_besides_the_pods_and_ours() {
        let identity = |pid, parent, started| ProcessIdentity { pid, parent, started };
        let pause = identity(1, 0, 10);
        let (service, child, evidence) = (identity(7, 0, 20), identity(8, 7, 21), identity(15, 0, 19));
        let shell = identity(40, 0, 900);
        assert_eq!(choose(&[pause, shell, child, evidence, service], 15), Some(7));
        assert_eq!(choose(&[evidence], 15), None);
    }

    #[test]
    fn without_a_pod_process_the_first_process_of_the_container_is_the_service() {
        let identity = |pid, parent, started| ProcessIdentity { pid, parent, started };
        assert_eq!(choose(&[identity(1, 0, 10), identity(9, 1, 11), identity(15, 0, 19)], 15), Some(1));
    }

    #[test]
    fn a_process_name_may_contain_blanks_and_brackets() {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("7")).unwrap();
        let stat = "7 (a) b) c) S 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        fs::write(proc.path().join("7/stat"), stat).unwrap();
        assert_eq!(read(proc.path(), 7), Some(ProcessIdentity { pid: 7, parent: 3, started: 4711 }));
    }

    #[test]
    fn a_process_is_read_by_the_kernels_clocks() {
        let pid = std::process::id();
        let service = Service { pid, folder: format!("/proc/{pid}").into() };
        let usage = service.usage().unwrap();
        assert!(usage.cpu_ns > 0 && usage.rss_bytes > 100_000 && usage.cpu_limit > 0.0);
        assert!(!service.cpus_allowed().is_empty());
        assert!(service.threads().is_some());
    }
}
