//! What Kubernetes gave to a pod that took part in a trial. Absent from results of a single machine.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One pod that took part in a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// Name of the pod.
    pub name: String,
    /// What the pod ran.
    pub role: PodRole,
    /// Name of the companion that the pod ran; absent for all other roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub companion: Option<String>,
    /// Index of the worker; absent for all other roles.
    pub worker: Option<u32>,
    /// Name of the node, which is the `host` of one of the run's machines.
    pub node: String,
    /// Quality of service class. Only `Guaranteed` pods are promised their CPU.
    pub qos_class: String,
    /// Limits of its main container as Kubernetes writes them, by resource: `cpu: 300m`; empty in older bundles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// CPUs on which the pod may run, as the kernel lists them; empty if they could not be read.
    pub cpus_allowed: String,
    /// The image that the pod's specification names.
    pub image: String,
    /// Digest of the image that ran.
    pub image_digest: String,
    /// Restarts of the container by the end of the trial.
    pub restarts: u32,
    /// CPU periods in which the pod was throttled during the trial (a worker: in the window); absent without a quota.
    pub throttled_periods: Option<u64>,
}

/// What a pod ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PodRole {
    /// The service under test.
    #[default]
    Service,
    /// A companion: another program of the service under test, whose CPU counts as the service's.
    Companion,
    /// The inference simulator behind the service.
    Inference,
    /// A load generator worker.
    Worker,
}
