//! The CPU time and memory of a cgroup, of version 1 or 2. A machine may have both: a controller of version 1 counts, and
//! an empty tree of version 2 beside it doesn't.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::cgroup::cgroup_path;

/// Where cgroups are mounted.
const TOP: &str = "/sys/fs/cgroup";
/// Names of the tree of version 1 that counts CPU time.
const CPUACCT: [&str; 2] = ["cpuacct", "cpu,cpuacct"];

/// A cgroup other than the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its folder in the tree `cpuacct` of version 1.
    cpuacct: Option<PathBuf>,
    /// Its folder in the tree `memory` of version 1.
    memory: Option<PathBuf>,
    /// Its folder in the tree of version 2.
    unified: Option<PathBuf>,
}

impl Group {
    /// The cgroup at a path below the root (`/system.slice/chat.service`), or at the path of its folder in any tree
    /// (`/sys/fs/cgroup/cpuacct/chat`); `None` if there is none, or it is the root.
    pub fn at(path: &str) -> Option<Self> {
        let top = Path::new(TOP);
        let path = inside(top, Path::new(path));
        Self::below(top, |_| Some(path.clone()))
    }

    /// The cgroup of a process; `None` if it is the root or the process has ended.
    pub fn of(pid: u32) -> Option<Self> {
        let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Self::below(Path::new(TOP), |controller| cgroup_path(&membership, controller).map(PathBuf::from))
    }

    /// The cgroup whose path in the tree of each controller is given; version 2 has an empty name.
    fn below(top: &Path, path: impl Fn(&str) -> Option<PathBuf>) -> Option<Self> {
        let folder = |tree: PathBuf, controller: &str| {
            let path = path(controller)?;
            let relative = path.strip_prefix("/").unwrap_or(&path);
            let folder = tree.join(relative);
            (relative.components().next().is_some() && folder.is_dir()).then_some(folder)
        };
        let cpuacct = CPUACCT.into_iter().find_map(|name| folder(top.join(name), "cpuacct"));
        let memory = folder(top.join("memory"), "memory");
        let unified = unified_tree(top).and_then(|tree| folder(tree, ""));
        (cpuacct.is_some() || unified.is_some()).then_some(Self { cpuacct, memory, unified })
    }

    /// CPU time of all its processes so far, ended ones included, in nanoseconds; `None` if it can't be read.
    pub fn cpu_ns(&self) -> Option<u64> {
        cpu_ns_in(self.cpuacct.as_ref().or(self.unified.as_ref())?)
    }

    /// Its anonymous memory and the files that are mapped, in bytes: what resident memory is for a process, with shared
    /// pages once. `None` if no controller counts it.
    pub fn memory_bytes(&self) -> Option<u64> {
        memory_bytes_in(self.memory.as_ref().or(self.unified.as_ref())?)
    }

    /// The processes in it and in the groups below it.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        let mut folders: Vec<PathBuf> = self.cpuacct.iter().chain(&self.unified).take(1).cloned().collect();
        while let Some(folder) = folders.pop() {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
            let inner = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
            folders.extend(inner.filter(|path| path.is_dir()));
        }
        pids
    }

    /// Its folder, for messages.
    pub fn folder(&self) -> &Path {
        self.cpuacct.as_deref().or(self.unified.as_deref()).expect("one of them is set when a group is made")
    }
}

/// The tree of version 2, alone or beside those of version 1.
fn unified_tree(top: &Path) -> Option<PathBuf> {
    [top.to_owned(), top.join("unified")].into_iter().find(|tree| tree.join("cgroup.controllers").is_file())
}

/// The path of a group below its tree's root, from that or from the path of its folder.
fn inside(top: &Path, path: &Path) -> PathBuf {
    let Ok(below_top) = path.strip_prefix(top) else { return path.to_owned() };
    if top.join("cgroup.controllers").is_file() {
        return below_top.to_owned();
    }
    // Version 1, alone or with version 2 beside it: one folder for each tree.
    below_top.components().skip(1).collect()
}

