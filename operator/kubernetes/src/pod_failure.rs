//! Explains why a pod doesn't run, with a reason that a user can act on. Pure.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Event, Pod, PodCondition};

/// Taints of a node that is lost.
const LOST_NODE: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];
/// Parts of the messages of an image pull that failed between the node and the registry, or in the registry.
const AWAY: [&str; 14] = [
    "dial tcp",
    "i/o timeout",
    "connection refused",
    "connection reset",
    "no such host",
    "no route to host",
    "server misbehaving",
    "TLS handshake timeout",
    "deadline exceeded",
    "unexpected EOF",
    "500 Internal Server Error",
    "502 Bad Gateway",
    "503 Service Unavailable",
    "429 Too Many Requests",
];

/// Whether it makes sense to wait for the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outlook {
    /// The failure may resolve itself, after any time.
    Open,
    /// No node has room for the pod; one may get some.
    NoRoom,
    /// The cause is outside the pod, such as a registry that is away; a new pod may do better.
    Outside,
    /// The failure rarely resolves itself; only a short wait makes sense.
    Doubtful,
    /// The failure does not resolve itself.
    Hopeless,
}

/// Why a pod doesn't run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFailure {
    /// The pod, the reason, and its last event.
    pub description: String,
    /// Whether it makes sense to wait.
    pub outlook: Outlook,
}

/// Why a pod's containers are not ready. For a healthy pod, the condition that is still missing.
pub fn of_pod(pod: &Pod, events: &[impl AsRef<Event>]) -> PodFailure {
    let name = pod_name(pod);
    let (reason, mut outlook) = evicted(pod)
        .or_else(|| unschedulable(pod))
        .or_else(|| containers(pod).find_map(in_a_bad_state))
        .unwrap_or_else(|| (not_ready(pod), Outlook::Open));
    let event = last_event(pod.metadata.uid.as_deref(), events);
    let pulls = |text: &str| text.contains("pull") && is_registry_away(text);
    if outlook == Outlook::Doubtful && (pulls(&reason) || event.as_deref().is_some_and(pulls)) {
        outlook = Outlook::Outside;
    }
    let event = event.filter(|event| !reason.contains(event.trim_end_matches('.')));
    let event = event.map(|event| format!("; last event: {event}")).unwrap_or_default();
    PodFailure { description: format!("pod {name}: {reason}{event}"), outlook }
}

/// How a container ended; `None` while it runs or waits for its first start.
pub fn ending(status: &ContainerStatus) -> Option<String> {
    let end = terminated(status)?;
    let reason = end.reason.clone().unwrap_or_else(|| "Error".into());
    let why = match reason.as_str() {
        "OOMKilled" => "ran out of memory (OOMKilled): give it a higher memory limit".to_owned(),
        "Completed" | "Error" => match (end.exit_code, end.signal) {
            (137, _) | (_, Some(9)) => "was killed (exit code 137)".into(),
            (143, _) => "was terminated (exit code 143)".into(),
            (code, _) => format!("ended with exit code {code}"),
        },
        other => format!("ended: {other} (exit code {})", end.exit_code),
    };
    let message = end.message.as_ref().filter(|message| !message.trim().is_empty());
    let message = message.map(|message| format!(": {}", message.trim())).unwrap_or_default();
    Some(format!("container {} {why}{message}", status.name))
}

/// The last end of a container; `None` if it has not ended yet.
pub fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    [&status.state, &status.last_state].into_iter().find_map(|state| state.as_ref()?.terminated.as_ref())
}

/// Status of all containers, init containers first.
pub fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.as_ref();
    let lists = status.map(|status| [&status.init_container_statuses, &status.container_statuses]);
    lists.into_iter().flatten().flatten().flatten()
}

/// Status of the container with this name.
pub fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    containers(pod).find(|status| status.name == name)
}

/// Whether a condition of the pod is `True`.
pub fn holds(pod: &Pod, condition: &str) -> bool {
    find_condition(pod, condition).is_some_and(|condition| condition.status == "True")
}

/// Why a pod is removed, from its `DisruptionTarget` condition; `None` without one.
pub fn disruption(pod: &Pod) -> Option<String> {
    let condition = find_condition(pod, "DisruptionTarget").filter(|condition| condition.status == "True")?;
    let message = condition.message.clone().unwrap_or_default();
    Some(format!("{}: {message}", condition.reason.clone().unwrap_or_else(|| "DisruptionTarget".into())))
}

