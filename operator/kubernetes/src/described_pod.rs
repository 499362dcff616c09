//! Interprets the state of the pods of a service that the release didn't start. Their containers have any names, and more
//! pods may come while a trial runs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bench_format::{
    pod::{Pod as PodEvidence, PodRole},
    run::CrashCause,
};
use driver::{
    nodes::PodsReading,
    stage::{Ended, Usage},
};
use k8s_openapi::api::core::v1::Pod;

use crate::{
    pod_end::{crash_cause, evicted_for_memory, removal_reason},
    pod_failure::{containers, ending, pod_name},
    quantity,
};

/// A pod of the service, as it was when the service was found.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedPod {
    /// Name of the pod.
    pub name: String,
    /// Unique id of the pod; a name may be used again.
    pub uid: String,
    /// Address of the pod; empty if it has none.
    pub ip: String,
    /// Name of its node.
    pub node: String,
    /// The CPUs that all of its containers together may use; absent if one has no limit.
    pub cpu_limit: Option<f64>,
    /// Number of restarts of each container, by name.
    restarts: BTreeMap<String, i32>,
}

impl DescribedPod {
    /// The current state of a pod.
    pub fn of(pod: &Pod) -> Self {
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let names = spec.iter().flat_map(|spec| &spec.containers).map(|container| container.name.as_str());
        Self {
            name: pod_name(pod),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            ip: status.and_then(|status| status.pod_ip.clone()).unwrap_or_default(),
            node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            cpu_limit: names.map(|name| quantity::cpu_limit(pod, name)).sum(),
            restarts: containers(pod).map(|status| (status.name.clone(), status.restart_count)).collect(),
        }
    }

    /// How the pod ended; `None` while it runs as it was found.
    fn end(&self, pod: Option<&Pod>) -> Option<Ended> {
        let name = &self.name;
        let Some(pod) = pod else { return Some(Ended::outside(format!("pod {name} of the service was removed"))) };
        if let Some(description) = removal_reason(pod) {
            return Some(Ended::of_service(description, evicted_for_memory(pod).then_some(CrashCause::ServiceEvicted)));
        }
        let known = |name: &str| self.restarts.get(name).copied().unwrap_or(0);
        let restarted = containers(pod).find(|status| {
            let is_over = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
            status.restart_count > known(&status.name) || is_over && !is_init(pod, &status.name)
        })?;
        let how = ending(restarted).unwrap_or_else(|| format!("container {} was restarted", restarted.name));
        Some(Ended::of_service(format!("pod {name}: {how}"), crash_cause(restarted)))
    }
}

/// Whether a container ends before those of the service start.
fn is_init(pod: &Pod, name: &str) -> bool {
    let containers = pod.spec.iter().filter_map(|spec| spec.init_containers.as_ref()).flatten();
    containers.into_iter().any(|container| container.name == name)
}

/// How the service ended; `None` while exactly the pods that were found run as they did. `pods` are all pods with its labels.
pub fn end(known: &[DescribedPod], pods: &[impl AsRef<Pod>]) -> Option<Ended> {
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    let by_uid = |wanted: &str| pods.iter().map(AsRef::as_ref).find(|pod| uid(pod) == wanted);
    if let Some(ended) = known.iter().find_map(|pod| pod.end(by_uid(&pod.uid))) {
        return Some(ended);
    }
    let names: BTreeSet<&str> = known.iter().map(|pod| pod.uid.as_str()).collect();
    let other = pods.iter().map(AsRef::as_ref).find(|pod| !names.contains(uid(pod).as_str()) && !is_over(pod))?;
    Some(Ended::outside(format!(
        "pod {} of the service came while a trial ran; keep the number of its pods while it is measured (autoscaler, rollout)",
        pod_name(other)
    )))
}

/// Whether a pod has ended and uses nothing any more, though it may still be listed.
pub fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    ["Succeeded", "Failed"].contains(&phase)
}

/// The use of all pods together, from the readings of their nodes; the error is the pod that none of them has.
pub fn usage<'a>(
    known: &'a [DescribedPod],
    readings: &BTreeMap<String, PodsReading>,
) -> Result<Usage, &'a DescribedPod> {
    // The pods' clocks go on when a container restarts, which their states show. So there is no process whose id would.
    let mut usage = Usage { pid: 0, ..Usage::default() };
    for pod in known {
        let reading = readings.get(&pod.node).ok_or(pod)?;
        let used = reading.pods.get(&pod.uid).ok_or(pod)?;
        usage.cpu_ns += used.cpu_ns;
        usage.rss_bytes += used.memory_bytes;
        usage.cpu_limit += pod.cpu_limit.unwrap_or_else(|| f64::from(reading.cpus));
    }
    Ok(usage)
}

