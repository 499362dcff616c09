//! The metrics port: `/stats`, `/stats/connections`, `/stats/publisher` if the service publishes, `/metrics`,
//! `/healthz`, `/readyz`, and `/recorded`.
//!
//! It runs on a thread of its own: a flood keeps every other thread of the service busy, and readings at the edges of a
//! window must not wait for its end.

use std::{
    net::TcpListener,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
};

use anyhow::Context;
use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use service_contract::{Exposition, Labels, ServiceStats};
use tokio::{runtime, sync::oneshot};

use crate::{config::Flaw, publisher::Publisher, shared::Shared};

/// The thread of the metrics port.
pub(crate) struct Server {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Server {
    /// Closes the port and waits for the thread.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        // Fails when the thread has ended already; joining it gives the reason.
        let _ = self.stop.send(());
        self.thread.join().expect("the metrics thread doesn't panic").context("the metrics port failed")
    }
}

/// Starts the thread that serves the metrics port until it is stopped.
pub(crate) fn serve(listener: TcpListener, shared: Arc<Shared>) -> anyhow::Result<Server> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::select! {
            served = axum::serve(listener, router(shared)) => served,
            _ = stopped => Ok(()),
        }
    };
    let thread = thread::Builder::new().name("metrics".into()).spawn(move || runtime.block_on(serve))?;
    Ok(Server { stop, thread })
}

/// The routes of the contract, and `/recorded`: the actual times from each ping to its reply.
fn router(shared: Arc<Shared>) -> Router {
    let pages = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/stats", get(|State(shared): State<Arc<Shared>>| async move { Json(shared.ledger.stats()) }))
        .route(
            "/stats/connections",
            get(|State(shared): State<Arc<Shared>>| async move { Json(shared.ledger.connections()) }),
        )
        .route("/recorded", get(|State(shared): State<Arc<Shared>>| async move { Json(shared.recorded()) }))
        .route("/metrics", get(metrics));
    let publisher =
        |State(shared): State<Arc<Shared>>| async move { Json(shared.publisher.as_ref().map(Publisher::stats)) };
    let pages = if shared.publisher.is_some() { pages.route("/stats/publisher", get(publisher)) } else { pages };
    pages.with_state(shared)
}

async fn ready(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    match shared.accepting.load(Ordering::Acquire) {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let mut text = Exposition::default();
    let every = shared.config.every.get();
    text.service(&shown(shared.ledger.stats(), shared.config.flaw, every), &Labels::default());
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text.into_text())
}

/// The counters as `/metrics` shows them. `every` is the k of the flaw.
fn shown(mut stats: ServiceStats, flaw: Flaw, every: u64) -> ServiceStats {
    let shown = |count: u64| match flaw {
        Flaw::Miscounts => count - count / every,
        Flaw::Restarts => count % every,
        _ => count,
    };
    stats.messages.received = shown(stats.messages.received);
    if let Some(application) = &mut stats.application {
        application.delivered = shown(application.delivered);
    }
    stats
}

#[cfg(test)]
mod tests {
    use service_contract::{ApplicationStats, MessageStats};

    use super::*;

    #[test]
    fn counters_lack_one_message_in_k_or_begin_again_after_k() {
        let stats = ServiceStats {
            messages: MessageStats { received: 205, ..MessageStats::default() },
            application: Some(ApplicationStats { delivered: 100, ..ApplicationStats::default() }),
            ..ServiceStats::default()
        };
        let counts = |flaw| {
            let stats = shown(stats.clone(), flaw, 100);
            (stats.messages.received, stats.application.unwrap().delivered)
        };
        assert_eq!(counts(Flaw::None), (205, 100));
        assert_eq!(counts(Flaw::Miscounts), (203, 99));
        assert_eq!(counts(Flaw::Restarts), (5, 0));
    }
}
