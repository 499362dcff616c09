//! Reads the nodes of a trial, where the release has an agent on them and a ClusterRole to read them.

use std::collections::{BTreeMap, BTreeSet};

use bench_format::environment::NodeFacts;
use driver::nodes::{NodeClient, NodesSnapshot};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};

use super::{Kubernetes, isolation};

/// The label of a pod's component, and its value for agents.
const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "node");

impl Kubernetes {
    /// The CPU clocks of the nodes on which pods of the trial run; `None` without agents.
    pub(super) async fn read_nodes(&self) -> Option<NodesSnapshot> {
        self.cluster.node_evidence_port?;
        let used = self.used_nodes();
        let readings = self.agents_of(&used).into_iter().map(async |(node, agent)| {
            let reading = agent.read().await?;
            // Without a ClusterRole the pods are named by their unique ids.
            let names = self.api.pods_of_node(&node).await.unwrap_or_default();
            Some((node, reading, names))
        });
        let mut snapshot = NodesSnapshot { nodes: BTreeMap::new(), own: self.own_pods(), names: BTreeMap::new() };
        for (node, reading, names) in join_all(readings).await.into_iter().flatten() {
            snapshot.nodes.insert(node, reading);
            snapshot.names.extend(names);
        }
        (!snapshot.nodes.is_empty()).then_some(snapshot)
    }

    /// The agents of some nodes, by the names of the nodes; empty if the release has none.
    pub(super) fn agents_of(&self, nodes: &BTreeSet<String>) -> Vec<(String, NodeClient)> {
        let Some(port) = self.cluster.node_evidence_port else { return Vec::new() };
        let pods = self.caches.pods();
        let agents = pods.iter().filter_map(|pod| agent(pod)).filter(|(node, _)| nodes.contains(*node));
        agents.map(|(node, address)| (node.to_owned(), self.node_clients.at(&format!("{address}:{port}")))).collect()
    }

    /// Whether the release has an agent on this node, or one that may still be placed there, whether it runs already or not.
    pub(super) fn has_agent(&self, node: &str) -> bool {
        let placed = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        self.caches.pods().iter().any(|pod| is_agent(pod) && placed(pod).is_none_or(|name| name == node))
    }

    /// Unique ids of the pods of the release, and of a service of the user's own.
    fn own_pods(&self) -> BTreeSet<String> {
        let pods = self.caches.pods().into_iter().chain(self.caches.described_pods());
        pods.filter_map(|pod| pod.metadata.uid.clone()).collect()
    }

    fn used_nodes(&self) -> BTreeSet<String> {
        self.pods_evidence().into_iter().map(|pod| pod.node).collect()
    }

    /// Asks the API server for the nodes of the trial that the run uses for the first time. What it doesn't tell is
    /// evidence that is missing, and no reason to stop.
    pub(super) async fn describe_nodes(&mut self) {
        if self.cluster.node_evidence_port.is_none() {
            return;
        }
        let own = self.own_pods();
        for name in self.used_nodes() {
            if self.nodes.contains_key(&name) {
                continue;
            }
            if let (Ok(node), Ok(pods)) = (self.api.node(&name).await, self.api.pods_of_node(&name).await) {
                let others = pods.into_iter().filter(|(uid, _)| !own.contains(uid)).map(|(_, pod)| pod);
                let cpu_manager = self.cpu_manager(&name);
                self.nodes.insert(name, NodeFacts { cpu_manager, ..facts(&node, others.collect()) });
            }
        }
    }

    /// How the kubelet of a node gives CPUs to pods, by those that the service's pod there may use.
    fn cpu_manager(&self, node: &str) -> String {
        let here = self.pods_evidence().into_iter().filter(|pod| pod.node == node);
        let mut found = here.filter_map(|pod| isolation::cpu_manager(&pod.cpus_allowed, self.cpus_of(&pod.name)?));
        found.next().unwrap_or_default().into()
    }
}

/// Network plugins by what their annotations of a node begin with.
const ANNOTATIONS: [(&str, &str); 5] = [
    ("flannel.alpha.coreos.com/", "flannel"),
    ("k8s.ovn.org/", "ovn-kubernetes"),
    ("network.cilium.io/", "cilium"),
    ("node.antrea.io/", "antrea"),
    ("projectcalico.org/", "calico"),
];
/// Network plugins by what the names of their pods begin with.
const PODS: [(&str, &str); 8] = [
    ("antrea-agent-", "antrea"),
    ("aws-node-", "aws-vpc-cni"),
    ("azure-cns-", "azure-cni"),
    ("calico-node-", "calico"),
    ("cilium-", "cilium"),
    ("kindnet-", "kindnet"),
    ("kube-flannel-", "flannel"),
    ("kube-router-", "kube-router"),
];

