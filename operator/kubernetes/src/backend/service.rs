//! Starts and stops a service with its inference service and companions: scales their Deployments and waits for their
//! pods.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bench_format::service::Started;
use driver::{
    evidence_client::{self, EvidenceClient, ServiceEnvironment},
    service_client::ServiceClient,
    stage::Usage,
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use operator::backend::{Error, ServiceSpec, StartedService};
use tokio::time::{Instant, sleep};

use super::{
    Kubernetes, ServingPod, WATCH_TIMEOUT,
    deployment_start::DeploymentStart,
    errors::{deleted, remote_error, watch_is_late},
    logs,
    readiness::Readiness,
};
use crate::{
    caches::Caches,
    cluster_file::Target,
    described_pod::is_over,
    journal::Original,
    pod_end::{self, ServicePod},
    pod_failure::{self, Outlook, PodFailure, container, holds},
};

/// Interval between two requests to a pod that is Ready but does not respond yet.
pub(super) const POLL: Duration = Duration::from_millis(20);
/// Longest wait for a Ready pod to respond on its ports.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A pod that was started and responds.
struct RunningPod {
    ip: IpAddr,
    /// Process id of its main process.
    pid: u32,
    /// Versions known from the pod, by program.
    versions: BTreeMap<String, String>,
    serving_pod: ServingPod,
}

impl Kubernetes {
    /// Starts the inference service and the companions, each when the one before is ready, and then the service.
    pub(super) async fn start_service_pod(&mut self, spec: &ServiceSpec) -> Result<StartedService, Error> {
        let no_target = || Error::Remote {
            what: format!("find the Deployment of {}", spec.trial),
            reason: "cluster.yaml has none; the plan changed since it was written".into(),
        };
        let target = self.cluster.target(&spec.trial).cloned().ok_or_else(no_target)?;
        self.wait_until_removed("the service", |pod| self.is_of_a_service(pod)).await?;
        let serving = self.start_all(&target, spec).await;
        if serving.is_err() {
            self.stop_service_pod().await;
        }
        serving
    }

    async fn start_all(&mut self, target: &Target, spec: &ServiceSpec) -> Result<StartedService, Error> {
        // Inference first, so that the service can reach it from its first request on.
        let mut versions = BTreeMap::new();
        if let Some((target, spec)) = target.inference.as_ref().zip(spec.inference.as_ref()) {
            let image = spec.inference.command.concat();
            versions.extend(self.start_dependency(&DeploymentStart::of_inference(target, spec), image).await?);
        }
        for companion in &target.companions {
            let start = DeploymentStart::of_companion(companion, spec);
            versions.extend(self.start_dependency(&start, companion.image.clone()).await?);
        }
        let (started, of_service) = self.start_service_alone(target, spec).await?;
        versions.extend(of_service);
        Ok(StartedService { started, versions, more_addresses: vec![], counters: None, usage: None })
    }

    /// Starts an inference service or a companion, and returns its versions by program. `image` is the configured image
    /// with its tag, which is the only source of a version.
    async fn start_dependency(
        &mut self,
        start: &DeploymentStart<'_>,
        image: String,
    ) -> Result<BTreeMap<String, String>, Error> {
        let mut versions = BTreeMap::from([(start.name.into(), image)]);
        for running in self.bring_up(start).await? {
            versions.extend(running.versions);
            self.dependencies.push(running.serving_pod);
        }
        Ok(versions)
    }

    async fn start_service_alone(
        &mut self,
        target: &Target,
        spec: &ServiceSpec,
    ) -> Result<(Started, BTreeMap<String, String>), Error> {
        let start = DeploymentStart::of_service(target, spec);
        let running = self.bring_up(&start).await?;
        let pid = running.first().map_or(0, |pod| pod.pid);
        let addresses = |port: u16| {
            let all: Vec<String> = running.iter().map(|pod| SocketAddr::new(pod.ip, port).to_string()).collect();
            all.join(",")
        };
        let (address, metrics_address) = (addresses(target.ports.ws), addresses(target.ports.metrics));
        let versions = one_version_each(&running);
        self.service = running.into_iter().map(|pod| pod.serving_pod).collect();
        let mut versions = versions.map_err(|reason| start.not_ready(reason))?;
        let stats = ServiceClient::new(&metrics_address).stats().await;
        let version = stats.map_err(|error| start.not_ready(error.to_string()))?.version;
        if version.is_empty() {
            return Err(
                start.not_ready("its /stats has no version, and a service without a version is not measured".into())
            );
        }
        versions.insert(spec.name.clone(), version);
        Ok((Started { event: "ready".into(), address, metrics_address, pid }, versions))
    }

    /// Stops the service, and then its inference service and companions in reverse order of their start.
    pub(super) async fn stop_service_pod(&mut self) {
        let dependencies = self.dependencies.drain(..).rev();
        let serving: Vec<ServingPod> = self.service.drain(..).chain(dependencies).collect();
        let api = &self.api;
        // In parallel, since the operator has ten seconds to stop.
        let logs = serving
            .iter()
            .map(|ServingPod { known, log, .. }| logs::store_log(api, &known.pod, known.role.container_name(), log));
        join_all(logs).await;
        let mut deployments: Vec<&str> = serving.iter().map(|pod| pod.known.deployment.as_str()).collect();
        // The replicas of a service are beside each other.
        deployments.dedup();
        for deployment in deployments {
            if let Err(error) = self.api.scale(deployment, 0).await {
                eprintln!("ladder: {error}");
            }
        }
    }

    /// Scales a Deployment up from 0 and waits until all its pods are Ready, respond, and their evidence can be read.
    async fn bring_up(&mut self, start: &DeploymentStart<'_>) -> Result<Vec<RunningPod>, Error> {
        if self.take_over(start.deployment).await? {
            let is_left_over = |pod: &Pod| self.is_of_deployment(pod, start.deployment);
            self.wait_until_removed(&format!("the {}", start.role.container_name()), is_left_over).await?;
        }
        self.scale(start.deployment, start.replicas).await?;
        match self.up(start).await {
            Ok(up) => Ok(up),
            Err(error) => {
                let error = self.with_last_output(error, start).await;
                // A failure here is ignored: the end of the climb restores the Deployment.
                let _ = self.api.scale(start.deployment, 0).await;
                Err(error)
            }
        }
    }

    /// Notes the replicas of a Deployment, and scales it to 0 if another party left it running, since a trial needs a fresh
    /// process. Whether it was.
    pub(super) async fn take_over(&mut self, deployment: &str) -> Result<bool, Error> {
        let found = self.api.deployment(deployment).await.map_err(remote_error)?;
        let replicas = found.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        self.note(Original::Deployment { name: deployment.into(), replicas })?;
        if replicas != 0 {
            self.scale(deployment, 0).await?;
        }
        Ok(replicas != 0)
    }

    /// Scales and waits until the watches show it. From then on, another number was set by another party.
    pub(super) async fn scale(&self, deployment: &str, replicas: i32) -> Result<(), Error> {
        self.api.scale(deployment, replicas).await.map_err(remote_error)?;
        let shown = self.wait_for(Instant::now() + WATCH_TIMEOUT, |caches| {
            let now = caches.deployment(deployment)?.spec.as_ref()?.replicas?;
            (now == replicas).then_some(())
        });
        if shown.await.is_some() {
            return Ok(());
        }
        let now = self.api.deployment(deployment).await.map_err(remote_error)?;
        Err(Error::Interrupted(if now.spec.and_then(|spec| spec.replicas) == Some(replicas) {
            watch_is_late(&format!("the {replicas} replicas of Deployment {deployment}"))
        } else {
            format!("Deployment {deployment} doesn't keep {replicas} replicas: another client changes them")
        }))
    }

    async fn up(&mut self, start: &DeploymentStart<'_>) -> Result<Vec<RunningPod>, Error> {
        let pods = self.ready_pods(start).await?;
        self.have_run.insert(start.deployment.into());
        let mut running = Vec::new();
        for (index, pod) in pods.iter().enumerate() {
            running.push(self.running(start, pod, index).await?);
        }
        Ok(running)
    }

    /// A Ready pod once it responds, as replica `index` of its Deployment.
    async fn running(&mut self, start: &DeploymentStart<'_>, pod: &Pod, index: usize) -> Result<RunningPod, Error> {
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap_or_default();
        let ip: IpAddr =
            ip.parse().map_err(|_| start.not_ready(format!("its pod has no usable address (\"{ip}\")")))?;
        let at = |port: u16| SocketAddr::new(ip, port).to_string();
        let evidence = EvidenceClient::new(&at(start.evidence_port));
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        if let Some(port) = start.ready_port {
            wait_until_ready(start, &at(port), deadline).await?;
        }
        let first = first_evidence(&evidence, deadline).await;
        let (service_environment, usage) = first.map_err(|error| start.not_ready(error.to_string()))?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let mut machine = service_environment.environment;
        machine.host.clone_from(&node);
        self.machines.entry(node).or_insert(machine);
        let image =
            container(pod, start.role.container_name()).map(|status| status.image_id.clone()).unwrap_or_default();
        Ok(RunningPod {
            ip,
            pid: usage.pid,
            versions: [(format!("image of {}", start.name), image)].into(),
            serving_pod: ServingPod {
                name: start.name.into(),
                known: snapshot(start, pod),
                evidence,
                metrics_address: start.ready_port.map(at).unwrap_or_default(),
                cpus_allowed: service_environment.service_cpus_allowed,
                log: logs::of_replica(&start.log, index),
            },
        })
    }

    /// Waits until all pods of a Deployment are Ready, and returns them in the order of their names.
    async fn ready_pods(&self, start: &DeploymentStart<'_>) -> Result<Vec<Arc<Pod>>, Error> {
        let deployment = start.deployment;
        let wanted = start.pods();
        self.wait_for_pods(&start.display_name(), deployment, |caches| {
            if let Some(change) = changed_by_others(caches, deployment, start.replicas) {
                return Readiness::Interrupted(change);
            }
            let events = caches.events();
            let mut pods = self.newest_pods(deployment, wanted);
            let waiting = pods.iter().filter(|pod| !holds(pod, "Ready"));
            let failure = waiting.map(|pod| pod_failure::of_pod(pod, &events)).max_by_key(|failure| failure.outlook);
            match failure {
                Some(failure) => Readiness::NotYet(failure),
                None if pods.len() == wanted => {
                    pods.sort_by_key(|pod| pod_failure::pod_name(pod));
                    Readiness::Done(pods)
                }
                None => {
                    let warning = pod_failure::last_warning(deployment, &events);
                    let warning = warning.unwrap_or_else(|| "no event gives a reason".into());
                    let made =
                        if pods.is_empty() { "no pod".into() } else { format!("{} of {wanted} pods", pods.len()) };
                    let description = format!("Deployment {deployment} made {made}: {warning}");
                    Readiness::NotYet(PodFailure { description, outlook: Outlook::Open })
                }
            }
        })
        .await
    }

    /// At most `count` pods of a Deployment: the newest, and ended ones only where too few others are left.
    fn newest_pods(&self, deployment: &str, count: usize) -> Vec<Arc<Pod>> {
        let pods = self.caches.pods().into_iter().filter(|pod| self.is_of_deployment(pod, deployment));
        let mut pods: Vec<Arc<Pod>> = pods.collect();
        let age = |pod: &Arc<Pod>| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        pods.sort_by_key(|pod| Reverse((!is_over(pod), age(pod))));
        pods.truncate(count);
        pods
    }

    /// Adds the last lines of the container's log to an error.
    async fn with_last_output(&self, error: Error, start: &DeploymentStart<'_>) -> Error {
        let Error::NotReady { name, reason, .. } = error else { return error };
        let role = start.role.container_name();
        let ran = |pod: &Pod| container(pod, role).is_some_and(pod_end::has_run);
        let pods = self.newest_pods(start.deployment, start.pods());
        // The log of one that is not Ready says why.
        let pod = pods.iter().find(|pod| ran(pod) && !holds(pod, "Ready"));
        if let Some(pod) = pod.or_else(|| pods.iter().find(|pod| ran(pod))) {
            logs::store_log(&self.api, &pod_failure::pod_name(pod), role, &start.log).await;
        }
        Error::NotReady { name, reason, log: logs::last_output(&start.log) }
    }
}

/// What another client did to a Deployment whose pods start after it was scaled to `needed` replicas; `None` if nothing.
pub(super) fn changed_by_others(caches: &Caches, deployment: &str, needed: i32) -> Option<String> {
    let replicas = caches.deployment(deployment).and_then(|found| found.spec.as_ref()?.replicas);
    let Some(replicas) = replicas else { return Some(deleted(&format!("Deployment {deployment}"))) };
    (replicas != needed).then(|| {
        format!(
            "Deployment {deployment} was scaled to {replicas} replicas by another client while its pods were starting"
        )
    })
}

/// The versions that all pods of a Deployment have, by program.
///
/// # Errors
/// The program in which they differ, and how, as text.
fn one_version_each(pods: &[RunningPod]) -> Result<BTreeMap<String, String>, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (program, version) in pods.iter().flat_map(|pod| &pod.versions) {
        if let Some(other) = all.insert(program.clone(), version.clone()).filter(|other| other != version) {
            return Err(format!("its pods differ in the {program}: {other} and {version}"));
        }
    }
    Ok(all)
}

