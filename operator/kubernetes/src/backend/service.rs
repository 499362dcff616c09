//! Starts and stops a service with its inference service and companions: scales their Deployments and waits for their
//! pods.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bench_format::service::Started;
use driver::{
    evidence_client::{self, EvidenceClient, Surroundings},
    service_client::ServiceClient,
    stage::Usage,
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use operator::backend::{Error, InferenceSpec, ServiceSpec, Serving};
use tokio::time::{Instant, sleep};

use super::{ECHO, Kubernetes, Serves, elsewhere, is_over, logs, patience::Look};
use crate::{
    cluster_file::{CompanionTarget, InferenceTarget, Target},
    journal::Original,
    pod_end::{self, Role, ServicePod},
    pod_failure::{self, Outlook, PodFailure, container, holds},
};

/// Interval between two requests to a pod that is Ready but does not respond yet.
const POLL: Duration = Duration::from_millis(20);
/// Longest wait for a Ready pod to respond on its ports.
const ANSWERS: Duration = Duration::from_secs(20);

/// A Deployment whose single pod is started for a trial.
struct StartedDeployment<'a> {
    role: Role,
    /// Name of the service in error messages and versions.
    name: &'a str,
    deployment: &'a str,
    replicas: i32,
    /// The port of `/readyz`; absent where the pod has no such path.
    ready_port: Option<u16>,
    evidence_port: u16,
    log: PathBuf,
}

impl<'a> StartedDeployment<'a> {
    fn of_service(target: &'a Target, spec: &'a ServiceSpec) -> Self {
        Self {
            role: Role::Service,
            name: &spec.name,
            deployment: &target.deployment,
            replicas: target.replicas,
            ready_port: Some(target.ports.metrics),
            evidence_port: target.ports.evidence,
            log: spec.log.clone(),
        }
    }

    fn of_inference(target: &'a InferenceTarget, spec: &'a InferenceSpec) -> Self {
        Self {
            role: Role::Inference,
            name: &spec.name,
            deployment: &target.deployment,
            replicas: 1,
            ready_port: Some(target.ports.http),
            evidence_port: target.ports.evidence,
            log: spec.log.clone(),
        }
    }

    fn of_companion(target: &'a CompanionTarget, spec: &ServiceSpec) -> Self {
        Self {
            role: Role::Companion,
            name: &target.name,
            deployment: &target.deployment,
            replicas: 1,
            ready_port: target.ports.metrics,
            evidence_port: target.ports.evidence,
            log: spec.log.with_file_name(format!("companion-{}.log", target.name)),
        }
    }

    fn called(&self) -> String {
        match self.role {
            Role::Companion => format!("companion {}", self.name),
            Role::Service | Role::Inference => self.name.into(),
        }
    }

    fn not_ready(&self, reason: String) -> Error {
        Error::NotReady { name: self.called(), reason, log: String::new() }
    }
}

/// A pod that was started and responds.
struct Up {
    ip: IpAddr,
    /// Process id of its main process.
    pid: u32,
    /// Versions known from the pod, by program.
    versions: BTreeMap<String, String>,
    serves: Serves,
}

impl Kubernetes {
    /// Starts the inference service and the companions, each when the one before is ready, and then the service.
    pub(super) async fn start_service_pod(&mut self, spec: &ServiceSpec) -> Result<Serving, Error> {
        let no_target = || Error::Elsewhere {
            what: format!("find the Deployment of {}", spec.trial),
            reason: "cluster.yaml has none; the plan changed since it was written".into(),
        };
        let target = self.cluster.target(&spec.trial).cloned().ok_or_else(no_target)?;
        self.wait_until_gone("the service", |pod| self.is_of_a_service(pod)).await?;
        let serving = self.start_all(&target, spec).await;
        if serving.is_err() {
            self.stop_service_pod().await;
        }
        serving
    }

    async fn start_all(&mut self, target: &Target, spec: &ServiceSpec) -> Result<Serving, Error> {
        // Inference first, so that the service can reach it from its first request on.
        let mut versions = BTreeMap::new();
        if let Some((target, spec)) = target.inference.as_ref().zip(spec.inference.as_ref()) {
            let image = spec.inference.command.concat();
            versions.extend(self.start_behind(&StartedDeployment::of_inference(target, spec), image).await?);
        }
        for companion in &target.companions {
            let place = StartedDeployment::of_companion(companion, spec);
            versions.extend(self.start_behind(&place, companion.image.clone()).await?);
        }
        let (started, of_service) = self.start_service_alone(target, spec).await?;
        versions.extend(of_service);
        Ok(Serving { started, versions })
    }

