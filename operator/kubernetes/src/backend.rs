//! Services as Deployments that are scaled up for a trial, workers as Jobs that are released for a tier.
//!
//! The chart made both; here they are only scaled and released, and put back as they were found. What was found is in the
//! [`journal`](crate::journal) before it is changed. [`service`] and [`workers`] start and stop, [`logs`] keeps what pods
//! wrote.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bench_format::{
    environment::Environment,
    pod::{Pod as PodEvidence, PodRole},
};
use k8s_openapi::api::core::v1::Pod;
use operator::backend::{Backend, Ended, Error, ServiceSpec, Serving, Shares, Usage, Whereabouts, WorkersSpec};
use tokio::time::{Instant, timeout_at};

use crate::{
    api::{self, ClusterApi},
    cluster_file::ClusterFile,
    ends::{self, Role, ServicePod, WorkerPods, index_of},
    events::{Events, Happening},
    evidence::EvidenceClient,
    journal::{Found, Journal},
    quantity,
    seen::Seen,
    trouble::{container, pod_name},
};

mod logs;
mod patience;
mod service;
mod workers;

/// How long it may take an API server to show a change of ours in its watches.
const ECHO: Duration = Duration::from_secs(10);
/// Longest wait for pods of an earlier process or tier to go.
const GONE: Duration = Duration::from_secs(90);
/// Tries to put everything back before it is left to the next start.
const PUT_BACK_TRIES: u32 = 2;

/// A release in a cluster.
#[derive(Debug)]
pub struct Kubernetes {
    cluster: Arc<ClusterFile>,
    api: ClusterApi,
    seen: Seen,
    journal: Journal,
    /// Told what could not be put back.
    events: Events,
    /// Longest wait for a pod to run or become ready, images included.
    start_deadline: Duration,
    service: Option<Serves>,
    /// What stands behind the service, if anything does.
    inference: Option<Serves>,
    workers: Option<Workers>,
    /// Machines, by node; each was asked once.
    machines: BTreeMap<String, Environment>,
}

/// A pod that serves: the service, or the inference behind it.
#[derive(Debug)]
struct Serves {
    known: ServicePod,
    evidence: EvidenceClient,
    cpus_allowed: String,
    log: PathBuf,
}

/// The workers that run, or are on their way.
#[derive(Debug)]
struct Workers {
    known: WorkerPods,
    logs: PathBuf,
}

impl Kubernetes {
    /// A backend for a release; `machine` is the one on which we run ourselves.
    pub fn new(
        cluster: Arc<ClusterFile>,
        api: ClusterApi,
        seen: Seen,
        journal: Journal,
        events: Events,
        start_deadline: Duration,
        machine: Environment,
    ) -> Self {
        let machines = [(machine.host.clone(), machine)].into();
        Self {
            cluster,
            api,
            seen,
            journal,
            events,
            start_deadline,
            service: None,
            inference: None,
            workers: None,
            machines,
        }
    }

    /// Waits for a change until `look` has an answer; nothing when the deadline passes first.
    async fn wait_for<T>(&self, deadline: Instant, mut look: impl FnMut(&Seen) -> Option<T>) -> Option<T> {
        let mut changes = self.seen.changes();
        loop {
            changes.mark_unchanged();
            if let Some(answer) = look(&self.seen) {
                return Some(answer);
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return None;
            }
        }
    }

    /// Waits until no pod of a kind is left; they went before we start the next.
    async fn wait_until_gone(&self, whose: &str, ours: impl Fn(&Pod) -> bool) -> Result<(), Error> {
        let left =
            |seen: &Seen| seen.pods().into_iter().filter(|pod| ours(pod) && !is_over(pod)).map(|pod| pod_name(&pod));
        let gone = self.wait_for(Instant::now() + GONE, |seen| left(seen).next().is_none().then_some(())).await;
        gone.ok_or_else(|| {
            let names: Vec<String> = left(&self.seen).collect();
            let reason = format!("still there after {} s: {}", GONE.as_secs(), names.join(", "));
            Error::Elsewhere { what: format!("wait for the pods of {whose} before to go"), reason }
        })
    }

    /// Labels by which the pods of every Deployment of ours are known.
    fn is_of_a_service(&self, pod: &Pod) -> bool {
        self.cluster.deployments().any(|name| self.is_of_deployment(pod, name))
    }

