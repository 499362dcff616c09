//! Tests of a service with companions against a fake API server: the order of scaling, the evidence that is read, and
//! what is restored.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use bench_format::{environment::Environment, pod::PodRole, trial::TrialId};
use driver::stage::{Cause, Stage};
use operator::backend::{Backend, Error, ServiceSpec};
use operator_kubernetes::{
    api::ClusterApi,
    backend::Kubernetes,
    caches::Caches,
    cluster_file::ClusterFile,
    events::events,
    journal::{Journal, Original},
};
use serde_json::json;
use tempfile::TempDir;

use fakes::{Cluster, NAMESPACE, pods};

mod fakes;

const DEPLOYMENTS: [(&str, &str); 3] =
    [("wsl", "service"), ("wsl--redis", "companion"), ("wsl--publisher", "companion")];

/// A release with one service and two companions, and its operator.
struct Bench {
    cluster: Cluster,
    client: kube::Client,
    file: Arc<ClusterFile>,
    results: TempDir,
}

impl Bench {
    async fn new() -> Self {
        let (cluster, client) = Cluster::with(&DEPLOYMENTS).await;
        let (service, redis, publisher) = (pods::pod(7, 70).await, pods::pod(8, 80).await, pods::pod(9, 90).await);
        let file = format!(
            "{{schema: 1, release: wsl, namespace: lab, lease: l, coordinator_url: u, \
             protocols: {{wse: {{worker: w, workloads: [x]}}}}, services: {{}}, jobs: [], \
             targets: [{{service: ours, workload: x, variant: v, deployment: wsl, \
             ports: {{ws: 1, metrics: {service}, evidence: {service}}}, companions: [\
             {{name: redis, deployment: wsl--redis, image: 'redis:1', ports: {{evidence: {redis}}}}}, \
             {{name: publisher, deployment: wsl--publisher, image: 'ours:1', \
             ports: {{metrics: {publisher}, evidence: {publisher}}}}}]}}]}}"
        );
        let file = Arc::new(serde_saphyr::from_str(&file).unwrap());
        Self { cluster, client, file, results: tempfile::tempdir().unwrap() }
    }

    /// An operator with this start deadline.
    async fn operator(&self, start_deadline: Duration) -> Kubernetes {
        Kubernetes::new(
            Arc::clone(&self.file),
            ClusterApi::new(&self.client, NAMESPACE),
            Caches::start(&self.client, (NAMESPACE, "wsl"), None).await.unwrap(),
            self.journal(),
            events().0,
            start_deadline,
            Environment::default(),
        )
    }

    fn journal(&self) -> Journal {
        Journal::open(self.results.path()).unwrap()
    }

