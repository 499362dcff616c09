//! A backend that runs services as Deployments, scaled up for a trial, and workers as Jobs, released for a tier or
//! for a trial of a search.
//!
//! The chart creates both; the backend only scales and releases them, and restores them at the end. The original values
//! are written to the [`journal`](crate::journal) before a change. [`service`] and [`workers`] start and stop pods,
//! [`restore`] restores original values, [`logs`] stores logs, [`pods`] reports where pods ran, [`nodes`] reads the nodes,
//! [`isolation`] tells whether the pods are apart, [`described`] finds a service of the user's own, [`errors`] words errors.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bench_format::{
    environment::{Environment, NodeFacts},
    pod::Pod as PodEvidence,
    result::ThreadReading,
    trial::ClockOffset,
};
use driver::{
    evidence_client::{self, EvidenceClient},
    inference_client::InferenceClient,
    nodes::{MachineSnapshot, NodeClients},
    stage::{self, Details, Ended, Shares, Stage, Usage},
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use operator::backend::{Backend, Error, Placement, ServiceSpec, StartedService, WorkersSpec};
use tokio::time::{Instant, timeout_at};

use crate::{
    api::{self, ClusterApi},
    caches::Caches,
    cluster_file::ClusterFile,
    described_pod::is_over,
    events::Events,
    journal::Journal,
    pod_end::{self, ServicePod, WorkerPods},
    pod_failure::pod_name,
    quantity,
};

use described::DescribedService;
pub use errors::describe_volume_error;
use errors::found;

mod deployment_start;
mod described;
mod errors;
mod isolation;
mod logs;
mod nodes;
mod pods;
mod readiness;
mod restore;
mod service;
mod workers;

/// Longest wait until a watch shows a change that we made.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the pods of an earlier process or tier to go.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(90);
/// The companion that publishes in the place of its service, as `companions` of the chart has it.
const PUBLISHER: &str = "publisher";
/// Longest time until the end of a container shows in its pod.
const NOTICE_TIME: Duration = Duration::from_secs(5);

/// The Deployments and Jobs of a Helm release in a cluster.
#[derive(Debug)]
pub struct Kubernetes {
    cluster: Arc<ClusterFile>,
    api: ClusterApi,
    caches: Caches,
    journal: Journal,
    /// Gets an Event when something could not be restored.
    events: Events,
    /// Longest wait for a pod to run or become ready, including image pulls.
    start_deadline: Duration,
    /// The pods of the service, one for each of its replicas; empty if it doesn't run.
    service: Vec<ServingPod>,
    /// The service that only the plan describes, instead of a pod of the release.
    described: Option<DescribedService>,
    /// Deployments and Jobs whose pods have run, so that the cluster has had room for them.
    have_run: BTreeSet<String>,
    /// Jobs of which a worker has crashed; they are not released again.
    crashed_jobs: BTreeSet<String>,
    /// The inference service and the companions of the service, in the order in which they were started.
    dependencies: Vec<ServingPod>,
    workers: Option<Workers>,
    /// The machines, by node name; each is read once.
    machines: BTreeMap<String, Environment>,
    /// What the cluster says of the nodes, by name; each is read once.
    nodes: BTreeMap<String, NodeFacts>,
    node_clients: NodeClients,
}

/// A pod that serves: of the service, its inference service or a companion.
#[derive(Debug)]
struct ServingPod {
    /// Name in messages and readings.
    name: String,
    known: ServicePod,
    evidence: EvidenceClient,
    /// Where it responds with its own counters, as `host:port`; empty if it has none.
    metrics_address: String,
    cpus_allowed: String,
    log: PathBuf,
}

/// The workers that run or are being started.
#[derive(Debug)]
struct Workers {
    known: WorkerPods,
    logs: PathBuf,
}

impl Kubernetes {
    /// A backend for a release. `machine` is the one on which the operator runs.
    pub fn new(
        cluster: Arc<ClusterFile>,
        api: ClusterApi,
        caches: Caches,
        journal: Journal,
        events: Events,
        start_deadline: Duration,
        machine: Environment,
    ) -> Self {
        let machines = [(machine.host.clone(), machine)].into();
        Self {
            cluster,
            api,
            caches,
            journal,
            events,
            start_deadline,
            service: Vec::new(),
            described: None,
            have_run: BTreeSet::new(),
            crashed_jobs: BTreeSet::new(),
            dependencies: Vec::new(),
            workers: None,
            machines,
            nodes: BTreeMap::new(),
            node_clients: NodeClients::default(),
        }
    }

    /// Calls `look` at every change until it returns a value; `None` when the deadline passes first.
    async fn wait_for<T>(&self, deadline: Instant, mut look: impl FnMut(&Caches) -> Option<T>) -> Option<T> {
        let mut changes = self.caches.changes();
        loop {
            changes.mark_unchanged();
            if let Some(result) = look(&self.caches) {
                return Some(result);
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return None;
            }
        }
    }

    /// Waits until no pod of a kind is left, before the next ones are started.
    /// A pod stays as long as its node is lost: it may still run there, and load the service.
    async fn wait_until_removed(&self, owner: &str, ours: impl Fn(&Pod) -> bool) -> Result<(), Error> {
        self.wait_until_none(owner, |caches| caches.pods().into_iter().filter(|pod| ours(pod)).collect()).await
    }

    /// Waits until none of these pods is left, apart from those that have ended.
    async fn wait_until_none(&self, owner: &str, pods: impl Fn(&Caches) -> Vec<Arc<Pod>>) -> Result<(), Error> {
        let left = |caches: &Caches| pods(caches).into_iter().filter(|pod| !is_over(pod)).map(|pod| leftover(&pod));
        let removed =
            self.wait_for(Instant::now() + REMOVAL_TIMEOUT, |caches| left(caches).next().is_none().then_some(())).await;
        removed.ok_or_else(|| {
            let names: Vec<String> = left(&self.caches).collect();
            let seconds = REMOVAL_TIMEOUT.as_secs();
            Error::Interrupted(format!(
                "the previous pods of {owner} are there after {seconds} s: {}",
                names.join(", ")
            ))
        })
    }

    /// Whether a pod belongs to one of our Deployments, by their label selectors.
    fn is_of_a_service(&self, pod: &Pod) -> bool {
        self.cluster.deployments().any(|name| self.is_of_deployment(pod, name))
    }

    fn is_of_deployment(&self, pod: &Pod, name: &str) -> bool {
        let Some(deployment) = self.caches.deployment(name) else { return false };
        let Some(selected_labels) = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.as_ref())
        else {
            return false;
        };
        let labels = pod.metadata.labels.as_ref();
        !selected_labels.is_empty()
            && selected_labels.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    }

    fn is_of_a_job(&self, pod: &Pod) -> bool {
        pod_end::job_of(pod).is_some_and(|job| self.cluster.job_names().any(|known| known == job))
    }

    fn pod(&self, uid: &str) -> Option<Arc<Pod>> {
        self.caches.pods().into_iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid))
    }
}