    /// Starts an inference service or a companion, and returns its versions by program. `image` is the configured image
    /// with its tag, which is the only source of a version.
    async fn start_behind(
        &mut self,
        place: &StartedDeployment<'_>,
        image: String,
    ) -> Result<BTreeMap<String, String>, Error> {
        let Up { mut versions, serves, .. } = self.bring_up(place).await?;
        versions.insert(place.name.into(), image);
        self.behind.push(serves);
        Ok(versions)
    }

    async fn start_service_alone(
        &mut self,
        target: &Target,
        spec: &ServiceSpec,
    ) -> Result<(Started, BTreeMap<String, String>), Error> {
        let place = StartedDeployment::of_service(target, spec);
        let Up { ip, pid, mut versions, serves } = self.bring_up(&place).await?;
        self.service = Some(serves);
        let at = |port: u16| SocketAddr::new(ip, port).to_string();
        let stats = ServiceClient::new(&at(target.ports.metrics)).stats().await;
        let version = stats.map_err(|error| place.not_ready(error.to_string()))?.version;
        if version.is_empty() {
            return Err(place.not_ready("its /stats names no version; without one nothing is measured".into()));
        }
        versions.insert(spec.name.clone(), version);
        let started = Started {
            event: "ready".into(),
            address: at(target.ports.ws),
            metrics_address: at(target.ports.metrics),
            pid,
        };
        Ok((started, versions))
    }

    /// Stops the service, and then its inference service and companions in reverse order of their start.
    pub(super) async fn stop_service_pod(&mut self) {
        let behind = self.behind.drain(..).rev();
        let serving: Vec<Serves> = self.service.take().into_iter().chain(behind).collect();
        let api = &self.api;
        // In parallel, since the operator has ten seconds to stop.
        let logs = serving.iter().map(|Serves { known, log, .. }| logs::keep(api, &known.pod, known.role.word(), log));
        join_all(logs).await;
        for Serves { known, .. } in &serving {
            if let Err(error) = self.api.scale(&known.deployment, 0).await {
                eprintln!("ladder: {error}");
            }
        }
    }

    /// Scales a Deployment up from 0 and waits until its pod is Ready, responds, and its evidence can be read.
    async fn bring_up(&mut self, place: &StartedDeployment<'_>) -> Result<Up, Error> {
        let deployment = self.api.deployment(place.deployment).await.map_err(elsewhere)?;
        let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        self.note(Original::Deployment { name: place.deployment.into(), replicas })?;
        if replicas != 0 {
            // Another party left it running. A trial needs a fresh process.
            self.scale(place.deployment, 0).await?;
            let left = |pod: &Pod| self.is_of_deployment(pod, place.deployment);
            self.wait_until_gone(&format!("the {}", place.role.word()), left).await?;
        }
        self.scale(place.deployment, place.replicas).await?;
        match self.up(place).await {
            Ok(up) => Ok(up),
            Err(error) => {
                let error = self.with_last_output(error, place).await;
                // A failure here is ignored: the end of the climb restores the Deployment.
                let _ = self.api.scale(place.deployment, 0).await;
                Err(error)
            }
        }
    }

    /// Scales and waits until the watches show it. From then on, another number was set by another party.
    async fn scale(&self, deployment: &str, replicas: i32) -> Result<(), Error> {
        self.api.scale(deployment, replicas).await.map_err(elsewhere)?;
        let shown = self.wait_for(Instant::now() + ECHO, |caches| {
            let now = caches.deployment(deployment)?.spec.as_ref()?.replicas?;
            (now == replicas).then_some(())
        });
        shown.await.ok_or_else(|| {
            Error::Interrupted(format!(
                "Deployment {deployment} doesn't keep {replicas} replicas: somebody else sets them"
            ))
        })
    }