    fn is_of_deployment(&self, pod: &Pod, name: &str) -> bool {
        let Some(deployment) = self.seen.deployment(name) else { return false };
        let Some(wanted) = deployment.spec.as_ref().and_then(|spec| spec.selector.match_labels.as_ref()) else {
            return false;
        };
        let labels = pod.metadata.labels.as_ref();
        !wanted.is_empty() && wanted.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    }

    fn is_of_a_job(&self, pod: &Pod) -> bool {
        ends::job_of(pod).is_some_and(|job| self.cluster.jobs.iter().any(|known| known.job == job))
    }

    fn note(&mut self, found: Found) -> Result<(), Error> {
        self.journal.note(found).map_err(|error| Error::Elsewhere {
            what: "note what was found before changing it".into(),
            reason: io_words(&error),
        })
    }

    fn pod(&self, uid: &str) -> Option<Arc<Pod>> {
        self.seen.pods().into_iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid))
    }

    /// Puts one thing back.
    async fn restore(&self, found: &Found) -> Result<(), api::Error> {
        let restored = match found {
            Found::Deployment { name, replicas } => self.api.scale(name, *replicas).await,
            Found::Job { name, suspend } => self.api.suspend(name, *suspend).await,
        };
        match restored {
            // Nothing is left that could be put back.
            Err(api::Error::NotFound { .. }) => Ok(()),
            // An apply to a Job that is gone would create it, and is refused for lack of a template.
            Err(api::Error::Refused { reason, .. }) if reason.contains("spec.template") => Ok(()),
            other => other,
        }
    }

    fn pods_evidence(&self) -> Vec<PodEvidence> {
        let serving = self.service.iter().chain(&self.inference).filter_map(|serves| {
            let pod = self.pod(&serves.known.uid)?;
            let role = if serves.known.role == Role::Service { PodRole::Service } else { PodRole::Inference };
            let cpus_allowed = serves.cpus_allowed.clone();
            Some(PodEvidence { cpus_allowed, ..pod_evidence(&pod, role, None) })
        });
        let workers = self
            .workers
            .iter()
            .flat_map(|workers| &workers.known.pods)
            .filter_map(|(&index, (_, uid))| Some(pod_evidence(&*self.pod(uid)?, PodRole::Worker, Some(index))));
        serving.chain(workers).collect()
    }
}

impl Backend for Kubernetes {
    async fn start_service(&mut self, spec: &ServiceSpec) -> Result<Serving, Error> {
        self.start_service_pod(spec).await
    }

    async fn stop_service(&mut self) {
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
        let mut last = None;
        for _ in 0..PUT_BACK_TRIES {
            last = None;
            for found in self.journal.entries().to_vec() {
                match self.restore(&found).await {
                    Ok(()) => self.journal.forget(&found),
                    Err(error) => last = Some(error),
                }
            }
            if last.is_none() {
                return Ok(());
            }
        }
        let reason = last.map(|error| error.to_string()).unwrap_or_default();
        let words = format!("not everything was put back, the next start tries again: {reason}");
        eprintln!("ladder: {words}");
        self.events.tell(Happening::NotPutBack { words });
        Err(Error::Elsewhere { what: "put everything back".into(), reason })
    }

    async fn service_usage(&self) -> Result<Option<Usage>, Error> {
        let service = self.service.as_ref().ok_or(Error::NoService)?;
        service.evidence.usage().await.map(Some)
    }

    async fn inference_usage(&self) -> Result<Option<Usage>, Error> {
        match &self.inference {
            Some(inference) => inference.evidence.usage().await.map(Some),
            None => Ok(None),
        }
    }

    fn service_ended(&mut self) -> Option<Ended> {
        // Inference first: a service may end because of it.
        self.inference.iter().chain(&self.service).find_map(|Serves { known, .. }| {
            ends::of_service(known, self.seen.deployment(&known.deployment).as_deref(), self.pod(&known.uid).as_deref())
        })
    }

    fn worker_ended(&mut self) -> Option<Ended> {
        let known = &self.workers.as_ref()?.known;
        ends::of_workers(known, self.seen.job(&known.job).as_deref(), &self.seen.pods())
    }

    async fn confirm(&mut self) -> Option<Ended> {
        if let Some(ended) = self.service_ended().or_else(|| self.worker_ended()) {
            return Some(ended);
        }
        match self.ask_afresh().await {
            Ok(ended) => ended,
            Err(error) => Some(Ended {
                words: format!("nobody can tell whether all ran to the end: {error}"),
                cause: operator::backend::Cause::Outside,
            }),
        }
    }

