//! The metrics port: the engine's counters for people and programs. It serves nothing else.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::JoinHandle,
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::Serialize;
use service_contract::{ConnectionBooks, ServiceStats};
use tokio::{runtime, sync::oneshot, task::spawn_blocking};

use crate::{error::StartError, links::LinkStats};

/// The content type of the Prometheus text format.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content of the pages.
pub(crate) trait Pages: Send + Sync {
    /// Whether `/readyz` reports 200; it reports 503 otherwise.
    fn is_ready(&self) -> bool;
    /// The text of `/metrics`, in Prometheus format.
    fn metrics(&self) -> String;
    /// The content of `/stats`.
    fn stats(&self) -> ServiceStats;
    /// The content of `/stats/connections`.
    fn connections(&self) -> ConnectionBooks;
    /// The content of `/stats/links`.
    fn links(&self) -> LinkStats;
}

/// A metrics port. Dropping it stops the server and joins its thread.
pub(crate) struct MetricsPort {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsPort {
    pub(crate) fn start(pages: Arc<dyn Pages>, requested: SocketAddr) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { address: requested, source };
        let listener = TcpListener::bind(requested).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let failed = |step| move |source| StartError::Resource { step, source };
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .max_blocking_threads(2)
            .thread_name("wse-metrics-blocking")
            .build()
            .map_err(failed("set up the metrics port"))?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("wse-metrics".into())
            .spawn(move || {
                runtime.block_on(serve(listener, router(pages), stopped));
                // Doesn't wait for a page that is waiting for the application.
                runtime.shutdown_background();
            })
            .map_err(failed("start the metrics port's thread"))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsPort {
    fn drop(&mut self) {
        // Sending fails only if the thread has already ended.
        let _ = self.stop.take().map(|stop| stop.send(()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn serve(listener: TcpListener, router: Router, stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "failed to serve the metrics port"),
    };
    tokio::select! {
        served = async { axum::serve(listener, router).await } => {
            if let Err(error) = served {
                tracing::error!(%error, "the metrics port failed");
            }
        }
        _ = stopped => {}
    }
}

fn router(pages: Arc<dyn Pages>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route("/stats/connections", get(connections))
        .route("/stats/links", get(links))
        .with_state(pages)
}

async fn readyz(State(pages): State<Arc<dyn Pages>>) -> (StatusCode, &'static str) {
    if pages.is_ready() { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "stopping\n") }
}

async fn metrics(State(pages): State<Arc<dyn Pages>>) -> Response {
    let page = blocking(move || pages.metrics()).await;
    page.map(|text| ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text)).into_response()
}

async fn stats(State(pages): State<Arc<dyn Pages>>) -> Result<Json<impl Serialize>, StatusCode> {
    blocking(move || pages.stats()).await.map(Json)
}

async fn connections(State(pages): State<Arc<dyn Pages>>) -> Result<Json<impl Serialize>, StatusCode> {
    blocking(move || pages.connections()).await.map(Json)
}

async fn links(State(pages): State<Arc<dyn Pages>>) -> Result<Json<impl Serialize>, StatusCode> {
    blocking(move || pages.links()).await.map(Json)
}

/// Runs `work` on a blocking thread: the application may take time to report its counters, for example while another
/// thread holds the interpreter's lock.
///
/// # Errors
/// Status 500 if `work` panics.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StatusCode> {
    spawn_blocking(work).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}
