//! The counters of a gateway, in one book under one lock, so that every reading balances.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use bench_format::histogram::Recorder;
use service_contract::{
    ByteStats, ConnectionStats, Exposition, GatewayMetrics, Histogram, InferenceStats, Labels, MessageStats,
    ServiceStats, Ticks,
};

/// Upper bounds of the lateness histogram, in seconds.
const BOUNDS: [f64; 8] = [0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0];

/// All counters of the gateway.
#[derive(Debug, Default)]
pub struct Book {
    /// Connections, counted by outcome.
    pub connections: ConnectionStats,
    /// Frames and messages by outcome.
    pub messages: MessageStats,
    /// Bytes of WebSocket frames.
    pub bytes: ByteStats,
    /// Requests to the inference by outcome.
    pub inference: InferenceStats,
    /// Largest number of requests of one connection that were in flight at once.
    pub max_in_flight: u64,
    /// Ticks by outcome: `flushed`, `skipped`, `empty`.
    pub ticks: BTreeMap<&'static str, u64>,
    /// Age of the newest frame of each partial when it was sent, in nanoseconds.
    pub newest: Recorder,
    /// Age of the oldest frame of each partial when it was sent, in nanoseconds.
    pub oldest: Recorder,
    /// Ticks by lateness: one count for each of [`BOUNDS`], and one for later ticks.
    lateness: [u64; BOUNDS.len() + 1],
    lateness_sum: Duration,
}

impl Book {
    /// Counts a tick with its outcome and lateness.
    pub fn tick(&mut self, outcome: &'static str, lateness: Duration) {
        *self.ticks.entry(outcome).or_default() += 1;
        self.inference.ticks_skipped += u64::from(outcome == "skipped");
        self.lateness_sum += lateness;
        self.lateness[BOUNDS.partition_point(|bound| *bound < lateness.as_secs_f64())] += 1;
    }

    /// Counts frames that were dropped for a reason.
    pub fn drop_frames(&mut self, reason: &str, frames: u64) {
        *self.messages.dropped.entry(reason.into()).or_default() += frames;
    }
}

/// The book with its lock.
#[derive(Debug)]
pub struct Books {
    service: String,
    started: Instant,
    book: Mutex<Book>,
}

impl Books {
    /// Creates an empty book; `service` is the name in `/stats`.
    pub fn new(service: String) -> Self {
        Self { service, started: Instant::now(), book: Mutex::default() }
    }

    /// Locks the book and returns it for reading and counting.
    pub fn open(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no holder of this lock can panic")
    }

    /// The content of `/stats`.
    pub fn stats(&self) -> ServiceStats {
        self.stats_of(&self.open())
    }

    fn stats_of(&self, book: &Book) -> ServiceStats {
        ServiceStats {
            service: self.service.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            connections: book.connections.clone(),
            messages: book.messages.clone(),
            bytes: book.bytes,
            application: None,
            inference: Some(book.inference.clone()),
        }
    }

    /// The content of `/metrics`: the counters of `/stats`, and those that only gateways have.
    pub fn exposition(&self) -> String {
        let book = self.open();
        let mut text = Exposition::default();
        text.service(&self.stats_of(&book), &Labels::default());
        let ticks = |outcome| book.ticks.get(outcome).copied().unwrap_or(0);
        let sum = book.lateness_sum.as_secs_f64();
        text.gateway(&GatewayMetrics {
            in_flight_per_connection_max: book.max_in_flight,
            ticks: Ticks { flushed: ticks("flushed"), skipped: ticks("skipped"), empty: ticks("empty") },
            lateness: Histogram { bounds: &BOUNDS, counts: &book.lateness, sum },
            resident_bytes: Some(resident_bytes()),
        });
        text.into_text()
    }
}

/// Resident memory of this process, in bytes; 0 when `/proc` can't be read.
fn resident_bytes() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
