//! Trials for tests, built by hand: a flood, an open loop, replies, sessions, and a service that publishes. All are
//! valid.

use std::collections::BTreeMap;

use bench_format::{
    SCHEMA,
    environment::Environment,
    histogram::{self, Recorder},
    plan::{Load, Message, Thresholds},
    result::{
        ConnectionCounts, MessageCounts, Reading, ReceiverBook, ServiceFile, ServiceReadings, WindowCounts, Witness,
        WorkerBook, WorkerEvidence, WorkerResult,
    },
    service::{ApplicationStats, ConnectionBook, PublisherStats, ServiceStats},
    terms::Terms,
    trial::TrialId,
    trial_file::{BOUND_RULES, BookKeeping, Cpus, TrialFile},
    websocket::{Counter, ReportedCounters},
};

use crate::{Judged, judge};

/// The files of one trial.
#[derive(Clone, Debug)]
pub struct Files {
    /// The conditions of the trial, `trial.json`.
    pub trial: TrialFile,
    /// The workers' results, `workers/<n>.json`.
    pub uploads: Vec<WorkerResult>,
    /// The service's side, `service.json`.
    pub service: ServiceFile,
}

impl Files {
    /// Judges the trial from these files.
    ///
    /// # Errors
    /// [`histogram::Error`] if a histogram can't be read.
    pub fn judge(&self) -> Result<Judged, histogram::Error> {
        judge(&self.trial, &self.uploads.iter().collect::<Vec<_>>(), &self.service)
    }
}

/// The id that all fixtures share.
pub fn trial() -> TrialId {
    TrialId {
        service: bench_format::Name::from_static("ours"),
        workload: bench_format::Name::from_static("throughput"),
        variant: bench_format::Name::from_static("standard"),
        tier: 20,
        process: 1,
        repeat: 1,
    }
}

/// The upload of a worker with ten open connections and no messages.
pub fn worker_result() -> WorkerResult {
    WorkerResult {
        schema: SCHEMA,
        run: "run".into(),
        trial: trial(),
        attempt: 1,
        worker: 0,
        witness: Witness::Application,
        turnover: None,
        connections: ConnectionCounts { attempted: 10, open: 10, ..ConnectionCounts::default() },
        messages: MessageCounts::default(),
        window: WindowCounts { duration_ns: SECOND, ..WindowCounts::default() },
        histograms: BTreeMap::new(),
        intervals: Vec::new(),
        books: Vec::new(),
        failures: Default::default(),
        error_samples: Vec::new(),
        conformance: None,
        evidence: WorkerEvidence { cpu_limit: 1.0, nodelay: true, ..WorkerEvidence::default() },
        environment: Environment::default(),
    }
}

const SECOND: u64 = 1_000_000_000;

/// A reading of the service at `second`, after `delivered` messages and `cpu_seconds` of CPU time.
fn reading(second: u64, delivered: u64, cpu_seconds: u64) -> Reading {
    let mut stats = ServiceStats { uptime_seconds: 1.0, ..ServiceStats::default() };
    (stats.connections.accepted, stats.connections.open) = (10, 10);
    stats.messages.delivered = delivered;
    stats.messages.consumed = 10;
    stats.messages.received = delivered + 10;
    stats.application = Some(ApplicationStats { delivered, sequence_sum: delivered, unnumbered: 0 });
    Reading {
        unix_ns: second * SECOND,
        pid: Some(7),
        cpu_ns: Some(cpu_seconds * SECOND),
        rss_bytes: Some(2000),
        kernel_bytes: None,
        cpu_limit: Some(1.0),
        throttled_periods: None,
        periods: None,
        throttled_ns: None,
        threads: None,
        stats,
        missing: BTreeMap::new(),
        publisher: None,
        links: None,
        processes: Default::default(),
        inference: None,
        companions: Default::default(),
        replicas: Default::default(),
    }
}

