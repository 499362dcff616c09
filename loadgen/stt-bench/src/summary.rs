//! The summary of a run by hand: the fields that readers of such summaries know, and what those lacked.
//!
//! Pure. Latencies are from when a frame was due; those from when it was sent stand beside them, for comparison with
//! generators that only know these.

use std::collections::BTreeMap;

use bench_format::{
    environment::Environment,
    histogram::{Recorder, percentile_ns},
    plan::Thresholds,
    result::{Conformance, ConnectionCounts, Failures, MessageCounts, WindowCounts, WorkerEvidence, WorkerResult},
    service::ServiceStats,
};
use judge::merge::Merged;
use serde::Serialize;

use crate::{
    error_samples::{ErrorSample, ErrorSamples},
    trial::PROGRAM,
};

mod verdict;

pub use self::verdict::{Gate, Verdict};

/// What a run was asked to do.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// As given.
    pub url: String,
    /// As given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// As given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_file: Option<String>,
    /// Concurrent sessions.
    pub sessions: u32,
    /// A label.
    pub repeat: u32,
    /// In seconds.
    pub warmup_secs: f64,
    /// In seconds.
    pub measure_secs: f64,
    /// In seconds.
    pub ramp_up_secs: f64,
    /// In milliseconds.
    pub session_start_spread_ms: f64,
}

/// The rest of the command line, and what the machine was.
#[derive(Clone, Debug, Serialize)]
pub struct Circumstances {
    /// Program and version.
    pub program: &'static str,
    /// Unix nanoseconds at which the load started.
    pub started_at_unix_ns: u64,
    /// Worker processes.
    pub workers: u32,
    /// Seed of phases and masks.
    pub seed: u64,
    /// The machine.
    pub environment: Environment,
    /// Command that repeats it.
    pub command: String,
}

/// The summary.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    #[serde(flatten)]
    asked: Asked,
    /// Partials received in the window.
    partials: u64,
    /// Sessions that ended with any error, the whole run long.
    protocol_errors: u64,
    /// Error frames, the whole run long.
    inference_errors: u64,
    inference_error_counts: Vec<ErrorCount>,
    inference_error_samples: Vec<ErrorSample>,
    timeouts: Timeouts,
    newest_frame_to_partial_latency: Latency,
    oldest_frame_to_partial_latency: Latency,
    flush_lateness: Latency,
    /// From when the frame was sent, as generators measure that don't know when it was due.
    newest_frame_to_partial_latency_from_send: Latency,
    oldest_frame_to_partial_latency_from_send: Latency,
    /// How late frames were sent.
    send_delay: Latency,
    handshake: Latency,
    /// Each failure once, by kind, inside the window and outside of it.
    failures: Failures,
    connections: ConnectionCounts,
    /// Frames by outcome, the whole run long.
    frames: MessageCounts,
    /// The window alone; `replies` are partials, the rest are frames.
    window: WindowCounts,
    /// CPU seconds of the generator per million frames sent in the window, kernel included: microseconds per frame.
    generator_cpu_microseconds_per_frame: Option<f64>,
    conformance: Option<Conformance>,
    /// What keeps this from being a clean run; empty when nothing does.
    problems: Vec<String>,
    /// Against the default objective, by what was received in the window.
    verdict: Verdict,
    /// What the gateway counted over the run, where it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<ServiceStats>,
    workers_evidence: Vec<WorkerEvidence>,
    #[serde(flatten)]
    circumstances: Circumstances,
}

#[derive(Clone, Debug, Serialize)]
struct ErrorCount {
    stage: String,
    kind: String,
    count: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Timeouts {
    connect: u64,
    send: u64,
    close: u64,
    session: u64,
}

/// Milliseconds; `null` where the samples can't carry the percentile.
#[derive(Clone, Debug, Default, Serialize)]
struct Latency {
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    p999_ms: Option<f64>,
    max_ms: Option<f64>,
    count: u64,
}

impl Latency {
    fn of(recorder: Option<&Recorder>) -> Self {
        let Some(recorder) = recorder else { return Self::default() };
        let ms = |percentile| percentile_ns(recorder, percentile).map(|ns| (ns / 1000) as f64 / 1e3);
        Self {
            p50_ms: ms(50.0),
            p95_ms: ms(95.0),
            p99_ms: ms(99.0),
            p999_ms: ms(99.9),
            max_ms: ms(100.0),
            count: recorder.count() + recorder.overflow(),
        }
    }
}

/// What came of a run beside its workers' results.
#[derive(Clone, Debug, Default)]
pub struct Aside {
    /// Error frames.
    pub errors: ErrorSamples,
    /// What went wrong around the load: rows that could not be written, counters that could not be read.
    pub problems: Vec<String>,
    /// What the gateway counted.
    pub service: Option<ServiceStats>,
}

impl Summary {
    /// From the workers' results.
    ///
    /// # Errors
    /// When a histogram can't be read.
    pub fn new(
        asked: Asked,
        circumstances: Circumstances,
        results: &[WorkerResult],
        aside: Aside,
    ) -> Result<Self, bench_format::histogram::Error> {
        let merged = Merged::of(results)?;
        let latency = |name: &str| Latency::of(merged.histograms.get(name));
        let failures = &merged.failures;
        let whole = |kind: &str| {
            [&failures.window, &failures.outside].iter().filter_map(|counts| counts.get(kind)).sum::<u64>()
        };
        let error_counts = error_counts(failures);
        let conformance = results.iter().find_map(|result| result.conformance.clone());
        let mut problems = problems(&asked, &merged, results, conformance.as_ref());
        problems.extend(aside.problems);
        Ok(Self {
            partials: merged.window.replies,
            protocol_errors: count(failures, |stage| stage == "session"),
            inference_errors: error_counts.iter().map(|counted| counted.count).sum(),
            inference_error_counts: error_counts,
            inference_error_samples: aside.errors.0,
            timeouts: Timeouts {
                connect: whole("session/connect_timeout"),
                send: whole("session/send_timeout"),
                close: whole("session/close_timeout"),
                session: whole("coverage/uncovered"),
            },
            newest_frame_to_partial_latency: latency("newest_ns"),
            oldest_frame_to_partial_latency: latency("oldest_ns"),
            flush_lateness: latency("flush_lateness_ns"),
            newest_frame_to_partial_latency_from_send: latency("newest_service_ns"),
            oldest_frame_to_partial_latency_from_send: latency("oldest_service_ns"),
            send_delay: latency("delay_ns"),
            handshake: latency("handshake_ns"),
            generator_cpu_microseconds_per_frame: (merged.window.sent > 0)
                .then(|| merged.window.cpu_ns as f64 / 1e3 / merged.window.sent as f64),
            conformance,
            problems,
            verdict: Verdict::of(&merged),
            service: aside.service,
            workers_evidence: results.iter().map(|result| result.evidence.clone()).collect(),
            failures: merged.failures,
            connections: merged.connections,
            frames: merged.messages,
            window: merged.window,
            asked,
            circumstances,
        })
    }

