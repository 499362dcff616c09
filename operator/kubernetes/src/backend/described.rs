//! A service that only the plan describes: it runs already, in the cluster or outside, or as a Deployment of the release's
//! namespace that is scaled for each process. It has no container of ours beside it.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bench_format::{
    service::Started,
    websocket::{WebsocketService, WireWebsocket},
};
use driver::{counters::MappedCounters, http::HttpClient, stage::Ended, stage::Usage};
use futures::future::join_all;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use operator::{
    backend::{Error, ServiceSpec, StartedService},
    outside::authority,
    websocket,
};
use tokio::{
    net::TcpStream,
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use super::{
    Kubernetes,
    errors::found,
    readiness::Readiness,
    service::{POLL, RESPONSE_TIMEOUT, changed_by_others},
};
use crate::{
    api,
    cluster_file::{DescribedTarget, ScaledDeployment},
    described_pod::{self, DescribedPod, is_over},
    pod_end,
    pod_failure::{self, Outlook, PodFailure, holds},
};

/// Longest wait for one connection to the service, and for the page of its counters.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest wait for the agent of a node to answer, which starts with the release and not before it.
const AGENT_TIMEOUT: Duration = Duration::from_secs(20);

/// The service while trials run against it.
#[derive(Debug)]
pub(super) struct DescribedService {
    /// Its URL, without what the environment filled in.
    url: String,
    scale: Option<ScaledDeployment>,
    /// Its pods when it was found; empty if they are not known.
    pods: Vec<DescribedPod>,
    /// Why its CPU and memory are not read; `None` if they are.
    unread: Option<String>,
    /// How load reaches it, as a part of a sentence.
    path: String,
}

impl DescribedService {
    /// Its pods when it was found.
    pub(super) fn pods(&self) -> &[DescribedPod] {
        &self.pods
    }

    /// Name of the Deployment that is scaled.
    pub(super) fn deployment(&self) -> Option<&str> {
        self.scale.as_ref().map(|scale| scale.deployment.as_str())
    }

    /// How it ended; `None` while it runs as it was found, or if its pods are not known.
    pub(super) fn end(&self, deployment: Option<&Deployment>, pods: &[impl AsRef<Pod>]) -> Option<Ended> {
        if let Some(ScaledDeployment { deployment: name, replicas }) = &self.scale
            && let Some(ended) = pod_end::of_deployment((name, *replicas), deployment)
        {
            return Some(ended);
        }
        if self.pods.is_empty() { None } else { described_pod::end(&self.pods, pods) }
    }

    /// Where it runs, for the list of roles.
    pub(super) fn placement(&self) -> String {
        let nodes: BTreeSet<&str> = self.pods.iter().map(|pod| pod.node.as_str()).collect();
        let place = match self.pods.len() {
            0 => "not known".to_owned(),
            1 => format!("1 pod on {}", self.pods[0].node),
            count => format!("{count} pods on {}", nodes.into_iter().collect::<Vec<_>>().join(", ")),
        };
        let starter = if self.scale.is_some() {
            "scaled by ladder, which sets none of its CPUs"
        } else {
            "not started by ladder"
        };
        format!("{place}: {} was {starter}; {}", self.url, self.path)
    }

    /// Whose CPU time and memory are read, and how load reaches it.
    fn usage_sentence(&self) -> String {
        let path = &self.path;
        if let Some(unread) = &self.unread {
            return format!("CPU and memory are not read: {unread}; {path}");
        }
        let names: Vec<&str> = self.pods.iter().map(|pod| pod.name.as_str()).collect();
        format!(
            "CPU and memory are those of {} with all containers, from the cgroups of the nodes; {path}",
            names.join(", ")
        )
    }
}

impl Kubernetes {
    /// Finds the service, after it has been scaled up if it is ours to scale, and checks that it accepts connections.
    pub(super) async fn find_described(
        &mut self,
        spec: &ServiceSpec,
        described: &WebsocketService,
    ) -> Result<StartedService, Error> {
        let target = self.cluster.described_target.clone().ok_or_else(|| Error::Remote {
            what: format!("find {}", spec.name),
            reason: "cluster.yaml doesn't say where it is; set target in the chart's values".into(),
        })?;
        let found = self.find_target(spec, described, &target).await;
        if found.is_err() {
            self.leave_described().await;
        }
        found
    }

    async fn find_target(
        &mut self,
        spec: &ServiceSpec,
        described: &WebsocketService,
        target: &DescribedTarget,
    ) -> Result<StartedService, Error> {
        let not_ready = |reason: String| Error::NotReady { name: spec.name.clone(), reason, log: String::new() };
        let service = allowed(&spec.name, described, target).await.map_err(not_ready)?;
        self.described = Some(DescribedService {
            url: described.url.clone(),
            scale: target.scale.clone(),
            pods: Vec::new(),
            unread: None,
            path: path_to(target),
        });
        if let Some(scale) = &target.scale {
            self.scale_described(scale).await?;
        }
        let pods = match &target.pods {
            Some(_) => self.ready_pods_of_target(&spec.name, target.scale.as_ref()).await?,
            None => Vec::new(),
        };
        if let Some(scale) = &target.scale {
            self.have_run.insert(scale.deployment.clone());
        }
        let known: Vec<DescribedPod> = pods.iter().map(|pod| DescribedPod::of(pod)).collect();
        let addresses = addresses(&service, &known, target).map_err(not_ready)?;
        let counters = self.responds(&service, &addresses).await.map_err(not_ready)?;
        let unread = self.unread(&known).await;
        let versions = versions(&spec.name, &service, &pods);
        let (first, more) = addresses.split_first().ok_or_else(|| not_ready("it has no address".into()))?;
        let described = self.described.as_mut().ok_or(Error::NoService)?;
        (described.pods, described.unread) = (known, unread);
        let usage = Some(described.usage_sentence());
        let started = Started {
            event: "ready".into(),
            address: first.clone(),
            metrics_address: String::new(),
            // There is no single process that is known.
            pid: 0,
        };
        Ok(StartedService { started, versions, more_addresses: more.to_vec(), counters, usage })
    }

    /// Waits until all addresses of the service accept a connection and the page of its counters can be read; the error says
    /// which doesn't, and what to look at.
    async fn responds(
        &self,
        service: &WebsocketService,
        addresses: &[String],
    ) -> Result<Option<MappedCounters>, String> {
        let deadline = Instant::now() + RESPONSE_TIMEOUT;
        for address in addresses {
            accepts(address, deadline).await.map_err(|error| self.unreachable(address, &error))?;
        }
        let counters = websocket::mapped_counters(service, [0; 2]);
        let counters = counters.map_err(|(field, reason)| format!("counters.{field}: {reason}"))?;
        has_counters(counters.as_ref(), deadline).await?;
        Ok(counters)
    }

    /// Ends the use of the service, and scales it down if it is ours to scale. The end of the climb restores its replicas.
    pub(super) async fn leave_described(&mut self) {
        let Some(DescribedService { scale: Some(scale), .. }) = self.described.take() else { return };
        if let Err(error) = self.api.scale(&scale.deployment, 0).await {
            eprintln!("ladder: {error}");
        }
    }

    /// Gives the service fresh pods.
    async fn scale_described(&mut self, scale: &ScaledDeployment) -> Result<(), Error> {
        let ScaledDeployment { deployment: name, replicas } = scale;
        self.take_over(name).await?;
        self.wait_until_none(&format!("Deployment {name}"), |caches| caches.described_pods()).await?;
        self.scale(name, *replicas).await
    }

    /// Waits until all pods of the service are Ready: those that its Deployment is scaled to, or at least one. Returns them
    /// in the order of their names.
    async fn ready_pods_of_target(&self, name: &str, scale: Option<&ScaledDeployment>) -> Result<Vec<Arc<Pod>>, Error> {
        let owner = scale.map_or(name, |scale| scale.deployment.as_str());
        self.wait_for_pods(name, owner, |caches| {
            let change = scale.and_then(|scale| changed_by_others(caches, &scale.deployment, scale.replicas));
            if let Some(change) = change {
                return Readiness::Interrupted(change);
            }
            let mut pods: Vec<Arc<Pod>> = caches.described_pods().into_iter().filter(|pod| !is_over(pod)).collect();
            pods.sort_by_key(|pod| pod_failure::pod_name(pod));
            let wanted = scale.map_or(1, |scale| usize::try_from(scale.replicas).unwrap_or(1));
            let events = caches.events();
            let unready = pods.iter().filter(|pod| !holds(pod, "Ready")).map(|pod| pod_failure::of_pod(pod, &events));
            match unready.max_by_key(|failure| failure.outlook) {
                Some(failure) => Readiness::NotYet(failure),
                None if pods.len() >= wanted => Readiness::Done(pods),
                None => Readiness::NotYet(PodFailure {
                    description: format!("{} of {wanted} pods have the labels of target.pods.labels", pods.len()),
                    outlook: Outlook::Open,
                }),
            }
        })
        .await
    }

    fn unreachable(&self, address: &str, error: &str) -> String {
        format!(
            "failed to connect to {address}: {error}; does it listen there, and do the NetworkPolicies of its namespace admit \
             pods of namespace {}?",
            self.cluster.namespace
        )
    }

    /// Why CPU and memory of these pods can't be read; `None` if they can.
    async fn unread(&self, pods: &[DescribedPod]) -> Option<String> {
        if pods.is_empty() {
            return Some("the pods of the service are not known; in the cluster target.pods.labels names them".into());
        }
        if self.cluster.node_evidence_port.is_none() {
            return Some("that takes an agent on each node of the service; set nodeEvidence.enabled".into());
        }
        let deadline = Instant::now() + AGENT_TIMEOUT;
        loop {
            let readings = self.pod_readings(pods).await;
            let DescribedPod { node, name, .. } = described_pod::usage(pods, &readings).err()?;
            let is_starting = !readings.contains_key(node) && self.has_agent(node);
            if !is_starting || Instant::now() >= deadline {
                return Some(format!("no agent on node {node} reports pod {name}; nodeEvidence has to run there"));
            }
            sleep(POLL).await;
        }
    }

    async fn pod_readings(&self, pods: &[DescribedPod]) -> BTreeMap<String, driver::nodes::PodsReading> {
        let nodes: BTreeSet<String> = pods.iter().map(|pod| pod.node.clone()).collect();
        let readings = self.agents_of(&nodes).into_iter().map(async |(node, agent)| {
            let of_node = pods.iter().filter(|pod| pod.node == node).map(|pod| pod.uid.as_str());
            let reading = agent.pods(of_node).await?;
            Some((node, reading))
        });
        join_all(readings).await.into_iter().flatten().collect()
    }

    /// CPU and memory of the service's pods; `None` if they are not read.
    pub(super) async fn usage_of_described(&self, described: &DescribedService) -> Result<Option<Usage>, Error> {
        if described.unread.is_some() || described.pods.is_empty() {
            return Ok(None);
        }
        let readings = self.pod_readings(&described.pods).await;
        let usage = described_pod::usage(&described.pods, &readings).map_err(|missing| Error::Remote {
            what: format!("read CPU and memory of pod {}", missing.name),
            reason: format!("the agent on node {} doesn't report it", missing.node),
        });
        usage.map(Some)
    }

    /// A pod of the service in its current state.
    pub(super) fn described_pod(&self, uid: &str) -> Option<Arc<Pod>> {
        self.caches.described_pods().into_iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid))
    }

    /// How the service ended, from the API server.
    pub(super) async fn check_described(&self, described: &DescribedService) -> Result<Option<Ended>, api::Error> {
        let deployment = match described.deployment() {
            Some(name) => found(self.api.deployment(name).await)?,
            None => None,
        };
        let target = self.cluster.described_target.as_ref();
        let pods: Vec<Arc<Pod>> = match target.and_then(|target| target.pods.as_ref()) {
            Some(pods) => self.api.described_pods(pods).await?.into_iter().map(Arc::new).collect(),
            None => Vec::new(),
        };
        Ok(described.end(deployment.as_ref(), &pods))
    }
}

