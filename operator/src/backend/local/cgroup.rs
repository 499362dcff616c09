//! CPU quotas by cgroup, for versions 1 and 2 behind one trait.
//!
//! Used only for fractions of a CPU. Group names contain ladder's process id; groups of a ladder that was killed are
//! removed at the next start.

use std::{
    fmt::Debug,
    fs, io,
    path::{Path, PathBuf},
    process,
    time::Duration,
};

use process_usage::cgroup::throttled_ns;

/// Prefix of the names of our groups.
const PREFIX: &str = "ws-ladder-";
/// Period of a quota. It is short, so that a throttled process stalls for milliseconds instead of tens of them.
const PERIOD: Duration = Duration::from_millis(10);
/// The kernel's smallest quota. A smaller share gets a longer period.
const LEAST_QUOTA: Duration = Duration::from_millis(1);

/// A cgroup with a CPU quota.
pub trait Cgroup: Debug + Send + Sync {
    /// The `cgroup.procs` files, into which a process writes its id to join.
    fn procs_files(&self) -> Vec<PathBuf>;
    /// CPU time of all processes in the group, in nanoseconds.
    fn cpu_ns(&self) -> Option<u64>;
    /// Number of periods in which the group was throttled.
    fn throttled_periods(&self) -> Option<u64>;
    /// Number of periods in which the group was runnable.
    fn periods(&self) -> Option<u64>;
    /// Time in which the group was throttled, summed over its CPUs, in nanoseconds.
    fn throttled_ns(&self) -> Option<u64>;
    /// The quota, in CPUs; `None` where no quota is set.
    fn quota_cpus(&self) -> Option<f64>;
    /// Removes the group, which must be empty.
    fn remove(&self);
}

/// The part of this machine's cgroup tree that we may write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 1: one tree per controller.
    V1 {
        /// The folder in which groups with a quota are created.
        cpu: PathBuf,
        /// The folder in which their CPU time is counted; absent where the controller isn't mounted.
        cpuacct: Option<PathBuf>,
    },
    /// Version 2: one tree for all controllers.
    V2 {
        /// The folder in which groups are created.
        parent: PathBuf,
    },
}

impl Hierarchy {
    /// Finds a tree in which a group with a quota can be created.
    ///
    /// # Errors
    /// The reasons for each tree, as text, when there is none.
    pub fn detect() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mut reasons = Vec::new();
        for candidate in candidates(&mounts, &own) {
            match candidate.try_out() {
                Ok(()) => return Ok(candidate),
                Err(reason) => reasons.push(reason),
            }
        }
        reasons.dedup();
        if reasons.is_empty() {
            Err("no cgroup tree with a cpu controller is mounted".into())
        } else {
            Err(reasons.join("; "))
        }
    }

    /// Creates a group that may use `cpus` CPUs.
    ///
    /// # Errors
    /// The kernel's error when it refuses.
    pub fn create(&self, role: &str, cpus: f64) -> io::Result<Box<dyn Cgroup>> {
        let name = format!("{PREFIX}{}-{role}", process::id());
        let (quota, period) = quota(cpus);
        match self {
            Self::V1 { cpu, cpuacct } => {
                let cpu = make(&cpu.join(&name))?;
                fs::write(cpu.join("cpu.cfs_period_us"), period.as_micros().to_string())?;
                fs::write(cpu.join("cpu.cfs_quota_us"), quota.as_micros().to_string())?;
                let cpuacct = cpuacct.as_ref().filter(|path| **path != cpu).map(|path| make(&path.join(&name)));
                Ok(Box::new(V1 { cpu, cpuacct: cpuacct.transpose()? }))
            }
            Self::V2 { parent } => {
                let folder = make(&parent.join(&name))?;
                fs::write(folder.join("cpu.max"), format!("{} {}", quota.as_micros(), period.as_micros()))?;
                Ok(Box::new(V2 { folder }))
            }
        }
    }

    /// Removes groups of ladder processes that no longer exist.
    pub fn sweep(&self) {
        let trees = match self {
            Self::V1 { cpu, cpuacct } => [Some(cpu), cpuacct.as_ref()],
            Self::V2 { parent } => [Some(parent), None],
        };
        for folder in trees.into_iter().flatten().filter_map(|tree| fs::read_dir(tree).ok()).flatten().flatten() {
            let name = folder.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
            // Others may use the same prefix, with a word where ladder has its process id.
            let owner = owner.and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                // The group still has processes or is already gone. In both cases there is nothing to do.
                let _ = fs::remove_dir(folder.path());
            }
        }
    }

    fn try_out(&self) -> Result<(), String> {
        if let Self::V2 { parent } = self {
            let read = |file| fs::read_to_string(parent.join(file)).unwrap_or_default();
            let has = |text: String| text.split_whitespace().any(|controller| controller == "cpu");
            if !has(read("cgroup.controllers")) {
                return Err(format!("{} has no cpu controller", parent.display()));
            }
            if !has(read("cgroup.subtree_control")) {
                fs::write(parent.join("cgroup.subtree_control"), "+cpu")
                    .map_err(|error| format!("{} doesn't hand down its cpu controller: {error}", parent.display()))?;
            }
        }
        let made = self.create("try", 0.5).map_err(|error| format!("failed to make a cgroup: {error}"))?;
        made.remove();
        Ok(())
    }
}

