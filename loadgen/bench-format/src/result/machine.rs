//! What else than the trial used the CPUs of the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FixedWork;

/// Share of a trial's CPUs from which other programs are remarked, if the plan has no limit of its own.
pub const BUSY_SHARE: f64 = 0.02;
/// Share of a trial's CPUs that the hypervisor took from which it is remarked, if the plan has no limit of its own.
pub const STEAL_SHARE: f64 = 0.01;

/// The use of the machine's CPUs during the window, by the trial and by others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineUse {
    /// Time between the two readings, in seconds.
    pub seconds: f64,
    /// Where the CPU time of the machine comes from: `cpuacct`, `schedstat` or `cgroup`; in a cluster `nodes`, the cgroups
    /// of each node.
    pub source: String,
    /// The CPUs of the trial. CPUs that roles share are one group. In a cluster all CPUs of a node are one.
    pub groups: Vec<CpuGroup>,
    /// The processes of others that used most CPU time, at most three; in a cluster pods and other cgroups of the nodes.
    /// Programs that came and went aren't among them.
    pub busiest: Vec<ForeignProcess>,
    /// How long fixed work took on the trial's CPUs before and after it; absent where it isn't done and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_work: Option<FixedWork>,
}

/// Some CPUs of a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuGroup {
    /// Name of the node that they belong to; absent on a single machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Their numbers, as the kernel counts them.
    pub cpus: Vec<u32>,
    /// CPU time of everything that ran on them, in nanoseconds.
    pub busy_ns: u64,
    /// CPU time of the trial's processes among it, ladder's included, in nanoseconds.
    pub own_ns: u64,
    /// CPU time of the kernel's threads among it, in nanoseconds. They may work for the trial. On a node: of everything
    /// that is in no cgroup.
    pub kernel_ns: u64,
    /// Time that the hypervisor took, in nanoseconds; counted in ticks of 10 ms.
    pub steal_ns: u64,
}

/// A process that isn't the trial's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForeignProcess {
    /// Process id, with which it can be found; absent for a cgroup of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Name of the process; in a cluster `pod NAMESPACE/NAME`, or the name of another cgroup.
    pub name: String,
    /// CPU time between the readings, on any CPU of the machine, in nanoseconds.
    pub cpu_ns: u64,
}

impl MachineUse {
    /// Largest share of the CPUs of a group that others used, with the group; `None` without groups.
    pub fn busy(&self) -> Option<(f64, &CpuGroup)> {
        self.largest(|group| group.busy_ns.saturating_sub(group.own_ns + group.kernel_ns))
    }

    /// Largest share of the CPUs of a group that the hypervisor took, with the group; `None` without groups.
    pub fn steal(&self) -> Option<(f64, &CpuGroup)> {
        self.largest(|group| group.steal_ns)
    }

    fn largest(&self, ns: impl Fn(&CpuGroup) -> u64) -> Option<(f64, &CpuGroup)> {
        let share = |group: &CpuGroup| ns(group) as f64 / 1e9 / (self.seconds * group.cpus.len() as f64);
        let shares = self.groups.iter().map(|group| (share(group), group));
        shares.filter(|(share, _)| share.is_finite()).max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The other programs as part of a sentence, if they used more than `limit` of some of the trial's CPUs: `others used
    /// 34.1 % of CPU 0, rustc (process 71) most`.
    pub fn others(&self, limit: f64) -> Option<String> {
        let (share, group) = self.busy().filter(|(share, _)| *share > limit)?;
        let most = self.busiest.first().map(|most| format!(", {} most", most.description())).unwrap_or_default();
        Some(format!("others used {:.1} % of {}{most}", share * 100.0, group.description()))
    }

    /// The hypervisor as part of a sentence, if it took more than `limit` of some of the trial's CPUs.
    pub fn stolen(&self, limit: f64) -> Option<String> {
        let (share, group) = self.steal().filter(|(share, _)| *share > limit)?;
        Some(format!("the hypervisor took {:.1} % of {}", share * 100.0, group.description()))
    }
}

impl CpuGroup {
    /// The CPUs as part of a sentence.
    fn description(&self) -> String {
        if let Some(node) = &self.node {
            return format!("the CPUs of node {node}");
        }
        let list: Vec<_> = self.cpus.iter().map(u32::to_string).collect();
        format!("CPU{} {}", if list.len() == 1 { "" } else { "s" }, list.join(", "))
    }
}

impl ForeignProcess {
    /// The process as part of a sentence.
    pub fn description(&self) -> String {
        let pid = self.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        format!("{}{pid}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_uses_the_cpus_of_a_node_is_named() {
        let node =
            CpuGroup { node: Some("left".into()), cpus: vec![0, 1], busy_ns: 900_000_000, ..CpuGroup::default() };
        let pod = ForeignProcess { pid: None, name: "pod default/spinner".into(), cpu_ns: 800_000_000 };
        let nodes = MachineUse { seconds: 1.0, groups: vec![node], busiest: vec![pod], ..MachineUse::default() };
        let expected = "others used 45.0 % of the CPUs of node left, pod default/spinner most";
        assert_eq!(nodes.others(0.1).as_deref(), Some(expected));
    }

    fn used(cpus: &[u32], busy_ns: u64, steal_ns: u64) -> MachineUse {
        let (own_ns, kernel_ns) = (500_000_000, 100_000_000);
        let group = CpuGroup { node: None, cpus: cpus.into(), busy_ns, own_ns, kernel_ns, steal_ns };
        let quiet = CpuGroup { cpus: vec![7], busy_ns: 1, own_ns: 2, ..CpuGroup::default() };
        let process = ForeignProcess { pid: Some(71), name: "rustc".into(), cpu_ns: 9 };
        let (source, groups) = ("cpuacct".into(), vec![quiet, group]);
        MachineUse { seconds: 2.0, source, groups, busiest: vec![process], fixed_work: None }
    }

    #[test]
    fn what_others_used_is_what_is_left_of_a_groups_cpus() {
        let busy = used(&[0], 1_000_000_000, 0);
        assert_eq!(busy.busy().map(|(share, group)| (share, group.cpus[0])), Some((0.2, 0)));
        assert_eq!(busy.others(0.02).as_deref(), Some("others used 20.0 % of CPU 0, rustc (process 71) most"));
        assert_eq!(busy.others(0.2), None, "the limit itself is allowed");
        assert_eq!(used(&[0, 1], 1_000_000_000, 0).busy().unwrap().0, 0.1);
        assert_eq!(used(&[0], 550_000_000, 0).busy().unwrap().0, 0.0, "clocks that differ are no time of others");
        assert_eq!(MachineUse::default().busy(), None);
    }

    #[test]
    fn stolen_time_is_a_share_of_a_groups_cpus() {
        let stolen = used(&[0, 1], 0, 80_000_000);
        assert_eq!(stolen.stolen(0.01).as_deref(), Some("the hypervisor took 2.0 % of CPUs 0, 1"));
        assert_eq!(stolen.stolen(0.02), None);
    }
}
