//! A service that only the plan describes, against a fake API server: where load goes, what is read of its pods, and how a
//! Deployment of the user's is scaled and restored.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bench_format::{Name, environment::Environment, pod::PodRole, trial::TrialId, websocket::WebsocketService};
use driver::stage::{Cause, Stage};
use operator::backend::{Backend, Error, ServiceSpec, StartedService};
use operator_kubernetes::{
    api::ClusterApi, backend::Kubernetes, caches::Caches, cluster_file::ClusterFile, events::events, journal::Journal,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use fakes::{Cluster, NAMESPACE};

mod fakes;

const LABELS: &str = "pods: {namespace: lab, labels: {app: chat}";
const UIDS: [&str; 2] = ["uid of chat-a", "uid of chat-b"];

/// A release whose plan describes a chat, and its operator.
struct Bench {
    cluster: Cluster,
    operator: Kubernetes,
    caches: Caches,
    /// The chat, which accepts connections.
    listener: TcpListener,
    url: String,
    results: TempDir,
}

impl Bench {
    /// `target` is the chart's, where PORT stands for the port of the chat; `pods` are its pods with their addresses.
    async fn new(target: &str, pods: &[(&str, &str)], agent: bool) -> Self {
        let (cluster, client) = Cluster::with(&[("chat", "app")]).await;
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for (name, ip) in pods {
            cluster.foreign_pod(name, ip, &json!({"app": "chat"}));
        }
        let agent = if agent { format!("node_evidence_port: {}, ", cluster.agent(&UIDS).await) } else { String::new() };
        let file = format!(
            "{{schema: 1, release: wsl, namespace: lab, lease: l, coordinator_url: u, protocols: {{}}, services: {{}}, \
             {agent}jobs: [], targets: [], described_target: {{authority: 'localhost:{port}', {}}}}}",
            target.replace("PORT", &port.to_string())
        );
        let file: Arc<ClusterFile> = Arc::new(serde_saphyr::from_str(&file).unwrap());
        let results = tempfile::tempdir().unwrap();
        let described = file.described_target.as_ref().unwrap().pods.as_ref();
        let caches = Caches::start(&client, (NAMESPACE, "wsl"), described).await.unwrap();
        let operator = Kubernetes::new(
            Arc::clone(&file),
            ClusterApi::new(&client, NAMESPACE),
            caches.clone(),
            Journal::open(results.path()).unwrap(),
            events().0,
            Duration::from_secs(30),
            Environment::default(),
        );
        let url = format!("ws://localhost:{port}/room");
        Self { cluster, operator, caches, listener, url, results }
    }

    async fn start(&mut self) -> Result<StartedService, Error> {
        let described = json!({"url": self.url, "version": "4.2"});
        let described: WebsocketService = serde_json::from_value(described).unwrap();
        let service = json!({"description": "chat", "protocol": "websocket", "command": []});
        let service = serde_json::from_value(service).unwrap();
        let trial = TrialId {
            service: Name::from_static("chat"),
            workload: Name::from_static("request-reply"),
            variant: Name::from_static("standard"),
            tier: 1,
            process: 1,
            repeat: 1,
        };
        let spec = ServiceSpec {
            name: "chat".into(),
            trial,
            service: operator::registry::Service { described: Some(described), ..service },
            env: BTreeMap::new(),
            replicas: 1,
            log: self.results.path().join("service.log"),
            inference: None,
        };
        self.operator.start_service(&spec).await
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    async fn until_shown(&self, pods: usize) {
        let mut changes = self.caches.changes();
        while self.caches.described_pods().len() != pods {
            changes.changed().await.unwrap();
        }
    }

    fn scaled(&self) -> Vec<String> {
        self.cluster.scaled().iter().map(|(name, replicas)| format!("{name} {replicas}")).collect()
    }
}

#[tokio::test]
async fn a_service_without_known_pods_is_loaded_at_its_address_and_its_use_is_absent_with_the_way_to_get_it() {
    let mut bench = Bench::new("", &[], false).await;
    let started = bench.start().await.unwrap();
    assert_eq!(started.started.address, format!("localhost:{}", bench.port()));
    assert_eq!((started.versions["chat"].as_str(), started.more_addresses.len()), ("4.2", 0));
    let usage = started.usage.unwrap();
    assert!(usage.starts_with("CPU and memory are not read: the pods of the service are not known"), "{usage}");
    assert!(usage.contains("target.pods.labels") && usage.ends_with("so there is a NAT between them"), "{usage}");
    assert_eq!(bench.operator.service_usage().await.unwrap(), None);
    assert_eq!((bench.operator.service_ended(), bench.operator.confirm().await), (None, None));
    let role = &bench.operator.placement().cpu_roles["service"];
    assert!(role.starts_with(&format!("not known: {} was not started by ladder", bench.url)), "{role}");
}

#[tokio::test]
async fn pods_are_listed_and_their_use_is_added_up_from_the_agents_of_their_nodes() {
    let target = format!("{LABELS}}}");
    let mut bench = Bench::new(&target, &[("chat-a", "127.0.0.1"), ("chat-b", "127.0.0.2")], true).await;
    let started = bench.start().await.unwrap();
    assert_eq!(started.versions["image of chat"], "chat@sha256:4");
    let usage = started.usage.unwrap();
    assert!(usage.starts_with("CPU and memory are those of chat-a, chat-b with all containers"), "{usage}");
    let used = bench.operator.service_usage().await.unwrap().unwrap();
    assert_eq!((used.cpu_ns, used.rss_bytes, used.cpu_limit), (140, 14, 8.0));
    let pods: Vec<_> = bench.operator.pods().into_iter().map(|pod| (pod.role, pod.name, pod.node)).collect();
    assert_eq!(pods[1], (PodRole::Service, "chat-b".into(), "node-a".into()));
    assert!(bench.operator.placement().cpu_roles["service"].starts_with("2 pods on node-a"));
    assert_eq!(
        bench.operator.shares().isolation,
        None,
        "what such a service is guaranteed is not the release's matter"
    );
}

#[tokio::test]
async fn without_agents_pods_are_listed_and_their_use_is_absent() {
    let mut bench = Bench::new(&format!("{LABELS}}}"), &[("chat-a", "127.0.0.1")], false).await;
    let usage = bench.start().await.unwrap().usage.unwrap();
    assert!(usage.contains("set nodeEvidence.enabled"), "{usage}");
    assert_eq!(bench.operator.service_usage().await.unwrap(), None);
    assert_eq!(bench.operator.pods().len(), 1);
}

#[tokio::test]
async fn a_pod_that_no_agent_reports_is_named() {
    let mut bench = Bench::new(&format!("{LABELS}}}"), &[("chat-c", "127.0.0.1")], true).await;
    let usage = bench.start().await.unwrap().usage.unwrap();
    assert!(usage.contains("no agent on node node-a reports pod chat-c"), "{usage}");
}

#[tokio::test]
async fn an_agent_that_is_starting_is_waited_for() {
    let mut bench = Bench::new(&format!("{LABELS}}}"), &[("chat-a", "127.0.0.1")], true).await;
    bench.cluster.agent_refuses(3);
    let usage = bench.start().await.unwrap().usage.unwrap();
    assert!(usage.starts_with("CPU and memory are those of chat-a"), "{usage}");
}

#[tokio::test]
async fn direct_load_goes_to_the_addresses_of_all_pods() {
    let target = format!("direct: true, {LABELS}, port: PORT}}");
    let mut bench = Bench::new(&target, &[("chat-a", "127.0.0.1"), ("chat-b", "127.0.0.2")], false).await;
    let started = bench.start().await.unwrap();
    let mut addresses = started.more_addresses;
    addresses.push(started.started.address);
    addresses.sort();
    assert_eq!(addresses, ["127.0.0.1", "127.0.0.2"].map(|ip| format!("{ip}:{}", bench.port())));
    assert!(started.usage.unwrap().ends_with("load goes to the addresses of its pods, in turn"));
}

#[tokio::test]
async fn a_pod_that_goes_or_comes_interrupts_the_trial() {
    let mut bench = Bench::new(&format!("{LABELS}}}"), &[("chat-a", "127.0.0.1")], false).await;
    bench.start().await.unwrap();
    assert_eq!((bench.operator.service_ended(), bench.operator.confirm().await), (None, None));
    bench.cluster.foreign_pod("chat-b", "127.0.0.2", &json!({"app": "chat"}));
    bench.until_shown(2).await;
    let ended = bench.operator.service_ended().unwrap();
    assert!(ended.description.starts_with("pod chat-b of the service came while a trial ran"), "{}", ended.description);
    assert_eq!(
        (ended.cause, bench.operator.confirm().await.map(|ended| ended.cause)),
        (Cause::Outside, Some(Cause::Outside))
    );
    bench.cluster.delete("pods", "chat-a");
    bench.until_shown(1).await;
    assert_eq!(bench.operator.service_ended().unwrap().description, "pod chat-a of the service was removed");
}

#[tokio::test]
async fn a_deployment_of_the_user_is_scaled_for_each_process_and_gets_its_replicas_back() {
    let target = "scale: {deployment: chat, replicas: 1}, pods: {namespace: lab, labels: {target: chat}}";
    let mut bench = Bench::new(target, &[], false).await;
    // It runs when the climb begins.
    bench.cluster.scale("chat", 1);
    bench.until_shown(1).await;
    let started = bench.start().await.unwrap();
    assert_eq!(bench.scaled(), ["chat 0", "chat 1"]);
    assert_eq!(started.versions["image of chat"], "chat@sha256:1");
    assert!(bench.operator.placement().cpu_roles["service"].contains("was scaled by ladder"));
    bench.operator.stop_service().await;
    bench.cluster.forget();
    bench.operator.put_back().await.unwrap();
    assert_eq!(bench.scaled(), ["chat 1"], "it had one pod before");
    assert_eq!(Journal::open(bench.results.path()).unwrap().entries(), []);
}

#[tokio::test]
async fn another_client_that_scales_the_deployment_interrupts_the_trial() {
    let target = "scale: {deployment: chat, replicas: 1}, pods: {namespace: lab, labels: {target: chat}}";
    let mut bench = Bench::new(target, &[], false).await;
    bench.start().await.unwrap();
    bench.cluster.scale("chat", 0);
    let ended = bench.operator.confirm().await.unwrap();
    assert_eq!(ended.description, "another client set the replicas of Deployment chat to 0 while a trial needed 1");
}

#[tokio::test]
async fn a_public_host_is_refused_at_each_start() {
    let mut bench = Bench::new("", &[], false).await;
    bench.url = "ws://192.0.2.1:80/".into();
    let Err(Error::NotReady { reason, .. }) = bench.start().await else { panic!("it was loaded") };
    assert!(reason.ends_with("set target.iMayLoadThisHost to 192.0.2.1"), "{reason}");
}
