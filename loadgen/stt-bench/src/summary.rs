//! The summary of a run by hand, which `stt-loadgen` prints as JSON.
//!
//! Pure. Latencies count from when a frame was due. Those that count from when it was sent stand beside them, for
//! comparison with generators that have no other.

use std::collections::BTreeMap;

use bench_format::{
    environment::Environment,
    histogram::{Recorder, percentile_ns},
    plan::Objective,
    result::{
        Conformance, ConnectionCounts, Failures, MessageCounts, ReasonKind, Validity, WindowCounts, WorkerEvidence,
    },
    service::ServiceStats,
};
use judge::Judged;
use serde::Serialize;

use crate::error_samples::{ErrorSample, ErrorSamples};

mod verdict;

pub use self::verdict::{Gate, Verdict, objectives};

/// What the command line requested.
#[derive(Clone, Debug, Serialize)]
pub struct Request {
    /// URL of the gateway.
    pub url: String,
    /// Name of the gateway; absent when none was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// File of raw rows; absent when none was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_file: Option<String>,
    /// Number of concurrent sessions.
    pub sessions: u32,
    /// Label of the run.
    pub repeat: u32,
    /// Load before the measured window, in seconds.
    pub warmup_secs: f64,
    /// Length of the measured window, in seconds.
    pub measure_secs: f64,
    /// Time over which sessions start, in seconds.
    pub ramp_up_secs: f64,
    /// Time that is added to the ramp, in milliseconds.
    pub session_start_spread_ms: f64,
}

/// How and where the run took place: program, start, workers, seed, machine and command.
#[derive(Clone, Debug, Serialize)]
pub struct RunContext {
    /// Name and version of the program that measured.
    pub program: &'static str,
    /// Start of the load, in nanoseconds since the Unix epoch.
    pub started_at_unix_ns: u64,
    /// Number of worker processes.
    pub workers: u32,
    /// Seed of the sessions' phases and of the masks.
    pub seed: u64,
    /// The machine of the first worker.
    pub environment: Environment,
    /// Command that repeats the run, without a token.
    pub command: String,
}

/// The fields of the printed JSON, in order.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    #[serde(flatten)]
    request: Request,
    /// Partials that covered frames in the window.
    partials: u64,
    /// Failures of sessions, in the window and outside of it.
    protocol_errors: u64,
    /// Error frames, in the window and outside of it.
    inference_errors: u64,
    inference_error_counts: Vec<ErrorCount>,
    inference_error_samples: Vec<ErrorSample>,
    timeouts: Timeouts,
    /// One value for each frame that was due in the window; `count` has those without an answer, too.
    frame_to_partial_latency: Latency,
    /// One value for each answer, as the published generator counts.
    newest_frame_to_partial_latency: Latency,
    oldest_frame_to_partial_latency: Latency,
    flush_lateness: Latency,
    /// From when the frame was sent, for comparison with generators that don't know when it was due.
    newest_frame_to_partial_latency_from_send: Latency,
    oldest_frame_to_partial_latency_from_send: Latency,
    /// How late frames were sent.
    send_delay: Latency,
    handshake: Latency,
    /// Each failure once, by kind, inside the window and outside of it.
    failures: Failures,
    connections: ConnectionCounts,
    /// Frames by outcome, over the whole run.
    frames: MessageCounts,
    /// The window alone; `replies` are partials, the rest are frames.
    window: WindowCounts,
    /// CPU seconds of the generator per million frames sent in the window, kernel included: microseconds per frame.
    generator_cpu_microseconds_per_frame: Option<f64>,
    conformance: Option<Conformance>,
    /// Why this is not a clean run; empty when it is one.
    problems: Vec<String>,
    /// Against the default objective, by what was due in the window.
    verdict: Verdict,
    /// What the gateway counted over the run; absent without `--metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<ServiceStats>,
    workers_evidence: Vec<WorkerEvidence>,
    #[serde(flatten)]
    run_context: RunContext,
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

/// Percentiles in milliseconds; `null` where there are too few samples for a percentile.
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
            count: recorder.total(),
        }
    }
}

/// What the summary shows beside the judged trial.
#[derive(Clone, Debug, Default)]
pub struct Supplement {
    /// Findings of the protocol check; absent when it was skipped.
    pub conformance: Option<Conformance>,
    /// A sample of the error frames.
    pub errors: ErrorSamples,
    /// Problems around the load: rows that could not be written.
    pub problems: Vec<String>,
    /// What the gateway counted; absent when it was not read.
    pub service: Option<ServiceStats>,
}

