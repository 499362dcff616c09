//! A fake API server in this process: Deployments create pods when they are scaled, and watches report changes. Each
//! pod is a small HTTP server on loopback; pod N of a Deployment has the address 127.0.0.N. Jobs create the pod of one worker when they are released.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Request, State},
    http::{StatusCode, Uri},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, patch},
};
use futures::stream;
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

pub(crate) mod pods;

/// Namespace of the fake cluster.
pub(crate) const NAMESPACE: &str = "lab";
/// Name of the release, which its pods have as a label.
const RELEASE: &str = "wsl";
const INSTANCE: &str = "app.kubernetes.io/instance";

/// The fake API server.
#[derive(Clone)]
pub(crate) struct Cluster {
    state: Arc<Mutex<Inner>>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    objects: BTreeMap<(String, String), Value>,
    history: Vec<(u64, String, Value)>,
    scaled: Vec<(String, i64)>,
    never_ready: BTreeSet<String>,
    /// Pods that stay when their Deployment is scaled down, as on a lost node.
    stuck: BTreeSet<String>,
    /// Whether every request but a watch that runs is refused with 503.
    is_away: bool,
    /// How many requests the agent of a node still refuses.
    agent_refusals: Arc<AtomicUsize>,
}

impl Cluster {
    /// A server with these Deployments, at 0 replicas, given as (name, role). The container of a Deployment's pod is
    /// named after the role.
    pub(crate) async fn with(deployments: &[(&str, &str)]) -> (Self, Client) {
        let cluster = Self { state: Arc::default(), changed: watch::Sender::new(0) };
        for (name, role) in deployments {
            let deployment = json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"role": role}},
                "spec": {"replicas": 0, "selector": {"matchLabels": {"target": name}}, "template": {}},
            });
            cluster.put("deployments", name, deployment);
        }
        let routes = Router::new()
            .route("/apis/apps/v1/namespaces/lab/{kind}", get(list))
            .route("/apis/batch/v1/namespaces/lab/{kind}", get(list))
            .route("/apis/batch/v1/namespaces/lab/{kind}/{name}", get(one).patch(suspend))
            .route("/api/v1/namespaces/lab/{kind}", get(list))
            .route("/apis/apps/v1/namespaces/lab/{kind}/{name}", get(one))
            .route("/api/v1/namespaces/lab/{kind}/{name}", get(one))
            .route("/apis/apps/v1/namespaces/lab/deployments/{name}/scale", patch(scale))
            .route("/api/v1/namespaces/lab/pods/{name}/log", get(log))
            .layer(middleware::from_fn_with_state(cluster.clone(), refuse_while_away));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, routes.with_state(cluster.clone())).into_future());
        // As in `cli::main`: when all crates are built, two crypto providers are compiled in.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = Config::new(url.parse().unwrap());
        // As the operator's own client.
        config.default_retry = false;
        (cluster, Client::try_from(config).unwrap())
    }

    /// The names and replicas of all scale requests, in order.
    pub(crate) fn scaled(&self) -> Vec<(String, i64)> {
        self.lock().scaled.clone()
    }

    /// Clears the list of scale requests.
    pub(crate) fn forget(&self) {
        self.lock().scaled.clear();
    }

    /// From now on, this pod or all pods of this Deployment never become Ready, and an event gives the reason.
    pub(crate) fn never_ready(&self, name: &str) {
        self.lock().never_ready.insert(name.into());
    }

    /// The pods become Ready from now on.
    pub(crate) fn ready_again(&self) {
        self.lock().never_ready.clear();
    }

    /// Creates a running pod of this address that is not the release's, unless `labels` say so.
    pub(crate) fn foreign_pod(&self, name: &str, ip: &str, labels: &Value) {
        let running = json!([{"name": "app", "image": "chat:4", "imageID": "chat@sha256:4", "ready": true,
            "restartCount": 0, "state": {"running": {}}}]);
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid of {name}"), "labels": labels},
            "spec": {"nodeName": "node-a", "containers": [{"name": "app", "image": "chat:4"}]},
            "status": {"phase": "Running", "podIP": ip, "qosClass": "Burstable", "containerStatuses": running,
                "conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.put("pods", name, pod);
    }

    /// Creates the agent of node `node-a`, which reports that each of these pods has used 70 ns and 7 bytes. Returns its port.
    pub(crate) async fn agent(&self, pods: &'static [&'static str]) -> u16 {
        let labels = json!({"app.kubernetes.io/component": "node", INSTANCE: RELEASE});
        self.foreign_pod("agent", "127.0.0.1", &labels);
        let refusals = Arc::clone(&self.lock().agent_refusals);
        pods::agent(pods, refusals).await
    }

    /// The agent refuses the next requests, as before it has started.
    pub(crate) fn agent_refuses(&self, requests: usize) {
        self.lock().agent_refusals.store(requests, Relaxed);
    }

    /// Creates a suspended Job.
    pub(crate) fn job(&self, name: &str) {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"suspend": true, "parallelism": 1, "template": {}},
        });
        self.put("jobs", name, job);
    }

    /// An object, as a client gets it.
    pub(crate) fn object(&self, kind: &str, name: &str) -> Value {
        self.lock().objects[&(kind.to_owned(), name.to_owned())].clone()
    }

    /// Creates an object again that was deleted.
    pub(crate) fn restore(&self, kind: &str, name: &str, object: Value) {
        self.put(kind, name, object);
    }

    /// Deletes an object, such as `deployments` `wsl`.
    pub(crate) fn delete(&self, kind: &str, name: &str) {
        self.remove(kind, name);
    }

    /// Refuses all requests from now on, or accepts them again.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.lock().is_away = is_away;
    }

    /// From now on the Deployment's pod stays when it is scaled down.
    pub(crate) fn lose_node(&self, deployment: &str) {
        self.lock().stuck.insert(deployment.into());
    }

    /// Ends the worker of a Job with exit code 5, after which the Job has failed.
    pub(crate) fn crash_worker(&self, job: &str) {
        let name = format!("{job}-0");
        let mut pod = self.object("pods", &name);
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 5, "reason": "Error"}});
        self.put("pods", &name, pod);
        let mut failed = self.object("jobs", job);
        failed["status"] = json!({"conditions": [{"type": "Failed", "status": "True", "reason": "PodFailurePolicy",
            "message": "exit code 5"}]});
        self.put("jobs", job, failed);
    }

    /// Scales a Deployment, as another client does.
    pub(crate) fn scale(&self, name: &str, replicas: i64) {
        let mut deployment = self.object("deployments", name);
        deployment["spec"]["replicas"] = json!(replicas);
        self.put("deployments", name, deployment);
        if replicas > 0 {
            (1..=replicas).for_each(|number| self.make_pod(name, number));
            return;
        }
        let is_stuck = self.lock().stuck.contains(name);
        if is_stuck {
            let pod_name = format!("{name}-1");
            let mut pod = self.object("pods", &pod_name);
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            self.put("pods", &pod_name, pod);
            return;
        }
        let is_of_it = |pod: &str| pod.rsplit_once('-').is_some_and(|(deployment, _)| deployment == name);
        let keys: Vec<_> =
            self.lock().objects.keys().filter(|(kind, pod)| kind == "pods" && is_of_it(pod)).cloned().collect();
        keys.iter().for_each(|(kind, pod)| self.remove(kind, pod));
    }

    /// Marks the container of a Deployment's first pod as restarted, as the kubelet does.
    pub(crate) fn restart(&self, deployment: &str) {
        self.restart_pod(&format!("{deployment}-1"));
    }

    /// Marks a pod's container as restarted.
    pub(crate) fn restart_pod(&self, name: &str) {
        let mut pod = self.object("pods", name);
        let status = &mut pod["status"]["containerStatuses"][0];
        status["restartCount"] = json!(1);
        status["lastState"] = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        self.put("pods", name, pod);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap()
    }

    fn put(&self, kind: &str, name: &str, mut object: Value) {
        let mut inner = self.lock();
        inner.version += 1;
        object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
        let key = (kind.to_owned(), name.to_owned());
        let known = inner.objects.insert(key, object.clone()).is_some();
        let event = json!({"type": if known { "MODIFIED" } else { "ADDED" }, "object": object});
        self.notify(inner, kind, event);
    }

    fn remove(&self, kind: &str, name: &str) {
        let mut inner = self.lock();
        inner.version += 1;
        let Some(object) = inner.objects.remove(&(kind.to_owned(), name.to_owned())) else { return };
        self.notify(inner, kind, json!({"type": "DELETED", "object": object}));
    }

    fn notify(&self, mut inner: MutexGuard<'_, Inner>, kind: &str, event: Value) {
        let version = inner.version;
        inner.history.push((version, kind.to_owned(), event));
        drop(inner);
        self.changed.send_replace(version);
    }

    fn make_pod(&self, deployment: &str, number: i64) {
        let (name, ip) = (format!("{deployment}-{number}"), format!("127.0.0.{number}"));
        let ready = !self.lock().never_ready.iter().any(|never| never == deployment || *never == name);
        let role = self.object("deployments", deployment)["metadata"]["labels"]["role"].clone();
        let uid = format!("uid of {name}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid,
                "labels": {"target": deployment, INSTANCE: RELEASE}},
            "spec": {"nodeName": "node-a", "containers": [{"name": role, "image": format!("{deployment}:1")}]},
            "status": {"phase": "Running", "podIP": ip, "qosClass": "Guaranteed",
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "message": "not yet"}],
                "containerStatuses": [{"name": role, "image": "i", "imageID": format!("{deployment}@sha256:1"),
                    "ready": ready, "restartCount": 0, "state": {"running": {}}}]},
        });
        self.put("pods", &name, pod);
        if !ready {
            let event = json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": NAMESPACE},
                "involvedObject": {"uid": uid}, "reason": "Unhealthy", "type": "Warning",
                "message": "connection refused", "lastTimestamp": "2026-01-01T00:00:00Z",
            });
            self.put("events", "e", event);
        }
    }
}

