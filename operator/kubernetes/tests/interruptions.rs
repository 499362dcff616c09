//! Causes outside the service, against a fake API server: each is an interruption that names its object, and the next
//! attempt succeeds once the cause is gone.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bench_format::{Name, environment::Environment, trial::TrialId};
use driver::{
    coordinator::Token,
    stage::{Cause, Stage},
};
use operator::backend::{Backend, Error, ServiceSpec, StartedService, WorkersSpec};
use operator_kubernetes::{
    api::ClusterApi, backend::Kubernetes, caches::Caches, cluster_file::ClusterFile, events::events, journal::Journal,
    pod_end,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{pause, resume, timeout};

use fakes::{Cluster, NAMESPACE, pods};

mod fakes;

/// A release with one service, and its operator.
struct Bench {
    cluster: Cluster,
    operator: Kubernetes,
    caches: Caches,
    results: TempDir,
}

impl Bench {
    async fn new() -> Self {
        let (cluster, client) = Cluster::with(&[("wsl", "service")]).await;
        for job in ["tier", "tier-2", "search", "search-2"] {
            cluster.job(job);
        }
        let port = pods::pod(7, 70).await;
        let file = format!(
            "{{schema: 1, release: wsl, namespace: lab, lease: l, coordinator_url: u, \
             protocols: {{wse: {{worker: w, workloads: [x]}}}}, services: {{}}, \
             jobs: [{{service: ours, workload: x, variant: v, tier: 1, job: tier, spare: tier-2}}, \
             {{service: ours, workload: x, variant: searched, job: search, spare: search-2}}], \
             targets: [{{service: ours, workload: x, variant: v, deployment: wsl, \
             ports: {{ws: 1, metrics: {port}, evidence: {port}}}}}]}}"
        );
        let file: ClusterFile = serde_saphyr::from_str(&file).unwrap();
        let results = tempfile::tempdir().unwrap();
        let caches = Caches::start(&client, (NAMESPACE, "wsl"), None).await.unwrap();
        let operator = Kubernetes::new(
            Arc::new(file),
            ClusterApi::new(&client, NAMESPACE),
            caches.clone(),
            Journal::open(results.path()).unwrap(),
            events().0,
            Duration::from_secs(30),
            Environment::default(),
        );
        Self { cluster, operator, caches, results }
    }

    /// Waits until the watches show a state, such as one that a request of the test has caused.
    async fn until_shown(&self, is_met: impl Fn(&Caches) -> bool) {
        let mut changes = self.caches.changes();
        let shown = async {
            while !is_met(&self.caches) {
                changes.changed().await.unwrap();
            }
        };
        timeout(Duration::from_secs(20), shown).await.expect("the watches show it");
    }

    fn trial() -> TrialId {
        let name = Name::from_static;
        TrialId { service: name("ours"), workload: name("x"), variant: name("v"), tier: 1, process: 1, repeat: 1 }
    }

    async fn start_service(&mut self) -> Result<StartedService, Error> {
        let service = json!({"description": "ours", "protocol": "wse", "command": ["ours:1"]});
        let spec = ServiceSpec {
            name: "ours".into(),
            trial: Self::trial(),
            service: serde_json::from_value(service).unwrap(),
            env: BTreeMap::new(),
            replicas: 1,
            log: self.results.path().join("service.log"),
            inference: None,
        };
        self.operator.start_service(&spec).await
    }

    async fn start_workers(&mut self) -> Result<(), Error> {
        self.start_workers_of(Self::trial()).await
    }

    async fn start_workers_of(&mut self, trial: TrialId) -> Result<(), Error> {
        let spec = WorkersSpec {
            program: "w".into(),
            trial,
            count: 1,
            coordinator: "http://c".into(),
            token: Token::new("token").unwrap(),
            logs: self.results.path().into(),
        };
        self.operator.start_workers(&spec).await
    }
}

fn interruption<T>(outcome: Result<T, Error>) -> String {
    match outcome {
        Err(Error::Interrupted(description)) => description,
        Err(other) => panic!("no interruption: {other}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[tokio::test]
async fn a_deleted_deployment_is_named_and_used_once_it_is_back() {
    let (mut bench, again) = (Bench::new().await, Cluster::with(&[("wsl", "service")]).await.0);
    let deployment = again.object("deployments", "wsl");
    bench.cluster.delete("deployments", "wsl");
    let description = interruption(bench.start_service().await);
    assert!(
        description.starts_with("Deployment wsl was deleted; `helm upgrade` or the next reconcile"),
        "{description}"
    );
    bench.cluster.restore("deployments", "wsl", deployment);
    bench.start_service().await.unwrap();
}

#[tokio::test]
async fn a_deleted_job_is_named_and_used_once_it_is_back() {
    let mut bench = Bench::new().await;
    bench.cluster.delete("jobs", "tier");
    let description = interruption(bench.start_workers().await);
    assert!(description.starts_with("Job tier was deleted; `helm upgrade` or the next reconcile"), "{description}");
    bench.cluster.job("tier");
    bench.start_workers().await.unwrap();
    bench.cluster.delete("jobs", "tier");
    let ended = bench.operator.confirm().await.unwrap();
    assert_eq!((ended.description.as_str(), ended.cause), ("Job tier was deleted", Cause::Outside));
}

#[tokio::test]
async fn an_api_server_that_is_away_interrupts_starts_and_trials() {
    let mut bench = Bench::new().await;
    bench.cluster.set_away(true);
    for description in [interruption(bench.start_service().await), interruption(bench.start_workers().await)] {
        assert!(description.starts_with("the API server is away: failed to read "), "{description}");
    }
    bench.cluster.set_away(false);
    bench.start_service().await.unwrap();
    bench.cluster.set_away(true);
    assert_eq!(bench.operator.confirm().await.unwrap().cause, Cause::Outside);
    bench.cluster.set_away(false);
    assert_eq!(bench.operator.confirm().await, None);
}

#[tokio::test]
async fn a_tier_whose_worker_crashed_gets_its_second_job_and_after_that_none() {
    let mut bench = Bench::new().await;
    for job in ["tier", "tier-2"] {
        bench.start_workers().await.unwrap();
        bench.cluster.crash_worker(job);
        let ended = bench.operator.confirm().await.unwrap();
        let expected = format!("worker 0, pod {job}-0: container worker ended with exit code 5");
        assert_eq!((ended.description, ended.cause), (expected, Cause::Outside));
        bench.operator.stop_workers().await;
    }
    let error = bench.start_workers().await.unwrap_err().to_string();
    assert!(error.contains("tier: Failed (PodFailurePolicy): exit code 5; tier-2: Failed"), "{error}");
    assert!(error.ends_with("run.retry or a new run.id makes new ones"), "{error}");
}

#[tokio::test]
async fn one_job_serves_every_load_of_a_search_and_its_second_one_follows_a_crash() {
    let mut bench = Bench::new().await;
    let of = |tier| TrialId { variant: Name::from_static("searched"), tier, ..Bench::trial() };
    for load in [10, 20, 15] {
        bench.start_workers_of(of(load)).await.unwrap();
        assert_eq!(bench.cluster.object("jobs", "search")["spec"]["suspend"], false, "{load}");
        assert_eq!(bench.operator.worker_ended(), None, "{load}");
        bench.operator.stop_workers().await;
        assert_eq!(bench.cluster.object("jobs", "search")["spec"]["suspend"], true, "{load}");
    }
    bench.start_workers_of(of(17)).await.unwrap();
    bench.cluster.crash_worker("search");
    bench.until_shown(|caches| caches.pods().iter().any(|pod| pod_end::has_crashed(pod))).await;
    bench.operator.stop_workers().await;
    bench.start_workers_of(of(17)).await.unwrap();
    assert_eq!(bench.cluster.object("jobs", "search-2")["spec"]["suspend"], false);
}

#[tokio::test]
async fn a_pod_that_stays_on_a_lost_node_is_named_with_its_node() {
    let mut bench = Bench::new().await;
    bench.start_service().await.unwrap();
    bench.cluster.lose_node("wsl");
    bench.operator.stop_service().await;
    let is_deleted = |caches: &Caches| caches.pods().iter().any(|pod| pod.metadata.deletion_timestamp.is_some());
    bench.until_shown(is_deleted).await;
    // No request is sent meanwhile, so the 90 s pass at once.
    pause();
    let description = interruption(bench.start_service().await);
    resume();
    assert!(description.ends_with("are there after 90 s: wsl-1 (Terminating on node-a)"), "{description}");
    bench.cluster.delete("pods", "wsl-1");
    bench.start_service().await.unwrap();
}