/// A flood on ten connections for two seconds: 2 000 messages written in the window and 1 800 delivered in it. All
/// books balance after the drain.
pub fn flood() -> Files {
    let mut upload = worker_result();
    (upload.messages.due, upload.messages.sent) = (2500, 2500);
    let window = &mut upload.window;
    (window.duration_ns, window.sent, window.due) = (2 * SECOND, 2000, 2000);
    (window.writes, window.cpu_ns) = (1000, SECOND / 2);
    let book =
        |n| WorkerBook { id: format!("c{n}"), sent: 250, sequence_sum: 250, unnumbered: 1, ..Default::default() };
    upload.books = (0..10).map(book).collect();
    Files { trial: flood_conditions(), uploads: vec![upload], service: flooded_service() }
}

fn flood_conditions() -> TrialFile {
    TrialFile {
        schema: SCHEMA,
        run: "run".into(),
        trial: trial(),
        attempt: 1,
        started_at_unix_ns: 2 * SECOND,
        seed: None,
        load: Load::Closed { messages_per_connection: None, in_flight: 1 },
        message: Message::default(),
        objectives: vec![],
        thresholds: Thresholds::default(),
        terms: Terms { witness: Witness::Application, ..Terms::default() },
        keeping: BookKeeping::Connections,
        counters: None,
        workers: 1,
        warmup_ns: None,
        window_ns: 2 * SECOND,
        open_at_start: 10,
        rss_peak_bytes: 3000,
        rss_at_rest_bytes: None,
        cpus: Cpus { workers: 1.0, ..Cpus::default() },
        bound_rules: Some(BOUND_RULES),
        machine: None,
        others: vec![],
        problems: vec![],
        pods: vec![],
        reproduce: String::new(),
    }
}

/// The service's side of [`flood`]: 250 messages of each connection have reached the application after the drain.
fn flooded_service() -> ServiceFile {
    let mut before = reading(1, 0, 0);
    before.stats = ServiceStats { application: Some(ApplicationStats::default()), ..ServiceStats::default() };
    before.rss_bytes = Some(1000);
    let application = Some(ApplicationStats { delivered: 250, sequence_sum: 250, unnumbered: 0 });
    let connection = |n| ConnectionBook {
        id: format!("c{n}"),
        received: 251,
        consumed: 1,
        application,
        ..ConnectionBook::default()
    };
    ServiceFile {
        publisher_clock: None,
        schema: SCHEMA,
        readings: ServiceReadings {
            before: Some(before),
            open: None,
            window_start: Some(reading(3, 400, 1)),
            window_end: Some(reading(5, 2200, 2)),
            after: Some(reading(6, 2500, 2)),
        },
        connections: Some((0..10).map(connection).collect()),
    }
}

/// A service that publishes 1 000 messages per second to ten receivers. One of them misses five messages that the
/// service reports as dropped.
pub fn publisher() -> Files {
    let mut files = flood();
    files.trial.load = Load::Open { rate_per_second: 1000.0, arrivals: Default::default() };
    files.trial.terms.witness = Witness::Receiver;
    let result = &mut files.uploads[0];
    result.witness = Witness::Receiver;
    let mut response = Recorder::new();
    (0..20_000).for_each(|_| response.record(1_000_000));
    result.histograms.insert(bench_format::Name::from_static("response_ns"), response.encode());
    result.messages = MessageCounts { due: 25_000, delivered: 24_995, lost: 5, ..MessageCounts::default() };
    result.window = WindowCounts {
        duration_ns: 2 * SECOND,
        replies: 20_000,
        answered: 20_000,
        reads: 10_000,
        bytes_read: 2_000_000,
        cpu_ns: SECOND / 2,
        ..WindowCounts::default()
    };
    result.books = (0..10).map(receiver).collect();
    publish(&mut files.service.readings);
    for book in files.service.connections.iter_mut().flatten() {
        (book.received, book.application) = (1, None);
    }
    files
}

/// The book of a receiver of [`publisher`]; number 0 misses five messages.
fn receiver(number: u64) -> WorkerBook {
    let missing = if number == 0 { 5 } else { 0 };
    let receiver = ReceiverBook {
        first: Some(0),
        last: Some(2499),
        received: 2500 - missing,
        missing,
        others: 1,
        reached: true,
        closed: true,
        ..ReceiverBook::default()
    };
    WorkerBook { id: format!("c{number}"), unnumbered: 1, receiver: Some(receiver), ..WorkerBook::default() }
}

