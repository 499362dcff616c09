//! The metrics port: `/stats`, `/stats/connections`, `/stats/publisher` where it publishes, `/metrics`, `/healthz`, `/readyz`, and `/recorded`.
//!
//! It has a thread of its own: a flood keeps every thread of the service busy for as long as it lasts, and readings at
//! the edges of a window must not wait for its end.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
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
use bench_format::service::ServiceStats;
use tokio::{runtime, sync::oneshot};

use crate::{publisher::Publisher, server::Shared};

/// The metrics port's thread.
pub(crate) struct Server {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Server {
    /// Closes the port.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        // Fails when the thread has ended already; why is what joining tells.
        let _ = self.stop.send(());
        self.thread.join().expect("the metrics thread doesn't panic").context("the metrics port failed")
    }
}

/// Serves the metrics port until it is told to stop.
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

/// The routes of the contract, and `/recorded`: how long the service really took to answer each ping.
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
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], exposition(&shared.ledger.stats()))
}

/// The counters of `/stats` as Prometheus text.
pub(crate) fn exposition(stats: &ServiceStats) -> String {
    let (messages, connections, bytes) = (&stats.messages, &stats.connections, &stats.bytes);
    let mut text = String::new();
    for (name, kind, value) in [
        ("service_messages_received_total", "counter", messages.received),
        ("service_messages_consumed_total", "counter", messages.consumed),
        ("service_messages_delivered_total", "counter", messages.delivered),
        ("service_messages_queued", "gauge", messages.queued),
        ("service_messages_malformed_total", "counter", messages.malformed),
        ("service_messages_sent_total", "counter", messages.sent),
        ("service_connections_accepted_total", "counter", connections.accepted),
        ("service_connections_open", "gauge", connections.open),
        ("service_bytes_received_total", "counter", bytes.received),
        ("service_bytes_sent_total", "counter", bytes.sent),
    ] {
        plain(&mut text, name, kind, value);
    }
    if let Some(application) = &stats.application {
        plain(&mut text, "application_messages_delivered_total", "counter", application.delivered);
        plain(&mut text, "application_sequence_sum", "gauge", application.sequence_sum);
    }
    labelled(&mut text, "service_messages_dropped_total", "reason", &messages.dropped);
    labelled(&mut text, "service_messages_send_dropped_total", "reason", &messages.send_dropped);
    labelled(&mut text, "service_connections_closed_total", "reason", &connections.closed);
    labelled(&mut text, "service_connections_rejected_total", "reason", &connections.rejected);
    if let Some(inference) = &stats.inference {
        plain(&mut text, "service_inference_requests_total", "counter", inference.requests);
        plain(&mut text, "service_inference_answered_total", "counter", inference.answered);
        plain(&mut text, "service_inference_abandoned_total", "counter", inference.abandoned);
        plain(&mut text, "service_inference_in_flight", "gauge", inference.in_flight);
        plain(&mut text, "service_buffered_bytes", "gauge", inference.buffered_bytes);
        labelled(&mut text, "service_inference_failed_total", "kind", &inference.failed);
    }
    text
}

/// One number.
pub(crate) fn plain(text: &mut String, name: &str, kind: &str, value: u64) {
    writeln!(text, "# TYPE {name} {kind}\n{name} {value}").expect("a String takes everything");
}

/// One counter with a label. Its values are our own words and need no escaping.
pub(crate) fn labelled(text: &mut String, name: &str, label: &str, counts: &BTreeMap<impl Display, u64>) {
    writeln!(text, "# TYPE {name} counter").expect("a String takes everything");
    for (value, count) in counts {
        writeln!(text, "{name}{{{label}=\"{value}\"}} {count}").expect("a String takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_the_contract_is_exposed_under_its_name() {
        let mut stats = ServiceStats { application: Some(Default::default()), ..Default::default() };
        for counts in [
            &mut stats.messages.dropped,
            &mut stats.messages.send_dropped,
            &mut stats.connections.closed,
            &mut stats.connections.rejected,
        ] {
            counts.insert("why".into(), 3);
        }
        let text = exposition(&stats);
        let (contract, _) =
            include_str!("../../README.md").split_once("\n## Gateways").expect("what all services tell");
        let names = contract.lines().filter(|line| line.starts_with("| `")).flat_map(|line| line.split('`'));
        let names: Vec<_> =
            names.filter(|word| word.starts_with("service_") || word.starts_with("application_")).collect();
        assert!(names.len() >= 16, "the contract lists {names:?}");
        for name in names {
            let line = name.replace("{reason}", "{reason=\"why\"} 3");
            assert!(text.contains(&line), "{name} is missing in\n{text}");
        }
    }
}
