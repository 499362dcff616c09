//! Reads the CPU clocks of a whole node from its cgroups, which are mounted read-only.
//!
//! Kubernetes gives each pod a cgroup whose name has the pod's unique id: `kubepods/burstable/pod<uid>`, or with systemd
//! `kubepods.slice/…/kubepods-burstable-pod<uid>.slice`, there with `_` in place of `-`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use driver::nodes::NodeReading;

/// Nanoseconds of a tick in `/proc/stat`.
const TICK_NS: u64 = 10_000_000;
/// How many folders deep the cgroups of pods are at most.
const DEEPEST: u32 = 6;
/// The controllers of version 1 that have the clocks, by their mount points.
const CPUACCT: [&str; 2] = ["cpuacct", "cpu,cpuacct"];

/// Why a node can't be read.
#[derive(Debug, thiserror::Error)]
#[error("no CPU clocks of cgroups were found in {}; is /sys/fs/cgroup of the node mounted there?", root.display())]
pub struct Error {
    root: PathBuf,
}

/// The mounted cgroups of a node.
#[derive(Clone, Debug)]
pub struct NodeCgroups {
    root: PathBuf,
    started: Instant,
}

impl NodeCgroups {
    /// The cgroups that are mounted in this folder, `/sys/fs/cgroup` of the node.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), started: Instant::now() }
    }

    /// Reads the clocks of the node and of its cgroups.
    ///
    /// # Errors
    /// [`Error`] if the folder has none.
    pub fn read(&self) -> Result<NodeReading, Error> {
        let of_version_1 = CPUACCT.map(|controller| self.root.join(controller));
        let roots = of_version_1.iter().chain([&self.root]);
        let mut found = roots.filter_map(|root| Some((root, cpu_ns(root)?)));
        let (root, busy_ns) = found.next().ok_or_else(|| Error { root: self.root.clone() })?;
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut reading = NodeReading {
            at_ns: self.started.elapsed().as_nanos() as u64,
            cpus: stat.lines().filter(|line| is_cpu(line)).count() as u32,
            busy_ns,
            steal_ns: stat.lines().filter(|line| is_cpu(line)).map(steal_ns).sum(),
            ..NodeReading::default()
        };
        let mut grouped_ns = 0;
        for (name, folder) in folders(root) {
            let Some(cpu_ns) = cpu_ns(&folder) else { continue };
            grouped_ns += cpu_ns;
            let of_pods = add_pods(&folder, &name, DEEPEST, &mut reading);
            if cpu_ns > of_pods {
                reading.others.insert(name, cpu_ns - of_pods);
            }
        }
        // The clocks are read one after the other, so that their sum may be ahead of the first one.
        reading.ungrouped_ns = busy_ns.saturating_sub(grouped_ns);
        Ok(reading)
    }
}

/// Adds the pods of a folder and of those in it. Returns their CPU time.
fn add_pods(folder: &Path, name: &str, depth: u32, reading: &mut NodeReading) -> u64 {
    if let Some(uid) = uid_of(name) {
        let Some(cpu_ns) = cpu_ns(folder) else { return 0 };
        *reading.pods.entry(uid).or_default() += cpu_ns;
        return cpu_ns;
    }
    if depth == 0 {
        return 0;
    }
    folders(folder).map(|(name, folder)| add_pods(&folder, &name, depth - 1, reading)).sum()
}

fn folders(folder: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
}

/// The unique id of the pod whose cgroup has this name.
fn uid_of(name: &str) -> Option<String> {
    let name = name.strip_suffix(".slice").unwrap_or(name);
    let uid = name.rsplit_once("pod").map(|(_, uid)| uid.replace('_', "-"))?;
    let is_uid = (32..=36).contains(&uid.len()) && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uid.then_some(uid)
}

/// CPU time of a cgroup and of those in it, in nanoseconds.
fn cpu_ns(folder: &Path) -> Option<u64> {
    if let Ok(text) = fs::read_to_string(folder.join("cpuacct.usage")) {
        return text.trim().parse().ok();
    }
    let text = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<u64>().ok())?;
    Some(usage * 1000)
}

fn is_cpu(line: &str) -> bool {
    line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// The eighth number of a CPU.
fn steal_ns(line: &str) -> u64 {
    line.split_whitespace().nth(8).and_then(|ticks| ticks.parse::<u64>().ok()).unwrap_or(0) * TICK_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b2c3d-0000-4000-8000-00000000000f";

    fn write(root: &Path, folder: &str, file: &str, text: &str) {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    #[test]
    fn pods_are_found_by_the_names_of_their_cgroups_in_version_1() {
        let root = tempfile::tempdir().unwrap();
        let usage = |folder: &str, ns: &str| write(root.path(), &format!("cpuacct{folder}"), "cpuacct.usage", ns);
        usage("", "1000\n");
        usage("/kubepods", "700\n");
        usage("/kubepods/burstable", "600\n");
        usage(&format!("/kubepods/burstable/pod{UID}"), "590\n");
        usage(&format!("/kubepods/burstable/pod{UID}/container"), "580\n");
        usage("/system", "200\n");
        let reading = NodeCgroups::new(root.path()).read().unwrap();
        assert_eq!(reading.pods, [(UID.into(), 590)].into());
        assert_eq!(reading.others, [("kubepods".into(), 110), ("system".into(), 200)].into());
        assert_eq!((reading.busy_ns, reading.ungrouped_ns), (1000, 100));
        assert!(reading.cpus > 0 && reading.at_ns > 0);
    }

    #[test]
    fn pods_are_found_by_the_names_of_their_slices_in_version_2() {
        let root = tempfile::tempdir().unwrap();
        let usage = |folder: &str, us: u64| {
            write(root.path(), folder, "cpu.stat", &format!("usage_usec {us}\nuser_usec 1\n"));
        };
        let slice = UID.replace('-', "_");
        usage("", 10);
        usage("kubepods.slice", 7);
        usage("kubepods.slice/kubepods-besteffort.slice", 7);
        usage(&format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{slice}.slice"), 7);
        usage("system.slice", 2);
        let reading = NodeCgroups::new(root.path()).read().unwrap();
        assert_eq!(reading.pods, [(UID.into(), 7000)].into());
        assert_eq!((reading.others, reading.ungrouped_ns), ([("system.slice".into(), 2000)].into(), 1000));
    }

    #[test]
    fn a_folder_without_clocks_is_named() {
        let root = tempfile::tempdir().unwrap();
        let error = NodeCgroups::new(root.path()).read().unwrap_err().to_string();
        assert!(error.contains(&root.path().display().to_string()), "{error}");
    }

    #[test]
    fn names_of_pods_are_told_from_others() {
        assert_eq!(uid_of(&format!("pod{UID}")).as_deref(), Some(UID));
        assert_eq!(uid_of("kubepods-pod0123456789abcdef0123456789abcdef.slice").map(|uid| uid.len()), Some(32));
        assert_eq!(
            [uid_of("kubepods"), uid_of("podman"), uid_of("pods.slice"), uid_of("system.slice")],
            [const { None }; 4]
        );
    }
}
