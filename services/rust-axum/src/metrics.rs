//! The books (counters of all sessions), and the metrics port: `/healthz`, `/readyz`, `/stats`, `/metrics`.
//!
//! The counters are one struct behind one lock, so that every copy is consistent. A session takes the lock once per
//! read and counts all frames of that read together. The port has its own thread and runtime, so that it responds while
//! all other threads are busy.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use service_contract::{
    ByteStats, ConnectionStats, Exposition, GatewayMetrics, Histogram, InferenceStats, Labels, MessageStats,
    ServiceStats, Ticks,
};
use tokio::runtime;

use crate::protocol::{FRAME_BYTES, Kind};

/// Upper bounds of the histogram of flush lateness, in seconds.
const LATENESS_BOUNDS: [f64; 12] = [0.000_5, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// Counters since the start, and gauges of what is held now. Audio is counted in frames, not in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Start messages, audio frames, and complete messages that were refused.
    pub(crate) received: u64,
    /// Start messages; they get no response.
    pub(crate) consumed: u64,
    /// Frames covered by a partial.
    pub(crate) delivered: u64,
    /// Frames and refused messages without a partial, by reason.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    /// Frames that wait for their session's next tick.
    pub(crate) waiting: u64,
    /// Frames of requests in flight.
    pub(crate) in_flight: u64,
    /// Partials and error messages.
    pub(crate) sent: u64,
    /// Bytes read from sockets after the upgrade.
    pub(crate) bytes_received: u64,
    /// Bytes written to sockets after the upgrade.
    pub(crate) bytes_sent: u64,
    /// Connections admitted to the upgrade.
    pub(crate) accepted: u64,
    /// Connections that are open now.
    pub(crate) open: u64,
    /// Connections closed, by reason.
    pub(crate) closed: BTreeMap<&'static str, u64>,
    /// Connections refused, by reason.
    pub(crate) rejected: BTreeMap<&'static str, u64>,
    /// Requests sent to the inference.
    pub(crate) requests: u64,
    /// Requests whose response became a partial.
    pub(crate) answered: u64,
    /// Requests that failed, by kind.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    /// Requests whose client connection ended before the response came.
    pub(crate) abandoned: u64,
    /// Requests without a response so far.
    pub(crate) requests_in_flight: u64,
    /// Largest number of requests ever in flight for one connection. The contract allows 1.
    pub(crate) in_flight_per_connection_max: u64,
    /// Ticks by outcome: flushed, skipped or empty.
    pub(crate) ticks: Ticks,
    /// How late each tick ran.
    pub(crate) lateness: Lateness,
}

/// Histogram of the time from when a tick was due until it ran.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lateness {
    /// Ticks per bucket, not cumulative: one bucket per bound of [`LATENESS_BOUNDS`], and one beyond the last.
    pub(crate) buckets: [u64; LATENESS_BOUNDS.len() + 1],
    /// Total lateness of all ticks.
    pub(crate) sum: Duration,
}

impl Lateness {
    /// Adds one tick with this lateness.
    pub(crate) fn record(&mut self, lateness: Duration) {
        let seconds = lateness.as_secs_f64();
        let bucket = LATENESS_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(LATENESS_BOUNDS.len());
        self.buckets[bucket] += 1;
        self.sum += lateness;
    }
}

impl Counts {
    /// Counts frames or refused messages that get no partial, under `reason`.
    pub(crate) fn drop(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            *self.dropped.entry(reason).or_default() += count;
        }
    }

    /// Audio that is held, waiting or in flight, in bytes.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        (self.waiting + self.in_flight) * FRAME_BYTES as u64
    }
}

/// The counters, shared by all sessions and the metrics port.
pub(crate) struct Books {
    counts: Mutex<Counts>,
    started_at: Instant,
    is_accepting: AtomicBool,
}

impl Books {
    /// Creates the books with all counters at zero; uptime counts from here.
    pub(crate) fn new() -> Self {
        Self { counts: Mutex::default(), started_at: Instant::now(), is_accepting: AtomicBool::new(true) }
    }

    /// Calls `change` with the counters, under the lock.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        // Additions don't panic halfway, so the counters behind a poisoned lock are still consistent.
        change(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether new connections are accepted.
    pub(crate) fn is_accepting(&self) -> bool {
        self.is_accepting.load(Ordering::Acquire)
    }

    /// Refuses new connections from now on; `/readyz` returns 503.
    pub(crate) fn stop_accepting(&self) {
        self.is_accepting.store(false, Ordering::Release);
    }

    /// The body of `/stats`.
    fn stats(&self) -> ServiceStats {
        self.stats_of(&self.update(|counts| counts.clone()))
    }

    /// The body of `/metrics`, in Prometheus' text format.
    fn prometheus(&self) -> String {
        let counts = self.update(|counts| counts.clone());
        // All kinds appear from the start, so that `rate()` has a first sample of each.
        let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Overflow);
        let failed: Vec<_> = kinds.map(Kind::name).collect();
        let mut text = Exposition::default();
        text.service(&self.stats_of(&counts), &Labels { failed: &failed, ..Labels::default() });
        let Lateness { buckets, sum } = &counts.lateness;
        text.gateway(&GatewayMetrics {
            in_flight_per_connection_max: counts.in_flight_per_connection_max,
            ticks: counts.ticks,
            lateness: Histogram { bounds: &LATENESS_BOUNDS, counts: buckets, sum: sum.as_secs_f64() },
            resident_bytes: resident_bytes(),
        });
        text.into_text()
    }

    fn stats_of(&self, counts: &Counts) -> ServiceStats {
        ServiceStats {
            service: "rust-axum".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: self.started_at.elapsed().as_secs_f64(),
            connections: ConnectionStats {
                accepted: counts.accepted,
                open: counts.open,
                closed: named(&counts.closed),
                rejected: named(&counts.rejected),
            },
            messages: MessageStats {
                received: counts.received,
                consumed: counts.consumed,
                delivered: counts.delivered,
                dropped: named(&counts.dropped),
                queued: counts.waiting + counts.in_flight,
                sent: counts.sent,
                ..MessageStats::default()
            },
            bytes: ByteStats { received: counts.bytes_received, sent: counts.bytes_sent },
            application: None,
            inference: Some(InferenceStats {
                requests: counts.requests,
                answered: counts.answered,
                failed: named(&counts.failed),
                abandoned: counts.abandoned,
                in_flight: counts.requests_in_flight,
                ticks_skipped: counts.ticks.skipped,
                buffered_bytes: counts.buffered_bytes(),
            }),
        }
    }
}

fn named(counts: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Resident memory of this process in bytes; `None` where there is no `/proc`.
fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Serves the metrics port on its own thread until the process exits.
///
/// # Errors
/// When the thread or its runtime cannot be created.
pub(crate) fn serve(listener: TcpListener, books: std::sync::Arc<Books>) -> anyhow::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let serve = async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, router(books)).await
    };
    let run = move || {
        if let Err(error) = runtime.block_on(serve) {
            eprintln!("the metrics port failed: {error}");
        }
    };
    thread::Builder::new().name("metrics".into()).spawn(run).context("failed to start the metrics thread")?;
    Ok(())
}

type Shared = State<std::sync::Arc<Books>>;

fn router(books: std::sync::Arc<Books>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/stats", get(|State(books): Shared| async move { Json(books.stats()) }))
        .route("/metrics", get(metrics))
        .with_state(books)
}

async fn ready(State(books): Shared) -> impl IntoResponse {
    match books.is_accepting() {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
    }
}

async fn metrics(State(books): Shared) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], books.prometheus())
}
