//! Caches of the cluster's state, kept current by watches in the background: the pods of the release and of a service of the
//! user's own, and the Deployments, Jobs and events of the namespace. Changes wake waiting tasks; nothing is polled.

use std::{fmt, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Event, Pod},
};
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        reflector::{self, Store},
        utils::Backoff,
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, time::timeout};

use crate::cluster_file::DescribedPods;

/// Longest wait for the first complete lists.
const FIRST_LISTS: Duration = Duration::from_secs(30);
/// Pause before a watch that broke is tried again. The client's default grows to 30 s, so that an operator would wait that
/// long after an API server is back.
const WATCH_RETRY: Duration = Duration::from_secs(1);

/// The caches of one namespace.
#[derive(Clone)]
pub struct Caches {
    pods: Store<Pod>,
    /// Those of a service that the release doesn't start, if the operator may see them.
    described_pods: Option<Store<Pod>>,
    deployments: Store<Deployment>,
    jobs: Store<Job>,
    events: Store<Event>,
    changed: watch::Sender<()>,
    pod_failure: watch::Sender<Option<String>>,
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").field("pods", &self.pods.len()).finish_non_exhaustive()
    }
}

impl Caches {
    /// Starts the watches, and returns when everything was listed once.
    ///
    /// # Errors
    /// The reason as text, when the lists don't arrive in time.
    pub async fn start(
        client: &Client,
        (namespace, release): (&str, &str),
        described: Option<&DescribedPods>,
    ) -> Result<Self, String> {
        let (changed, pod_failure) = (watch::Sender::new(()), watch::Sender::new(None));
        let of_release = watcher::Config::default().labels(&format!("app.kubernetes.io/instance={release}"));
        let all = watcher::Config::default();
        let described_pods = described.map(|described| {
            let selected = watcher::Config::default().labels(&described.selector());
            watch(Api::namespaced(client.clone(), &described.namespace), selected, &changed, &pod_failure)
        });
        let caches = Self {
            described_pods,
            pods: watch(Api::namespaced(client.clone(), namespace), of_release, &changed, &pod_failure),
            deployments: watch(Api::namespaced(client.clone(), namespace), all.clone(), &changed, &pod_failure),
            jobs: watch(Api::namespaced(client.clone(), namespace), all.clone(), &changed, &pod_failure),
            events: watch(Api::namespaced(client.clone(), namespace), all, &changed, &pod_failure),
            changed,
            pod_failure,
        };
        let all_listed = async {
            let _ = caches.pods.wait_until_ready().await;
            if let Some(described_pods) = &caches.described_pods {
                let _ = described_pods.wait_until_ready().await;
            }
            let _ = caches.deployments.wait_until_ready().await;
            let _ = caches.jobs.wait_until_ready().await;
            let _ = caches.events.wait_until_ready().await;
        };
        match timeout(FIRST_LISTS, all_listed).await {
            Ok(()) => Ok(caches),
            Err(_) => {
                let description =
                    caches.pod_failure.borrow().clone().unwrap_or_else(|| "the API server doesn't respond".into());
                Err(format!("failed to list pods, Deployments, Jobs and events of {namespace}: {description}"))
            }
        }
    }

    /// The pods of the release.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.state()
    }

    /// The pods of a service of the user's own; empty if the operator may not see them.
    pub fn described_pods(&self) -> Vec<Arc<Pod>> {
        self.described_pods.as_ref().map(Store::state).unwrap_or_default()
    }

    /// The Deployment of that name, if it exists.
    pub fn deployment(&self, name: &str) -> Option<Arc<Deployment>> {
        self.deployments.find(|deployment| deployment.metadata.name.as_deref() == Some(name))
    }

    /// The Job of that name, if it exists.
    pub fn job(&self, name: &str) -> Option<Arc<Job>> {
        self.jobs.find(|job| job.metadata.name.as_deref() == Some(name))
    }

    /// The events of the namespace.
    pub fn events(&self) -> Vec<Arc<Event>> {
        self.events.state()
    }

    /// A receiver that is notified of every change from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// The same pause after each failure of a watch.
struct EvenPauses;

impl Iterator for EvenPauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(WATCH_RETRY)
    }
}

impl Backoff for EvenPauses {
    fn reset(&mut self) {}
}

/// Keeps a cache of one kind current for as long as the process lives.
fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    changed: &watch::Sender<()>,
    pod_failure: &watch::Sender<Option<String>>,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let (changed, pod_failure) = (changed.clone(), pod_failure.clone());
    let stream = watcher(api, config).backoff(EvenPauses).reflect(writer);
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            if let Err(error) = event {
                pod_failure.send_replace(Some(format!("{}: {error}", K::plural(&()))));
            }
            changed.send_replace(());
        }
    });
    store
}
