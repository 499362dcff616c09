//! What a service uses, asked of the program beside it: `ladder evidence` in a container of its pod, or in one that shares the
//! service's process namespace. The kernel tells exact clocks only to who can see the process.

use std::time::Duration;

use bench_format::environment::Environment;
use reqwest::Client;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    service_client::chain,
    stage::{self, Usage},
};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// There is no answer, or it says why there is none.
#[derive(Debug, thiserror::Error)]
#[error("failed to get {url} from the evidence container: {reason}")]
pub struct Error {
    /// What was asked.
    pub url: String,
    /// What happened, or the answer.
    pub reason: String,
}

impl From<Error> for stage::Error {
    fn from(error: Error) -> Self {
        Self::Unread(error.into())
    }
}

/// `GET /environment`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The machine; its host is the pod's name.
    pub environment: Environment,
    /// CPUs on which the service may run, as the kernel lists them.
    pub service_cpus_allowed: String,
}

/// Asks it.
#[derive(Clone, Debug)]
pub struct EvidenceClient {
    http: Client,
    base: String,
}

impl EvidenceClient {
    /// Of the server at `host:port`.
    pub fn new(address: &str) -> Self {
        let http = Client::builder().no_proxy().timeout(PATIENCE).build().expect("no option of it can fail");
        Self { http, base: format!("http://{address}") }
    }

    /// What the service has used so far.
    ///
    /// # Errors
    /// When there is no answer, or it says why there is none.
    pub async fn usage(&self) -> Result<Usage, Error> {
        self.get("/usage").await
    }

    /// Where the service runs.
    ///
    /// # Errors
    /// As above.
    pub async fn surroundings(&self) -> Result<Surroundings, Error> {
        self.get("/environment").await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let url = format!("{}{path}", self.base);
        let failed = |reason: String| Error { url: url.clone(), reason };
        let answer = self.http.get(&url).send().await.map_err(|error| failed(chain(&error)))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| failed(chain(&error)))?;
        if !status.is_success() {
            return Err(failed(format!("{status}: {}", String::from_utf8_lossy(&body))));
        }
        serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))
    }
}
