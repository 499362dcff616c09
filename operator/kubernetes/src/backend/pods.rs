//! Reports where the pods of a trial ran and which resources are guaranteed to them, for the bundle.

use std::collections::BTreeMap;

use bench_format::{
    pod::{Pod as PodEvidence, PodRole},
    result::ThreadReading,
};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{
    Kubernetes, ServingPod,
    isolation::{self, ServiceCpus},
};
use crate::{
    described_pod,
    pod_end::{Role, index_of},
    pod_failure::{container, pod_name},
    quantity,
};

/// The quality-of-service class whose pods are guaranteed the CPU that they request.
const GUARANTEED: &str = "Guaranteed";

impl Kubernetes {
    /// The companions of the service, in the order in which they were started.
    pub(super) fn companions(&self) -> impl Iterator<Item = &ServingPod> {
        self.dependencies.iter().filter(|serving_pod| serving_pod.known.role == Role::Companion)
    }

    /// The inference simulator behind the service, if there is one.
    pub(super) fn inference(&self) -> Option<&ServingPod> {
        self.dependencies.iter().find(|serving_pod| serving_pod.known.role == Role::Inference)
    }

    /// Every pod of the trial, in its current state in the cluster.
    pub(super) fn pods_evidence(&self) -> Vec<PodEvidence> {
        let serving = self.service.iter().chain(&self.dependencies).filter_map(|serving_pod| {
            let pod = self.pod(&serving_pod.known.uid)?;
            let (role, companion) = match serving_pod.known.role {
                Role::Service => (PodRole::Service, None),
                Role::Companion => (PodRole::Companion, Some(serving_pod.name.clone())),
                Role::Inference => (PodRole::Inference, None),
            };
            let cpus_allowed = serving_pod.cpus_allowed.clone();
            Some(PodEvidence { cpus_allowed, companion, ..pod_evidence(&pod, role, None) })
        });
        let workers = self
            .workers
            .iter()
            .flat_map(|workers| &workers.known.pods)
            .filter_map(|(&index, (_, uid))| Some(pod_evidence(&*self.pod(uid)?, PodRole::Worker, Some(index))));
        let described = self.described.iter().flat_map(|described| described.pods());
        let described = described.filter_map(|known| Some(described_pod::evidence(&*self.described_pod(&known.uid)?)));
        serving.chain(described).chain(workers).collect()
    }

    /// Why the service is not as isolated as it has to be; `None` if it is.
    pub(super) fn missing_isolation(&self) -> Option<String> {
        // What a service of the user's own is guaranteed is the user's matter.
        let unguaranteed = if self.described.is_some() { None } else { self.unguaranteed_cpu() };
        unguaranteed
            .or_else(|| isolation::missing(self.cluster.isolation, &self.pods_evidence(), |name| self.cpus_of(name)))
    }

    /// What a pod of the service has of its node; `None` for other pods.
    pub(super) fn cpus_of(&self, pod: &str) -> Option<ServiceCpus> {
        let service = self.service.iter().find(|service| service.known.pod == pod)?;
        let pod = self.pod(&service.known.uid)?;
        let machine = self.machines.get(pod.spec.as_ref()?.node_name.as_deref()?)?;
        Some(ServiceCpus { asked: quantity::cpu_limit(&pod, "service")?, of_node: machine.cpus })
    }

    /// Why the CPU of the service or of a companion is not guaranteed; `None` if it is guaranteed for all.
    fn unguaranteed_cpu(&self) -> Option<String> {
        let class =
            |serving_pod: &ServingPod| self.pod(&serving_pod.known.uid).map(|pod| qos_class(&pod)).unwrap_or_default();
        let description = |owner: &str, class: String| {
            let guaranteed = class == GUARANTEED;
            (!guaranteed).then(|| {
                format!("{owner} has quality of service {class}: its CPU isn't guaranteed; set requests = limits")
            })
        };
        let of_service = self.service.iter().find_map(|service| description("the service's pod", class(service)));
        of_service.or_else(|| {
            self.companions().find_map(|serving_pod| {
                description(&format!("the pod of companion {}", serving_pod.name), class(serving_pod))
            })
        })
    }
}

/// Numbers that the threads of one pod have at most: the largest `kernel.pid_max`.
const THREAD_IDS: u32 = 1 << 22;

/// The threads of several pods as those of one process. Each pod counts its threads from 1, so the ids of the second and
/// later ones are moved. `None` if the threads of one pod are not known.
pub(super) fn threads_of_all(pods: Vec<Option<Vec<ThreadReading>>>) -> Option<Vec<ThreadReading>> {
    let known: Vec<Vec<ThreadReading>> = pods.into_iter().collect::<Option<_>>()?;
    let moved = known.into_iter().zip(0_u32..).flat_map(|(threads, index)| {
        let first = index.wrapping_mul(THREAD_IDS);
        threads.into_iter().map(move |thread| ThreadReading { id: thread.id.wrapping_add(first), ..thread })
    });
    Some(moved.collect()).filter(|threads: &Vec<_>| !threads.is_empty())
}

/// The role of a pod in the list of roles. Companions include their name.
pub(super) fn role_of(pod: &PodEvidence) -> String {
    let role = container_of(pod.role);
    pod.companion.as_ref().map_or(role.into(), |name| format!("{role} {name}"))
}

fn qos_class(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.qos_class.clone()).unwrap_or_default()
}

/// Name of a pod's main container in the chart.
fn container_of(role: PodRole) -> &'static str {
    match role {
        PodRole::Service => "service",
        PodRole::Companion => "companion",
        PodRole::Inference => "inference",
        PodRole::Worker => "worker",
    }
}

fn limits(container: &Container) -> BTreeMap<String, String> {
    let limits = container.resources.iter().flat_map(|resources| resources.limits.iter().flatten());
    limits.map(|(resource, quantity)| (resource.clone(), quantity.0.clone())).collect()
}

fn pod_evidence(pod: &Pod, role: PodRole, worker: Option<u32>) -> PodEvidence {
    let name = container_of(role);
    let status = container(pod, name);
    let specified = pod.spec.iter().flat_map(|spec| &spec.containers).find(|container| container.name == name);
    PodEvidence {
        name: pod_name(pod),
        role,
        companion: None,
        worker: worker.or_else(|| index_of(pod)),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        qos_class: qos_class(pod),
        limits: specified.map(limits).unwrap_or_default(),
        cpus_allowed: String::new(),
        image: specified.and_then(|container| container.image.clone()).unwrap_or_default(),
        image_digest: status.map(|status| status.image_id.clone()).unwrap_or_default(),
        restarts: status.map_or(0, |status| u32::try_from(status.restart_count).unwrap_or(0)),
        throttled_periods: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_two_pods_have_ids_of_their_own() {
        let thread = |id| ThreadReading { id, ..ThreadReading::default() };
        let ids = |pods| threads_of_all(pods).map(|all| all.iter().map(|thread| thread.id).collect::<Vec<_>>());
        assert_eq!(ids(vec![Some(vec![thread(7)]), Some(vec![thread(7)])]), Some(vec![7, THREAD_IDS + 7]));
        assert_eq!(ids(vec![Some(vec![thread(7)]), None]), None);
        assert_eq!(ids(vec![]), None);
    }
}
