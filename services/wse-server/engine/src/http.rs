//! The metrics port: the engine's counters for people and programs. It serves nothing else.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use serde::Serialize;
use service_contract::{ConnectionBooks, ServiceStats};
use tokio::{
    net::TcpStream,
    runtime,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::{error::StartError, links::LinkStats};

/// The content type of the Prometheus text format.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The most connections to the port; further ones wait in the kernel.
const MAXIMAL_CONNECTIONS: usize = 32;
/// The time limit for reading a request's headers; also how long a connection without a request stays open.
const HEADER_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest life of a connection: as long as the slowest page may take, and the client to read it.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a request's line and headers.
const MAXIMAL_HEAD: usize = 16 << 10;
/// How long the port rests when no connection can be accepted, for example because no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The content of the pages.
pub(crate) trait Pages: Send + Sync {
    /// Why `/readyz` reports 503; absent if it reports 200.
    fn unready(&self) -> Option<String>;
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
            .enable_all()
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
        () = accept(listener, router) => {}
        _ = stopped => {}
    }
}

/// Accepts connections for ever, no more than [`MAXIMAL_CONNECTIONS`] at once.
async fn accept(listener: tokio::net::TcpListener, router: Router) {
    let room = Arc::new(Semaphore::new(MAXIMAL_CONNECTIONS));
    let mut is_failing = false;
    loop {
        let permit = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                is_failing = false;
                tokio::spawn(respond(stream, router.clone(), permit));
            }
            Err(error) => {
                // Once for a row of failures: they repeat until a descriptor is free.
                if !is_failing {
                    tracing::warn!(%error, "failed to accept a connection to the metrics port, trying again");
                }
                is_failing = true;
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection until it ends or its time is over.
async fn respond(stream: TcpStream, router: Router, permit: OwnedSemaphorePermit) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAXIMAL_HEAD);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // An error means that the client broke HTTP, was too slow, or has disconnected.
    let _ = timeout(CONNECTION_TIMEOUT, connection).await;
    drop(permit);
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

async fn readyz(State(pages): State<Arc<dyn Pages>>) -> (StatusCode, String) {
    match pages.unready() {
        None => (StatusCode::OK, "ready\n".into()),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
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