/// Waits until a Ready pod responds with 200 on its ready path.
async fn wait_until_ready(start: &DeploymentStart<'_>, address: &str, deadline: Instant) -> Result<(), Error> {
    let client = ServiceClient::new(address);
    while !client.ready().await {
        if Instant::now() >= deadline {
            return Err(start.not_ready(format!(
                "its pod is Ready but http://{address}/readyz did not return 200 within {} s",
                RESPONSE_TIMEOUT.as_secs()
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
) -> Result<(ServiceEnvironment, Usage), evidence_client::Error> {
    loop {
        match (evidence.service_environment().await, evidence.usage().await) {
            (Ok(service_environment), Ok(usage)) => return Ok((service_environment, usage)),
            (Err(error), _) | (_, Err(error)) if Instant::now() >= deadline => return Err(error),
            _ => sleep(POLL).await,
        }
    }
}

/// The state of a pod when it becomes ready. A later difference was caused by another party.
fn snapshot(start: &DeploymentStart<'_>, pod: &Pod) -> ServicePod {
    ServicePod {
        role: start.role,
        deployment: start.deployment.into(),
        replicas: start.replicas,
        pod: pod_failure::pod_name(pod),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        restarts: container(pod, start.role.container_name()).map_or(0, |status| status.restart_count),
    }
}
