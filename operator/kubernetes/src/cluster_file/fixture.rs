//! A small plan with its cluster file, for tests.

use std::path::Path;

use bench_format::{
    Name,
    run::{Run, RunState, Search, SearchFound},
};

use super::{CheckedInputs, ClusterFile};

pub(crate) const CLUSTER: &str = r#"
schema: 1
run_id: "r1"
release: wsl
namespace: bench
lease: wsl-operator
coordinator_url: http://wsl-operator.bench.svc:8080
protocols:
  wse: { worker: wse-bench, workloads: [throughput], formats: [json] }
services:
  wse-server: { description: "ours", protocol: wse, books: connections, image: "local/wse-server:1" }
targets:
  - { service: wse-server, workload: throughput, variant: batch, deployment: wsl-wse-server, replicas: 1, ports: { ws: 5006, metrics: 9100, evidence: 9101 } }
jobs:
  - { service: wse-server, workload: throughput, variant: batch, tier: 100, job: wsl-wse-server-throughput-batch-100-abcdef12, spare: wsl-wse-server-throughput-batch-100-abcdef12-2 }
"#;

pub(crate) const PLAN: &str = "schema: 1\nname: small\nwhy: a test\nseed: 1\nservices: [wse-server]\n\
    window_seconds: 1\nladders:\n- workload: throughput\n  variant: batch\n  tiers: [100]\n  load: {model: closed}\n";

pub(crate) fn cluster() -> ClusterFile {
    serde_saphyr::from_str(CLUSTER).unwrap()
}

pub(crate) fn inputs() -> CheckedInputs {
    let wire = operator::plan::read::parse(PLAN, Path::new("plan.yaml")).unwrap();
    CheckedInputs::check(wire, Path::new("plan.yaml"), cluster(), Path::new("cluster.yaml")).unwrap()
}

/// A run of that plan in this state, which has no trials and has not ended.
pub(crate) fn run(id: &'static str, state: RunState) -> Run {
    Run {
        schema: 1,
        id: Name::from_static(id),
        started_at: String::new(),
        finished_at: None,
        state,
        plan: inputs().plan.wire,
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
        retries: vec![],
        searches: vec![],
        comparison: None,
    }
}

/// A run with one search, which has no result yet.
pub(crate) fn searching() -> Run {
    let name = Name::from_static;
    let (service, workload, variant) = (name("wse-server"), name("throughput"), name("batch"));
    Run { searches: vec![Search { service, workload, variant, found: None }], ..run("s1", RunState::Running) }
}

/// The result of a search that found and confirmed a capacity.
pub(crate) fn found() -> SearchFound {
    serde_json::from_value(serde_json::json!({
        "goals": [], "conditional_throughput": null, "confirmed": 48, "borderline": [], "first_solid_fail": 53,
        "at_least": false, "gates": [], "edge": null, "bound_by": null, "generator_limit": null, "given_up_at": null,
        "capacity": {
            "start": 50.0, "in_turn": 1,
            "estimate": {"load": 50.0, "low": 49.0, "high": 51.5, "spread": 0.01, "trials": 12},
            "confirm": {"load": 48, "passed": 5, "failed": 0, "succeeded": true},
            "fail": {"load": 53, "passed": 0, "failed": 5, "succeeded": true},
        },
    }))
    .unwrap()
}