/// The version of a service, and the images of its pods.
fn versions(name: &str, service: &WebsocketService, pods: &[Arc<Pod>]) -> BTreeMap<String, String> {
    let images = pods.iter().map(|pod| described_pod::evidence(pod).image_digest);
    let images: BTreeSet<String> = images.filter(|image| !image.is_empty()).collect();
    let mut versions = BTreeMap::from([(name.to_owned(), service.version.clone().unwrap_or_default())]);
    if !images.is_empty() {
        versions.insert(format!("image of {name}"), images.into_iter().collect::<Vec<_>>().join(", "));
    }
    versions
}

/// How load reaches the service, as a part of a sentence.
fn path_to(target: &DescribedTarget) -> String {
    let path = match (target.direct, &target.url) {
        (true, _) => "load goes to the addresses of its pods, in turn",
        (false, Some(_)) => "load goes to a URL, and what lies on the path to it is not known",
        (false, None) => "load goes to the address of its Service, so there is a NAT between them",
    };
    path.into()
}

/// The service with its variables filled in. Its hosts are looked up again, since they may have moved since the plan was
/// checked.
async fn allowed(
    name: &str,
    described: &WebsocketService,
    target: &DescribedTarget,
) -> Result<WebsocketService, String> {
    let services = [(name.to_owned(), described.clone())].into();
    let section = WireWebsocket { services, ..WireWebsocket::default() };
    let mut section = websocket::filled(&section, |name| env::var(name).ok()).map_err(|error| error.to_string())?;
    let (checked, allowed) = (section.clone(), target.clone());
    spawn_blocking(move || allowed.check_hosts(&checked)).await.map_err(|error| error.to_string())??;
    section.services.remove(name).ok_or_else(|| format!("{name} is not in the section"))
}

