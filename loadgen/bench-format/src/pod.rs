//! What a container orchestrator gave to a service, what stands behind it, or a worker; absent where none had a part.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One pod that took part in a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// What it did.
    pub role: PodRole,
    /// Which companion of the service it was; absent for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub companion: Option<String>,
    /// The worker's index; absent for all others.
    pub worker: Option<u32>,
    /// The machine on which it ran: the `host` of one of the run's machines.
    pub node: String,
    /// Its quality of service: only `Guaranteed` is promised its CPU.
    pub qos_class: String,
    /// CPUs on which it might run, as the kernel lists them; empty when it could not be asked.
    pub cpus_allowed: String,
    /// The image, as it was asked for.
    pub image: String,
    /// The image that was run, by digest.
    pub image_digest: String,
    /// Restarts of its container when the trial ended.
    pub restarts: u32,
    /// CPU periods in which it was throttled during the trial (a worker: in the window); absent without a quota.
    pub throttled_periods: Option<u64>,
}

/// What a pod did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PodRole {
    /// It ran the service under test.
    #[default]
    Service,
    /// It ran a companion: a program that belongs to the service under test, and whose CPU counts as the service's.
    Companion,
    /// It ran the inference simulator behind the service.
    Inference,
    /// It ran a worker.
    Worker,
}