impl Backend for Kubernetes {
    async fn start_service(&mut self, spec: &ServiceSpec) -> Result<StartedService, Error> {
        match &spec.service.described {
            Some(described) => self.find_described(spec, described).await,
            None => self.start_service_pod(spec).await,
        }
    }

    async fn stop_service(&mut self) {
        self.leave_described().await;
        self.stop_service_pod().await;
    }

    async fn start_workers(&mut self, spec: &WorkersSpec) -> Result<(), Error> {
        self.release_workers(spec).await
    }

    async fn stop_workers(&mut self) {
        self.suspend_workers().await;
    }

    async fn put_back(&mut self) -> Result<(), Error> {
        self.stop_workers().await;
        self.stop_service().await;
        self.restore_all().await
    }

    fn placement(&self) -> Placement {
        let pods = self.pods_evidence();
        let mut cpu_roles: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in &pods {
            let cpus = if pod.cpus_allowed.is_empty() { String::new() } else { format!("{} of ", pod.cpus_allowed) };
            cpu_roles.entry(pods::role_of(pod)).or_default().insert(format!("{cpus}{} ({})", pod.node, pod.qos_class));
        }
        if let Some(described) = &self.described {
            cpu_roles.insert("service".into(), [described.placement()].into());
        }
        let joined = |places: BTreeSet<String>| places.into_iter().collect::<Vec<_>>().join(", ");
        Placement {
            machines: self.machines.values().cloned().collect(),
            cpu_roles: cpu_roles.into_iter().map(|(role, places)| (role, joined(places))).collect(),
            nodes: self.nodes.clone(),
        }
    }
}

