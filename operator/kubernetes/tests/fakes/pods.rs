//! The small HTTP servers on loopback that stand for pods, and for the agent of a node.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use axum::{Json, Router, extract::Path, http::StatusCode, routing::get};
use bench_format::{environment::Environment, service::ServiceStats, trial::Clock};
use driver::{
    clock::unix_ns,
    evidence_client::ServiceEnvironment,
    nodes::{PodUse, PodsReading},
    stage::Usage,
};
use tokio::net::TcpListener;

/// How far the clock of a pod is ahead of this machine's, by its process id, in nanoseconds.
pub(crate) fn clock_ahead_ns(pid: u32) -> u64 {
    u64::from(pid) * 3_600_000_000_000
}

/// Starts the HTTP server of a pod, for the service and its evidence agent. Returns the port of both.
pub(crate) async fn pod(pid: u32, cpu_ns: u64) -> u16 {
    serve_pod(TcpListener::bind(("127.0.0.1", 0)).await.unwrap(), pid, cpu_ns, "1.2.3")
}

/// Starts the servers of two pods, whose services have these versions, at 127.0.0.1 and 127.0.0.2. They have this process
/// id and CPU time, and the second one twice of both. Returns the port of all.
pub(crate) async fn two_pods(pid: u32, cpu_ns: u64, versions: [&'static str; 2]) -> u16 {
    loop {
        let first = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        // The port may be taken at the second address.
        let Ok(second) = TcpListener::bind(("127.0.0.2", first.local_addr().unwrap().port())).await else { continue };
        serve_pod(second, 2 * pid, 2 * cpu_ns, versions[1]);
        return serve_pod(first, pid, cpu_ns, versions[0]);
    }
}

fn serve_pod(listener: TcpListener, pid: u32, cpu_ns: u64, version: &str) -> u16 {
    let usage = Usage { pid, cpu_ns, rss_bytes: 1, cpu_limit: 0.5, ..Usage::default() };
    let service_environment =
        ServiceEnvironment { environment: Environment::default(), service_cpus_allowed: pid.to_string() };
    let stats = ServiceStats { version: version.into(), ..ServiceStats::default() };
    let routes = Router::new()
        .route("/usage", get(async move || Json(usage)))
        .route("/environment", get(async move || Json(service_environment)))
        .route("/clock", get(async move || Json(Clock { unix_ns: unix_ns() + clock_ahead_ns(pid) })))
        .route("/stats", get(async move || Json(stats)))
        .route("/readyz", get(async || "ready"));
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(axum::serve(listener, routes).into_future());
    port
}

/// Starts an agent that reports that each of these pods has used 70 ns and 7 bytes, after it has refused as many requests
/// as `refusals` counts down from. Returns its port.
pub(super) async fn agent(pods: &'static [&'static str], refusals: Arc<AtomicUsize>) -> u16 {
    let read = async move |Path(uids): Path<String>| {
        if refusals.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let used = PodUse { cpu_ns: 70, memory_bytes: 7 };
        let known = uids.split(',').filter(|uid| pods.contains(uid)).map(|uid| (uid.to_owned(), used));
        Ok(Json(PodsReading { cpus: 4, pods: known.collect() }))
    };
    let routes = Router::new().route("/pods/{uids}", get(read));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(axum::serve(listener, routes).into_future());
    port
}