    /// Whether every frame was answered once and rightly, and the generator kept its pace.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// What keeps it from being clean.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

fn count(failures: &Failures, stage: impl Fn(&str) -> bool) -> u64 {
    let of = |counts: &BTreeMap<String, u64>| {
        let mine = |kind: &str| stage(kind.split_once('/').map_or(kind, |(stage, _)| stage));
        counts.iter().filter(|(kind, _)| mine(kind)).map(|(_, count)| count).sum::<u64>()
    };
    of(&failures.window) + of(&failures.outside)
}

/// Error frames by stage and kind, in that order.
fn error_counts(failures: &Failures) -> Vec<ErrorCount> {
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (kind, count) in failures.window.iter().chain(&failures.outside) {
        if let Some((stage, kind)) = kind.split_once('/')
            && !["session", "content", "coverage"].contains(&stage)
        {
            *counts.entry((stage.to_owned(), kind.to_owned())).or_default() += count;
        }
    }
    counts.into_iter().map(|((stage, kind), count)| ErrorCount { stage, kind, count }).collect()
}

fn problems(
    asked: &Asked,
    merged: &Merged,
    results: &[WorkerResult],
    conformance: Option<&Conformance>,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (counts, place) in
        [(&merged.failures.window, "in the window"), (&merged.failures.outside, "outside the window")]
    {
        problems.extend(counts.iter().map(|(kind, count)| format!("{count} x {kind} {place}")));
    }
    let frames = &merged.messages;
    let dropped: u64 = frames.dropped.values().sum();
    for (outcome, count) in [
        ("were answered wrongly", frames.wrong),
        ("were dropped by the gateway", dropped),
        ("were never answered", frames.lost),
        ("were due but never sent", frames.unsent),
    ] {
        if count > 0 {
            problems.push(format!("{count} of {} frames {outcome}", frames.due));
        }
    }
    if merged.window.replies == 0 {
        problems.push(format!("no partial arrived in the window of {} s", asked.measure_secs));
    }
    if let Some(Conformance { before, after, .. }) = conformance {
        problems.extend(before.iter().map(|finding| format!("the protocol check before the load: {finding}")));
        problems.extend(after.iter().map(|finding| format!("the protocol check after the load: {finding}")));
    }
    problems.extend(generator_problems(merged, results));
    problems
}

/// What the generator itself did wrong, by the limits of `docs/METHODOLOGY.md`.
fn generator_problems(merged: &Merged, results: &[WorkerResult]) -> Vec<String> {
    let limits = Thresholds::default();
    let mut problems = Vec::new();
    let late_ms = merged
        .own_lateness()
        .and_then(|(_, lateness)| percentile_ns(lateness, 99.0))
        .map(|ns| ns as f64 / 1e6)
        .filter(|ms| *ms > limits.delay_p99_ms.max(verdict::TIGHTEST_MS * 0.05));
    if let Some(ms) = late_ms {
        problems.push(format!(
            "generator_late: p99 of its lateness is {ms:.1} ms, allowed are {} ms",
            limits.delay_p99_ms.max(verdict::TIGHTEST_MS * 0.05)
        ));
    }
    for result in results {
        let share = result.window.cpu_ns as f64 / (result.window.duration_ns.max(1) as f64 * result.evidence.cpu_limit);
        if share > limits.worker_cpu_share {
            problems.push(format!(
                "generator_cpu: worker {} used {:.0} % of its CPU, allowed are {:.0} %",
                result.worker,
                share * 100.0,
                limits.worker_cpu_share * 100.0
            ));
        }
        if let (Some(throttled), Some(periods)) = (result.evidence.throttled_periods, result.evidence.periods)
            && throttled as f64 > periods as f64 * limits.throttled_share
        {
            problems.push(format!("generator_cpu: throttled in {throttled} of {periods} periods"));
        }
    }
    let (tried, due) = (merged.tried(), merged.window.due);
    if (tried as f64) < due as f64 * limits.send_share {
        problems.push(format!("send_rate: {tried} of {due} frames due in the window were tried to be sent"));
    }
    problems
}

impl Circumstances {
    /// Of this process.
    pub fn new(results: &[WorkerResult], workers: u32, seed: u64, command: String) -> Self {
        Self {
            program: PROGRAM,
            started_at_unix_ns: results.first().map_or(0, |result| result.evidence.start_at_unix_ns),
            workers,
            seed,
            environment: results.first().map(|result| result.environment.clone()).unwrap_or_default(),
            command,
        }
    }
}
