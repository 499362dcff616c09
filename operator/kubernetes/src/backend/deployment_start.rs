//! What is started of a Deployment: of a service, its inference service or a companion.

use std::path::PathBuf;

use operator::backend::{Error, InferenceSpec, ServiceSpec};

use crate::{
    cluster_file::{CompanionTarget, InferenceTarget, Target},
    pod_end::Role,
};

/// A Deployment whose pods are started for a trial: one, or one for each replica of a service.
pub(super) struct DeploymentStart<'a> {
    pub(super) role: Role,
    /// Name of the service in error messages and versions.
    pub(super) name: &'a str,
    pub(super) deployment: &'a str,
    pub(super) replicas: i32,
    /// The port of `/readyz`; absent where the pod has no such path.
    pub(super) ready_port: Option<u16>,
    pub(super) evidence_port: u16,
    pub(super) log: PathBuf,
}

impl<'a> DeploymentStart<'a> {
    pub(super) fn of_service(target: &'a Target, spec: &'a ServiceSpec) -> Self {
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

    pub(super) fn of_inference(target: &'a InferenceTarget, spec: &'a InferenceSpec) -> Self {
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

    pub(super) fn of_companion(target: &'a CompanionTarget, spec: &ServiceSpec) -> Self {
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

    /// Number of pods that are started; 0 for a negative number of replicas, which the check refuses.
    pub(super) fn pods(&self) -> usize {
        usize::try_from(self.replicas).unwrap_or_default()
    }

    pub(super) fn display_name(&self) -> String {
        match self.role {
            Role::Companion => format!("companion {}", self.name),
            Role::Service | Role::Inference => self.name.into(),
        }
    }

    pub(super) fn not_ready(&self, reason: String) -> Error {
        Error::NotReady { name: self.display_name(), reason, log: String::new() }
    }
}