impl Summary {
    /// Builds the summary from the judged trial. It has a verdict even when the trial is invalid.
    pub fn new(
        request: Request,
        run_context: RunContext,
        judged: Judged,
        objectives: &[Objective],
        supplement: Supplement,
    ) -> Self {
        let Judged { result, merged } = &judged;
        let latency = |name: &str| Latency::of(merged.histograms.get(name));
        let failures = &result.failures;
        let total = |kind: &str| {
            [&failures.window, &failures.outside].iter().filter_map(|counts| counts.get(kind)).sum::<u64>()
        };
        let error_counts = error_counts(failures);
        let mut problems = problems(&request, &judged);
        problems.extend(supplement.problems);
        Self {
            partials: merged.window.replies,
            protocol_errors: count(failures, |stage| stage == "session"),
            inference_errors: error_counts.iter().map(|counted| counted.count).sum(),
            inference_error_counts: error_counts,
            inference_error_samples: supplement.errors.0,
            timeouts: Timeouts {
                connect: total("session/connect_timeout"),
                send: total("session/send_timeout"),
                close: total("session/close_timeout"),
                session: total("coverage/uncovered"),
            },
            frame_to_partial_latency: latency("frame_ns"),
            newest_frame_to_partial_latency: latency("newest_ns"),
            oldest_frame_to_partial_latency: latency("oldest_ns"),
            flush_lateness: latency("flush_lateness_ns"),
            newest_frame_to_partial_latency_from_send: latency("newest_service_ns"),
            oldest_frame_to_partial_latency_from_send: latency("oldest_service_ns"),
            send_delay: latency("delay_ns"),
            handshake: latency("handshake_ns"),
            generator_cpu_microseconds_per_frame: result.figures.worker_cpu_seconds_per_million,
            conformance: supplement.conformance,
            problems,
            verdict: Verdict::of(&judged, objectives),
            service: supplement.service,
            window: merged.window,
            failures: judged.result.failures,
            connections: judged.result.connections,
            frames: judged.result.messages,
            workers_evidence: judged.result.workers,
            request,
            run_context,
        }
    }

    /// Whether every frame was answered once and correctly, and the generator kept its pace.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Why the run is not clean; empty when it is.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

fn count(failures: &Failures, stage: impl Fn(&str) -> bool) -> u64 {
    let of = |counts: &BTreeMap<String, u64>| {
        let is_of_stage = |kind: &str| stage(kind.split_once('/').map_or(kind, |(stage, _)| stage));
        counts.iter().filter(|(kind, _)| is_of_stage(kind)).map(|(_, count)| count).sum::<u64>()
    };
    of(&failures.window) + of(&failures.outside)
}

/// Counts of error frames, sorted by stage and kind.
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

/// Failures and outcomes that a clean run doesn't have, then the judge's reasons.
fn problems(request: &Request, judged: &Judged) -> Vec<String> {
    let Judged { result, merged } = judged;
    let mut problems = Vec::new();
    for (counts, place) in
        [(&result.failures.window, "in the window"), (&result.failures.outside, "outside the window")]
    {
        problems.extend(counts.iter().map(|(kind, count)| format!("{count} x {kind} {place}")));
    }
    let frames = &result.messages;
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
        problems.push(format!("no partial arrived in the window of {} s", request.measure_secs));
    }
    if let Validity::Invalid { reasons } = &result.validity {
        // A short run may be clean although it has too few samples for a percentile; that fails the verdict.
        let held = reasons.iter().filter(|reason| reason.kind != ReasonKind::WindowShort);
        problems.extend(held.map(ToString::to_string));
    }
    problems
}

#[cfg(test)]
mod tests {
    use bench_format::histogram::Recorder;
    use judge::fixture::{Files, sessions};

    use super::*;

    /// The problems of sessions whose latencies have 20 samples, too few for a p95.
    fn problems(change: impl FnOnce(&mut Files)) -> Vec<String> {
        let mut files = sessions();
        files.trial.objectives = objectives();
        for name in ["newest_ns", "oldest_ns"] {
            let mut recorder = Recorder::new();
            recorder.record_n(1_000_000, 20);
            files.uploads[0].histograms.insert(bench_format::Name::from_static(name), recorder.encode());
        }
        change(&mut files);
        let request = Request {
            url: String::new(),
            service_name: None,
            samples_file: None,
            sessions: 10,
            repeat: 1,
            warmup_secs: 0.0,
            measure_secs: 2.0,
            ramp_up_secs: 0.0,
            session_start_spread_ms: 0.0,
        };
        let judged = files.judge().unwrap();
        assert!(
            matches!(judged.result.validity, Validity::Invalid { .. }),
            "a plan's trial has to carry its objectives"
        );
        assert_eq!(Verdict::of(&judged, &objectives()).verdict, "fail");
        super::problems(&request, &judged)
    }

    #[test]
    fn a_short_run_is_clean_and_does_not_pass() {
        assert_eq!(problems(|_| ()), Vec::<String>::new());
    }

    #[test]
    fn a_window_without_a_partial_is_not_clean() {
        let silent = problems(|files| files.uploads[0].window.replies = 0);
        assert_eq!(silent, ["no partial arrived in the window of 2 s"]);
    }

    #[test]
    fn a_reason_of_the_judge_is_printed_by_its_kind() {
        let skewed = problems(|files| files.uploads[0].evidence.start_skew_ns = 60_000_000);
        assert_eq!(skewed, ["start_skew: workers started 60.0 ms apart, allowed 50 ms"]);
    }
}
