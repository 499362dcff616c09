//! Reads the CPU clocks of a whole node from its cgroups, which are mounted read-only.
//!
//! Kubernetes gives each pod a cgroup whose name has the pod's unique id: `kubepods/burstable/pod<uid>`, or with systemd
//! `kubepods.slice/…/kubepods-burstable-pod<uid>.slice`, there with `_` in place of `-`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use driver::nodes::{NodeReading, PodUse, PodsReading};
use process_usage::{
    group::{cpu_ns_in, memory_bytes_in},
    machine,
};

/// How many folders deep the cgroups of pods are at most.
const DEEPEST: u32 = 6;
/// The controllers of version 1 that have the clocks, by their mount points.
const CPUACCT: [&str; 2] = ["cpuacct", "cpu,cpuacct"];
/// The mount point of the controller of version 1 that counts memory.
const MEMORY: &str = "memory";

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
    /// Where the CPU clocks and the memory of the pods are that were asked for last, by unique id.
    known: Arc<Mutex<BTreeMap<String, [PathBuf; 2]>>>,
}

impl NodeCgroups {
    /// The cgroups that are mounted in this folder, `/sys/fs/cgroup` of the node.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), started: Instant::now(), known: Arc::default() }
    }

    /// Reads the clocks of the node and of its cgroups.
    ///
    /// # Errors
    /// [`Error`] if the folder has none.
    pub fn read(&self) -> Result<NodeReading, Error> {
        let (root, busy_ns) = self.clocks()?;
        let steal_ns = machine::steal_ns();
        let mut reading = NodeReading {
            at_ns: self.started.elapsed().as_nanos() as u64,
            cpus: steal_ns.len() as u32,
            busy_ns,
            steal_ns: steal_ns.iter().sum(),
            ..NodeReading::default()
        };
        let mut grouped_ns = 0;
        for (name, folder) in folders(&root) {
            let Some(cpu_ns) = cpu_ns_in(&folder) else { continue };
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

    /// Reads the pods with these unique ids. One that isn't found, or whose memory no controller counts, is left out.
    ///
    /// # Errors
    /// [`Error`] if the folder has no clocks.
    pub fn pods(&self, uids: &BTreeSet<&str>) -> Result<PodsReading, Error> {
        let (tree, _) = self.clocks()?;
        // Version 1 has a tree of its own for memory.
        let of_memory = Some(self.root.join(MEMORY)).filter(|tree| tree.is_dir()).unwrap_or_else(|| tree.clone());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // A reading is asked for many times a second, so the trees are searched only for what isn't known yet.
        known.retain(|uid, [clocks, _]| uids.contains(uid.as_str()) && clocks.is_dir());
        let unknown: BTreeSet<&str> = uids.iter().copied().filter(|uid| !known.contains_key(*uid)).collect();
        if !unknown.is_empty() {
            let mut memory = find_pods(&of_memory, &unknown, DEEPEST);
            let found = find_pods(&tree, &unknown, DEEPEST).into_iter();
            known.extend(found.filter_map(|(uid, clocks)| memory.remove(&uid).map(|memory| (uid, [clocks, memory]))));
        }
        let read = known.iter().filter_map(|(uid, [clocks, memory])| {
            Some((uid.clone(), PodUse { cpu_ns: cpu_ns_in(clocks)?, memory_bytes: memory_bytes_in(memory)? }))
        });
        Ok(PodsReading { cpus: machine::steal_ns().len() as u32, pods: read.collect() })
    }

    /// The tree that counts CPU time, and the time of all that ran.
    fn clocks(&self) -> Result<(PathBuf, u64), Error> {
        let of_version_1 = CPUACCT.map(|controller| self.root.join(controller));
        let mut found =
            of_version_1.iter().chain([&self.root]).filter_map(|root| Some((root.clone(), cpu_ns_in(root)?)));
        found.next().ok_or_else(|| Error { root: self.root.clone() })
    }
}

/// Adds the pods of a folder and of those in it. Returns their CPU time.
fn add_pods(folder: &Path, name: &str, depth: u32, reading: &mut NodeReading) -> u64 {
    if let Some(uid) = uid_of(name) {
        let Some(cpu_ns) = cpu_ns_in(folder) else { return 0 };
        *reading.pods.entry(uid).or_default() += cpu_ns;
        return cpu_ns;
    }
    if depth == 0 {
        return 0;
    }
    folders(folder).map(|(name, folder)| add_pods(&folder, &name, depth - 1, reading)).sum()
}

/// The cgroups of pods with these unique ids, below a folder.
fn find_pods(folder: &Path, uids: &BTreeSet<&str>, depth: u32) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for (name, folder) in folders(folder) {
        match uid_of(&name) {
            Some(uid) if uids.contains(uid.as_str()) => drop(found.insert(uid, folder)),
            Some(_) => {}
            None if depth > 0 => found.extend(find_pods(&folder, uids, depth - 1)),
            None => {}
        }
    }
    found
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
    fn what_named_pods_use_is_read_in_both_versions() {
        let uids = BTreeSet::from([UID, "0a1b2c3d-0000-4000-8000-0000000000ff"]);
        let of_pod = |cpu_ns, memory_bytes| BTreeMap::from([(UID.to_owned(), PodUse { cpu_ns, memory_bytes })]);
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "cpuacct", "cpuacct.usage", "1000\n");
        write(root.path(), &format!("cpuacct/kubepods/burstable/pod{UID}"), "cpuacct.usage", "590\n");
        write(root.path(), &format!("cpuacct/kubepods/pod{}", UID.replace("0f", "0e")), "cpuacct.usage", "7\n");
        let memory = "rss 1\nmapped_file 1\ntotal_rss 4096\ntotal_mapped_file 100\n";
        write(root.path(), &format!("memory/kubepods/burstable/pod{UID}"), "memory.stat", memory);
        let cgroups = NodeCgroups::new(root.path());
        assert_eq!(cgroups.pods(&uids).unwrap().pods, of_pod(590, 4196));
        write(root.path(), &format!("cpuacct/kubepods/burstable/pod{UID}"), "cpuacct.usage", "600\n");
        assert_eq!(cgroups.pods(&uids).unwrap().pods, of_pod(600, 4196));
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "", "cpu.stat", "usage_usec 10\n");
        let slice =
            format!("kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{}.slice", UID.replace('-', "_"));
        write(root.path(), &slice, "cpu.stat", "usage_usec 7\n");
        assert_eq!(NodeCgroups::new(root.path()).pods(&uids).unwrap().pods, BTreeMap::new(), "without its memory");
        write(root.path(), &slice, "memory.stat", "anon 8192\nfile 900000\nfile_mapped 50\n");
        let reading = NodeCgroups::new(root.path()).pods(&uids).unwrap();
        assert!(reading.cpus > 0);
        assert_eq!(reading.pods, of_pod(7000, 8242));
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
