//! The connection to an operator's web port: directly by address, or through a built-in port-forward to its pod.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use driver::http::{HttpClient, LARGEST_BODY, body};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use reqwest::StatusCode;
use serde::de::DeserializeOwned;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::pod_failure;

/// The web port of an operator's pod.
const WEB_PORT: u16 = 8081;
/// Longest wait for data of a response.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of the reason for a refused request.
const LONGEST_REASON: u64 = 1 << 16;

/// The location of an operator.
#[derive(Clone, Debug)]
pub enum OperatorAddress {
    /// The address of its web port.
    Url(String),
    /// The release in a cluster.
    Release {
        /// Name of the Helm release.
        release: String,
        /// Namespace of the release; defaults to that of the context.
        namespace: Option<String>,
        /// The kubeconfig file, instead of the one that kubectl would use.
        kubeconfig: Option<PathBuf>,
        /// The context of the kubeconfig, instead of the current one.
        context: Option<String>,
    },
}

/// A connection to an operator. Dropping it closes the port-forward.
#[derive(Debug)]
pub struct Operator {
    http: HttpClient,
    base: String,
    forward: Option<JoinHandle<()>>,
}

impl Drop for Operator {
    fn drop(&mut self) {
        if let Some(forward) = &self.forward {
            forward.abort();
        }
    }
}

impl Operator {
    /// Connects to an operator.
    ///
    /// # Errors
    /// When the cluster's configuration can't be used, or the release has no running operator.
    pub async fn reach(location: &OperatorAddress) -> anyhow::Result<Self> {
        let http = HttpClient::for_files(READ_TIMEOUT);
        match location {
            OperatorAddress::Url(url) => Ok(Self { http, base: url.clone(), forward: None }),
            OperatorAddress::Release { release, namespace, kubeconfig, context } => {
                let (client, context_namespace) = client(kubeconfig.as_deref(), context.as_deref()).await?;
                let namespace = namespace.clone().unwrap_or(context_namespace);
                let pods: Api<Pod> = Api::namespaced(client, &namespace);
                let pod = operator_pod(&pods, release, &namespace).await?;
                let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("failed to listen on the loopback")?;
                let base = format!("http://{}", listener.local_addr()?);
                Ok(Self { http, base, forward: Some(tokio::spawn(forward(listener, pods, pod))) })
            }
        }
    }

    /// Requests a JSON document.
    ///
    /// # Errors
    /// When the operator doesn't respond with 200, or the response can't be parsed.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let response = self.open(path).await?;
        let body = body(response, LARGEST_BODY as u64).await.with_context(|| format!("failed to read {path}"))?;
        serde_json::from_slice(&body)
            .with_context(|| format!("{path}: this version of ladder can't parse the response"))
    }

    /// Requests a file, and returns the response before its body is read.
    ///
    /// # Errors
    /// When the operator can't be reached or doesn't respond with 200.
    pub async fn open(&self, path: &str) -> anyhow::Result<reqwest::Response> {
        let url = format!("{}{path}", self.base);
        let response = self.http.open(&url).await.with_context(|| format!("failed to reach the operator at {url}"))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            status => {
                let description = body(response, LONGEST_REASON).await.unwrap_or_default();
                bail!("the operator returned {status} for {path}: {}", String::from_utf8_lossy(&description).trim())
            }
        }
    }
}

async fn client(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<(Client, String)> {
    let options = KubeConfigOptions { context: context.map(Into::into), ..KubeConfigOptions::default() };
    let mut config = match (kubeconfig, context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("failed to read {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &options).await.context("failed to use the kubeconfig")?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.context("failed to use the kubeconfig")?,
        (None, None) => Config::infer().await.context("found no cluster; give --kubeconfig or --url")?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(10));
    let namespace = config.default_namespace.clone();
    Ok((Client::try_from(config).context("failed to use the cluster's configuration")?, namespace))
}

/// Name of the operator's running pod. The error says why there is none.
async fn operator_pod(pods: &Api<Pod>, release: &str, namespace: &str) -> anyhow::Result<String> {
    let labels = format!("app.kubernetes.io/instance={release},app.kubernetes.io/component=operator");
    let found = pods.list(&ListParams::default().labels(&labels)).await;
    let found =
        found.with_context(|| format!("failed to list the pods of release {release} in namespace {namespace}"))?.items;
    let running = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    };
    if let Some(pod) = found.iter().find(running) {
        return Ok(pod_failure::pod_name(pod));
    }
    let none: [std::sync::Arc<k8s_openapi::api::core::v1::Event>; 0] = [];
    match found.first() {
        Some(pod) => {
            bail!("the operator of release {release} doesn't run: {}", pod_failure::of_pod(pod, &none).description)
        }
        None => bail!(
            "namespace {namespace} has no operator of a release {release}; `helm list -n {namespace}` lists releases"
        ),
    }
}

/// Forwards each connection to the pod, until the task is aborted.
async fn forward(listener: TcpListener, pods: Api<Pod>, pod: String) {
    while let Ok((near, _)) = listener.accept().await {
        let (pods, pod) = (pods.clone(), pod.clone());
        tokio::spawn(async move {
            if let Err(error) = forward_connection(near, &pods, &pod).await {
                eprintln!("ladder: the port-forward to pod {pod} failed: {error:#}");
            }
        });
    }
}

async fn forward_connection(mut near: TcpStream, pods: &Api<Pod>, pod: &str) -> anyhow::Result<()> {
    let mut forwarder = pods.portforward(pod, &[WEB_PORT]).await?;
    let mut far = forwarder.take_stream(WEB_PORT).context("the port-forward has no stream")?;
    // Either side may close the connection at any time.
    let _ = copy_bidirectional(&mut near, &mut far).await;
    drop(far);
    forwarder.abort();
    Ok(())
}
