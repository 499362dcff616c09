//! Reads the CPU and memory of a service from `ladder evidence`, which runs in a container beside it.
//!
//! That container belongs to the service's pod or shares its process namespace, because the kernel gives exact CPU
//! times only to processes that can see the service.

use std::time::Duration;

use bench_format::{environment::Environment, result::ThreadReading, trial::ClockOffset};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    clock::clock_offset,
    http::HttpClient,
    stage::{self, Usage},
};

/// Longest wait for a response.
const PATIENCE: Duration = Duration::from_secs(5);

/// The error of a request to the evidence container.
#[derive(Debug, thiserror::Error)]
#[error("failed to get {url} from the evidence container: {reason}")]
pub struct Error {
    /// The URL of the request that failed.
    pub url: String,
    /// What failed, or the status and text of the response.
    pub reason: String,
}

impl From<Error> for stage::Error {
    fn from(error: Error) -> Self {
        Self::Unread(error.into())
    }
}

/// Response of `GET /environment`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceEnvironment {
    /// The machine. Its `host` is the name of the pod.
    pub environment: Environment,
    /// CPUs on which the service may run, as the kernel lists them.
    pub service_cpus_allowed: String,
}

/// Client of one evidence container.
#[derive(Clone, Debug)]
pub struct EvidenceClient {
    http: HttpClient,
    base: String,
}

impl EvidenceClient {
    /// Creates a client for the server at `host:port`.
    pub fn new(address: &str) -> Self {
        Self { http: HttpClient::new(PATIENCE), base: format!("http://{address}") }
    }

    /// CPU and memory of the service.
    ///
    /// # Errors
    /// [`Error`] if there is no response or it reports a failure.
    pub async fn usage(&self) -> Result<Usage, Error> {
        self.get("/usage").await
    }

    /// How the clock of the service's machine differs from ours; `None` if the agent doesn't answer or is from before it
    /// could.
    pub async fn clock(&self) -> Option<ClockOffset> {
        clock_offset(&self.http, &format!("{}/clock", self.base)).await
    }

    /// The threads of the service; `None` if the agent can't read them or is from before it could.
    pub async fn threads(&self) -> Option<Vec<ThreadReading>> {
        self.get::<Option<Vec<ThreadReading>>>("/threads").await.ok()?
    }

    /// The machine of the service and its CPUs.
    ///
    /// # Errors
    /// [`Error`] if there is no response or it reports a failure.
    pub async fn service_environment(&self) -> Result<ServiceEnvironment, Error> {
        self.get("/environment").await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let url = format!("{}{path}", self.base);
        let failed = |reason: String| Error { url: url.clone(), reason };
        let (status, body) = self.http.get(&url).await.map_err(|error| failed(error.to_string()))?;
        if !status.is_success() {
            return Err(failed(format!("{status}: {}", String::from_utf8_lossy(&body))));
        }
        serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))
    }
}
