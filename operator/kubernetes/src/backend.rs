//! Services as Deployments that are scaled up for a trial, workers as Jobs that are released for a tier.
//!
//! The chart made both; here they are only scaled and released, and put back as they were found. What was found is in the
//! [`journal`](crate::journal) before it is changed. [`service`] and [`workers`] start and stop, [`logs`] keeps what pods
//! wrote, [`pods`] tells where they ran.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bench_format::{environment::Environment, pod::Pod as PodEvidence};
use driver::{
    evidence_client::EvidenceClient,
    stage::{self, Cause, Ended, Shares, Stage, Usage},
};
use k8s_openapi::api::core::v1::Pod;
use operator::backend::{Backend, Error, ServiceSpec, Serving, Whereabouts, WorkersSpec};
use tokio::time::{Instant, timeout_at};

use crate::{
    api::{self, ClusterApi},
    cluster_file::ClusterFile,
    ends::{self, Role, ServicePod, WorkerPods},
    events::{Events, Happening},
    journal::{Found, Journal},
    quantity,
    seen::Seen,
    trouble::pod_name,
};

mod logs;
mod patience;
mod pods;
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
    /// What stands behind the service, in the order in which it was started.
    behind: Vec<Serves>,
    workers: Option<Workers>,
    /// Machines, by node; each was asked once.
    machines: BTreeMap<String, Environment>,
}

/// A pod that serves: the service, or what stands behind it.
#[derive(Debug)]
struct Serves {
    /// Its name, by which messages and readings call it.
    name: String,
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
            behind: Vec::new(),
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
            // What was changed last first: a service goes before what stands behind it.
            for found in self.journal.entries().iter().rev().cloned().collect::<Vec<_>>() {
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

    fn whereabouts(&self) -> Whereabouts {
        let pods = self.pods_evidence();
        let mut cpu_roles: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in &pods {
            let cpus = if pod.cpus_allowed.is_empty() { String::new() } else { format!("{} of ", pod.cpus_allowed) };
            cpu_roles.entry(pods::role_of(pod)).or_default().insert(format!("{cpus}{} ({})", pod.node, pod.qos_class));
        }
        let joined = |places: BTreeSet<String>| places.into_iter().collect::<Vec<_>>().join(", ");
        Whereabouts {
            machines: self.machines.values().cloned().collect(),
            cpu_roles: cpu_roles.into_iter().map(|(role, places)| (role, joined(places))).collect(),
        }
    }
}

impl Stage for Kubernetes {
    async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
        let service = self.service.as_ref().ok_or(Error::NoService)?;
        Ok(Some(service.evidence.usage().await?))
    }

    async fn inference_usage(&self) -> Result<Option<Usage>, stage::Error> {
        match self.behind.iter().find(|serves| serves.known.role == Role::Inference) {
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

    fn service_ended(&mut self) -> Option<Ended> {
        // What stands behind it first: a service may end because of that.
        self.behind.iter().chain(&self.service).find_map(|Serves { known, .. }| {
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
                cause: Cause::Outside,
            }),
        }
    }

    fn shares(&self) -> Shares {
        let pods = self.workers.iter().flat_map(|workers| workers.known.pods.values());
        let cpus = pods.filter_map(|(_, uid)| quantity::cpu_limit(&*self.pod(uid)?, "worker")).sum();
        Shares {
            worker_cpus: cpus,
            shared_with_service: false,
            isolation: self.not_promised(),
            shared_with_inference: None,
        }
    }

    fn pods(&self) -> Vec<PodEvidence> {
        self.pods_evidence()
    }
}

impl Kubernetes {
    /// Asks the API server itself, where the watches could be a moment behind.
    async fn ask_afresh(&self) -> Result<Option<Ended>, api::Error> {
        for Serves { known, .. } in self.behind.iter().chain(&self.service) {
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