impl Stage for Kubernetes {
    async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
        if let Some(described) = &self.described {
            return Ok(self.usage_of_described(described).await?);
        }
        let usages = self.usages().await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Some(Usage::sum(usages).ok_or(Error::NoService)?))
    }

    async fn inference_usage(&self) -> Result<Option<Usage>, stage::Error> {
        match self.inference() {
            Some(inference) => Ok(Some(inference.evidence.usage().await?)),
            None => Ok(None),
        }
    }

    async fn companions_usage(&self) -> Result<BTreeMap<String, Usage>, stage::Error> {
        let mut used = BTreeMap::new();
        for companion in self.companions() {
            used.insert(companion.name.clone(), companion.evidence.usage().await?);
        }
        Ok(used)
    }

    async fn details(&self) -> Details {
        let mut details = Details { service: self.threads_of_service().await, ..Details::default() };
        if self.service.len() > 1 {
            let usages = self.usages().await.into_iter().zip(&self.service);
            details.replicas.extend(usages.filter_map(|(usage, pod)| Some((pod.known.pod.clone(), usage.ok()?))));
        }
        for companion in self.companions() {
            details.companions.extend(companion.evidence.threads().await.map(|read| (companion.name.clone(), read)));
        }
        if let Some(simulator) = self.inference() {
            details.inference = simulator.evidence.threads().await;
            details.inference_counts = InferenceClient::new(&simulator.metrics_address).counts().await;
        }
        details
    }

    async fn publisher_clock(&self) -> Option<ClockOffset> {
        let publisher = self.companions().find(|companion| companion.name == PUBLISHER);
        publisher.or_else(|| self.service.first())?.evidence.clock().await
    }

    async fn machine(&self) -> Option<MachineSnapshot> {
        self.read_nodes().await.map(MachineSnapshot::Nodes)
    }

    fn service_ended(&mut self) -> Option<Ended> {
        if let Some(described) = &self.described {
            let deployment = described.deployment().and_then(|name| self.caches.deployment(name));
            return described.end(deployment.as_deref(), &self.caches.described_pods());
        }
        // Inference and companions first: a service may end because of them.
        self.dependencies.iter().chain(&self.service).find_map(|ServingPod { known, .. }| {
            pod_end::of_service(
                known,
                self.caches.deployment(&known.deployment).as_deref(),
                self.pod(&known.uid).as_deref(),
            )
        })
    }

    fn worker_ended(&mut self) -> Option<Ended> {
        let known = &self.workers.as_ref()?.known;
        pod_end::of_workers(known, self.caches.job(&known.job).as_deref(), &self.caches.pods())
    }

    async fn confirm(&mut self) -> Option<Ended> {
        if let Some(ended) = self.service_ended().or_else(|| self.worker_ended()) {
            return Some(ended);
        }
        match self.check_api_server().await {
            Ok(ended) => ended,
            Err(error) => Some(Ended::outside(format!("failed to check whether all pods ran to the end: {error}"))),
        }
    }

    fn has_remote_workers(&self) -> bool {
        true
    }

    fn notice_time(&self) -> Duration {
        NOTICE_TIME
    }

    fn shares(&self) -> Shares {
        let pods = self.workers.iter().flat_map(|workers| workers.known.pods.values());
        let cpus = pods.filter_map(|(_, uid)| quantity::cpu_limit(&*self.pod(uid)?, "worker")).sum();
        Shares {
            worker_cpus: cpus,
            shared_with_service: false,
            isolation: self.missing_isolation(),
            shared_with_inference: None,
        }
    }

    fn pods(&self) -> Vec<PodEvidence> {
        self.pods_evidence()
    }
}

impl Kubernetes {
    /// CPU and memory of each pod of the service.
    async fn usages(&self) -> Vec<Result<Usage, evidence_client::Error>> {
        join_all(self.service.iter().map(|pod| pod.evidence.usage())).await
    }

    /// The threads of all pods of the service; `None` if those of one can't be read.
    async fn threads_of_service(&self) -> Option<Vec<ThreadReading>> {
        let read = join_all(self.service.iter().map(|pod| pod.evidence.threads())).await;
        pods::threads_of_all(read)
    }

    /// Reads the current state from the API server, because the watches may lag behind.
    async fn check_api_server(&self) -> Result<Option<Ended>, api::Error> {
        for ServingPod { known, .. } in self.dependencies.iter().chain(&self.service) {
            let deployment = found(self.api.deployment(&known.deployment).await)?;
            let pod = found(self.api.pod(&known.pod).await)?;
            if let Some(ended) = pod_end::of_service(known, deployment.as_ref(), pod.as_ref()) {
                return Ok(Some(ended));
            }
        }
        if let Some(described) = &self.described
            && let Some(ended) = self.check_described(described).await?
        {
            return Ok(Some(ended));
        }
        if let Some(Workers { known, .. }) = &self.workers {
            let job = found(self.api.job(&known.job).await)?;
            let pods: Vec<Arc<Pod>> = self.api.pods_of_job(&known.job).await?.into_iter().map(Arc::new).collect();
            return Ok(pod_end::of_workers(known, job.as_ref(), &pods));
        }
        Ok(None)
    }
}

/// A pod that should be gone, with its node.
fn leftover(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let state = if pod.metadata.deletion_timestamp.is_some() { "Terminating" } else { "not deleted" };
    format!("{} ({state} on {node})", pod_name(pod))
}