/// Whether a pod was evicted or failed as a whole, with the kubelet's message.
pub fn evicted(pod: &Pod) -> Option<(String, Outlook)> {
    let status = pod.status.as_ref()?;
    let reason = status.reason.as_deref().filter(|_| status.phase.as_deref() == Some("Failed"))?;
    let message = status.message.clone().unwrap_or_default();
    let description =
        if reason == "Evicted" { format!("evicted: {message}") } else { format!("failed: {reason}: {message}") };
    // The kubelet refuses some pods at each attempt. Others were evicted, preempted or shut down with their node.
    let outlook = if reason == "UnexpectedAdmissionError" { Outlook::Hopeless } else { Outlook::Outside };
    Some((description, outlook))
}

/// The newest event about an object.
pub fn last_event(uid: Option<&str>, events: &[impl AsRef<Event>]) -> Option<String> {
    let of_it =
        events.iter().map(AsRef::as_ref).filter(|event| uid.is_some() && event.involved_object.uid.as_deref() == uid);
    of_it.max_by_key(|event| time_of(event)).map(describe_event)
}

/// The newest warning about an object of that name, or about one whose name starts with it and a hyphen (a ReplicaSet,
/// a pod). Two hyphens after the name mark an object of a companion, which is skipped.
pub fn last_warning(name: &str, events: &[impl AsRef<Event>]) -> Option<String> {
    let about = |event: &&Event| {
        let other = event.involved_object.name.as_deref().unwrap_or_default();
        other == name || other.strip_prefix(name).is_some_and(|rest| rest.starts_with('-') && !rest.starts_with("--"))
    };
    let warnings = events.iter().map(AsRef::as_ref).filter(|event| event.type_.as_deref() == Some("Warning"));
    warnings.filter(about).max_by_key(|event| time_of(event)).map(describe_event)
}

/// Name of a pod; empty if it has none.
pub fn pod_name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

fn unschedulable(pod: &Pod) -> Option<(String, Outlook)> {
    let condition = find_condition(pod, "PodScheduled").filter(|condition| condition.status == "False")?;
    let reason = condition.reason.as_deref().unwrap_or("Unschedulable");
    let message = condition.message.as_deref().unwrap_or("the scheduler gave no message");
    let lost = LOST_NODE.iter().any(|taint| message.contains(taint));
    let outlook = if lost { Outlook::Outside } else { Outlook::NoRoom };
    Some((format!("can't be scheduled ({reason}): {message}"), outlook))
}

/// Whether the error of an image pull is that of a registry that can't be reached or fails, and not that of an image that
/// isn't there.
fn is_registry_away(text: &str) -> bool {
    AWAY.iter().any(|part| text.contains(part))
}

fn in_a_bad_state(status: &ContainerStatus) -> Option<(String, Outlook)> {
    let name = &status.name;
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    if let Some(waiting) = waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or_default();
        let image = &status.image;
        return match reason {
            "ErrImagePull" | "ImagePullBackOff" => Some((
                format!("the image {image} of container {name} can't be pulled ({reason}): {message}"),
                Outlook::Doubtful,
            )),
            "InvalidImageName" | "ErrImageNeverPull" => Some((
                format!("the image {image} of container {name} can't be used ({reason}): {message}"),
                Outlook::Hopeless,
            )),
            "CrashLoopBackOff" => {
                let how = ending(status).unwrap_or_else(|| format!("container {name} ended"));
                Some((format!("{how}, {} times (CrashLoopBackOff)", status.restart_count + 1), Outlook::Hopeless))
            }
            "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
                Some((format!("container {name} can't be started ({reason}): {message}"), Outlook::Doubtful))
            }
            _ => None,
        };
    }
    let ended = status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let restarted = status.restart_count > 0 && !status.ready;
    (ended || restarted).then(|| ending(status)).flatten().map(|description| (description, Outlook::Open))
}

fn not_ready(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_else(|| "unknown".into());
    match find_condition(pod, "Ready").filter(|condition| condition.status != "True") {
        Some(condition) => {
            let message = condition.message.as_deref().or(condition.reason.as_deref()).unwrap_or("no reason given");
            format!("phase {phase}, not Ready: {message}")
        }
        None => format!("phase {phase}"),
    }
}

fn find_condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == name)
}

fn time_of(event: &Event) -> Option<k8s_openapi::jiff::Timestamp> {
    let last_time = event.last_timestamp.as_ref().map(|time| time.0);
    last_time.or(event.event_time.as_ref().map(|time| time.0)).or(event
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0))
}

