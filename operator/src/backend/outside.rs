//! A backend for a service that ladder did not start; the workers run on this machine.
//!
//! The service is not started, stopped or configured. Its books are read where it serves them. Its CPU time and memory
//! are read only if a `ladder evidence` runs beside it, even where the service runs on this machine: it has no CPUs
//! reserved for it, and its figures would look as if it had.

use std::collections::BTreeMap;

use bench_format::{run::Outside, service::Started, trial::ClockOffset};
use driver::evidence_client::EvidenceClient;
use driver::stage::{self, Details, Ended, Shares, Stage, Usage};

use super::{Backend, Error, Placement, ServiceSpec, StartedService, WorkersSpec, local::Local};
use crate::{
    outside::{authority, check_service},
    roles::Roles,
};

/// Backend for a service that already runs; a [`Local`] backend starts the workers.
#[derive(Debug)]
pub struct OutsideService {
    outside: Outside,
    evidence: Option<EvidenceClient>,
    workers: Local,
}

impl OutsideService {
    /// A backend for the service at these addresses, with the backend that starts workers.
    pub fn new(outside: Outside, workers: Local) -> Self {
        let evidence = outside.evidence_address.as_deref().map(EvidenceClient::new);
        Self { outside, evidence, workers }
    }
}

/// The CPUs of each role, for `run.json`. Those of the service are unknown.
pub fn description(roles: &Roles, outside: &Outside) -> BTreeMap<String, String> {
    let mut description = roles.description();
    let url = &outside.url;
    let usage = match &outside.evidence_address {
        Some(address) => format!("CPU and memory are reported by http://{address}"),
        None => "CPU and memory are not read".into(),
    };
    description.insert("service".into(), format!("not known: {url} was not started by ladder; {usage}"));
    description
}

impl Backend for OutsideService {
    async fn start_service(&mut self, spec: &ServiceSpec) -> Result<StartedService, Error> {
        let not_ready = |reason| Error::NotReady { name: spec.name.clone(), reason, log: String::new() };
        let version = check_service(&self.outside, &spec.name).await.map_err(|error| not_ready(error.to_string()))?;
        let url = self.outside.url.parse().map_err(|_| not_ready(format!("{} is not an address", self.outside.url)))?;
        let started = Started {
            event: "ready".into(),
            address: authority(&url),
            metrics_address: self.outside.metrics_address.clone(),
            // The process id is unknown and unused for such a service.
            pid: 0,
        };
        let versions = [(spec.name.clone(), version)].into();
        Ok(StartedService { started, versions, more_addresses: vec![], counters: None, usage: None })
    }

    /// Does nothing, since ladder did not start the service.
    async fn stop_service(&mut self) {}

    async fn start_workers(&mut self, spec: &WorkersSpec) -> Result<(), Error> {
        self.workers.start_workers(spec).await
    }

    async fn stop_workers(&mut self) {
        self.workers.stop_workers().await;
    }

    async fn put_back(&mut self) -> Result<(), Error> {
        self.workers.put_back().await
    }

    fn placement(&self) -> Placement {
        let placement = self.workers.placement();
        Placement { cpu_roles: description(self.workers.roles(), &self.outside), ..placement }
    }
}

impl Stage for OutsideService {
    async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
        match &self.evidence {
            Some(evidence) => Ok(Some(evidence.usage().await?)),
            None => Ok(None),
        }
    }

    async fn publisher_clock(&self) -> Option<ClockOffset> {
        self.evidence.as_ref()?.clock().await
    }

    async fn details(&self) -> Details {
        match &self.evidence {
            Some(evidence) => Details { service: evidence.threads().await, ..Details::default() },
            None => Details::default(),
        }
    }

    /// Always `None`: the service's process can't be observed. Its end shows in its counters and connections only.
    fn service_ended(&mut self) -> Option<Ended> {
        None
    }

    fn worker_ended(&mut self) -> Option<Ended> {
        self.workers.worker_ended()
    }

    async fn confirm(&mut self) -> Option<Ended> {
        self.workers.worker_ended()
    }

    fn shares(&self) -> Shares {
        // It is unknown where the service runs, and therefore which processes share its CPUs.
        Shares { isolation: None, shared_with_inference: None, ..self.workers.shares() }
    }
}
