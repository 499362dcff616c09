//! The counters of all sessions, and the metrics port that shows them: `/healthz`, `/readyz`, `/stats`, `/metrics`.
//!
//! The counters are one struct behind one lock, so that every reading balances. The port has a thread and a runtime of
//! its own: it answers while every other thread is busy.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    sync::{
        Arc, Mutex, PoisonError,
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

/// Everything that is counted. Frames are counted as frames, not as bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Start messages, frames, and whole messages that were refused.
    pub(crate) received: u64,
    /// Start messages.
    pub(crate) consumed: u64,
    /// Frames answered by a partial.
    pub(crate) delivered: u64,
    /// Frames and refused messages without a partial, by reason.
    pub(crate) dropped: BTreeMap<&'static str, u64>,
    /// Frames that wait.
    pub(crate) waiting: u64,
    /// Frames in flight.
    pub(crate) in_flight: u64,
    /// Partials and errors.
    pub(crate) sent: u64,
    /// Bytes read from sockets after the upgrade.
    pub(crate) bytes_received: u64,
    /// Bytes written to sockets after the upgrade.
    pub(crate) bytes_sent: u64,
    /// Connections upgraded.
    pub(crate) accepted: u64,
    /// Connections open.
    pub(crate) open: u64,
    /// Connections closed, by reason.
    pub(crate) closed: BTreeMap<&'static str, u64>,
    /// Connections refused, by reason.
    pub(crate) rejected: BTreeMap<&'static str, u64>,
    /// Requests begun.
    pub(crate) requests: u64,
    /// Requests whose answer became a partial.
    pub(crate) answered: u64,
    /// Requests that failed, by kind.
    pub(crate) failed: BTreeMap<&'static str, u64>,
    /// Requests whose connection was gone first.
    pub(crate) abandoned: u64,
    /// Requests in flight.
    pub(crate) requests_in_flight: u64,
    /// The largest number of requests ever in flight for one connection.
    pub(crate) in_flight_per_connection_max: u64,
    /// Ticks by what they found.
    pub(crate) ticks: Ticks,
    /// Lateness of all ticks.
    pub(crate) lateness: Lateness,
}

/// A histogram of how late ticks ran.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lateness {
    /// Ticks within each of [`LATENESS_BOUNDS`] but not within the one before, and those beyond the last.
    pub(crate) buckets: [u64; LATENESS_BOUNDS.len() + 1],
    /// All of it.
    pub(crate) sum: Duration,
}

impl Lateness {
    /// Counts one tick.
    pub(crate) fn record(&mut self, lateness: Duration) {
        let seconds = lateness.as_secs_f64();
        let bucket = LATENESS_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(LATENESS_BOUNDS.len());
        self.buckets[bucket] += 1;
        self.sum += lateness;
    }
}

impl Counts {
    /// Counts frames or refused messages that get no partial.
    pub(crate) fn drop(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            *self.dropped.entry(reason).or_default() += count;
        }
    }

    /// Counts a connection that is refused.
    pub(crate) fn reject(&mut self, reason: &'static str) {
        *self.rejected.entry(reason).or_default() += 1;
    }

    /// Counts a connection that ends.
    pub(crate) fn close(&mut self, reason: &'static str) {
        self.open -= 1;
        *self.closed.entry(reason).or_default() += 1;
    }

    /// Counts a request that failed, and its frames.
    pub(crate) fn fail(&mut self, kind: &'static str, frames: u64) {
        *self.failed.entry(kind).or_default() += 1;
        self.drop(kind, frames);
    }

    /// Frames that wait or are in flight, in bytes.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        (self.waiting + self.in_flight) * FRAME_BYTES as u64
    }
}

/// The gateway's books.
pub(crate) struct Books {
    counts: Mutex<Counts>,
    began: Instant,
    accepting: AtomicBool,
}

impl Books {
    /// All zero.
    pub(crate) fn new() -> Self {
        Self { counts: Mutex::default(), began: Instant::now(), accepting: AtomicBool::new(true) }
    }

    /// Reads or changes the counts.
    pub(crate) fn with<T>(&self, entry: impl FnOnce(&mut Counts) -> T) -> T {
        // Additions don't panic half-way: a poisoned lock guards sound counts.
        entry(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether new connections are taken.
    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::Acquire)
    }

    /// Takes no more connections.
    pub(crate) fn stop_accepting(&self) {
        self.accepting.store(false, Ordering::Release);
    }

    /// `/stats`.
    fn stats(&self) -> ServiceStats {
        self.stats_of(&self.with(|counts| counts.clone()))
    }

    /// `/metrics`.
    fn prometheus(&self) -> String {
        let counts = self.with(|counts| counts.clone());
        // All kinds from the start, so that a rate over them has a first value.
        let failed = Kind::OF_REQUESTS.map(Kind::name);
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
            service: "rust-axum-plain".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: self.began.elapsed().as_secs_f64(),
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

/// Memory of this process; unknown where there is no `/proc`.
fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Serves the metrics port from a thread of its own, for as long as the process lives.
///
/// # Errors
/// When the thread or its runtime can't be made.
pub(crate) fn serve(listener: TcpListener, books: Arc<Books>) -> anyhow::Result<()> {
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

type Shared = State<Arc<Books>>;

fn router(books: Arc<Books>) -> Router {
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
