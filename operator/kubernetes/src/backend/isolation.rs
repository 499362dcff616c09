//! Whether a trial's pods are as far apart as the release requires, and the way to get them apart. Pure.

use bench_format::pod::{Pod, PodRole};
use process_usage::cpus_in;

use crate::cluster_file::Isolation;

/// What a service's pod has of its node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ServiceCpus {
    /// The CPUs that its container asks for.
    pub(super) asked: f64,
    /// Number of CPUs of the node.
    pub(super) of_node: u32,
}

/// Why the pods of a trial don't have the isolation that the release requires; `None` if they have it. `cpus_of` has the
/// CPUs of a pod of the service, by its name.
pub(super) fn missing(
    required: Isolation,
    pods: &[Pod],
    cpus_of: impl Fn(&str) -> Option<ServiceCpus>,
) -> Option<String> {
    let mut of_service = pods.iter().filter(|pod| pod.role == PodRole::Service);
    of_service.find_map(|service| match required {
        Isolation::None => None,
        Isolation::Node => shared_node(service, pods),
        Isolation::Cpuset => shared_cpus(service, cpus_of(&service.name)?),
    })
}

fn shared_node(service: &Pod, pods: &[Pod]) -> Option<String> {
    let beside = |pod: &&Pod| [PodRole::Worker, PodRole::Inference].contains(&pod.role) && pod.node == service.node;
    let other = pods.iter().find(beside)?;
    Some(format!(
        "pod {} runs on node {} beside the service, and isolation.require is node: give the service and the workers \
         nodes of their own (scheduling.service.nodeSelector and scheduling.worker.nodeSelector)",
        other.name, service.node
    ))
}

fn shared_cpus(service: &Pod, ServiceCpus { asked, of_node }: ServiceCpus) -> Option<String> {
    let Pod { name, node, cpus_allowed, .. } = service;
    let way = if asked.fract() != 0.0 {
        format!("it asks for {asked} CPUs, and only whole CPUs can be its own: set plan.cpu.service.cpus")
    } else if !are_own(cpus_allowed, asked, of_node) {
        "run the kubelet of its node with the static CPU manager (k3s: --kubelet-arg=cpu-manager-policy=static and \
         --kubelet-arg=kube-reserved=cpu=500m; EKS: cpuManagerPolicy: static and kubeReserved in the NodeConfig of \
         nodeadm)"
            .to_owned()
    } else {
        return None;
    };
    Some(format!(
        "pod {name} may run on CPUs {cpus_allowed} of node {node}, which are not its own, and isolation.require is \
         cpuset: {way}"
    ))
}

/// The kubelet's policy, `static` or `none`, by the CPUs on which a service that asks for these may run; `None` if it doesn't
/// ask for whole ones, or they aren't known.
pub(super) fn cpu_manager(cpus_allowed: &str, ServiceCpus { asked, of_node }: ServiceCpus) -> Option<&'static str> {
    let tells = asked.fract() == 0.0 && asked > 0.0 && !cpus_allowed.is_empty();
    tells.then(|| if are_own(cpus_allowed, asked, of_node) { "static" } else { "none" })
}

/// Whether these CPUs can only be those of a pod that asks for so many.
fn are_own(cpus_allowed: &str, asked: f64, of_node: u32) -> bool {
    f64::from(cpus_in(cpus_allowed)) == asked && cpus_in(cpus_allowed) < of_node
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, role: PodRole, node: &str, cpus_allowed: &str) -> Pod {
        let (name, node, cpus_allowed) = (name.into(), node.into(), cpus_allowed.into());
        Pod { name, role, node, cpus_allowed, ..Pod::default() }
    }

    fn no_cpus(_: &str) -> Option<ServiceCpus> {
        None
    }

    fn pods(worker_node: &str, cpus_allowed: &str) -> [Pod; 3] {
        [
            pod("ours", PodRole::Service, "left", cpus_allowed),
            pod("redis", PodRole::Companion, "left", "0-3"),
            pod("tier", PodRole::Worker, worker_node, ""),
        ]
    }

    #[test]
    fn nothing_is_missing_where_nothing_is_required() {
        assert_eq!(missing(Isolation::None, &pods("left", "0-3"), no_cpus), None);
    }

    #[test]
    fn a_worker_on_the_services_node_is_named_with_the_way_out() {
        let description = missing(Isolation::Node, &pods("left", ""), no_cpus).unwrap();
        assert!(description.starts_with("pod tier runs on node left beside the service"), "{description}");
        assert!(description.contains("scheduling.worker.nodeSelector"), "{description}");
        assert_eq!(missing(Isolation::Node, &pods("right", ""), no_cpus), None, "a companion is part of the service");
    }

    #[test]
    fn every_replica_has_to_be_apart() {
        let mut pods = pods("right", "1,3").to_vec();
        pods.push(pod("ours-2", PodRole::Service, "right", "0-3"));
        let description = missing(Isolation::Node, &pods, no_cpus).unwrap();
        assert!(description.starts_with("pod tier runs on node right beside the service"), "{description}");
        let cpus_of = |_: &str| Some(ServiceCpus { asked: 2.0, of_node: 4 });
        let description = missing(Isolation::Cpuset, &pods, cpus_of).unwrap();
        assert!(description.starts_with("pod ours-2 may run on CPUs 0-3 of node right"), "{description}");
    }

    #[test]
    fn whole_cpus_that_are_the_services_own_are_those_of_the_static_cpu_manager() {
        let found = |cpus_allowed, asked| cpu_manager(cpus_allowed, ServiceCpus { asked, of_node: 4 });
        assert_eq!((found("1,3", 2.0), found("0-3", 2.0)), (Some("static"), Some("none")));
        assert_eq!((found("0-3", 0.5), found("", 2.0)), (None, None));
    }

    #[test]
    fn a_service_without_cpus_of_its_own_is_told_how_to_get_them() {
        let found = |cpus_allowed: &str, asked, of_node| {
            missing(Isolation::Cpuset, &pods("left", cpus_allowed), |_| Some(ServiceCpus { asked, of_node }))
        };
        let shared = found("0-3", 2.0, 4).unwrap();
        assert!(shared.starts_with("pod ours may run on CPUs 0-3 of node left, which are not its own"), "{shared}");
        assert!(shared.contains("cpu-manager-policy=static") && shared.contains("nodeadm"), "{shared}");
        assert!(found("0-1", 0.5, 4).unwrap().contains("only whole CPUs"));
        assert!(found("0-1", 2.0, 2).is_some(), "all CPUs of a node are never exclusive");
        assert_eq!(found("1,3", 2.0, 4), None);
    }
}