/// A pod as the bundle lists it; image and digest are those of its first container.
pub fn evidence(pod: &Pod) -> PodEvidence {
    let spec = pod.spec.as_ref();
    let first = spec.and_then(|spec| spec.containers.first());
    let status = first.and_then(|first| containers(pod).find(|status| status.name == first.name));
    let restarts: i32 = containers(pod).map(|status| status.restart_count).sum();
    PodEvidence {
        name: pod_name(pod),
        role: PodRole::Service,
        node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        qos_class: pod.status.as_ref().and_then(|status| status.qos_class.clone()).unwrap_or_default(),
        image: first.and_then(|first| first.image.clone()).unwrap_or_default(),
        image_digest: status.map(|status| status.image_id.clone()).unwrap_or_default(),
        restarts: u32::try_from(restarts).unwrap_or(0),
        ..PodEvidence::default()
    }
}

#[cfg(test)]
mod tests {
    use driver::{nodes::PodUse, stage::Cause};
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str, containers: Value) -> Pod {
        let value = json!({"metadata": {"name": format!("chat-{uid}"), "uid": uid},
            "spec": {"nodeName": "node-a", "containers": [
                {"name": "app", "image": "chat:4", "resources": {"limits": {"cpu": "1500m"}}},
                {"name": "proxy", "image": "envoy:1", "resources": {"limits": {"cpu": "500m"}}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.7", "qosClass": "Burstable", "containerStatuses": containers}});
        serde_json::from_value(value).unwrap()
    }

    fn status(name: &str, restarts: i32, state: Value, last: Value) -> Value {
        json!({"name": name, "image": "i", "imageID": format!("{name}@sha256:1"), "ready": true, "restartCount": restarts,
            "state": state, "lastState": last})
    }

    fn running() -> Value {
        json!([
            status("app", 2, json!({"running": {}}), json!({})),
            status("proxy", 0, json!({"running": {}}), json!({}))
        ])
    }

    fn known() -> Vec<DescribedPod> {
        vec![DescribedPod::of(&pod("a", running()))]
    }

    fn ended_with(containers: Value) -> Option<Ended> {
        end(&known(), &[std::sync::Arc::new(pod("a", containers))])
    }

    #[test]
    fn pods_that_run_as_they_were_found_have_not_ended() {
        assert_eq!(ended_with(running()), None);
    }

    #[test]
    fn a_container_that_ends_by_itself_is_a_result_whatever_its_name_is() {
        let oom = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        let restarted = status("app", 3, json!({"running": {}}), oom);
        let ended = ended_with(json!([restarted])).unwrap();
        assert_eq!(ended.cause, Cause::Service(CrashCause::ServiceOom));
        assert!(ended.description.starts_with("pod chat-a: container app ran out of memory"), "{}", ended.description);
        let exited = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        let ended = ended_with(json!([status("proxy", 0, exited, json!({}))])).unwrap();
        assert_eq!(ended.cause, Cause::Service(CrashCause::ServiceCrashed));
    }

    #[test]
    fn a_pod_that_goes_or_comes_interrupts_the_trial() {
        let pods = |pods: Vec<Pod>| pods.into_iter().map(std::sync::Arc::new).collect::<Vec<_>>();
        let gone = end(&known(), &pods(vec![])).unwrap();
        assert_eq!((gone.description.as_str(), gone.cause), ("pod chat-a of the service was removed", Cause::Outside));
        let more = end(&known(), &pods(vec![pod("a", running()), pod("b", running())])).unwrap();
        assert!(
            more.description.starts_with("pod chat-b of the service came while a trial ran"),
            "{}",
            more.description
        );
        assert_eq!(more.cause, Cause::Outside);
    }

    #[test]
    fn the_use_of_all_pods_is_added_up_and_a_pod_that_no_agent_sees_is_named() {
        let of = |uid: &str, cpu_ns| (uid.to_owned(), PodUse { cpu_ns, memory_bytes: 10 });
        let reading = PodsReading { cpus: 8, pods: [of("a", 5), of("b", 7)].into() };
        let mut pods = vec![DescribedPod::of(&pod("a", running())), DescribedPod::of(&pod("b", running()))];
        pods[1].cpu_limit = None;
        let readings = [("node-a".to_owned(), reading)].into();
        let used = usage(&pods, &readings).unwrap();
        assert_eq!((used.cpu_ns, used.rss_bytes, used.cpu_limit), (12, 20, 10.0));
        pods[1].node = "node-b".into();
        assert_eq!(usage(&pods, &readings).unwrap_err().name, "chat-b");
    }

    #[test]
    fn a_pod_is_listed_with_the_image_of_its_first_container() {
        let listed = evidence(&pod("a", running()));
        assert_eq!(
            (listed.role, listed.image.as_str(), listed.image_digest.as_str()),
            (PodRole::Service, "chat:4", "app@sha256:1")
        );
        assert_eq!((listed.node.as_str(), listed.qos_class.as_str(), listed.restarts), ("node-a", "Burstable", 2));
    }
}
