//! What else than a trial uses the nodes of a cluster: the time of their CPUs minus that of the release's pods.
//!
//! An agent on each node reads the clocks of its cgroups; the client of it is [`NodeClient`]. An agent knows a pod by its
//! unique id alone, so the names come from the API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bench_format::result::{CpuGroup, ForeignProcess, MachineUse};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    http::HttpClient,
    machine::{Snapshot, busiest},
};

/// Longest wait for a response.
const PATIENCE: Duration = Duration::from_secs(3);

/// The CPU clocks of a node at one moment. CPU times are in nanoseconds since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReading {
    /// The moment, in nanoseconds since the start of the agent.
    pub at_ns: u64,
    /// Number of its CPUs, busy or not.
    pub cpus: u32,
    /// CPU time of everything that ran.
    pub busy_ns: u64,
    /// CPU time of what is in no cgroup: the kernel's threads, and on a node without systemd other processes.
    pub ungrouped_ns: u64,
    /// Time that a hypervisor took.
    pub steal_ns: u64,
    /// CPU time of each pod, by its unique id.
    pub pods: BTreeMap<String, u64>,
    /// CPU time of each other cgroup at the top, such as `system.slice`, without the pods in it.
    pub others: BTreeMap<String, u64>,
}

/// What a pod of a node has used, with all of its containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUse {
    /// CPU time since the pod's start, in nanoseconds; that of containers that were restarted is included.
    pub cpu_ns: u64,
    /// Anonymous memory and files that are mapped, in bytes.
    pub memory_bytes: u64,
}

/// Some pods of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodsReading {
    /// Number of CPUs of the node.
    pub cpus: u32,
    /// What was asked for and found, by the pods' unique ids.
    pub pods: BTreeMap<String, PodUse>,
}

/// The clients of the agents of all nodes. They keep their connections, since they are read many times a second.
#[derive(Clone, Debug)]
pub struct NodeClients(HttpClient);

impl Default for NodeClients {
    fn default() -> Self {
        Self(HttpClient::new(PATIENCE))
    }
}

impl NodeClients {
    /// The client of the agent at `host:port`.
    pub fn at(&self, address: &str) -> NodeClient {
        NodeClient { http: self.0.clone(), address: address.into() }
    }
}

/// The client of the agent of one node.
#[derive(Clone, Debug)]
pub struct NodeClient {
    http: HttpClient,
    address: String,
}

impl NodeClient {
    /// The clocks of the node; `None` if the agent does not answer in time or can't read them.
    pub async fn read(&self) -> Option<NodeReading> {
        self.get("node").await
    }

    /// What the pods with these unique ids have used; `None` if the agent does not answer in time. A pod that the agent
    /// doesn't find is left out.
    pub async fn pods<'a>(&self, uids: impl IntoIterator<Item = &'a str>) -> Option<PodsReading> {
        let uids: Vec<&str> = uids.into_iter().collect();
        self.get(&format!("pods/{}", uids.join(","))).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let (status, body) = self.http.get(&format!("http://{}/{path}", self.address)).await.ok()?;
        status.is_success().then(|| serde_json::from_slice(&body).ok())?
    }
}

/// What a trial's machines had done by a moment.
#[derive(Clone, Debug)]
pub enum MachineSnapshot {
    /// The machine on which all processes of the trial run.
    Machine(Snapshot),
    /// The nodes of a cluster on which its pods run.
    Nodes(NodesSnapshot),
}

impl MachineSnapshot {
    /// The use of the CPUs from this moment to a later one; `None` if they are not of the same kind.
    pub fn until(&self, later: &Self) -> Option<MachineUse> {
        match (self, later) {
            (Self::Machine(from), Self::Machine(to)) => Some(from.until(to)),
            (Self::Nodes(from), Self::Nodes(to)) => Some(from.until(to)),
            _ => None,
        }
    }
}

/// The nodes of a trial at one moment.
#[derive(Clone, Debug, Default)]
pub struct NodesSnapshot {
    /// The readings, by name of the node.
    pub nodes: BTreeMap<String, NodeReading>,
    /// Unique ids of the release's pods.
    pub own: BTreeSet<String>,
    /// `NAMESPACE/NAME` of pods, by their unique ids, as far as they are known.
    pub names: BTreeMap<String, String>,
}