async fn list(State(cluster): State<Cluster>, Path(kind): Path<String>, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default();
    let selector = query.split('&').find_map(|pair| pair.strip_prefix("labelSelector="));
    let selector = selector.map(|selector| selector.replace("%3D", "=").replace("%2F", "/"));
    if query.contains("watch=true") {
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=")?.parse().ok()).unwrap_or(0);
        return watched(cluster, (kind, selector), from).into_response();
    }
    let inner = cluster.lock();
    let of_kind = inner.objects.iter().filter(|((other, _), object)| *other == kind && selects(&selector, object));
    let items: Vec<&Value> = of_kind.map(|(_, object)| object).collect();
    Json(json!({"metadata": {"resourceVersion": inner.version.to_string()}, "items": items})).into_response()
}

/// Whether an object has the label `KEY=VALUE` of a selector.
fn selects(selector: &Option<String>, object: &Value) -> bool {
    let wanted = selector.as_ref().and_then(|selector| selector.split_once('='));
    wanted.is_none_or(|(key, value)| object["metadata"]["labels"][key] == json!(value))
}

/// Streams the events after a version, one per line, until the client disconnects.
fn watched(cluster: Cluster, kind: (String, Option<String>), from: u64) -> Body {
    let changes = cluster.changed.subscribe();
    Body::from_stream(stream::unfold((cluster, kind, changes, from), |(cluster, kind, mut changes, from)| async move {
        loop {
            let next = {
                let inner = cluster.lock();
                let mut later = inner.history.iter().filter(|(version, other, event)| {
                    *version > from && *other == kind.0 && selects(&kind.1, &event["object"])
                });
                later.next().map(|(version, _, event)| (*version, format!("{event}\n")))
            };
            if let Some((version, line)) = next {
                return Some((Ok::<_, Infallible>(line), (cluster, kind, changes, version)));
            }
            changes.changed().await.ok()?;
        }
    }))
}