/// The network plugin of a node, by its annotations or by the pods on it, as `NAMESPACE/NAME`; empty if neither tells.
fn network_plugin(node: &Node, pods: &[String]) -> String {
    let annotations = node.metadata.annotations.iter().flatten().map(|(key, _)| key.as_str());
    let names = pods.iter().filter_map(|pod| Some(pod.split_once('/')?.1));
    known_by(annotations, &ANNOTATIONS).or_else(|| known_by(names, &PODS)).unwrap_or_default().into()
}

/// What the first of these names that is known stands for, by its start.
fn known_by<'a>(mut names: impl Iterator<Item = &'a str>, known: &[(&str, &'static str)]) -> Option<&'static str> {
    names.find_map(|name| known.iter().find(|(start, _)| name.starts_with(start)).map(|(_, plugin)| *plugin))
}

fn facts(node: &Node, mut neighbours: Vec<String>) -> NodeFacts {
    neighbours.sort_unstable();
    let label =
        |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned().unwrap_or_default();
    let status = node.status.clone().unwrap_or_default();
    let info = status.node_info.unwrap_or_default();
    let allocatable = status.allocatable.unwrap_or_default();
    NodeFacts {
        instance_type: label("node.kubernetes.io/instance-type"),
        zone: label("topology.kubernetes.io/zone"),
        architecture: info.architecture,
        os_image: info.os_image,
        kubelet: info.kubelet_version,
        container_runtime: info.container_runtime_version,
        network_plugin: network_plugin(node, &neighbours),
        cpu_manager: String::new(),
        allocatable_cpus: allocatable.get("cpu").map(|cpus| cpus.0.clone()).unwrap_or_default(),
        neighbours,
    }
}

fn is_agent(pod: &Pod) -> bool {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(COMPONENT.0)).is_some_and(|name| name == COMPONENT.1)
}

/// Node and address of a pod that is an agent.
fn agent(pod: &Pod) -> Option<(&str, &str)> {
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    let address = pod.status.as_ref()?.pod_ip.as_deref()?;
    is_agent(pod).then_some((node, address))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_described_by_its_labels_and_its_status() {
        let labels = json!({"node.kubernetes.io/instance-type": "c7g.2xlarge", "topology.kubernetes.io/zone": "a"});
        let info = json!({
            "architecture": "arm64", "osImage": "Debian", "kubeletVersion": "v1.34.1",
            "containerRuntimeVersion": "containerd://1.6", "bootID": "", "kernelVersion": "", "kubeProxyVersion": "",
            "machineID": "", "operatingSystem": "linux", "systemUUID": ""
        });
        let status = json!({"nodeInfo": info, "allocatable": {"cpu": "7910m"}});
        let node: Node = serde_json::from_value(json!({"metadata": {"labels": labels}, "status": status})).unwrap();
        let found = facts(&node, vec!["kube-system/cilium-x".into(), "default/a".into()]);
        assert_eq!((found.instance_type.as_str(), found.zone.as_str()), ("c7g.2xlarge", "a"));
        assert_eq!((found.architecture.as_str(), found.allocatable_cpus.as_str()), ("arm64", "7910m"));
        assert_eq!(found.neighbours, ["default/a", "kube-system/cilium-x"]);
        assert_eq!(found.network_plugin, "cilium");
        assert_eq!(facts(&Node::default(), vec![]), NodeFacts::default());
    }

    #[test]
    fn the_network_plugin_is_known_by_the_nodes_annotations_and_else_by_its_pod() {
        let annotated = |key: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"annotations": {"a": "", key: ""}}})).unwrap()
        };
        let pods = ["default/kindnet-of-mine".to_owned(), "kube-system/aws-node-7x2k9".into()];
        // k3s runs flannel in its own process.
        assert_eq!(network_plugin(&annotated("flannel.alpha.coreos.com/backend-type"), &pods), "flannel");
        assert_eq!(network_plugin(&annotated("kubeadm.alpha.kubernetes.io/x"), &pods[1..]), "aws-vpc-cni");
        assert_eq!(network_plugin(&Node::default(), &["default/a".into()]), "");
    }

    #[test]
    fn only_a_pod_of_the_component_with_a_node_and_an_address_is_an_agent() {
        let pod = |component: &str, address: Option<&str>| -> Pod {
            let metadata = json!({"labels": {"app.kubernetes.io/component": component}});
            let status = json!({"podIP": address});
            let pod = json!({"metadata": metadata, "spec": {"containers": [], "nodeName": "left"}, "status": status});
            serde_json::from_value(pod).unwrap()
        };
        assert_eq!(agent(&pod("node", Some("10.0.0.1"))), Some(("left", "10.0.0.1")));
        assert_eq!((agent(&pod("node", None)), agent(&pod("worker", Some("10.0.0.1")))), (None, None));
    }
}
