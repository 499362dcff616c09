//! Test fixture: a plan without mistakes, and the registry and machine that it is checked against.

use std::path::Path;

use bench_format::{
    Name, SCHEMA,
    plan::WirePlan,
    run::{Run, RunState},
};

use super::{MachineLimits, mistakes};
use crate::{
    plan::Mistake,
    registry::{BookKeeping, LoadModel, Protocol, ProtocolCheck, Registry, Service},
};

pub(crate) fn registry() -> Registry {
    let protocol = Protocol {
        worker: "fake-worker".into(),
        workloads: vec!["throughput".into(), "ping-latency".into(), "connection-storm".into()],
        formats: vec!["json".into(), "msgpack".into()],
        loads: vec![LoadModel::Open, LoadModel::Closed],
        inference: None,
        worker_env: vec![],
        path: None,
        conformance: None,
        plan: None,
    };
    let service = Service {
        description: String::new(),
        protocol: "wse".into(),
        command: vec!["true".into()],
        version: vec![],
        env: Default::default(),
        books: BookKeeping::Connections,
        protocol_check: ProtocolCheck::AroundTheLoad,
        like: None,
        warmup_seconds: None,
        build: None,
        image: None,
        exceptions: Default::default(),
        root: None,
        described: None,
    };
    Registry {
        root: "/".into(),
        protocols: [("wse".into(), protocol)].into(),
        inference: [].into(),
        services: [(Name::from_static("ours"), service.clone()), (Name::from_static("theirs"), service)].into(),
    }
}

pub(crate) fn machine_limits() -> MachineLimits {
    MachineLimits { cpus: 2, no_fractions: None }
}

pub(crate) fn minimal() -> WirePlan {
    let text = "schema: 1\nname: minimal\nwhy: a test\nseed: 1\nservices: [ours]\nwindow_seconds: 1\n\
                ladders:\n- workload: throughput\n  tiers: [10]\n  load: {model: closed}\n";
    crate::plan::read::parse(text, Path::new("plan.yaml")).unwrap()
}

/// A run of a plan that has no trials yet.
pub(crate) fn run(id: &'static str, plan: WirePlan) -> Run {
    Run {
        schema: SCHEMA,
        id: Name::from_static(id),
        started_at: String::new(),
        finished_at: None,
        state: RunState::Running,
        plan,
        command: String::new(),
        version: String::new(),
        commit: String::new(),
        versions: Default::default(),
        lines: Default::default(),
        machines: vec![],
        cpu_roles: Default::default(),
        usage: Default::default(),
        rest: None,
        outside: None,
        trials: vec![],
        searches: vec![],
        retries: vec![],
        comparison: None,
    }
}

/// The mistakes of the minimal plan after a change.
pub(crate) fn found(change: impl FnOnce(&mut WirePlan)) -> Vec<String> {
    let mut plan = minimal();
    change(&mut plan);
    mistakes(&plan, Path::new("p.yaml"), &registry(), &machine_limits()).iter().map(Mistake::to_string).collect()
}

/// The only mistake of the minimal plan after a change; panics if there are several or none.
pub(crate) fn one(change: impl FnOnce(&mut WirePlan)) -> String {
    let found = found(change);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}