async fn one(State(cluster): State<Cluster>, Path((kind, name)): Path<(String, String)>) -> Response {
    match cluster.lock().objects.get(&(kind, name)) {
        Some(object) => Json(object.clone()).into_response(),
        None => error_status(StatusCode::NOT_FOUND, "NotFound"),
    }
}

/// Handles a scale request. The Deployment creates or removes its pod before the response is sent.
async fn scale(State(cluster): State<Cluster>, Path(name): Path<String>, body: String) -> Response {
    let change: Value = serde_json::from_str(&body).unwrap();
    let replicas = change["spec"]["replicas"].as_i64().unwrap();
    if !cluster.lock().objects.contains_key(&("deployments".to_owned(), name.clone())) {
        return error_status(StatusCode::NOT_FOUND, "NotFound");
    }
    cluster.lock().scaled.push((name.clone(), replicas));
    cluster.scale(&name, replicas);
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    Json(json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}))
        .into_response()
}

/// Handles the release and the suspension of a Job. Its pod is created or removed before the response is sent.
async fn suspend(State(cluster): State<Cluster>, Path((kind, name)): Path<(String, String)>, body: String) -> Response {
    let change: Value = serde_json::from_str(&body).unwrap();
    let Some(mut job) = cluster.lock().objects.get(&(kind, name.clone())).cloned() else {
        return error_status(StatusCode::NOT_FOUND, "NotFound");
    };
    job["spec"]["suspend"] = change["spec"]["suspend"].clone();
    cluster.put("jobs", &name, job.clone());
    let pod_name = format!("{name}-0");
    if change["spec"]["suspend"] == json!(true) {
        cluster.remove("pods", &pod_name);
    } else {
        let index = "batch.kubernetes.io/job-completion-index";
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod_name, "namespace": NAMESPACE, "uid": format!("uid of {pod_name}"),
                "labels": {"batch.kubernetes.io/job-name": name, INSTANCE: RELEASE}, "annotations": {index: "0"}},
            "spec": {"nodeName": "node-a", "containers": [{"name": "worker", "image": "w:1"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "worker", "image": "w", "imageID": "w",
                "ready": true, "restartCount": 0, "state": {"running": {}}}]},
        });
        cluster.put("pods", &pod_name, pod);
    }
    Json(job).into_response()
}

async fn refuse_while_away(State(cluster): State<Cluster>, request: Request, next: Next) -> Response {
    if cluster.lock().is_away {
        return error_status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
    }
    next.run(request).await
}

async fn log(Path(name): Path<String>, uri: Uri) -> Response {
    if uri.query().unwrap_or_default().contains("previous=true") {
        return error_status(StatusCode::BAD_REQUEST, "BadRequest");
    }
    format!("last log line of {name}\n").into_response()
}

fn error_status(code: StatusCode, reason: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no such thing",
        "reason": reason, "code": code.as_u16()});
    (code, Json(status)).into_response()
}