/// The group whose files are in a container's own `/sys/fs/cgroup`, of either version.
pub fn found_in(top: &Path) -> Option<Box<dyn Cgroup>> {
    if top.join("cgroup.controllers").is_file() {
        return Some(Box::new(V2 { folder: top.into() }));
    }
    let tree = |names: [&str; 2], file: &str| {
        names.into_iter().map(|name| top.join(name)).find(|folder| folder.join(file).is_file())
    };
    let cpu = tree(["cpu", "cpu,cpuacct"], "cpu.stat")?;
    Some(Box::new(V1 { cpuacct: tree(["cpuacct", "cpu,cpuacct"], "cpuacct.usage"), cpu }))
}

/// The trees to try, in order: our own group's folder, its parents, and the top of the tree.
fn candidates(mounts: &str, own: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    let top = |controller: &str| mount_point(mounts, "cgroup", controller);
    if let Some(cpu) = top("cpu") {
        let cpuacct = top("cpuacct");
        let below = |top: &Path, controller: &str| top.join(own_group(own, controller).trim_start_matches('/'));
        found.push(Hierarchy::V1 {
            cpu: below(&cpu, "cpu"),
            cpuacct: cpuacct.as_deref().map(|top| below(top, "cpuacct")),
        });
        found.push(Hierarchy::V1 { cpu, cpuacct });
    }
    if let Some(top) = mount_point(mounts, "cgroup2", "") {
        let own = top.join(own_group(own, "").trim_start_matches('/'));
        found.extend(
            own.ancestors().take_while(|path| path.starts_with(&top)).map(|path| Hierarchy::V2 { parent: path.into() }),
        );
    }
    found
}

/// The mount point of a tree. `kind` is the file system, `controller` one of its mount options (empty matches any).
fn mount_point(mounts: &str, kind: &str, controller: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let options = (right.next()? == kind).then(|| right.nth(1)).flatten()?;
        let fits = controller.is_empty() || options.split(',').any(|option| option == controller);
        fits.then(|| left.split(' ').nth(4).map(PathBuf::from))?
    })
}

/// The path of our own group in a controller's tree. For version 2 the controller is empty.
fn own_group<'a>(own: &'a str, controller: &str) -> &'a str {
    own.lines()
        .filter_map(|line| line.splitn(3, ':').collect::<Vec<_>>().try_into().ok())
        .find(|[_, controllers, _]: &[&str; 3]| controllers.split(',').any(|name| name == controller))
        .map(|[_, _, path]| path)
        .unwrap_or("/")
}

/// Quota and period of a CPU share.
fn quota(cpus: f64) -> (Duration, Duration) {
    let period = PERIOD.max(LEAST_QUOTA.div_f64(cpus)).min(Duration::from_secs(1));
    (period.mul_f64(cpus), period)
}

fn make(folder: &Path) -> io::Result<PathBuf> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(folder.into()),
    }
}

#[derive(Debug)]
struct V1 {
    cpu: PathBuf,
    cpuacct: Option<PathBuf>,
}

impl Cgroup for V1 {
    fn procs_files(&self) -> Vec<PathBuf> {
        [Some(&self.cpu), self.cpuacct.as_ref()].into_iter().flatten().map(|tree| tree.join("cgroup.procs")).collect()
    }

    fn cpu_ns(&self) -> Option<u64> {
        let tree = self.cpuacct.as_ref().unwrap_or(&self.cpu);
        fs::read_to_string(tree.join("cpuacct.usage")).ok()?.trim().parse().ok()
    }

    fn throttled_periods(&self) -> Option<u64> {
        field(&self.cpu.join("cpu.stat"), "nr_throttled")
    }

    fn periods(&self) -> Option<u64> {
        field(&self.cpu.join("cpu.stat"), "nr_periods")
    }

    fn throttled_ns(&self) -> Option<u64> {
        throttled_ns(&fs::read_to_string(self.cpu.join("cpu.stat")).ok()?)
    }

    fn quota_cpus(&self) -> Option<f64> {
        let read = |name: &str| fs::read_to_string(self.cpu.join(name)).ok()?.trim().parse::<f64>().ok();
        // -1 stands for no quota.
        let quota = read("cpu.cfs_quota_us").filter(|quota| *quota > 0.0)?;
        Some(quota / read("cpu.cfs_period_us")?)
    }

    fn remove(&self) {
        [Some(&self.cpu), self.cpuacct.as_ref()].into_iter().flatten().for_each(|tree| remove(tree));
    }
}

