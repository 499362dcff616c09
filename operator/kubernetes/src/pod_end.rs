//! Determines from the state of the cluster whether pods still run as they were started. Pure; the same rules apply to
//! the watches' caches and to fresh responses of the API server.

use std::collections::BTreeMap;

use bench_format::run::CrashCause;
use driver::stage::Ended;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ContainerState, ContainerStatus, Pod},
};

use crate::pod_failure::{self, container, containers, disruption, ending, evicted, pod_name};

/// Exit codes of a process that was killed (137, SIGKILL) or asked to stop (143, SIGTERM), which is an external cause.
const KILLED: [i32; 2] = [137, 143];

/// The pod of a service, its inference service or a companion, as it was when it became ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePod {
    /// The purpose of the pod, which is also the name of its main container.
    pub role: Role,
    /// Name of the pod's Deployment.
    pub deployment: String,
    /// Number of replicas that the Deployment was scaled to.
    pub replicas: i32,
    /// Name of the pod.
    pub pod: String,
    /// Unique id of the pod; a name may be used again.
    pub uid: String,
    /// Number of restarts of the main container.
    pub restarts: i32,
}

impl ServicePod {
    /// The end of the pod. A service that ended by itself has failed under its load; the end of its companions and of its
    /// inference service says nothing about it.
    fn end(&self, description: String, crash: Option<CrashCause>) -> Ended {
        let crash = crash.filter(|_| self.role == Role::Service);
        Ended::of_service(description, crash)
    }
}

/// The purpose of a Deployment's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The service under test.
    Service,
    /// A companion of the service.
    Companion,
    /// The inference service behind a gateway.
    Inference,
}

impl Role {
    /// The name of the main container in the chart.
    pub fn container_name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Companion => "companion",
            Self::Inference => "inference",
        }
    }
}

/// The pods of workers, as they were when all ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerPods {
    /// Name of the workers' Job.
    pub job: String,
    /// Name and unique id of each pod, by the worker's index.
    pub pods: BTreeMap<u32, (String, String)>,
}

/// How another client ended the pods of a Deployment that was scaled to `needed` replicas; `None` if it still has them.
pub fn of_deployment((name, needed): (&str, i32), deployment: Option<&Deployment>) -> Option<Ended> {
    let Some(deployment) = deployment else { return external_end(format!("Deployment {name} was deleted")) };
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    if replicas == needed {
        return None;
    }
    external_end(format!(
        "another client set the replicas of Deployment {name} to {replicas} while a trial needed {needed}"
    ))
}

/// How a service ended; `None` while it runs as it was started.
pub fn of_service(known: &ServicePod, deployment: Option<&Deployment>, pod: Option<&Pod>) -> Option<Ended> {
    if let Some(ended) = of_deployment((&known.deployment, known.replicas), deployment) {
        return Some(ended);
    }
    let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(&known.uid)) else {
        return external_end(format!("pod {} of the {} was removed", known.pod, known.role.container_name()));
    };
    if let Some(description) = removal_reason(pod) {
        return Some(known.end(description, evicted_for_memory(pod).then_some(CrashCause::ServiceEvicted)));
    }
    let name = known.role.container_name();
    let status = container(pod, name)?;
    if status.restart_count > known.restarts || status.state.as_ref().is_some_and(|state| state.terminated.is_some()) {
        let how = ending(status).unwrap_or_else(|| format!("container {name} was restarted"));
        return Some(known.end(format!("pod {}: {how}", known.pod), crash_cause(status)));
    }
    None
}

