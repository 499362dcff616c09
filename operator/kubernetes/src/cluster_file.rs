//! `cluster.yaml`: lists what the chart generated from the plan, so that the operator finds its Deployments and Jobs by
//! name.
//!
//! It is read together with the plan, and all mistakes in both are reported at once.

mod check;
mod described;
mod inputs;

use std::collections::BTreeMap;

use bench_format::{Name, plan::WirePlan, trial::TrialId};
use operator::{
    registry::{BookKeeping, Inference, Protocol, ProtocolCheck, Registry, Service},
    websocket,
};
use serde::Deserialize;

pub use self::{
    check::check_run_id,
    described::{DescribedPods, DescribedTarget, ScaledDeployment},
    inputs::CheckedInputs,
};

/// The `schema` of the file that this version supports.
const SCHEMA: u32 = 1;

/// The content of `cluster.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Version of the file format.
    pub schema: u32,
    /// Id of the run to climb; empty for none.
    #[serde(default)]
    pub run_id: String,
    /// Request to measure failed trials of the run again, `failed` or `failed-N`; empty for none.
    #[serde(default)]
    pub retry: String,
    /// Name of the Helm release.
    pub release: String,
    /// Namespace of the release.
    pub namespace: String,
    /// Name of the Lease that the climbing operator holds.
    pub lease: String,
    /// Address at which workers reach the coordinator.
    pub coordinator_url: String,
    /// How far the service has to be apart from what loads it.
    #[serde(default)]
    pub isolation: Isolation,
    /// Port of the agents that read the nodes' CPU clocks; absent without agents.
    #[serde(default)]
    pub node_evidence_port: Option<u16>,
    /// The protocols, by name.
    pub protocols: BTreeMap<String, Protocol>,
    /// The inference services behind gateways, by name.
    #[serde(default)]
    pub inference: BTreeMap<String, ClusterInference>,
    /// The services, by name.
    pub services: BTreeMap<Name, ClusterService>,
    /// The Deployment of each service in each ladder.
    pub targets: Vec<Target>,
    /// Where the service is that only the plan describes; absent if the release starts the plan's services.
    #[serde(default)]
    pub described_target: Option<DescribedTarget>,
    /// The Job of each service, ladder and tier, or of each service and ladder with a search.
    pub jobs: Vec<WorkerJob>,
}

/// How far the service has to be apart from workers and inference; a trial without that is invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// They may share everything.
    #[default]
    None,
    /// On a node without them.
    Node,
    /// On CPUs that are its own.
    Cpuset,
}

/// A service of the release.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterService {
    /// Description of the service, in one line.
    pub description: String,
    /// Name of the service's protocol.
    pub protocol: String,
    /// Which counters the service keeps.
    #[serde(default)]
    pub books: BookKeeping,
    /// Whether a worker checks the protocol around each trial.
    #[serde(default)]
    pub protocol_check: ProtocolCheck,
    /// Least load time before each window, in seconds.
    #[serde(default)]
    pub warmup_seconds: Option<f64>,
    /// Environment variables from the chart's values; those of the ladder are added.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The container image of the service.
    pub image: String,
}

/// An inference simulator of the release.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterInference {
    /// Description of the simulator, in one line.
    pub description: String,
    /// The container image of the simulator.
    pub image: String,
}

/// The Deployment of a service for one ladder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Name of the service.
    pub service: Name,
    /// Workload of the ladder in which the Deployment serves.
    pub workload: Name,
    /// Variant of the ladder in which the Deployment serves.
    pub variant: Name,
    /// Name of the Deployment.
    pub deployment: String,
    /// Number of pods while a trial runs: the ladder's `replicas`.
    #[serde(default = "one")]
    pub replicas: i32,
    /// Ports of the pod.
    pub ports: Ports,
    /// The Deployment of the inference service; absent where the service needs none.
    #[serde(default)]
    pub inference: Option<InferenceTarget>,
    /// The companions of the service, in the order in which they are started; empty if it has none.
    #[serde(default)]
    pub companions: Vec<CompanionTarget>,
}

/// The Deployment of a companion, such as another instance of the service or a broker. The chart configures the
/// addresses that they use among each other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompanionTarget {
    /// Name of the companion in the chart's values.
    pub name: String,
    /// Name of the Deployment.
    pub deployment: String,
    /// The container image of the companion.
    pub image: String,
    /// Ports of the pod.
    pub ports: CompanionPorts,
}

/// Ports of a companion's pod.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompanionPorts {
    /// Port of `/readyz`; absent where the companion has no such path. In that case a Ready pod is enough.
    #[serde(default)]
    pub metrics: Option<u16>,
    /// Port of the evidence agent in the same pod.
    pub evidence: u16,
}