/// Where the load goes, `host:port`.
fn addresses(
    service: &WebsocketService,
    pods: &[DescribedPod],
    target: &DescribedTarget,
) -> Result<Vec<String>, String> {
    if !target.direct {
        return Ok(vec![authority(&websocket::address(service, 0)?)]);
    }
    let port = target.pods.as_ref().and_then(|pods| pods.port).unwrap_or_default();
    let address = |pod: &DescribedPod| {
        let ip: IpAddr =
            pod.ip.parse().map_err(|_| format!("pod {} has no usable address (\"{}\")", pod.name, pod.ip))?;
        Ok(SocketAddr::new(ip, port).to_string())
    };
    pods.iter().map(address).collect()
}

/// Waits until an address accepts a connection; the error is that of the last attempt.
async fn accepts(address: &str, deadline: Instant) -> Result<(), String> {
    loop {
        let error = match timeout(ATTEMPT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it accepted no connection within {} s", ATTEMPT_TIMEOUT.as_secs()),
        };
        if Instant::now() >= deadline {
            return Err(error);
        }
        sleep(POLL).await;
    }
}

/// Waits until the page of the service's counters can be read.
async fn has_counters(counters: Option<&MappedCounters>, deadline: Instant) -> Result<(), String> {
    let Some(counters) = counters else { return Ok(()) };
    let http = HttpClient::new(ATTEMPT_TIMEOUT);
    loop {
        let Err(error) = counters.get(&http, Duration::ZERO).await else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(format!(
                "failed to read its counters at {}: {error}; check target.countersUrl",
                counters.url()
            ));
        }
        sleep(POLL).await;
    }
}
