//! A service: scaled up, waited for, scaled down.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bench_format::service::Started;
use k8s_openapi::api::core::v1::Pod;
use operator::{
    backend::{Error, ServiceSpec, Serving, Usage},
    readings::ServiceClient,
};
use tokio::time::{Instant, sleep};

use super::{ECHO, Kubernetes, Service, elsewhere, is_over, logs, patience::Look};
use crate::{
    cluster_file::Target,
    ends::{self, ServicePod},
    evidence::{EvidenceClient, Surroundings},
    journal::Found,
    trouble::{self, Outlook, Trouble, container, holds},
};

/// Between two questions to a pod that is Ready: nothing announces the answer.
const POLL: Duration = Duration::from_millis(20);
/// Longest wait for a Ready pod to answer on its ports.
const ANSWERS: Duration = Duration::from_secs(20);

impl Kubernetes {
    pub(super) async fn start_service_pod(&mut self, spec: &ServiceSpec) -> Result<Serving, Error> {
        let no_target = || Error::Elsewhere {
            what: format!("find the Deployment of {}", spec.trial),
            reason: "cluster.yaml has none; the plan changed since it was written".into(),
        };
        let target = self.cluster.target(&spec.trial).cloned().ok_or_else(no_target)?;
        self.wait_until_gone("the service", |pod| self.is_of_a_service(pod)).await?;
        let deployment = self.api.deployment(&target.deployment).await.map_err(elsewhere)?;
        let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        self.note(Found::Deployment { name: target.deployment.clone(), replicas })?;
        if replicas != 0 {
            // Somebody left it running: a trial wants a fresh process.
            self.scale(&target.deployment, 0).await?;
            self.wait_until_gone("the service", |pod| self.is_of_a_service(pod)).await?;
        }
        self.scale(&target.deployment, target.replicas).await?;
        match self.serving(&target, spec).await {
            Ok((serving, service)) => {
                self.service = Some(service);
                Ok(serving)
            }
            Err(error) => {
                let error = self.with_last_words(error, &target, &spec.log).await;
                // What can't be scaled down now is put back at the end of the climb.
                let _ = self.api.scale(&target.deployment, 0).await;
                Err(error)
            }
        }
    }

    pub(super) async fn stop_service_pod(&mut self) {
        let Some(service) = self.service.take() else { return };
        logs::keep(&self.api, &service.known.pod, "service", &service.log).await;
        if let Err(error) = self.api.scale(&service.known.deployment, 0).await {
            eprintln!("ladder: {error}");
        }
    }

    /// Scales, and waits until the watches show it: from then on another number is somebody else's.
    async fn scale(&self, deployment: &str, replicas: i32) -> Result<(), Error> {
        self.api.scale(deployment, replicas).await.map_err(elsewhere)?;
        let shown = self.wait_for(Instant::now() + ECHO, |seen| {
            let now = seen.deployment(deployment)?.spec.as_ref()?.replicas?;
            (now == replicas).then_some(())
        });
        shown.await.ok_or_else(|| {
            Error::Interrupted(format!(
                "Deployment {deployment} doesn't keep {replicas} replicas: somebody else sets them"
            ))
        })
    }