/// The Deployment of the inference service behind a gateway. The chart configures its address in the gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceTarget {
    /// Name of the Deployment.
    pub deployment: String,
    /// Ports of the pod.
    pub ports: InferencePorts,
}

/// Ports of an inference simulator's pod.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferencePorts {
    /// Port of requests and of `/readyz`.
    pub http: u16,
    /// Port of the evidence agent in the same pod.
    pub evidence: u16,
}

/// Ports of a service's pod.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ports {
    /// Port of the WebSocket endpoint, for clients.
    pub ws: u16,
    /// Port of `/readyz` and `/stats`.
    pub metrics: u16,
    /// Port of the evidence agent in the same pod.
    pub evidence: u16,
}

/// The workers of one tier, or of a search.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerJob {
    /// Name of the service that they load.
    pub service: Name,
    /// Workload of the ladder that the workers climb.
    pub workload: Name,
    /// Variant of the ladder that the workers climb.
    pub variant: Name,
    /// The tier whose load the workers offer; absent for those of a search, which offer every load of it. Workers get
    /// their share of a load from the coordinator, so their pods don't depend on it.
    #[serde(default)]
    pub tier: Option<u32>,
    /// Name of the workers' Job.
    pub job: String,
    /// Name of an equal Job, for when a worker of the first has crashed; absent if the chart made none.
    #[serde(default)]
    pub spare: Option<String>,
}

impl WorkerJob {
    /// The names of the Job and of the one after it, in the order in which they are used.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.job.as_str()).chain(self.spare.as_deref())
    }
}

fn one() -> i32 {
    1
}

impl ClusterFile {
    /// Id of the run to climb; `None` for none.
    pub fn run(&self) -> Option<Name> {
        // Another text than a name is a mistake of the file, which is reported when it is read.
        Name::new(self.run_id.as_str()).ok()
    }

    /// The service's Deployment for a trial.
    pub fn target(&self, trial: &TrialId) -> Option<&Target> {
        self.targets.iter().find(|target| {
            (&target.service, &target.workload, &target.variant) == (&trial.service, &trial.workload, &trial.variant)
        })
    }

    /// The names of all Deployments of services, inference services and companions, and of the one of the user that is
    /// scaled; names may repeat.
    pub fn deployments(&self) -> impl Iterator<Item = &str> {
        let scaled = self.described_target.iter().filter_map(|target| target.scale.as_ref());
        let scaled = scaled.map(|scale| scale.deployment.as_str());
        let of_targets = self.targets.iter().flat_map(|target| {
            let inference_deployment = target.inference.iter().map(|inference| inference.deployment.as_str());
            let companions = target.companions.iter().map(|companion| companion.deployment.as_str());
            inference_deployment.chain(companions).chain([target.deployment.as_str()])
        });
        of_targets.chain(scaled)
    }

    /// The workers' Job for a trial.
    pub fn job(&self, trial: &TrialId) -> Option<&WorkerJob> {
        self.jobs.iter().find(|job| {
            (&job.service, &job.workload, &job.variant) == (&trial.service, &trial.workload, &trial.variant)
                && job.tier.is_none_or(|tier| tier == trial.tier)
        })
    }

    /// The names of all Jobs.
    pub fn job_names(&self) -> impl Iterator<Item = &str> {
        self.jobs.iter().flat_map(WorkerJob::names)
    }

    /// The registry that the plan is checked against, with the services that it describes itself.
    fn registry(&self, plan: &WirePlan) -> Registry {
        let mut registry = self.own_registry();
        if let Some(section) = &plan.websocket {
            websocket::add(section, &mut registry);
        }
        registry
    }

    fn own_registry(&self) -> Registry {
        let service = |service: &ClusterService| Service {
            description: service.description.clone(),
            protocol: service.protocol.clone(),
            command: vec![service.image.clone()],
            version: Vec::new(),
            env: service.env.clone(),
            books: service.books,
            protocol_check: service.protocol_check,
            like: None,
            warmup_seconds: service.warmup_seconds,
            build: None,
            image: None,
            exceptions: BTreeMap::new(),
            root: None,
            described: None,
        };
        let inference = |entry: &ClusterInference| Inference {
            description: entry.description.clone(),
            command: vec![entry.image.clone()],
            version: Vec::new(),
            env: BTreeMap::new(),
        };
        Registry {
            root: "/".into(),
            protocols: self.protocols.clone(),
            inference: self.inference.iter().map(|(name, entry)| (name.clone(), inference(entry))).collect(),
            services: self.services.iter().map(|(name, entry)| (name.clone(), service(entry))).collect(),
        }
    }
}

#[cfg(test)]
pub(crate) mod fixture;

#[cfg(test)]
mod tests;
