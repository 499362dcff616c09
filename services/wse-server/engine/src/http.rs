//! The metrics port: the engine's counters for people and programs. It serves nothing else.

mod accept;

use std::{
    net::{SocketAddr, TcpListener},
    str::FromStr,
    sync::Arc,
    thread::JoinHandle,
};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use service_contract::{ConnectionBooks, ServiceStats};
use tokio::{runtime, sync::oneshot, task::spawn_blocking};

use crate::{error::StartError, failure::outcome, links::LinkStats, stats::Cursor};

/// The content type of the Prometheus text format.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content of the pages.
pub(crate) trait Pages: Send + Sync {
    /// Why `/readyz` reports 503; `None` for 200.
    fn unready(&self) -> Option<String>;
    /// Why `/healthz` reports 503, which only a restart of the process cures; `None` for 200.
    fn broken(&self) -> Option<String>;
    /// Called when the thread has ended although it wasn't stopped.
    fn port_lost(&self, reason: &str);
    /// The text of `/metrics`, in Prometheus format.
    fn metrics(&self) -> String;
    /// The content of `/stats`.
    fn stats(&self) -> ServiceStats;
    /// The content of `/stats/connections`: the open ones, and those that closed since the cursor.
    fn connections(&self, since: Option<Cursor>) -> ConnectionBooks;
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
                let lost = outcome(|| {
                    let served = runtime.block_on(serve(listener, router(Arc::clone(&pages)), stopped));
                    // Doesn't wait for a page that is waiting for the application.
                    runtime.shutdown_background();
                    served
                });
                if let Some(reason) = lost {
                    pages.port_lost(&reason);
                }
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

async fn serve(listener: TcpListener, router: Router, stopped: oneshot::Receiver<()>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    tokio::select! {
        () = accept::serve(listener, router) => {}
        _ = stopped => {}
    }
    Ok(())
}

fn router(pages: Arc<dyn Pages>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route("/stats/connections", get(connections))
        .route("/stats/links", get(links))
        .with_state(pages)
}

async fn healthz(State(pages): State<Arc<dyn Pages>>) -> (StatusCode, String) {
    status("ok", pages.broken())
}

async fn readyz(State(pages): State<Arc<dyn Pages>>) -> (StatusCode, String) {
    status("ready", pages.unready())
}

/// The answer to a health check: status 503 with the reason if there is one.
fn status(good: &str, problem: Option<String>) -> (StatusCode, String) {
    match problem {
        None => (StatusCode::OK, format!("{good}\n")),
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

/// The query of `/stats/connections`.
#[derive(Deserialize)]
struct Since {
    /// The cursor of an earlier reading; empty for the first one, absent for a reader that knows no cursors.
    since: Option<String>,
}

/// Only a reader that gives `since` gets a cursor: others may take the field for a mistake.
async fn connections(State(pages): State<Arc<dyn Pages>>, Query(Since { since }): Query<Since>) -> Response {
    let cursor = match since.as_deref().filter(|since| !since.is_empty()).map(Cursor::from_str).transpose() {
        Ok(cursor) => cursor,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let books = blocking(move || pages.connections(cursor)).await;
    books
        .map(|books| Json(ConnectionBooks { cursor: books.cursor.filter(|_| since.is_some()), ..books }))
        .into_response()
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