fn describe_event(event: &Event) -> String {
    let (reason, message) = (event.reason.as_deref().unwrap_or("event"), event.message.as_deref().unwrap_or_default());
    format!("{reason}: {}", message.trim())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    const NONE: [Arc<Event>; 0] = [];

    fn pod(status: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "status": status})).unwrap()
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "service", "image": "local/x:1", "imageID": "", "ready": false, "restartCount": 2,
            "state": {"waiting": {"reason": reason, "message": message}},
            "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
        }]})
    }

    #[test]
    fn every_known_pod_failure_has_its_description_and_outlook() {
        let cases = [
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
                    "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu."}]}),
                "pod p: can't be scheduled (Unschedulable): 0/1 nodes are available: 1 Insufficient cpu.",
                Outlook::NoRoom,
            ),
            (
                waiting("ImagePullBackOff", "Back-off pulling image"),
                "pod p: the image local/x:1 of container service can't be pulled (ImagePullBackOff): Back-off pulling image",
                Outlook::Doubtful,
            ),
            (
                waiting("ErrImagePull", "not found"),
                "pod p: the image local/x:1 of container service can't be pulled (ErrImagePull): not found",
                Outlook::Doubtful,
            ),
            (
                waiting("CrashLoopBackOff", ""),
                "pod p: container service ended with exit code 3, 3 times (CrashLoopBackOff)",
                Outlook::Hopeless,
            ),
            (
                json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
                "pod p: evicted: The node was low on resource: memory.",
                Outlook::Outside,
            ),
            (
                json!({"phase": "Running", "containerStatuses": [{"name": "service", "image": "", "imageID": "",
                    "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}),
                "pod p: container service ran out of memory (OOMKilled): give it a higher memory limit",
                Outlook::Open,
            ),
            (
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False",
                    "reason": "ContainersNotReady", "message": "containers with unready status: [service]"}]}),
                "pod p: phase Running, not Ready: containers with unready status: [service]",
                Outlook::Open,
            ),
        ];
        for (status, description, outlook) in cases {
            assert_eq!(of_pod(&pod(status), &NONE), PodFailure { description: description.into(), outlook });
        }
    }

    #[test]
    fn a_registry_that_is_away_is_told_from_an_image_that_is_not_there() {
        let outlook = |message: &str| of_pod(&pod(waiting("ErrImagePull", message)), &NONE).outlook;
        for away in [
            "failed to do request: Head \"https://r/v2/x/manifests/1\": dial tcp 10.0.0.1:443: connect: connection refused",
            "failed to do request: Head \"https://r/v2/x/manifests/1\": dial tcp: lookup r on 10.0.0.10:53: no such host",
            "unexpected status from HEAD request to https://r/v2/x/manifests/1: 503 Service Unavailable",
        ] {
            assert_eq!(outlook(away), Outlook::Outside, "{away}");
        }
        for missing in ["failed to resolve reference \"r/x:1\": r/x:1: not found", "pull access denied, 403 Forbidden"]
        {
            assert_eq!(outlook(missing), Outlook::Doubtful, "{missing}");
        }
    }

    #[test]
    fn a_pod_that_waits_for_a_lost_node_is_interrupted() {
        let message = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint \
            {node.kubernetes.io/unreachable: }.";
        let status = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": message}]});
        assert_eq!(of_pod(&pod(status), &NONE).outlook, Outlook::Outside);
    }

    #[test]
    fn the_newest_event_of_the_pod_is_quoted_and_no_event_of_another_pod() {
        let event = |uid: &str, second: u32, message: &str| -> Arc<Event> {
            let value = json!({"metadata": {"name": "e"}, "involvedObject": {"uid": uid}, "reason": "Unhealthy",
                "message": message, "lastTimestamp": format!("2026-01-01T00:00:{second:02}Z")});
            Arc::new(serde_json::from_value(value).unwrap())
        };
        let events = [event("u", 2, "probe failed"), event("u", 1, "older"), event("other", 3, "not ours")];
        let pod_failure = of_pod(&pod(json!({"phase": "Running"})), &events);
        assert_eq!(pod_failure.description, "pod p: phase Running; last event: Unhealthy: probe failed");
    }

    #[test]
    fn a_warning_about_a_deployments_objects_is_found_by_the_deployments_name() {
        let value = json!({"metadata": {"name": "e"}, "involvedObject": {"name": "wsl-a-5d4f"}, "type": "Warning",
            "reason": "FailedCreate", "message": "exceeded quota"});
        let events = [Arc::new(serde_json::from_value::<Event>(value).unwrap())];
        assert_eq!(last_warning("wsl-a", &events).unwrap(), "FailedCreate: exceeded quota");
        assert_eq!(last_warning("wsl-a-5", &events), None);
        let value = json!({"metadata": {"name": "e"}, "involvedObject": {"name": "wsl-a--redis-5d4f"}, "type": "Warning",
            "reason": "FailedCreate", "message": "exceeded quota"});
        let events = [Arc::new(serde_json::from_value::<Event>(value).unwrap())];
        assert_eq!((last_warning("wsl-a", &events), last_warning("wsl-a--redis", &events).is_some()), (None, true));
    }
}
