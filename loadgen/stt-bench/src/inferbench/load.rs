//! When requests are sent. In an open loop request `n` is due at the start plus `n` intervals, regardless of the
//! requests before it. When the largest number is in flight, it is sent late, and its latency counts from when it was
//! due.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use hdrhistogram::Histogram;

use super::{
    ErrorCounts, Mode, Options, Report,
    client::{Client, Failure},
    response,
};

/// Most distinct error messages that the report quotes.
const ERROR_SAMPLES: usize = 5;
/// Largest time of a histogram, a minute; longer ones count as this.
const LONGEST_NS: u64 = 60_000_000_000;

/// Sends requests as the options say, waits for every response, and reports.
pub async fn run(options: Options) -> anyhow::Result<Report> {
    let body = response::payload(options.payload_frames);
    let payload_bytes = body.len();
    let client = Arc::new(Client::new(&options, body.into()));
    let books = Arc::new(Mutex::new(Books::new()?));
    let schedule = Arc::new(Schedule::new(&options));
    let senders: Vec<_> = (0..options.concurrency.get())
        .map(|_| tokio::spawn(send(client.clone(), schedule.clone(), books.clone())))
        .collect();
    for sender in senders {
        sender.await.context("a sender failed")?;
    }
    let elapsed = schedule.start.elapsed();
    let books = lock(&books);
    Ok(report(&options, payload_bytes, &books, elapsed))
}

/// Sends one request after another, until the schedule has no more.
async fn send(client: Arc<Client>, schedule: Arc<Schedule>, books: Arc<Mutex<Books>>) {
    while let Some(due) = schedule.next() {
        if due > Instant::now() {
            tokio::time::sleep_until(due.into()).await;
        }
        let sent = Instant::now();
        let outcome = client.send().await;
        lock(&books).record(due, sent, Instant::now(), outcome);
    }
}

/// Which request is next, and when it is due.
struct Schedule {
    start: Instant,
    next: AtomicU64,
    kind: Kind,
}

enum Kind {
    Open { requests: u64, per_second: f64 },
    Closed { end: Instant },
}

impl Schedule {
    fn new(options: &Options) -> Self {
        let (start, duration) = (Instant::now(), options.duration());
        let kind = match options.rps {
            Some(per_second) => {
                Kind::Open { requests: (per_second * duration.as_secs_f64()).floor() as u64, per_second }
            }
            None => Kind::Closed { end: start + duration },
        };
        Self { start, next: AtomicU64::new(0), kind }
    }

    /// When the next request is due; `None` when the run is over.
    fn next(&self) -> Option<Instant> {
        match self.kind {
            Kind::Open { requests, per_second } => {
                let number = self.next.fetch_add(1, Relaxed);
                (number < requests).then(|| self.start + Duration::from_secs_f64(number as f64 / per_second))
            }
            Kind::Closed { end } => Some(Instant::now()).filter(|now| *now < end),
        }
    }
}

/// Counts and times of the requests.
struct Books {
    attempted: u64,
    completed: u64,
    errors: ErrorCounts,
    error_samples: Vec<String>,
    latency_ns: Histogram<u64>,
    service_ns: Histogram<u64>,
    lateness_ns: Histogram<u64>,
}

impl Books {
    fn new() -> anyhow::Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 3).context("failed to make a histogram");
        Ok(Self {
            attempted: 0,
            completed: 0,
            errors: ErrorCounts::default(),
            error_samples: Vec::new(),
            latency_ns: histogram()?,
            service_ns: histogram()?,
            lateness_ns: histogram()?,
        })
    }

    fn record(&mut self, due: Instant, sent: Instant, answered: Instant, outcome: Result<(), Failure>) {
        let add = |histogram: &mut Histogram<u64>, from: Instant, to: Instant| {
            histogram.saturating_record(to.duration_since(from).as_nanos().try_into().unwrap_or(u64::MAX));
        };
        self.attempted += 1;
        add(&mut self.lateness_ns, due, sent);
        match outcome {
            Ok(()) => {
                self.completed += 1;
                add(&mut self.latency_ns, due, answered);
                add(&mut self.service_ns, sent, answered);
            }
            Err(failure) => self.fail(&failure),
        }
    }

    fn fail(&mut self, failure: &Failure) {
        *match failure {
            Failure::Connect { .. } | Failure::ConnectTimeout { .. } => &mut self.errors.connect,
            Failure::Timeout(_) => &mut self.errors.timeout,
            Failure::Status(_) => &mut self.errors.http_status,
            Failure::Request(_) => &mut self.errors.request,
            Failure::Content(_) => &mut self.errors.content,
        } += 1;
        if self.error_samples.len() < ERROR_SAMPLES {
            let description = failure.to_string();
            if !self.error_samples.contains(&description) {
                self.error_samples.push(description);
            }
        }
    }
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().expect("no task panics while it holds the books")
}

fn report(options: &Options, payload_bytes: usize, books: &Books, elapsed: Duration) -> Report {
    let per_second = |count: u64| count as f64 / elapsed.as_secs_f64();
    Report {
        url: options.url.to_string(),
        mode: if options.rps.is_some() { Mode::OpenLoop } else { Mode::ClosedLoop },
        duration_secs: options.duration_secs.get(),
        concurrency: options.concurrency.get(),
        clients: options.clients.get(),
        target_rps: options.rps,
        payload_frames: options.payload_frames,
        payload_bytes,
        cpu_passes: options.cpu_passes,
        timeout_ms: options.timeout_ms.get(),
        connect_timeout_ms: options.connect_timeout_ms.get(),
        attempted: books.attempted,
        completed: books.completed,
        errors: books.errors,
        error_samples: books.error_samples.clone(),
        attempted_rps: per_second(books.attempted),
        completed_rps: per_second(books.completed),
        latency: (&books.latency_ns).into(),
        service_latency: (&books.service_ns).into(),
        lateness: (&books.lateness_ns).into(),
        http: if options.http1 { "1.1" } else { "2" },
        elapsed_secs: elapsed.as_secs_f64(),
    }
}