impl NodesSnapshot {
    /// The use of the nodes' CPUs from this moment to a later one. A node that was read only once is left out.
    pub fn until(&self, later: &Self) -> MachineUse {
        let both = || later.nodes.iter().filter_map(|(name, to)| Some((name, self.nodes.get(name)?, to)));
        let seconds = both().map(|(_, from, to)| to.at_ns.saturating_sub(from.at_ns) as f64 / 1e9);
        let seconds = seconds.sum::<f64>() / both().count().max(1) as f64;
        let own = |uid: &String| self.own.contains(uid) || later.own.contains(uid);
        let groups = both().map(|(name, from, to)| CpuGroup {
            node: Some(name.clone()),
            cpus: (0..to.cpus).collect(),
            busy_ns: to.busy_ns.saturating_sub(from.busy_ns),
            own_ns: to.pods.iter().filter(|(uid, _)| own(uid)).map(|(uid, ns)| grown(&from.pods, uid, *ns)).sum(),
            kernel_ns: to.ungrouped_ns.saturating_sub(from.ungrouped_ns),
            steal_ns: to.steal_ns.saturating_sub(from.steal_ns),
        });
        let foreign = both()
            .flat_map(|(_, from, to)| {
                let pods = to.pods.iter().filter(|(uid, _)| !own(uid));
                let pods = pods.map(|(uid, ns)| (later.name(uid), grown(&from.pods, uid, *ns)));
                let others = to.others.iter().map(|(name, ns)| (name.clone(), grown(&from.others, name, *ns)));
                pods.chain(others)
            })
            .filter(|(_, cpu_ns)| *cpu_ns > 0)
            .map(|(name, cpu_ns)| ForeignProcess { pid: None, name, cpu_ns });
        let (groups, busiest) = (groups.collect(), busiest(foreign));
        MachineUse { seconds, source: "nodes".into(), groups, busiest, fixed_work: None }
    }

    fn name(&self, uid: &str) -> String {
        format!("pod {}", self.names.get(uid).map_or(uid, String::as_str))
    }
}

/// Growth of a clock; one that is new counts from 0.
fn grown(before: &BTreeMap<String, u64>, key: &str, now: u64) -> u64 {
    now.saturating_sub(before.get(key).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times<const N: usize>(of: [(&str, u64); N]) -> BTreeMap<String, u64> {
        of.map(|(name, ns)| (name.into(), ns)).into()
    }

    fn snapshot(nodes: &[(&str, NodeReading)]) -> NodesSnapshot {
        NodesSnapshot {
            nodes: nodes.iter().map(|(name, reading)| ((*name).into(), reading.clone())).collect(),
            own: BTreeSet::from(["ours".into()]),
            names: [("noisy".into(), "default/spinner".into())].into(),
        }
    }

    #[test]
    fn the_time_of_other_pods_and_of_the_system_is_what_the_releases_pods_did_not_use() {
        let from = NodeReading {
            at_ns: 5,
            cpus: 2,
            busy_ns: 1000,
            ungrouped_ns: 10,
            steal_ns: 1,
            pods: times([("ours", 100), ("noisy", 50), ("idle", 7)]),
            others: times([("system.slice", 3)]),
        };
        let to = NodeReading {
            at_ns: 2_000_000_005,
            busy_ns: 2000,
            ungrouped_ns: 30,
            steal_ns: 4,
            pods: times([("ours", 500), ("noisy", 550), ("idle", 7), ("new", 20)]),
            others: times([("system.slice", 43)]),
            ..from.clone()
        };
        let alone = snapshot(&[("left", from.clone())]);
        let used = alone.until(&snapshot(&[("left", to), ("right", from)]));
        assert_eq!((used.seconds, used.source.as_str()), (2.0, "nodes"));
        let [group] = used.groups.as_slice() else { panic!("a node that was read once: {:?}", used.groups) };
        assert_eq!((group.node.as_deref(), group.cpus.len()), (Some("left"), 2));
        assert_eq!((group.busy_ns, group.own_ns, group.kernel_ns, group.steal_ns), (1000, 400, 20, 3));
        let busiest: Vec<_> = used.busiest.iter().map(|one| (one.name.as_str(), one.cpu_ns)).collect();
        assert_eq!(busiest, [("pod default/spinner", 500), ("system.slice", 40), ("pod new", 20)]);
    }

    #[test]
    fn without_nodes_there_is_nothing_to_judge() {
        let used = NodesSnapshot::default().until(&NodesSnapshot::default());
        assert_eq!((used.groups.len(), used.busy().map(|(share, _)| share)), (0, None));
    }
}
