//! What else than a trial uses the machine's CPUs: the time of its CPUs minus that of its own processes. On the nodes of
//! a cluster: [`crate::nodes`].

use std::collections::{BTreeMap, BTreeSet};

use bench_format::result::{CpuGroup, ForeignProcess, MachineUse};
use process_usage::machine::{self, MachineReading, Source};

/// Number of processes of others that are named.
const NAMED: usize = 3;
/// A process that used less CPU time in between, in nanoseconds, is not looked at.
const HARDLY_RAN_NS: u64 = 1_000_000;

/// A group of CPUs with the trial's processes on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnGroup {
    /// Numbers of the CPUs.
    pub cpus: BTreeSet<usize>,
    /// Ids of the processes that may run on them and nowhere else.
    pub pids: BTreeSet<u32>,
}

/// The machine at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    reading: MachineReading,
    groups: Vec<OwnGroup>,
}

impl Snapshot {
    /// Reads the machine. `roles` are the CPUs of each role with its processes; those that overlap become one group.
    /// `None` if the machine has no exact counter of its CPUs.
    pub fn take(roles: impl IntoIterator<Item = OwnGroup>) -> Option<Self> {
        let reading = MachineReading::read()?;
        let mut groups = disjoint(roles);
        if reading.source == Source::Cgroup {
            // There is one number for all CPUs.
            let pids = groups.drain(..).flat_map(|group| group.pids).collect();
            groups = vec![OwnGroup { cpus: (0..reading.steal_ns.len()).collect(), pids }];
        }
        Some(Self { reading, groups })
    }

    /// The use of the CPUs from this moment to a later one.
    pub fn until(&self, later: &Self) -> MachineUse {
        let used = self.cpu_ns_of_processes(later);
        let kinds: BTreeMap<u32, machine::ProcessKind> =
            used.keys().filter_map(|pid| Some((*pid, machine::kind(*pid)?))).collect();
        let own: BTreeSet<u32> = later.groups.iter().flat_map(|group| group.pids.iter().copied()).collect();
        let foreign = kinds.iter().filter(|(pid, kind)| !own.contains(pid) && !kind.is_kernel);
        let foreign =
            foreign.map(|(pid, kind)| ForeignProcess { pid: Some(*pid), name: kind.name.clone(), cpu_ns: used[pid] });
        let busiest = busiest(foreign);
        let kernel_ns = |group: &OwnGroup| {
            let on_group = kinds.iter().filter(|(_, kind)| kind.is_kernel && group.cpus.contains(&kind.cpu));
            on_group.map(|(pid, _)| used[pid]).sum()
        };
        let groups = later.groups.iter().map(|group| CpuGroup {
            node: None,
            cpus: group.cpus.iter().map(|cpu| *cpu as u32).collect(),
            busy_ns: self.grown(later, group, |reading| &reading.busy_ns),
            own_ns: self.own_ns(later, group),
            kernel_ns: kernel_ns(group),
            steal_ns: self.grown(later, group, |reading| &reading.steal_ns),
        });
        MachineUse {
            seconds: (later.reading.at - self.reading.at).as_secs_f64(),
            source: format!("{:?}", later.reading.source).to_lowercase(),
            groups: groups.collect(),
            busiest,
            fixed_work: None,
        }
    }

    /// Growth of a counter of CPUs over a group; of a counter for all CPUs together, its growth.
    fn grown(&self, later: &Self, group: &OwnGroup, counter: impl Fn(&MachineReading) -> &Vec<u64>) -> u64 {
        let (from, to) = (counter(&self.reading), counter(&later.reading));
        let of_cpu = |cpu: usize| Some(to.get(cpu)?.saturating_sub(*from.get(cpu)?));
        group.cpus.iter().filter_map(|cpu| of_cpu(*cpu)).sum()
    }

    /// CPU time of the group's own processes; one that started in between counts from 0.
    fn own_ns(&self, later: &Self, group: &OwnGroup) -> u64 {
        let grown = |pid: &u32| Some(later.reading.processes.get(pid)?.saturating_sub(self.before(*pid)));
        group.pids.iter().filter_map(grown).sum()
    }

    fn before(&self, pid: u32) -> u64 {
        self.reading.processes.get(&pid).copied().unwrap_or(0)
    }

    /// CPU time of each process that used any worth mentioning.
    fn cpu_ns_of_processes(&self, later: &Self) -> BTreeMap<u32, u64> {
        let grown = later.reading.processes.iter().map(|(pid, to)| (*pid, to.saturating_sub(self.before(*pid))));
        grown.filter(|(_, cpu_ns)| *cpu_ns >= HARDLY_RAN_NS).collect()
    }
}

/// Those of others that used the most CPU time, busiest first.
pub(crate) fn busiest(foreign: impl Iterator<Item = ForeignProcess>) -> Vec<ForeignProcess> {
    let mut busiest: Vec<ForeignProcess> = foreign.collect();
    busiest.sort_by_key(|process| std::cmp::Reverse(process.cpu_ns));
    busiest.truncate(NAMED);
    busiest
}

/// Joins groups that share a CPU.
fn disjoint(roles: impl IntoIterator<Item = OwnGroup>) -> Vec<OwnGroup> {
    let mut groups: Vec<OwnGroup> = Vec::new();
    for mut role in roles {
        let (shared, apart): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| !group.cpus.is_disjoint(&role.cpus));
        for group in shared {
            role.cpus.extend(group.cpus);
            role.pids.extend(group.pids);
        }
        groups = apart;
        if !role.cpus.is_empty() {
            groups.push(role);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn group(cpus: &[usize], pids: &[u32]) -> OwnGroup {
        OwnGroup { cpus: cpus.iter().copied().collect(), pids: pids.iter().copied().collect() }
    }

    fn snapshot(at: Instant, busy_ns: [u64; 2], processes: &[(u32, u64)], groups: &[OwnGroup]) -> Snapshot {
        let processes = processes.iter().copied().collect();
        let reading =
            MachineReading { at, source: Source::Cpuacct, busy_ns: busy_ns.into(), steal_ns: vec![0, 9], processes };
        Snapshot { reading, groups: groups.into() }
    }

    #[test]
    fn roles_that_share_a_cpu_are_one_group() {
        let roles = [group(&[0], &[1]), group(&[1], &[2]), group(&[3], &[]), group(&[1, 2], &[4]), group(&[], &[5])];
        let joined = disjoint(roles);
        assert_eq!(joined, [group(&[0], &[1]), group(&[3], &[]), group(&[1, 2], &[2, 4])]);
    }

    #[test]
    fn the_time_of_others_is_named_by_their_process() {
        let (own, other) = (std::process::id(), std::os::unix::process::parent_id());
        let groups = [group(&[0], &[own]), group(&[1], &[])];
        let at = Instant::now();
        let from = snapshot(at, [1000, 5000], &[(own, 100), (other, 7)], &groups);
        let later = at + Duration::from_secs(2);
        let to = snapshot(later, [3_000_001_000, 5000], &[(own, 1_000_000_100), (other, 2_000_000_007)], &groups);
        let used = from.until(&to);
        assert_eq!((used.seconds, used.source.as_str()), (2.0, "cpuacct"));
        assert_eq!((used.groups[0].busy_ns, used.groups[0].own_ns), (3_000_000_000, 1_000_000_000));
        assert_eq!((used.groups[1].busy_ns, used.groups[1].own_ns), (0, 0));
        let named: Vec<_> = used.busiest.iter().map(|process| (process.pid, process.cpu_ns)).collect();
        assert_eq!(named, [(Some(other), 2_000_000_000)]);
    }
}
