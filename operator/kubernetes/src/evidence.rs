//! The evidence agent: a small HTTP server in a container of the service's pod, which reports the service's CPU and
//! memory use.
//!
//! The pod shares its process namespace, so that the kernel's counters of the service's process can be read, and
//! through the process's root also the files of its cgroup. [`process`] finds the process. The client is
//! [`driver::evidence_client`].
//!
//! On a node, with the node's cgroups mounted, it reports the CPU clocks of the whole node instead: [`node`]. The client of
//! that is [`driver::nodes`].

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use bench_format::{environment::Environment, trial::Clock};
use driver::{clock::unix_ns, evidence_client::ServiceEnvironment, http_server};
use serde::Serialize;
use tokio::net::TcpListener;

pub mod node;
pub mod process;

/// Serves `/node`, the clocks of the node whose cgroups these are, and `/pods/UID,UID`, what some of its pods have used.
pub async fn serve_node(listener: TcpListener, cgroups: node::NodeCgroups) {
    let node = |State(cgroups): State<node::NodeCgroups>| async move { json_or_unavailable(cgroups.read()) };
    let pods = |State(cgroups): State<node::NodeCgroups>, Path(uids): Path<String>| async move {
        json_or_unavailable(cgroups.pods(&uids.split(',').collect()))
    };
    let routes = Router::new()
        .route("/node", get(node))
        .route("/pods/{uids}", get(pods))
        .route("/healthz", get(|| async { StatusCode::OK }));
    http_server::serve(listener, routes.with_state(cgroups)).await;
}

/// Serves `/usage`, `/threads`, `/environment` and `/clock`.
pub async fn serve(listener: TcpListener) {
    http_server::serve(listener, routes()).await;
}

fn routes() -> Router {
    Router::new()
        .route(
            "/usage",
            get(|| async { json_or_unavailable(process::Service::find().and_then(|service| service.usage())) }),
        )
        .route(
            "/threads",
            get(|| async { json_or_unavailable(process::Service::find().map(|service| service.threads())) }),
        )
        .route(
            "/environment",
            get(|| async {
                json_or_unavailable(process::Service::find().map(|service| service_environment(&service)))
            }),
        )
        .route("/clock", get(clock))
        .route("/healthz", get(|| async { StatusCode::OK }))
}

/// The clock of this machine, which all its containers share.
async fn clock() -> Json<Clock> {
    Json(Clock { unix_ns: unix_ns() })
}

fn service_environment(service: &process::Service) -> ServiceEnvironment {
    ServiceEnvironment { environment: Environment::read(), service_cpus_allowed: service.cpus_allowed() }
}

fn json_or_unavailable<T: Serialize>(found: Result<T, impl std::error::Error>) -> Response {
    match found {
        Ok(found) => Json(found).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use driver::evidence_client::EvidenceClient;

    use super::*;

    #[tokio::test]
    async fn the_agent_tells_its_time_whether_there_is_a_service_or_not() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let client = EvidenceClient::new(&listener.local_addr().unwrap().to_string());
        let _server = tokio::spawn(serve(listener));
        let clock = client.clock().await.unwrap();
        assert!(clock.ahead_ns.unsigned_abs() <= clock.uncertainty_ns, "{clock:?}");
    }

    #[tokio::test]
    async fn without_a_service_the_response_is_an_error() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let client = EvidenceClient::new(&listener.local_addr().unwrap().to_string());
        let _server = tokio::spawn(serve(listener));
        // The result depends on the processes of the test's machine: either usage or an error message.
        match client.usage().await {
            Ok(usage) => assert!(usage.pid > 0 && usage.cpu_limit > 0.0),
            Err(error) => assert!(error.to_string().contains("evidence container: "), "{error}"),
        }
    }
}