    async fn up(&mut self, place: &StartedDeployment<'_>) -> Result<Up, Error> {
        let pod = self.ready_pod(place).await?;
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default();
        let ip: IpAddr =
            ip.parse().map_err(|_| place.not_ready(format!("its pod has no usable address (\"{ip}\")")))?;
        let at = |port: u16| SocketAddr::new(ip, port).to_string();
        let evidence = EvidenceClient::new(&at(place.evidence_port));
        let deadline = Instant::now() + ANSWERS;
        if let Some(port) = place.ready_port {
            answers(place, &at(port), deadline).await?;
        }
        let first = first_evidence(&evidence, deadline).await;
        let (surroundings, usage) = first.map_err(|error| place.not_ready(error.to_string()))?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let mut machine = surroundings.environment;
        machine.host.clone_from(&node);
        self.machines.entry(node).or_insert(machine);
        let image = container(&pod, place.role.word()).map(|status| status.image_id.clone()).unwrap_or_default();
        Ok(Up {
            ip,
            pid: usage.pid,
            versions: [(format!("image of {}", place.name), image)].into(),
            serves: Serves {
                name: place.name.into(),
                known: as_it_is(place, &pod),
                evidence,
                cpus_allowed: surroundings.service_cpus_allowed,
                log: place.log.clone(),
            },
        })
    }

    /// Waits for the single Ready pod.
    async fn ready_pod(&self, place: &StartedDeployment<'_>) -> Result<Arc<Pod>, Error> {
        let deployment = place.deployment;
        self.await_patiently(&place.called(), |caches| {
            let replicas = caches.deployment(deployment).and_then(|found| found.spec.as_ref()?.replicas);
            if replicas != Some(place.replicas) {
                let now = replicas.map_or("gone".into(), |replicas| format!("at {replicas} replicas"));
                return Look::Interrupted(format!(
                    "Deployment {deployment} is {now}, by somebody else, while its pod was to start"
                ));
            }
            let events = caches.events();
            match self.pod_of(deployment) {
                Some(pod) if holds(&pod, "Ready") => Look::Done(pod),
                Some(pod) => Look::NotYet(pod_failure::of_pod(&pod, &events)),
                None => {
                    let warning = pod_failure::last_warning(deployment, &events);
                    let warning = warning.unwrap_or_else(|| "no event says why".into());
                    let description = format!("Deployment {deployment} made no pod: {warning}");
                    Look::NotYet(PodFailure { description, outlook: Outlook::Open })
                }
            }
        })
        .await
    }

    /// A Deployment's pod; of several, the newest that has not ended.
    fn pod_of(&self, deployment: &str) -> Option<Arc<Pod>> {
        let pods = self.caches.pods().into_iter().filter(|pod| self.is_of_deployment(pod, deployment));
        pods.max_by_key(|pod| (!is_over(pod), pod.metadata.creation_timestamp.as_ref().map(|time| time.0)))
    }

    /// Adds the last lines of the container's log to an error.
    async fn with_last_output(&self, error: Error, place: &StartedDeployment<'_>) -> Error {
        let Error::NotReady { name, reason, .. } = error else { return error };
        let role = place.role.word();
        let ran = |pod: &Pod| container(pod, role).is_some_and(pod_end::has_run);
        if let Some(pod) = self.pod_of(place.deployment).filter(|pod| ran(pod)) {
            logs::keep(&self.api, &pod_failure::pod_name(&pod), role, &place.log).await;
        }
        Error::NotReady { name, reason, log: logs::last_output(&place.log) }
    }
}

/// Waits until a Ready pod responds with 200 on its ready path.
async fn answers(place: &StartedDeployment<'_>, address: &str, deadline: Instant) -> Result<(), Error> {
    let client = ServiceClient::new(address);
    while !client.ready().await {
        if Instant::now() >= deadline {
            return Err(place.not_ready(format!(
                "its pod is Ready but http://{address}/readyz did not answer 200 within {} s",
                ANSWERS.as_secs()
            )));
        }
        sleep(POLL).await;
    }
    Ok(())
}

/// The first response of the evidence agent, which may start later than the service.
async fn first_evidence(
    evidence: &EvidenceClient,
    deadline: Instant,
) -> Result<(Surroundings, Usage), evidence_client::Error> {
    loop {
        match (evidence.surroundings().await, evidence.usage().await) {
            (Ok(surroundings), Ok(usage)) => return Ok((surroundings, usage)),
            (Err(error), _) | (_, Err(error)) if Instant::now() >= deadline => return Err(error),
            _ => sleep(POLL).await,
        }
    }
}

/// The state of a pod when it becomes ready. A later difference was caused by another party.
fn as_it_is(place: &StartedDeployment<'_>, pod: &Pod) -> ServicePod {
    ServicePod {
        role: place.role,
        deployment: place.deployment.into(),
        replicas: place.replicas,
        pod: pod_failure::pod_name(pod),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        restarts: container(pod, place.role.word()).map_or(0, |status| status.restart_count),
    }
}
