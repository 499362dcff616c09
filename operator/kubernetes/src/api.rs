//! The operations of the operator on a cluster, each with a deadline and a few attempts. Changes are applied
//! server-side with our own field manager, which distinguishes them from the chart's.

use std::{collections::BTreeMap, time::Duration};

use driver::http::chain;
use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams, PartialObjectMeta, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::cluster_file::DescribedPods;

/// Field manager of our changes.
pub const FIELD_MANAGER: &str = "ws-ladder";
/// Longest wait for one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of attempts while the API server is busy or unreachable.
const ATTEMPTS: u32 = 3;
/// Interval between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Largest log that is read from a container, in bytes.
const LOG_BYTES: i64 = 16 * 1024 * 1024;

/// Why a request to the API server failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object doesn't exist.
    #[error("failed to {what}: it doesn't exist")]
    NotFound {
        /// The operation that failed.
        what: String,
    },
    /// The API server can't be reached, or is too busy.
    #[error("failed to {what}: {reason}")]
    Unavailable {
        /// The operation that failed.
        what: String,
        /// The error of the connection, or the API server's message.
        reason: String,
    },
    /// The API server refused the request.
    #[error("failed to {what}: {reason}")]
    Refused {
        /// The operation that failed.
        what: String,
        /// The reason of the API server.
        reason: String,
    },
    /// The API server didn't respond in time.
    #[error("failed to {what}: no response within {} s", RESPONSE_TIMEOUT.as_secs())]
    NoResponse {
        /// The operation that failed.
        what: String,
    },
}

/// Access to the Deployments, Jobs and pods of one namespace.
#[derive(Clone)]
pub struct ClusterApi {
    deployments: Api<Deployment>,
    jobs: Api<Job>,
    pods: Api<Pod>,
    pods_of_all: Api<Pod>,
    nodes: Api<Node>,
    client: Client,
}

impl std::fmt::Debug for ClusterApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterApi")
    }
}

impl ClusterApi {
    /// Access to one namespace.
    pub fn new(client: &Client, namespace: &str) -> Self {
        Self {
            deployments: Api::namespaced(client.clone(), namespace),
            jobs: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
            pods_of_all: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            client: client.clone(),
        }
    }

    /// Reads a Deployment from the API server.
    ///
    /// # Errors
    /// When it doesn't exist, or the API server refuses or doesn't respond.
    pub async fn deployment(&self, name: &str) -> Result<Deployment, Error> {
        with_retries(format!("read Deployment {name}"), || self.deployments.get(name)).await
    }

    /// Reads a Job from the API server.
    ///
    /// # Errors
    /// When it doesn't exist, or the API server refuses or doesn't respond.
    pub async fn job(&self, name: &str) -> Result<Job, Error> {
        with_retries(format!("read Job {name}"), || self.jobs.get(name)).await
    }

    /// Reads a pod from the API server.
    ///
    /// # Errors
    /// When it doesn't exist, or the API server refuses or doesn't respond.
    pub async fn pod(&self, name: &str) -> Result<Pod, Error> {
        with_retries(format!("read pod {name}"), || self.pods.get(name)).await
    }

    /// Lists the pods of a Job.
    ///
    /// # Errors
    /// When the API server refuses or doesn't respond.
    pub async fn pods_of_job(&self, job: &str) -> Result<Vec<Pod>, Error> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        Ok(with_retries(format!("list the pods of Job {job}"), || self.pods.list(&of_job)).await?.items)
    }

    /// Reads a node from the API server.
    ///
    /// # Errors
    /// When it doesn't exist, or the API server refuses, as it does without a ClusterRole, or doesn't respond.
    pub async fn node(&self, name: &str) -> Result<Node, Error> {
        with_retries(format!("read node {name}"), || self.nodes.get(name)).await
    }

    /// Lists the pods of a service of the user's own, which may be in another namespace.
    ///
    /// # Errors
    /// When the API server refuses or doesn't respond.
    pub async fn described_pods(&self, described: &DescribedPods) -> Result<Vec<Pod>, Error> {
        let DescribedPods { namespace, .. } = described;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let selected = ListParams::default().labels(&described.selector());
        let what = format!("list the pods of namespace {namespace} with {}", described.selector());
        Ok(with_retries(what, || pods.list(&selected)).await?.items)
    }

    /// The pods of a node, of all namespaces: `NAMESPACE/NAME` by unique id.
    ///
    /// # Errors
    /// When the API server refuses, as it does without a ClusterRole, or doesn't respond.
    pub async fn pods_of_node(&self, node: &str) -> Result<BTreeMap<String, String>, Error> {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let what = format!("list the pods of node {node}");
        let pods = with_retries(what, || self.pods_of_all.list_metadata(&of_node)).await?;
        let named = |pod: PartialObjectMeta<Pod>| {
            let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
            Some((pod.uid()?, name))
        };
        Ok(pods.items.into_iter().filter_map(named).collect())
    }

    /// Sets the number of pods of a Deployment.
    ///
    /// # Errors
    /// When the API server refuses or doesn't respond.
    pub async fn scale(&self, deployment: &str, replicas: i32) -> Result<(), Error> {
        let change = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": deployment}, "spec": {"replicas": replicas},
        });
        let what = format!("scale Deployment {deployment} to {replicas}");
        with_retries(what, || async {
            self.deployments.patch_scale(deployment, &patch_params(), &Patch::Apply(&change)).await
        })
        .await
        .map(|_| ())
    }

    /// Suspends a Job, or releases it so that its pods are created.
    ///
    /// # Errors
    /// When the API server refuses or doesn't respond.
    pub async fn suspend(&self, job: &str, suspend: bool) -> Result<(), Error> {
        let change: Value = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job}, "spec": {"suspend": suspend},
        });
        let what = format!("{} Job {job}", if suspend { "suspend" } else { "release" });
        with_retries(what, || async { self.jobs.patch(job, &patch_params(), &Patch::Apply(&change)).await })
            .await
            .map(|_| ())
    }

    /// Reads the log of a container; with `previous`, of its instance before the last restart.
    ///
    /// # Errors
    /// When the kubelet has no log, or the API server refuses or doesn't respond.
    pub async fn log(&self, pod: &str, container: &str, previous: bool) -> Result<String, Error> {
        let parameters = LogParams {
            container: Some(container.into()),
            previous,
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        with_retries(format!("read the log of {container} in pod {pod}"), || self.pods.logs(pod, &parameters)).await
    }
}

fn patch_params() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}

/// Repeats a request until it succeeds, fails for a reason that a retry doesn't change, or the attempts are used up.
async fn with_retries<T, F: Future<Output = kube::Result<T>>>(
    what: String,
    request: impl Fn() -> F,
) -> Result<T, Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let error = match timeout(RESPONSE_TIMEOUT, request()).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => return Err(Error::NotFound { what }),
            Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                return Err(Error::Refused { what, reason: status.message });
            }
            Ok(Err(error)) => Error::Unavailable { what: what.clone(), reason: chain(&error) },
            Err(_) => Error::NoResponse { what: what.clone() },
        };
        if attempts >= ATTEMPTS {
            return Err(error);
        }
        sleep(RETRY_INTERVAL).await;
    }
}