/// Turns the readings of [`flood`] into those of a service that publishes and gets only the first message of each
/// connection.
fn publish(readings: &mut ServiceReadings) {
    let all = [&mut readings.before, &mut readings.window_start, &mut readings.window_end, &mut readings.after];
    for (reading, published) in all.into_iter().flatten().zip([0, 400, 2400, 2600]) {
        reading.publisher = Some(PublisherStats {
            rate_per_second: Some(1000.0),
            published,
            last_sequence: published.checked_sub(1),
            ..PublisherStats::default()
        });
        let messages = &mut reading.stats.messages;
        (messages.received, messages.consumed, messages.delivered) = (10, 10, 0);
        reading.stats.application = None;
    }
    let before = &mut readings.before.as_mut().unwrap().stats.messages;
    (before.received, before.consumed) = (0, 0);
    let after = &mut readings.after.as_mut().unwrap().stats.messages;
    after.sent = 24_995 + 10;
    after.send_dropped.insert("slow_consumer".into(), 5);
}

/// [`flood`] as an open loop that kept its schedule.
pub fn open() -> Files {
    let mut files = flood();
    files.trial.load = Load::Open { rate_per_second: 1000.0, arrivals: Default::default() };
    let mut delay = Recorder::new();
    (0..1000).for_each(|_| delay.record(1000));
    files.uploads[0].histograms.insert(bench_format::Name::from_static("delay_ns"), delay.encode());
    files
}

/// [`open`], with every message answered by the service itself.
pub fn with_replies() -> Files {
    let mut files = open();
    files.trial.terms = Terms { witness: Witness::Reply, late_by: Some("response".into()), ..Terms::default() };
    let result = &mut files.uploads[0];
    (result.witness, result.messages.delivered) = (Witness::Reply, 2500);
    (result.window.replies, result.window.answered) = (2000, 2000);
    let readings = &mut files.service.readings;
    let all = [&mut readings.before, &mut readings.window_start, &mut readings.window_end, &mut readings.after];
    for reading in all.into_iter().flatten() {
        let messages = &mut reading.stats.messages;
        (messages.consumed, messages.delivered) = (messages.received, 0);
        reading.stats.application = None;
    }
    for book in files.service.connections.iter_mut().flatten() {
        (book.consumed, book.application) = (book.received, None);
    }
    files
}

/// Sessions on a gateway that has totals only and answers all audio.
pub fn sessions() -> Files {
    let mut files = open();
    let terms = Terms { witness: Witness::Reply, counts_answers: true, ..Terms::default() };
    files.trial.terms = Terms {
        unreported_drops: vec!["closed".into()],
        late_by: Some("oldest".into()),
        ages: Some("frame".into()),
        ..terms
    };
    files.trial.load = Load::Sessions { ramp_seconds: 0.0, spread_ms: 0.0, in_flight: 1 };
    files.trial.keeping = BookKeeping::Totals;
    let result = &mut files.uploads[0];
    (result.witness, result.messages.delivered) = (Witness::Reply, 2500);
    (result.window.replies, result.window.answered) = (40, 2000);
    let mut ages = Recorder::new();
    ages.record_n(SECOND / 2, 2000);
    result.histograms.insert(bench_format::Name::from_static("frame_ns"), ages.encode());
    let readings = &mut files.service.readings;
    let all = [&mut readings.before, &mut readings.window_start, &mut readings.window_end, &mut readings.after];
    all.into_iter().flatten().for_each(|reading| reading.stats.application = None);
    files.service.connections = None;
    files
}

/// The same trial of a service whose own counters a plan maps, some of them, on these terms.
pub fn with_counters(mut files: Files, witness: Witness, counted: &[Counter]) -> Files {
    files.trial.terms.witness = witness;
    files.trial.keeping = BookKeeping::Totals;
    files.trial.counters = Some(ReportedCounters { counted: counted.iter().copied().collect(), exact: false });
    files.service.connections = None;
    files
}
