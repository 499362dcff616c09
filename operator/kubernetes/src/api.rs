//! The few things that the operator does to a cluster, each with a deadline and a few tries. The changes are applied
//! server-side under our own name, so that whoever looks can tell them from the chart's.

use std::time::Duration;

use driver::service_client::chain;
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Pod};
use kube::{
    Api, Client,
    api::{ListParams, LogParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// The owner of our fields.
pub const FIELD_MANAGER: &str = "ws-ladder";
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How often a request is tried while the API server is busy or away.
const TRIES: u32 = 3;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest log that is kept of a container.
const LOG_BYTES: i64 = 16 * 1024 * 1024;

/// Why the API server didn't do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object isn't there.
    #[error("failed to {what}: there is none of that name")]
    NotFound {
        /// What was tried.
        what: String,
    },
    /// It refused.
    #[error("failed to {what}: {reason}")]
    Refused {
        /// What was tried.
        what: String,
        /// Its words.
        reason: String,
    },
    /// It didn't answer in time.
    #[error("failed to {what}: no answer within {} s", ANSWER.as_secs())]
    Silent {
        /// What was tried.
        what: String,
    },
}

/// A namespace, as far as the operator needs it.
#[derive(Clone)]
pub struct ClusterApi {
    deployments: Api<Deployment>,
    jobs: Api<Job>,
    pods: Api<Pod>,
}

impl std::fmt::Debug for ClusterApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterApi")
    }
}

impl ClusterApi {
    /// Of one namespace.
    pub fn new(client: &Client, namespace: &str) -> Self {
        Self {
            deployments: Api::namespaced(client.clone(), namespace),
            jobs: Api::namespaced(client.clone(), namespace),
            pods: Api::namespaced(client.clone(), namespace),
        }
    }

    /// A Deployment as it is now.
    ///
    /// # Errors
    /// When it isn't there or the API server doesn't say.
    pub async fn deployment(&self, name: &str) -> Result<Deployment, Error> {
        answered(format!("read Deployment {name}"), || self.deployments.get(name)).await
    }

    /// A Job as it is now.
    ///
    /// # Errors
    /// As above.
    pub async fn job(&self, name: &str) -> Result<Job, Error> {
        answered(format!("read Job {name}"), || self.jobs.get(name)).await
    }

    /// A pod as it is now.
    ///
    /// # Errors
    /// As above.
    pub async fn pod(&self, name: &str) -> Result<Pod, Error> {
        answered(format!("read pod {name}"), || self.pods.get(name)).await
    }

    /// The pods of a Job as they are now.
    ///
    /// # Errors
    /// When the API server doesn't say.
    pub async fn pods_of_job(&self, job: &str) -> Result<Vec<Pod>, Error> {
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        Ok(answered(format!("list the pods of Job {job}"), || self.pods.list(&of_job)).await?.items)
    }

    /// Sets how many pods a Deployment has.
    ///
    /// # Errors
    /// When the API server refuses or doesn't answer.
    pub async fn scale(&self, deployment: &str, replicas: i32) -> Result<(), Error> {
        let change = json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": deployment}, "spec": {"replicas": replicas},
        });
        let what = format!("scale Deployment {deployment} to {replicas}");
        answered(what, || async { self.deployments.patch_scale(deployment, &ours(), &Patch::Apply(&change)).await })
            .await
            .map(|_| ())
    }

    /// Releases a Job's pods, or suspends it again.
    ///
    /// # Errors
    /// As above.
    pub async fn suspend(&self, job: &str, suspend: bool) -> Result<(), Error> {
        let change: Value = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job}, "spec": {"suspend": suspend},
        });
        let what = format!("{} Job {job}", if suspend { "suspend" } else { "release" });
        answered(what, || async { self.jobs.patch(job, &ours(), &Patch::Apply(&change)).await }).await.map(|_| ())
    }

    /// What a container has written, or the one before its last restart.
    ///
    /// # Errors
    /// When the kubelet has nothing or doesn't answer.
    pub async fn log(&self, pod: &str, container: &str, previous: bool) -> Result<String, Error> {
        let parameters = LogParams {
            container: Some(container.into()),
            previous,
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        answered(format!("read the log of {container} in pod {pod}"), || self.pods.logs(pod, &parameters)).await
    }
}

fn ours() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER).force()
}

/// Asks until there is an answer that asking again wouldn't change.
async fn answered<T, F: Future<Output = kube::Result<T>>>(what: String, ask: impl Fn() -> F) -> Result<T, Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match timeout(ANSWER, ask()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => return Err(Error::NotFound { what }),
            Ok(Err(kube::Error::Api(status))) if (400..500).contains(&status.code) && status.code != 429 => {
                return Err(Error::Refused { what, reason: status.message });
            }
            Ok(Err(error)) => Error::Refused { what: what.clone(), reason: chain(&error) },
            Err(_) => Error::Silent { what: what.clone() },
        };
        if tries >= TRIES {
            return Err(error);
        }
        sleep(PAUSE).await;
    }
}