#[derive(Debug)]
struct V2 {
    folder: PathBuf,
}

impl Cgroup for V2 {
    fn procs_files(&self) -> Vec<PathBuf> {
        vec![self.folder.join("cgroup.procs")]
    }

    fn cpu_ns(&self) -> Option<u64> {
        field(&self.folder.join("cpu.stat"), "usage_usec").map(|microseconds| microseconds * 1000)
    }

    fn throttled_periods(&self) -> Option<u64> {
        field(&self.folder.join("cpu.stat"), "nr_throttled")
    }

    fn periods(&self) -> Option<u64> {
        field(&self.folder.join("cpu.stat"), "nr_periods")
    }

    fn throttled_ns(&self) -> Option<u64> {
        throttled_ns(&fs::read_to_string(self.folder.join("cpu.stat")).ok()?)
    }

    fn quota_cpus(&self) -> Option<f64> {
        let text = fs::read_to_string(self.folder.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    }

    fn remove(&self) {
        remove(&self.folder);
    }
}

/// Removes a group. The kernel allows it only a moment after the last process was reaped, so removal is retried for up
/// to 100 ms.
fn remove(folder: &Path) {
    for _ in 0..100 {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(Duration::from_millis(1)),
            _ => return,
        }
    }
}

fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "30 25 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:10 - cgroup cgroup rw,cpu\n\
                          31 25 0:27 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct\n\
                          40 25 0:30 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn a_fraction_has_a_period_of_ten_milliseconds() {
        assert_eq!(quota(0.5), (Duration::from_millis(5), Duration::from_millis(10)));
        assert_eq!(quota(1.5), (Duration::from_millis(15), Duration::from_millis(10)));
    }

    #[test]
    fn a_small_fraction_has_a_period_that_the_kernel_takes() {
        assert_eq!(quota(0.05), (Duration::from_millis(1), Duration::from_millis(20)));
    }

    #[test]
    fn version_1_is_tried_in_our_own_group_first() {
        let candidates = candidates(MOUNTS, "2:cpuacct:/\n1:cpu:/box\n0::/\n");
        let cpu = |path: &str| Hierarchy::V1 { cpu: path.into(), cpuacct: Some("/sys/fs/cgroup/cpuacct".into()) };
        // `join` with an empty path adds a slash; paths are compared by their components.
        assert_eq!(candidates[0], cpu("/sys/fs/cgroup/cpu/box"));
        assert_eq!(candidates[1], cpu("/sys/fs/cgroup/cpu"));
    }

    #[test]
    fn version_2_is_tried_from_our_own_group_upwards() {
        let mounts = "40 25 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let parents = ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"];
        let expected = parents.map(|parent| Hierarchy::V2 { parent: parent.into() });
        assert_eq!(candidates(mounts, "0::/a/b\n"), expected);
    }

    #[test]
    fn a_version_2_group_is_set_and_read_by_its_files() {
        let parent = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy::V2 { parent: parent.path().into() };
        let group = hierarchy.create("service", 0.25).unwrap();
        let folder = fs::read_dir(parent.path()).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::read_to_string(folder.join("cpu.max")).unwrap(), "2500 10000");
        fs::write(folder.join("cpu.stat"), "usage_usec 12\nnr_periods 9\nnr_throttled 3\nthrottled_usec 7\n").unwrap();
        assert_eq!((group.cpu_ns(), group.throttled_periods(), group.periods()), (Some(12_000), Some(3), Some(9)));
        assert_eq!(group.throttled_ns(), Some(7000));
    }

    #[test]
    fn a_containers_own_group_is_read_in_both_versions() {
        let figures = |group: &dyn Cgroup| (group.cpu_ns(), group.throttled_periods(), group.quota_cpus());
        let write = |folder: &Path, files: &[(&str, &str)]| {
            fs::create_dir_all(folder).unwrap();
            files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
        };
        let (v1, v2) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cpu = [
            ("cpu.stat", "nr_periods 9\nnr_throttled 4\n"),
            ("cpu.cfs_quota_us", "50000\n"),
            ("cpu.cfs_period_us", "100000\n"),
        ];
        write(&v1.path().join("cpu"), &cpu);
        write(&v1.path().join("cpuacct"), &[("cpuacct.usage", "7000\n")]);
        assert_eq!(figures(&*found_in(v1.path()).unwrap()), (Some(7000), Some(4), Some(0.5)));
        let all = [
            ("cgroup.controllers", "cpu\n"),
            ("cpu.stat", "usage_usec 12\nnr_throttled 3\n"),
            ("cpu.max", "max 100000\n"),
        ];
        write(v2.path(), &all);
        assert_eq!(figures(&*found_in(v2.path()).unwrap()), (Some(12_000), Some(3), None));
        assert!(found_in(&v1.path().join("nothing")).is_none());
    }
}