/// CPU time of a cgroup and of those in it, in nanoseconds, from its folder in the tree of either version that counts it.
pub fn cpu_ns_in(folder: &Path) -> Option<u64> {
    if let Ok(text) = fs::read_to_string(folder.join("cpuacct.usage")) {
        return text.trim().parse().ok();
    }
    let text = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    Some(field(&text, "usage_usec")? * 1000)
}

/// Anonymous memory and mapped files of a cgroup and of those in it, in bytes, from its folder in the tree of either version
/// that counts it.
pub fn memory_bytes_in(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("memory.stat")).ok()?;
    let sum = |names: [&str; 2]| Some(field(&text, names[0])? + field(&text, names[1])?);
    // The names of version 1, then those of version 2.
    sum(["total_rss", "total_mapped_file"]).or_else(|| sum(["anon", "file_mapped"]))
}

/// A line `NAME NUMBER` of a file's text.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> TempDir {
        let top = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = top.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        top
    }

    fn at(top: &TempDir, path: &str) -> Option<Group> {
        let path = inside(top.path(), Path::new(path));
        Group::below(top.path(), |_| Some(path.clone()))
    }

    const VERSION_2: [(&str, &str); 5] = [
        ("cgroup.controllers", "cpu memory\n"),
        ("a.slice/web/cpu.stat", "usage_usec 12\nuser_usec 7\n"),
        ("a.slice/web/memory.stat", "anon 4096\nanon_thp 0\nfile 900000\nfile_mapped 8192\n"),
        ("a.slice/web/cgroup.procs", "71\n"),
        ("a.slice/web/inner/cgroup.procs", "72\n73\n"),
    ];

    #[test]
    fn version_2_has_one_tree() {
        let top = tree(&VERSION_2);
        let group = at(&top, "/a.slice/web").unwrap();
        assert_eq!((group.cpu_ns(), group.memory_bytes()), (Some(12_000), Some(12_288)));
        let mut pids = group.pids();
        pids.sort_unstable();
        assert_eq!(pids, [71, 72, 73]);
        let folder = top.path().join("a.slice/web");
        assert_eq!(at(&top, folder.to_str().unwrap()), Some(group), "the path of its folder");
    }

    #[test]
    fn version_1_counts_even_with_an_empty_version_2_beside_it() {
        let top = tree(&[
            ("cpuacct/web/cpuacct.usage", "7000\n"),
            ("cpuacct/web/cgroup.procs", "71\n"),
            ("memory/web/memory.stat", "rss 1\nmapped_file 1\ntotal_rss 4096\ntotal_mapped_file 100\n"),
            ("unified/cgroup.controllers", ""),
            ("unified/web/cgroup.procs", ""),
        ]);
        let group = at(&top, "web").unwrap();
        assert_eq!((group.cpu_ns(), group.memory_bytes(), group.pids()), (Some(7000), Some(4196), vec![71]));
        for tree in ["cpuacct/web", "memory/web", "unified/web"] {
            assert_eq!(at(&top, top.path().join(tree).to_str().unwrap()), Some(group.clone()), "{tree}");
        }
    }

    #[test]
    fn memory_that_no_controller_counts_is_absent() {
        let top = tree(&[("cgroup.controllers", "cpu\n"), ("web/cpu.stat", "usage_usec 12\n")]);
        let group = at(&top, "/web").unwrap();
        assert_eq!((group.cpu_ns(), group.memory_bytes()), (Some(12_000), None));
    }

    #[test]
    fn the_root_and_a_missing_folder_are_no_group() {
        let top = tree(&VERSION_2);
        assert_eq!((at(&top, "/"), at(&top, ""), at(&top, "/b")), (None, None, None));
        assert_eq!(Group::of(5_000_000), None, "above the largest process id of Linux");
    }
}