    async fn serving(&mut self, target: &Target, spec: &ServiceSpec) -> Result<(Serving, Service), Error> {
        let not_ready = |reason: String| Error::NotReady { name: spec.name.clone(), reason, log: String::new() };
        let pod = self.ready_pod(target, &spec.name).await?;
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default();
        let ip: IpAddr = ip.parse().map_err(|_| not_ready(format!("its pod has no usable address (\"{ip}\")")))?;
        let at = |port: u16| SocketAddr::new(ip, port).to_string();
        let metrics = ServiceClient::new(&at(target.ports.metrics));
        let evidence = EvidenceClient::new(&at(target.ports.evidence));
        let deadline = Instant::now() + ANSWERS;
        while !metrics.ready().await {
            if Instant::now() >= deadline {
                let path = format!("http://{}/readyz", at(target.ports.metrics));
                return Err(not_ready(format!(
                    "its pod is Ready but {path} did not answer 200 within {} s",
                    ANSWERS.as_secs()
                )));
            }
            sleep(POLL).await;
        }
        let (surroundings, usage) =
            first_evidence(&evidence, deadline).await.map_err(|error| not_ready(error.to_string()))?;
        let stats = metrics.stats().await.map_err(|error| not_ready(error.to_string()))?;
        if stats.version.is_empty() {
            return Err(not_ready("its /stats names no version; without one nothing is measured".into()));
        }
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let mut machine = surroundings.environment;
        machine.host.clone_from(&node);
        self.machines.entry(node).or_insert(machine);
        let image = container(&pod, "service").map(|status| status.image_id.clone()).unwrap_or_default();
        let known = as_it_is(target, &pod);
        let started = Started {
            event: "ready".into(),
            address: at(target.ports.ws),
            metrics_address: at(target.ports.metrics),
            pid: usage.pid,
        };
        let versions =
            [(spec.name.clone(), stats.version), (format!("image of {}", spec.name), image)].into_iter().collect();
        let cpus_allowed = surroundings.service_cpus_allowed;
        Ok((Serving { started, versions }, Service { known, evidence, cpus_allowed, log: spec.log.clone() }))
    }

    /// Waits for the one Ready pod.
    async fn ready_pod(&self, target: &Target, name: &str) -> Result<Arc<Pod>, Error> {
        let deployment = &target.deployment;
        self.await_patiently(name, |seen| {
            let replicas = seen.deployment(deployment).and_then(|found| found.spec.as_ref()?.replicas);
            if replicas != Some(target.replicas) {
                let now = replicas.map_or("gone".into(), |replicas| format!("at {replicas} replicas"));
                return Look::Interrupted(format!(
                    "Deployment {deployment} is {now}, by somebody else, while its pod was to start"
                ));
            }
            let events = seen.events();
            match self.pod_of(deployment) {
                Some(pod) if holds(&pod, "Ready") => Look::Done(pod),
                Some(pod) => Look::NotYet(trouble::of_pod(&pod, &events)),
                None => {
                    let warning = trouble::last_warning(deployment, &events);
                    let warning = warning.unwrap_or_else(|| "no event says why".into());
                    let words = format!("Deployment {deployment} made no pod: {warning}");
                    Look::NotYet(Trouble { words, outlook: Outlook::Open })
                }
            }
        })
        .await
    }

    /// A Deployment's pod; of several the newest that isn't over.
    fn pod_of(&self, deployment: &str) -> Option<Arc<Pod>> {
        let pods = self.seen.pods().into_iter().filter(|pod| self.is_of_deployment(pod, deployment));
        pods.max_by_key(|pod| (!is_over(pod), pod.metadata.creation_timestamp.as_ref().map(|time| time.0)))
    }

    /// Adds what the service wrote last.
    async fn with_last_words(&self, error: Error, target: &Target, log: &Path) -> Error {
        let Error::NotReady { name, reason, .. } = error else { return error };
        let pod = self.pod_of(&target.deployment);
        let ran = |pod: &Pod| container(pod, "service").is_some_and(ends::has_run);
        if let Some(pod) = pod.filter(|pod| ran(pod)) {
            logs::keep(&self.api, &trouble::pod_name(&pod), "service", log).await;
        }
        Error::NotReady { name, reason, log: logs::last_words(log) }
    }
}

/// What the container beside a service says first; it may come up after the service.
async fn first_evidence(evidence: &EvidenceClient, deadline: Instant) -> Result<(Surroundings, Usage), Error> {
    loop {
        match (evidence.surroundings().await, evidence.usage().await) {
            (Ok(surroundings), Ok(usage)) => return Ok((surroundings, usage)),
            (Err(error), _) | (_, Err(error)) if Instant::now() >= deadline => return Err(error),
            _ => sleep(POLL).await,
        }
    }
}

/// A pod as it is when it becomes ready: what differs later is somebody's doing.
fn as_it_is(target: &Target, pod: &Pod) -> ServicePod {
    ServicePod {
        deployment: target.deployment.clone(),
        replicas: target.replicas,
        pod: trouble::pod_name(pod),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        restarts: container(pod, "service").map_or(0, |status| status.restart_count),
    }
}
