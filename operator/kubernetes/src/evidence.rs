//! What a service uses, told from beside it: a tiny server in a container of its pod, and the operator's client of it.
//!
//! The pod shares its process namespace, so that the kernel's exact clocks of the service's process and, through its root,
//! the files of its cgroup can be read here. [`process`] finds that process.

use std::time::Duration;

use axum::{
    Json, Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use bench_format::environment::Environment;
use driver::stage::Usage;
use operator::backend::Error;
use reqwest::Client;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::net::TcpListener;

pub mod process;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// `GET /environment`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The machine; its host is the pod's name.
    pub environment: Environment,
    /// CPUs on which the service may run, as the kernel lists them.
    pub service_cpus_allowed: String,
}

/// Serves `/usage` and `/environment` until the listener fails.
///
/// # Errors
/// When it does.
pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    axum::serve(listener, routes()).await
}

fn routes() -> Router {
    Router::new()
        .route("/usage", get(|| async { answer(process::Service::find().and_then(|service| service.usage())) }))
        .route("/environment", get(|| async { answer(process::Service::find().map(|service| surroundings(&service))) }))
        .route("/healthz", get(|| async { StatusCode::OK }))
}

fn surroundings(service: &process::Service) -> Surroundings {
    Surroundings { environment: Environment::read(), service_cpus_allowed: service.cpus_allowed() }
}

fn answer<T: Serialize>(found: Result<T, process::Error>) -> Response {
    match found {
        Ok(found) => Json(found).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

/// The operator's side.
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
        let failed =
            |reason: String| Error::Elsewhere { what: format!("get {url} from the evidence container"), reason };
        let answer = self.http.get(&url).send().await.map_err(|error| failed(crate::api::chain(&error)))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| failed(crate::api::chain(&error)))?;
        if !status.is_success() {
            return Err(failed(format!("{status}: {}", String::from_utf8_lossy(&body))));
        }
        serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_service_beside_it_the_answer_says_so() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let client = EvidenceClient::new(&listener.local_addr().unwrap().to_string());
        let _server = tokio::spawn(serve(listener));
        // Whatever runs on the machine of this test, the answer is whole figures or whole words.
        match client.usage().await {
            Ok(usage) => assert!(usage.pid > 0 && usage.cpu_limit > 0.0),
            Err(error) => assert!(error.to_string().contains("evidence container: "), "{error}"),
        }
    }
}