    fn spec(&self) -> ServiceSpec {
        let service = json!({"description": "ours", "protocol": "wse", "command": ["ours:1"]});
        let trial = TrialId {
            service: bench_format::Name::from_static("ours"),
            workload: bench_format::Name::from_static("x"),
            variant: bench_format::Name::from_static("v"),
            tier: 1,
            process: 1,
            repeat: 1,
        };
        ServiceSpec {
            name: "ours".into(),
            trial,
            service: serde_json::from_value(service).unwrap(),
            env: BTreeMap::new(),
            replicas: 1,
            log: self.path("service.log"),
            inference: None,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.results.path().join(name)
    }

    fn scaled(&self) -> Vec<String> {
        self.cluster.scaled().iter().map(|(name, replicas)| format!("{name} {replicas}")).collect()
    }
}

const START_DEADLINE: Duration = Duration::from_secs(30);
const SCALED_UP: [&str; 3] = ["wsl--redis 1", "wsl--publisher 1", "wsl 1"];
const SCALED_DOWN: [&str; 3] = ["wsl 0", "wsl--publisher 0", "wsl--redis 0"];

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn companions_start_before_their_service_and_stop_after_it() {
    let bench = Bench::new().await;
    let mut operator = bench.operator(START_DEADLINE).await;
    let serving = operator.start_service(&bench.spec()).await.unwrap();
    assert_eq!(bench.scaled(), SCALED_UP);
    assert_eq!(serving.started.pid, 7);
    assert_eq!(serving.versions["redis"], "redis:1");
    assert_eq!(serving.versions["image of publisher"], "wsl--publisher@sha256:1");
    assert_eq!(bench.journal().entries().len(), 3, "an original value is missing in the journal");

    bench.cluster.forget();
    operator.stop_service().await;
    assert_eq!(bench.scaled(), SCALED_DOWN);
    assert_eq!(text(&bench.path("companion-redis.log")), "last log line of wsl--redis-1\n");
    assert_eq!(text(&bench.path("companion-publisher.log")), "last log line of wsl--publisher-1\n");
    operator.put_back().await.unwrap();
    assert_eq!(bench.journal().entries(), []);
}

#[tokio::test]
async fn an_object_in_the_journal_but_not_in_the_cluster_file_is_not_changed() {
    let bench = Bench::new().await;
    let mut journal = bench.journal();
    journal.note(Original::Deployment { name: "database".into(), replicas: 0 }).unwrap();
    journal.note(Original::Deployment { name: "wsl".into(), replicas: 0 }).unwrap();
    journal.note(Original::Job { name: "backup".into(), suspend: true }).unwrap();
    let mut operator = bench.operator(START_DEADLINE).await;
    operator.put_back().await.unwrap();
    assert_eq!(bench.scaled(), ["wsl 0"]);
    assert_eq!(bench.journal().entries(), []);
}

#[tokio::test]
async fn the_usage_of_companions_is_reported_by_name_and_pod() {
    let bench = Bench::new().await;
    let mut operator = bench.operator(START_DEADLINE).await;
    operator.start_service(&bench.spec()).await.unwrap();
    let used: Vec<(String, u64)> =
        operator.companions_usage().await.unwrap().into_iter().map(|(name, usage)| (name, usage.cpu_ns)).collect();
    assert_eq!(used, [("publisher".to_owned(), 90), ("redis".to_owned(), 80)]);
    assert_eq!(operator.service_usage().await.unwrap().unwrap().cpu_ns, 70);

    let (pods, placement) = (operator.pods(), operator.placement());
    let pods: Vec<(PodRole, Option<&str>, &str)> =
        pods.iter().map(|pod| (pod.role, pod.companion.as_deref(), pod.cpus_allowed.as_str())).collect();
    let companion = PodRole::Companion;
    let expected =
        [(PodRole::Service, None, "7"), (companion, Some("redis"), "8"), (companion, Some("publisher"), "9")];
    assert_eq!(pods, expected);
    assert_eq!(placement.cpu_roles["companion redis"], "8 of node-a (Guaranteed)");
    assert_eq!(operator.shares().isolation, None);
}

#[tokio::test]
async fn the_clock_of_the_companion_that_publishes_counts_and_not_that_of_the_service() {
    let bench = Bench::new().await;
    let mut operator = bench.operator(START_DEADLINE).await;
    operator.start_service(&bench.spec()).await.unwrap();
    let clock = operator.publisher_clock().await.unwrap();
    let deviation_ns = clock.ahead_ns.abs_diff(pods::clock_ahead_ns(9) as i64);
    assert!(deviation_ns <= clock.uncertainty_ns, "{clock:?}");
}

#[tokio::test]
async fn an_unready_companion_is_reported_with_its_event_and_log_and_all_is_scaled_down() {
    let bench = Bench::new().await;
    bench.cluster.never_ready("wsl--publisher");
    // The companion before it must become ready within that time.
    let mut operator = bench.operator(Duration::from_secs(2)).await;
    let Err(Error::NotReady { name, reason, log }) = operator.start_service(&bench.spec()).await else {
        panic!("it became ready")
    };
    assert_eq!(name, "companion publisher");
    assert!(reason.starts_with("pod wsl--publisher-1: phase Running, not Ready: not yet"), "{reason}");
    assert!(reason.contains("last event: Unhealthy: connection refused"), "{reason}");
    assert!(log.contains("last log line of wsl--publisher-1"), "{log}");
    assert_eq!(bench.scaled(), ["wsl--redis 1", "wsl--publisher 1", "wsl--publisher 0", "wsl--redis 0"]);
}

#[tokio::test]
async fn a_companion_that_restarts_interrupts_the_trial() {
    let bench = Bench::new().await;
    let mut operator = bench.operator(START_DEADLINE).await;
    operator.start_service(&bench.spec()).await.unwrap();
    assert_eq!((operator.service_ended(), operator.confirm().await), (None, None));
    bench.cluster.restart("wsl--redis");
    let ended = operator.confirm().await.unwrap();
    assert_eq!(ended.description, "pod wsl--redis-1: container companion ended with exit code 1");
    assert_eq!(ended.cause, Cause::Outside);
}

#[tokio::test]
async fn a_new_operator_scales_down_the_pods_of_a_killed_one() {
    let bench = Bench::new().await;
    let mut killed = bench.operator(START_DEADLINE).await;
    killed.start_service(&bench.spec()).await.unwrap();
    drop(killed);
    bench.cluster.forget();
    bench.operator(START_DEADLINE).await.put_back().await.unwrap();
    assert_eq!(bench.scaled(), SCALED_DOWN);
    assert_eq!(bench.journal().entries(), []);
}
