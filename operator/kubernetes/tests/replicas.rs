//! A service of two pods, against a fake API server: both are started, read, watched and stopped as one service.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bench_format::{Name, environment::Environment, pod::PodRole, trial::TrialId};
use driver::stage::{Cause, Stage};
use operator::backend::{Backend, Error, ServiceSpec, StartedService};
use operator_kubernetes::{
    api::ClusterApi, backend::Kubernetes, caches::Caches, cluster_file::ClusterFile, events::events, journal::Journal,
};
use serde_json::json;
use tempfile::TempDir;

use fakes::{Cluster, NAMESPACE, pods};

mod fakes;

/// A release with a service of two pods, and its operator.
struct Bench {
    cluster: Cluster,
    operator: Kubernetes,
    results: TempDir,
    port: u16,
}

impl Bench {
    async fn new(versions: [&'static str; 2]) -> Self {
        let (cluster, client) = Cluster::with(&[("wsl", "service")]).await;
        let port = pods::two_pods(7, 70, versions).await;
        let file = format!(
            "{{schema: 1, release: wsl, namespace: lab, lease: l, coordinator_url: u, \
             protocols: {{wse: {{worker: w, workloads: [x]}}}}, services: {{}}, jobs: [], \
             targets: [{{service: ours, workload: x, variant: v, deployment: wsl, replicas: 2, \
             ports: {{ws: 1, metrics: {port}, evidence: {port}}}}}]}}"
        );
        let file: ClusterFile = serde_saphyr::from_str(&file).unwrap();
        let results = tempfile::tempdir().unwrap();
        let caches = Caches::start(&client, (NAMESPACE, "wsl"), None).await.unwrap();
        let operator = Kubernetes::new(
            Arc::new(file),
            ClusterApi::new(&client, NAMESPACE),
            caches,
            Journal::open(results.path()).unwrap(),
            events().0,
            Duration::from_secs(2),
            Environment::default(),
        );
        Self { cluster, operator, results, port }
    }

    async fn start_service(&mut self) -> Result<StartedService, Error> {
        let name = Name::from_static;
        let trial =
            TrialId { service: name("ours"), workload: name("x"), variant: name("v"), tier: 2, process: 1, repeat: 1 };
        let service = json!({"description": "ours", "protocol": "wse", "command": ["ours:1"]});
        let spec = ServiceSpec {
            name: "ours".into(),
            trial,
            service: serde_json::from_value(service).unwrap(),
            env: BTreeMap::new(),
            replicas: 2,
            log: self.results.path().join("service.log"),
            inference: None,
        };
        self.operator.start_service(&spec).await
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.results.path().join(name)).unwrap()
    }
}

#[tokio::test]
async fn both_pods_have_an_address_and_are_read_as_one() {
    let mut bench = Bench::new(["1", "1"]).await;
    let started = bench.start_service().await.unwrap().started;
    let port = bench.port;
    assert_eq!(started.address, "127.0.0.1:1,127.0.0.2:1");
    assert_eq!(started.metrics_address, format!("127.0.0.1:{port},127.0.0.2:{port}"));
    let usage = bench.operator.service_usage().await.unwrap().unwrap();
    assert_eq!((usage.pid, usage.cpu_ns, usage.rss_bytes, usage.cpu_limit), (7, 210, 2, 1.0));
    let replicas = bench.operator.details().await.replicas;
    let cpu_ns: Vec<_> = replicas.iter().map(|(name, usage)| (name.as_str(), usage.cpu_ns)).collect();
    assert_eq!(cpu_ns, [("wsl-1", 70), ("wsl-2", 140)]);
}

#[tokio::test]
async fn the_evidence_lists_both_pods_and_both_logs_are_kept() {
    let mut bench = Bench::new(["1", "1"]).await;
    bench.start_service().await.unwrap();
    let pods = bench.operator.pods();
    let found: Vec<_> = pods.iter().map(|pod| (pod.name.as_str(), pod.role, pod.cpus_allowed.as_str())).collect();
    assert_eq!(found, [("wsl-1", PodRole::Service, "7"), ("wsl-2", PodRole::Service, "14")]);
    bench.operator.stop_service().await;
    assert_eq!(bench.log("service.log"), "last log line of wsl-1\n");
    assert_eq!(bench.log("service-1.log"), "last log line of wsl-2\n");
    assert_eq!(bench.cluster.scaled(), [("wsl".to_owned(), 2), ("wsl".to_owned(), 0)]);
    bench.operator.put_back().await.unwrap();
    assert_eq!(Journal::open(bench.results.path()).unwrap().entries(), []);
}

#[tokio::test]
async fn the_end_of_any_pod_is_the_end_of_the_service() {
    for pod in ["wsl-1", "wsl-2"] {
        let mut bench = Bench::new(["1", "1"]).await;
        bench.start_service().await.unwrap();
        assert_eq!(bench.operator.confirm().await, None);
        bench.cluster.restart_pod(pod);
        let ended = bench.operator.confirm().await.unwrap();
        assert!(ended.description.starts_with(&format!("pod {pod}: ")), "{}", ended.description);
        assert!(matches!(ended.cause, Cause::Service(_)), "{ended:?}");
    }
}

#[tokio::test]
async fn a_pod_that_is_removed_is_named_and_interrupts_the_trial() {
    let mut bench = Bench::new(["1", "1"]).await;
    bench.start_service().await.unwrap();
    bench.cluster.delete("pods", "wsl-2");
    let ended = bench.operator.confirm().await.unwrap();
    assert_eq!((ended.description.as_str(), ended.cause), ("pod wsl-2 of the service was removed", Cause::Outside));
}

#[tokio::test]
async fn the_service_starts_when_its_last_pod_is_ready() {
    let mut bench = Bench::new(["1", "1"]).await;
    bench.cluster.never_ready("wsl-2");
    let error = bench.start_service().await.unwrap_err().to_string();
    assert!(error.contains("pod wsl-2") && error.contains("last log line of wsl-2"), "{error}");
    assert_eq!(bench.cluster.scaled().last(), Some(&("wsl".to_owned(), 0)));
    bench.cluster.ready_again();
    bench.start_service().await.unwrap();
}

#[tokio::test]
async fn pods_of_two_versions_are_not_one_service() {
    let mut bench = Bench::new(["1", "2"]).await;
    let error = bench.start_service().await.unwrap_err().to_string();
    assert!(error.contains("the replicas are not the same program"), "{error}");
    assert_eq!(bench.cluster.scaled().last(), Some(&("wsl".to_owned(), 0)));
}
