//! The CPUs that a process may use: its affinity, limited by the quota of its cgroup.
//!
//! The quota comes from the cgroup's own files, never from load averages or sampled ticks.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The cgroup whose CPU quota limits a process.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuCgroup {
    /// The smallest quota between the process's cgroup and the root, in CPUs.
    pub quota_cpus: f64,
    folder: PathBuf,
}

/// Throttling counters of a CPU quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which the cgroup was active (`nr_periods`).
    pub periods: u64,
    /// Periods in which it used up its quota (`nr_throttled`).
    pub throttled: u64,
    /// Time in which it was throttled, summed over its CPUs, in nanoseconds (`throttled_usec`, or `throttled_time` in
    /// version 1).
    pub throttled_ns: u64,
}

impl CpuCgroup {
    /// The quota that limits this process; `None` if there is none or it can't be read.
    pub fn find() -> Option<Self> {
        Self::of("self")
    }

    /// The same for another process, by its id.
    pub fn of(process: &str) -> Option<Self> {
        let membership = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
        let v2 = cgroup_path(&membership, "").map(|path| (Path::new("/sys/fs/cgroup").to_owned(), path));
        let v1 = cgroup_path(&membership, "cpu").and_then(|path| {
            let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
            roots.into_iter().map(PathBuf::from).find(|root| root.is_dir()).map(|root| (root, path))
        });
        [v1, v2].into_iter().flatten().find_map(|(root, path)| Self::tightest(&root, &path))
    }

    fn tightest(root: &Path, path: &str) -> Option<Self> {
        // In a container the path may not exist below the mounted root; the root is then this process's cgroup.
        let own = root.join(path.trim_start_matches('/'));
        let own = if own.is_dir() { own } else { root.to_owned() };
        own.ancestors()
            .take_while(|folder| folder.starts_with(root))
            .filter_map(|folder| Some(Self { quota_cpus: quota(folder)?, folder: folder.to_owned() }))
            .min_by(|a, b| a.quota_cpus.total_cmp(&b.quota_cpus))
    }

    /// The current counters; `None` if they can't be read.
    pub fn throttling(&self) -> Option<Throttling> {
        let text = fs::read_to_string(self.folder.join("cpu.stat")).ok()?;
        Some(Throttling {
            periods: counter(&text, "nr_periods")?,
            throttled: counter(&text, "nr_throttled")?,
            throttled_ns: throttled_ns(&text)?,
        })
    }
}

/// The path of a controller in `/proc/<pid>/cgroup`. cgroup v2 has an empty controller name.
pub(crate) fn cgroup_path(membership: &str, controller: &str) -> Option<String> {
    membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        let found = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|name| name == controller)
        };
        found.then(|| parts.next().unwrap_or("/").to_owned())
    })
}

fn quota(folder: &Path) -> Option<f64> {
    if let Ok(text) = fs::read_to_string(folder.join("cpu.max")) {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
    }
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<f64>().ok();
    // -1 means no quota.
    read("cpu.cfs_quota_us").filter(|quota| *quota > 0.0).zip(read("cpu.cfs_period_us")).map(|(q, p)| q / p)
}

/// Time of throttling in a `cpu.stat` of either version, in nanoseconds; `None` without such a line.
pub fn throttled_ns(cpu_stat: &str) -> Option<u64> {
    counter(cpu_stat, "throttled_time").or_else(|| Some(counter(cpu_stat, "throttled_usec")? * 1000))
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// CPUs that this process may use: its affinity, limited by the quota.
pub fn cpu_limit(cgroup: Option<&CpuCgroup>) -> f64 {
    let affinity = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()) as f64;
    cgroup.map_or(affinity, |cgroup| affinity.min(cgroup.quota_cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    #[test]
    fn the_quota_is_read_from_both_cgroup_versions() {
        assert_eq!(quota(folder(&[("cpu.max", "50000 100000\n")]).path()), Some(0.5));
        assert_eq!(quota(folder(&[("cpu.max", "max 100000\n")]).path()), None);
        let v1 = |quota_us| folder(&[("cpu.cfs_quota_us", quota_us), ("cpu.cfs_period_us", "10000\n")]);
        assert_eq!(quota(v1("15000\n").path()), Some(1.5));
        assert_eq!(quota(v1("-1\n").path()), None);
    }

    #[test]
    fn the_tightest_quota_on_the_way_to_the_root_counts() {
        let root = folder(&[("cpu.max", "100000 100000")]);
        let inner = root.path().join("pod/container");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join("pod/cpu.max"), "20000 100000").unwrap();
        fs::write(inner.join("cpu.max"), "max 100000").unwrap();
        fs::write(root.path().join("pod/cpu.stat"), "nr_periods 9\nnr_throttled 4\nthrottled_usec 70\n").unwrap();
        let found = CpuCgroup::tightest(root.path(), "/pod/container").unwrap();
        assert_eq!(found.quota_cpus, 0.2);
        assert_eq!(found.throttling(), Some(Throttling { periods: 9, throttled: 4, throttled_ns: 70_000 }));
    }

    #[test]
    fn the_time_of_throttling_is_read_from_both_cgroup_versions() {
        // Both as a kernel wrote them.
        let v1 = "nr_periods 503\nnr_throttled 471\nthrottled_time 4270126612\nnr_bursts 0\nburst_time 0\n";
        let v2 = "usage_usec 12\nnr_periods 503\nnr_throttled 471\nthrottled_usec 4270126\nnr_bursts 0\n";
        assert_eq!(throttled_ns(v1), Some(4_270_126_612));
        assert_eq!(throttled_ns(v2), Some(4_270_126_000));
        assert_eq!(throttled_ns("usage_usec 12\n"), None);
    }

    #[test]
    fn controllers_are_found_by_name() {
        let membership = "4:memory:/a\n2:cpu,cpuacct:/b\n0::/c\n";
        assert_eq!(cgroup_path(membership, "cpu").as_deref(), Some("/b"));
        assert_eq!(cgroup_path(membership, "").as_deref(), Some("/c"));
        assert_eq!(cgroup_path("4:cpuset:/a\n", "cpu"), None);
    }

    #[test]
    fn this_process_has_cpus() {
        assert!(cpu_limit(None) >= 1.0);
    }
}