/// How a worker ended; `None` while all run as they were started.
pub fn of_workers(known: &WorkerPods, job: Option<&Job>, pods: &[impl AsRef<Pod>]) -> Option<Ended> {
    let name = &known.job;
    let Some(job) = job else { return external_end(format!("Job {name} was deleted")) };
    let by_uid = |uid: &str| pods.iter().map(AsRef::as_ref).find(|pod: &&Pod| pod.metadata.uid.as_deref() == Some(uid));
    // The workers are checked before the Job, because a worker's end gives a more precise reason than the Job's state.
    for (index, (pod_name, uid)) in &known.pods {
        let ended = match by_uid(uid) {
            None if is_suspended(job) => None,
            None => external_end(format!("worker {index}: its pod {pod_name} was removed")),
            Some(pod) => of_worker(*index, pod),
        };
        if ended.is_some() {
            return ended;
        }
    }
    is_suspended(job)
        .then(|| external_end(format!("another client suspended Job {name} while a trial needed its workers")))
        .flatten()
}

/// Whether a Job is suspended.
pub fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false)
}

/// The final condition of a Job, as text; `None` while it can still be released.
pub fn job_over(job: &Job) -> Option<String> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let over = conditions.iter().find(|condition| {
        ["Failed", "Complete", "FailureTarget"].contains(&condition.type_.as_str()) && condition.status == "True"
    })?;
    let description = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(format!("{} ({}): {}", over.type_, description(&over.reason), description(&over.message)))
}

/// Whether a container ever ran, so that it may have a log.
pub fn has_run(status: &ContainerStatus) -> bool {
    let ran = |state: &ContainerState| state.running.is_some() || state.terminated.is_some();
    [&status.state, &status.last_state].into_iter().flatten().any(ran)
}

/// The index that an Indexed Job gave to a pod.
pub fn index_of(pod: &Pod) -> Option<u32> {
    const KEY: &str = "batch.kubernetes.io/job-completion-index";
    let annotation = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(KEY));
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(KEY));
    annotation.or(label)?.parse().ok()
}

/// Name of the Job that created a pod.
pub fn job_of(pod: &Pod) -> Option<&str> {
    let labels = pod.metadata.labels.as_ref()?;
    labels.get("batch.kubernetes.io/job-name").or(labels.get("job-name")).map(String::as_str)
}