    fn shares(&self) -> Shares {
        let pods = self.workers.iter().flat_map(|workers| workers.known.pods.values());
        let cpus = pods.filter_map(|(_, uid)| quantity::cpu_limit(&*self.pod(uid)?, "worker")).sum();
        let service = self.service.as_ref().and_then(|service| self.pod(&service.known.uid));
        let class = service.as_ref().map(|pod| qos_class(pod)).unwrap_or_default();
        let isolation = (class != "Guaranteed").then(|| {
            format!("the service's pod has quality of service {class}: its CPU isn't promised; set requests = limits")
        });
        Shares { worker_cpus: cpus, isolation, shared_with_inference: None }
    }

    fn whereabouts(&self) -> Whereabouts {
        let pods = self.pods_evidence();
        let mut cpu_roles: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in &pods {
            let role = container_of(pod.role);
            let cpus = if pod.cpus_allowed.is_empty() { String::new() } else { format!("{} of ", pod.cpus_allowed) };
            cpu_roles.entry(role.into()).or_default().insert(format!("{cpus}{} ({})", pod.node, pod.qos_class));
        }
        let joined = |places: BTreeSet<String>| places.into_iter().collect::<Vec<_>>().join(", ");
        Whereabouts {
            machines: self.machines.values().cloned().collect(),
            cpu_roles: cpu_roles.into_iter().map(|(role, places)| (role, joined(places))).collect(),
            pods,
        }
    }
}

impl Kubernetes {
    /// Asks the API server itself, where the watches could be a moment behind.
    async fn ask_afresh(&self) -> Result<Option<Ended>, api::Error> {
        for Serves { known, .. } in self.inference.iter().chain(&self.service) {
            let deployment = found(self.api.deployment(&known.deployment).await)?;
            let pod = found(self.api.pod(&known.pod).await)?;
            if let Some(ended) = ends::of_service(known, deployment.as_ref(), pod.as_ref()) {
                return Ok(Some(ended));
            }
        }
        if let Some(Workers { known, .. }) = &self.workers {
            let job = found(self.api.job(&known.job).await)?;
            let pods: Vec<Arc<Pod>> = self.api.pods_of_job(&known.job).await?.into_iter().map(Arc::new).collect();
            return Ok(ends::of_workers(known, job.as_ref(), &pods));
        }
        Ok(None)
    }
}

/// What was asked for, or that it isn't there.
fn found<T>(answer: Result<T, api::Error>) -> Result<Option<T>, api::Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(api::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn elsewhere(error: api::Error) -> Error {
    let text = error.to_string();
    let (what, reason) =
        text.strip_prefix("failed to ").and_then(|text| text.split_once(": ")).unwrap_or(("do it", &text));
    Error::Elsewhere { what: what.into(), reason: reason.into() }
}

/// An error of the results volume, with the way out where there is one.
pub fn io_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("the results volume is full ({error}): delete old runs or enlarge the claim")
        }
        io::ErrorKind::ReadOnlyFilesystem => format!("the results volume can't be written ({error})"),
        _ => error.to_string(),
    }
}

/// A pod that uses nothing any more, though it may still be listed.
fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    ["Succeeded", "Failed"].contains(&phase)
}

fn qos_class(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.qos_class.clone()).unwrap_or_default()
}

/// The container that does a pod's work, as the chart names it.
fn container_of(role: PodRole) -> &'static str {
    match role {
        PodRole::Service => "service",
        PodRole::Inference => "inference",
        PodRole::Worker => "worker",
    }
}

fn pod_evidence(pod: &Pod, role: PodRole, worker: Option<u32>) -> PodEvidence {
    let name = container_of(role);
    let status = container(pod, name);
    let asked = pod.spec.iter().flat_map(|spec| &spec.containers).find(|container| container.name == name);
    PodEvidence {
        name: pod_name(pod),
        role,
        worker: worker.or_else(|| index_of(pod)),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        qos_class: qos_class(pod),
        cpus_allowed: String::new(),
        image: asked.and_then(|container| container.image.clone()).unwrap_or_default(),
        image_digest: status.map(|status| status.image_id.clone()).unwrap_or_default(),
        restarts: status.map_or(0, |status| u32::try_from(status.restart_count).unwrap_or(0)),
        throttled_periods: None,
    }
}
