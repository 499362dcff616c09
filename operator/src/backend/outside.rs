//! A service that somebody else started, loaded by workers of this machine.
//!
//! Nothing of it is started, stopped or set. Its books are read where it serves them. Its CPU time and memory are read where
//! somebody put `ladder evidence` beside it, and else not, even where it runs on this machine: it isn't held to CPUs of its
//! own, and such figures would look as if it were.

use std::collections::BTreeMap;

use bench_format::{run::Outside, service::Started};
use driver::evidence_client::EvidenceClient;
use driver::stage::{self, Ended, Shares, Stage, Usage};

use super::{Backend, Error, ServiceSpec, Serving, Whereabouts, WorkersSpec, local::Local};
use crate::{
    outside::{authority, look},
    roles::Roles,
};

/// See the module.
#[derive(Debug)]
pub struct OutsideService {
    outside: Outside,
    evidence: Option<EvidenceClient>,
    workers: Local,
}

impl OutsideService {
    /// The service, and what starts workers.
    pub fn new(outside: Outside, workers: Local) -> Self {
        let evidence = outside.evidence_address.as_deref().map(EvidenceClient::new);
        Self { outside, evidence, workers }
    }
}

/// For the evidence: which CPUs each role has, as far as ladder gives them.
pub fn in_words(roles: &Roles, outside: &Outside) -> BTreeMap<String, String> {
    let mut words = roles.in_words();
    let url = &outside.url;
    let usage = match &outside.evidence_address {
        Some(address) => format!("CPU and memory are told by http://{address}"),
        None => "CPU and memory are not read".into(),
    };
    words.insert("service".into(), format!("not known: {url} was started by somebody else; {usage}"));
    words
}

impl Backend for OutsideService {
    async fn start_service(&mut self, spec: &ServiceSpec) -> Result<Serving, Error> {
        let not_ready = |reason| Error::NotReady { name: spec.name.clone(), reason, log: String::new() };
        let version = look(&self.outside, &spec.name).await.map_err(|error| not_ready(error.to_string()))?;
        let url = self.outside.url.parse().map_err(|_| not_ready(format!("{} is no address", self.outside.url)))?;
        let started = Started {
            event: "ready".into(),
            address: authority(&url),
            metrics_address: self.outside.metrics_address.clone(),
            // Not known, and nobody asks.
            pid: 0,
        };
        Ok(Serving { started, versions: [(spec.name.clone(), version)].into() })
    }

    /// It isn't ours to stop.
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

    fn whereabouts(&self) -> Whereabouts {
        let whereabouts = self.workers.whereabouts();
        Whereabouts { cpu_roles: in_words(self.workers.roles(), &self.outside), ..whereabouts }
    }
}

impl Stage for OutsideService {
    async fn service_usage(&self) -> Result<Option<Usage>, stage::Error> {
        match &self.evidence {
            Some(evidence) => Ok(Some(evidence.usage().await?)),
            None => Ok(None),
        }
    }

    /// Whether it lives shows in its counters and connections alone.
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
        // Where the service runs isn't known, so neither is with whom it shares its CPUs.
        Shares { isolation: None, shared_with_inference: None, ..self.workers.shares() }
    }
}
