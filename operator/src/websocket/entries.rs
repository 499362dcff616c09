//! The registry's entries for services that only a plan describes.

use std::collections::BTreeMap;

use bench_format::{
    Name,
    websocket::{WebsocketService, WireWebsocket},
};

use ws_bench::workloads::Workload;

use crate::registry::{BookKeeping, LoadModel, Protocol, ProtocolCheck, Registry, Service, own_folder};

/// Name of the protocol of all services that only a plan describes.
pub const PROTOCOL: &str = "websocket";
/// The worker of this protocol.
const WORKER: &str = "ws-bench";
/// Adds the services of a section to the registry. A service whose name isn't one, or that the registry has already, is
/// left out: the check of the plan reports it.
pub fn add(section: &WireWebsocket, registry: &mut Registry) {
    registry.protocols.entry(PROTOCOL.into()).or_insert_with(protocol);
    for (name, described) in &section.services {
        if let Ok(name) = Name::new(name)
            && !registry.services.contains_key(&name)
        {
            registry.services.insert(name, service(described));
        }
    }
}

fn protocol() -> Protocol {
    Protocol {
        worker: WORKER.into(),
        workloads: Workload::ALL.map(|workload| workload.name().into()).to_vec(),
        formats: vec![],
        loads: vec![LoadModel::Open, LoadModel::Closed, LoadModel::Churn, LoadModel::Reconnect],
        inference: None,
        worker_env: vec![],
        path: None,
        conformance: None,
        plan: None,
    }
}

fn service(described: &WebsocketService) -> Service {
    let bin = own_folder();
    let with_bin = |words: &[String]| words.iter().map(|word| word.replace("{bin}", &bin.to_string_lossy())).collect();
    let described = WebsocketService {
        command: with_bin(&described.command),
        version_command: with_bin(&described.version_command),
        ..described.clone()
    };
    Service {
        description: described.url.clone(),
        protocol: PROTOCOL.into(),
        command: described.command.clone(),
        version: described.version_command.clone(),
        env: described.env.clone(),
        books: if described.counters.is_some() { BookKeeping::Totals } else { BookKeeping::None },
        protocol_check: ProtocolCheck::None,
        like: None,
        warmup_seconds: described.warmup_seconds,
        build: None,
        image: None,
        exceptions: BTreeMap::new(),
        root: None,
        described: Some(described),
    }
}