fn of_worker(index: u32, pod: &Pod) -> Option<Ended> {
    if let Some(description) = removal_reason(pod) {
        return external_end(format!("worker {index}: {description}"));
    }
    let ended = containers(pod).find(|status| status.state.as_ref().is_some_and(|state| state.terminated.is_some()));
    if let Some(status) = ended {
        // Also a crash: it says nothing about the service, and the tier's next Job has other pods.
        return external_end(format!("worker {index}, pod {}: {}", pod_name(pod), ending(status).unwrap_or_default()));
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let over = ["Failed", "Succeeded"].contains(&phase);
    over.then(|| external_end(format!("worker {index}: pod {} ended (phase {phase})", pod_name(pod)))).flatten()
}

/// How a container ended by itself; `None` if it was killed or asked to stop, or if that is not known.
pub(crate) fn crash_cause(status: &ContainerStatus) -> Option<CrashCause> {
    let end = pod_failure::terminated(status)?;
    match end.reason.as_deref() {
        Some("OOMKilled") => Some(CrashCause::ServiceOom),
        Some("Error" | "Completed") if !KILLED.contains(&end.exit_code) => Some(CrashCause::ServiceCrashed),
        _ => None,
    }
}

/// Whether the kubelet removes a pod because its node is low on memory.
pub(crate) fn evicted_for_memory(pod: &Pod) -> bool {
    let message = evicted(pod).map(|(description, _)| description).or_else(|| disruption(pod));
    message.is_some_and(|message| message.contains("low on resource: memory"))
}

/// Whether a worker's pod has ended with a failure of its own, after which its Job fails.
pub fn has_crashed(pod: &Pod) -> bool {
    let code = |status: &ContainerStatus| status.state.as_ref()?.terminated.as_ref().map(|end| end.exit_code);
    containers(pod).filter_map(code).any(|code| code != 0 && !KILLED.contains(&code))
}

/// Why a pod is being removed; `None` for a pod that is not.
pub(crate) fn removal_reason(pod: &Pod) -> Option<String> {
    if let Some((description, _)) = evicted(pod) {
        return Some(format!("pod {} was {description}", pod_name(pod)));
    }
    if let Some(description) = disruption(pod) {
        return Some(format!("pod {} is being disrupted: {description}", pod_name(pod)));
    }
    pod.metadata.deletion_timestamp.as_ref()?;
    Some(format!("pod {} is being deleted", pod_name(pod)))
}

fn external_end(description: String) -> Option<Ended> {
    Some(Ended::outside(description))
}

#[cfg(test)]
mod tests {
    use driver::stage::Cause;
    use serde_json::{Value, json};

    use super::*;

    fn known() -> ServicePod {
        ServicePod {
            role: Role::Service,
            deployment: "d".into(),
            replicas: 1,
            pod: "p".into(),
            uid: "u".into(),
            restarts: 0,
        }
    }

    fn deployment(replicas: i32) -> Deployment {
        let value = json!({"metadata": {"name": "d"}, "spec": {"replicas": replicas, "selector": {}, "template": {}}});
        serde_json::from_value(value).unwrap()
    }

    fn pod(change: Value) -> Pod {
        let mut value = json!({"metadata": {"name": "p", "uid": "u"}, "status": {"phase": "Running",
            "containerStatuses": [{"name": "service", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}}}]}});
        merge(&mut value, change);
        serde_json::from_value(value).unwrap()
    }

    fn merge(into: &mut Value, change: Value) {
        match (into, change) {
            (Value::Object(into), Value::Object(change)) => {
                change.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, change) => *into = change,
        }
    }

    fn description(deployment: Option<&Deployment>, pod: Option<&Pod>) -> Option<String> {
        of_service(&known(), deployment, pod).map(|ended| ended.description)
    }

    #[test]
    fn a_service_in_its_started_state_has_not_ended() {
        assert_eq!(description(Some(&deployment(1)), Some(&pod(json!({})))), None);
    }

    #[test]
    fn every_reason_for_the_end_of_a_service_is_reported() {
        let killed = json!([{"name": "service", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
            "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]);
        let cases = [
            (None, None, "Deployment d was deleted"),
            (Some(deployment(0)), None, "another client set the replicas of Deployment d to 0 while a trial needed 1"),
            (Some(deployment(1)), None, "pod p of the service was removed"),
            (Some(deployment(1)), Some(json!({"metadata": {"uid": "other"}})), "pod p of the service was removed"),
            (
                Some(deployment(1)),
                Some(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
                "pod p is being deleted",
            ),
            (
                Some(deployment(1)),
                Some(json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}})),
                "pod p was evicted: low on memory",
            ),
            (
                Some(deployment(1)),
                Some(json!({"status": {"containerStatuses": killed}})),
                "pod p: container service ran out of memory (OOMKilled): give it a higher memory limit",
            ),
            (
                Some(deployment(1)),
                Some(json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True",
                    "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}]}})),
                "pod p is being disrupted: EvictionByEvictionAPI: Eviction API: evicting",
            ),
        ];
        for (deployment, change, expected) in cases {
            let pod = change.map(pod);
            assert_eq!(description(deployment.as_ref(), pod.as_ref()).as_deref(), Some(expected));
        }
    }

    fn cause(role: Role, change: Value) -> Cause {
        let known = ServicePod { role, ..known() };
        of_service(&known, Some(&deployment(1)), Some(&pod(change))).unwrap().cause
    }

    fn restarted(container: &str, exit_code: i32, reason: &str) -> Value {
        json!({"status": {"containerStatuses": [{"name": container, "image": "i", "imageID": "", "ready": false,
            "restartCount": 1, "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": exit_code, "reason": reason}}}]}})
    }

    #[test]
    fn a_service_that_ends_by_itself_has_failed_and_one_that_is_killed_is_interrupted() {
        let cases = [
            (137, "OOMKilled", Cause::Service(CrashCause::ServiceOom)),
            (139, "Error", Cause::Service(CrashCause::ServiceCrashed)),
            (0, "Completed", Cause::Service(CrashCause::ServiceCrashed)),
            (137, "Error", Cause::Outside),
            (143, "Error", Cause::Outside),
            (137, "ContainerStatusUnknown", Cause::Outside),
        ];
        for (code, reason, expected) in cases {
            assert_eq!(cause(Role::Service, restarted("service", code, reason)), expected, "{code} {reason}");
        }
        for (role, container) in [(Role::Companion, "companion"), (Role::Inference, "inference")] {
            assert_eq!(cause(role, restarted(container, 137, "OOMKilled")), Cause::Outside, "{container}");
        }
    }

    #[test]
    fn an_eviction_for_memory_is_a_result_and_any_other_is_an_interruption() {
        let evicted = |message: &str| json!({"status": {"phase": "Failed", "reason": "Evicted", "message": message}});
        let of_memory = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi.";
        let by_kubelet = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True",
            "reason": "TerminationByKubelet", "message": of_memory}]}});
        for change in [evicted(of_memory), by_kubelet] {
            assert_eq!(cause(Role::Service, change), Cause::Service(CrashCause::ServiceEvicted));
        }
        let of_disk = evicted("The node was low on resource: ephemeral-storage.");
        assert_eq!(cause(Role::Service, of_disk), Cause::Outside);
    }

    #[test]
    fn a_removed_or_restarted_inference_or_companion_ends_the_trial_too() {
        for (role, container_name) in [(Role::Inference, "inference"), (Role::Companion, "companion")] {
            let known = ServicePod { role, ..known() };
            let description =
                |pod: Option<&Pod>| of_service(&known, Some(&deployment(1)), pod).map(|ended| ended.description);
            assert_eq!(description(None).unwrap(), format!("pod p of the {container_name} was removed"));
            let restarted = json!({"status": {"containerStatuses": [{"name": container_name, "image": "i", "imageID": "",
                "ready": false, "restartCount": 1, "state": {"running": {}}}]}});
            assert_eq!(
                description(Some(&pod(restarted))).unwrap(),
                format!("pod p: container {container_name} was restarted")
            );
        }
    }

    fn job(suspend: bool) -> Job {
        serde_json::from_value(json!({"spec": {"suspend": suspend, "template": {}}})).unwrap()
    }

    fn workers() -> WorkerPods {
        WorkerPods { job: "j".into(), pods: [(0, ("p".into(), "u".into()))].into() }
    }

    #[test]
    fn a_worker_that_ends_is_an_interruption_and_one_that_crashed_needs_another_job() {
        let ended = |code: i32| {
            let pod = pod(json!({"status": {"containerStatuses": [{"name": "worker", "image": "i", "imageID": "",
                "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": "Error"}}}]}}));
            let crashed = has_crashed(&pod);
            (crashed, of_workers(&workers(), Some(&job(false)), &[std::sync::Arc::new(pod)]).unwrap())
        };
        assert_eq!([137, 143, 0, 5].map(|code| ended(code).0), [false, false, false, true]);
        assert_eq!((ended(137).1.cause, ended(5).1.cause), (Cause::Outside, Cause::Outside));
        assert_eq!(ended(5).1.description, "worker 0, pod p: container worker ended with exit code 5");
    }

    #[test]
    fn a_suspended_job_is_an_interruption() {
        let none: [std::sync::Arc<Pod>; 0] = [];
        let description = |suspend: bool| of_workers(&workers(), Some(&job(suspend)), &none).unwrap().description;
        assert_eq!(description(true), "another client suspended Job j while a trial needed its workers");
        assert_eq!(description(false), "worker 0: its pod p was removed");
    }

    #[test]
    fn the_final_condition_of_a_job_is_reported() {
        let job = serde_json::from_value(json!({"spec": {"template": {}}, "status": {"conditions": [
            {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "exit code 5"}]}}));
        assert_eq!(job_over(&job.unwrap()).unwrap(), "Failed (PodFailurePolicy): exit code 5");
    }
}
