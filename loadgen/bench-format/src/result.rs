//! What a trial leaves: first as each worker uploads it, then merged and judged.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    books::Books,
    environment::Environment,
    histogram::Histogram,
    plan::{Load, Message, Objective},
    service::{ConnectionBook, ServiceStats},
    trial::TrialId,
};

/// `PUT /v1/workers/{worker}/result`, stored as `workers/<index>.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerResult {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// The run's id.
    pub run: String,
    /// The trial.
    pub trial: TrialId,
    /// As in the assignment.
    pub attempt: u32,
    /// The worker's index.
    pub worker: u32,
    /// Who says that a message arrived.
    pub witness: Witness,
    /// Connections over the whole trial.
    pub connections: ConnectionCounts,
    /// Messages from the start of warm-up to the end of the drain.
    pub messages: MessageCounts,
    /// The measured window alone.
    pub window: WindowCounts,
    /// Histograms of the window by name with unit: `response_ns`, `service_ns`, `delay_ns`, `handshake_ns`.
    pub histograms: BTreeMap<String, Histogram>,
    /// The same values, second by second.
    #[serde(default)]
    pub intervals: Vec<Interval>,
    /// One entry for each connection that was opened.
    #[serde(default)]
    pub books: Vec<WorkerBook>,
    /// How the worker itself fared.
    pub evidence: WorkerEvidence,
    /// The worker's machine.
    pub environment: Environment,
}

/// Who says that a message arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Witness {
    /// Counted inside the application that received it.
    Application,
    /// The answer proves it.
    Reply,
    /// Nobody: no throughput figure is published.
    #[default]
    None,
}

/// Connections over a whole trial. `attempted = open + sum(failed)`; `closed_early` of the open ones didn't last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionCounts {
    /// Attempts.
    pub attempted: u64,
    /// Reached the protocol's "ready".
    pub open: u64,
    /// Failed before that, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Ended before the worker closed them, by reason.
    pub closed_early: BTreeMap<String, u64>,
}

/// Messages, each with exactly one outcome:
/// `due = delivered + late + wrong + sum(dropped) + lost + unsent`, and `sent = due - unsent`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageCounts {
    /// Scheduled, or offered by a closed loop.
    pub due: u64,
    /// Handed to the socket in full.
    pub sent: u64,
    /// Arrived, says the witness. A worker whose witness is the application leaves 0: the operator fills it in.
    pub delivered: u64,
    /// Arrived, but after the objective's time.
    pub late: u64,
    /// Answered wrongly.
    pub wrong: u64,
    /// Dropped by the service and counted there, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Sent and never accounted for.
    pub lost: u64,
    /// Due but never handed to the socket.
    pub unsent: u64,
    /// Answers that came twice; apart from outcomes.
    pub duplicates: u64,
    /// Answers out of order; apart from outcomes.
    pub reorders: u64,
    /// Bytes written to sockets, headers included.
    pub bytes_sent: u64,
    /// Bytes read from sockets, headers included.
    pub bytes_received: u64,
}

/// Counters over the measured window only, from the worker's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowCounts {
    /// Length, in nanoseconds, as it was.
    pub duration_ns: u64,
    /// Messages due in it.
    pub due: u64,
    /// Messages handed to sockets in it: "client-written", never a throughput figure.
    pub sent: u64,
    /// Answers received in it.
    pub replies: u64,
    /// Write system calls in it.
    pub writes: u64,
    /// CPU that the worker used in it, in nanoseconds, kernel included.
    pub cpu_ns: u64,
}

/// Histograms of one second of the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Nanoseconds from the window's start to this interval's.
    pub start_ns: u64,
    /// Its length, in nanoseconds.
    pub duration_ns: u64,
    /// As in [`WorkerResult::histograms`].
    pub histograms: BTreeMap<String, Histogram>,
}

/// A worker's books on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerBook {
    /// The id that the service gave it; empty when it gave none.
    pub id: String,
    /// Numbered messages handed to the socket in full.
    pub sent: u64,
    /// Sum of their sequence numbers, modulo 2^64.
    pub sequence_sum: u64,
    /// Unnumbered messages handed to the socket (hellos and such).
    pub unnumbered: u64,
    /// Answers received to the numbered ones.
    pub replies: u64,
}

/// How a worker itself fared: its innocence, or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerEvidence {
    /// Program and version.
    pub program: String,
    /// When load was to start, unix nanoseconds of the coordinator's clock.
    pub start_at_unix_ns: u64,
    /// How late it started, in nanoseconds.
    pub start_skew_ns: i64,
    /// This machine's clock minus the coordinator's, in nanoseconds.
    pub clock_offset_ns: i64,
    /// Uncertainty of that offset: half the best round trip, in nanoseconds.
    pub clock_uncertainty_ns: u64,
    /// How far wall clock and monotonic clock drifted apart during the trial, in nanoseconds: a step shows here.
    pub clock_step_ns: i64,
    /// CPUs that the worker may use, after affinity and quota.
    pub cpu_limit: f64,
    /// CPU used over the whole trial, in seconds.
    pub cpu_seconds: f64,
    /// CPU periods in the window in which it was throttled, and all of them; absent where no quota is in force.
    pub throttled_periods: Option<u64>,
    /// See `throttled_periods`.
    pub periods: Option<u64>,
    /// `measured` or `not_measured`.
    pub throttling: String,
    /// Peak resident memory, in bytes.
    pub rss_bytes: u64,
    /// Whether TCP_NODELAY was set.
    pub nodelay: bool,
    /// TCP congestion control in force on the sockets.
    pub congestion_control: String,
}

/// `result.json`: a trial, merged over its workers and judged.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialResult {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// The run's id.
    pub run: String,
    /// The trial.
    pub trial: TrialId,
    /// The attempt that succeeded.
    pub attempt: u32,
    /// When load started, unix nanoseconds.
    pub started_at_unix_ns: u64,
    /// How load was offered, over all workers.
    pub load: Load,
    /// What the messages were.
    pub message: Message,
    /// Who says that a message arrived.
    pub witness: Witness,
    /// `valid`, or why not.
    pub validity: Validity,
    /// Against the objectives; absent without objectives or when invalid.
    pub verdict: Option<Verdict>,
    /// What limited a closed-loop trial; absent for open ones.
    pub bound_by: Option<BoundBy>,
    /// Sums over workers, completed from the service's side.
    pub connections: ConnectionCounts,
    /// Sums over workers, completed from the service's side.
    pub messages: MessageCounts,
    /// Rates and costs of the window.
    pub figures: Figures,
    /// Percentiles that have enough samples, by histogram name: `p50` … `max`, in nanoseconds; `null` is printed `n/a`.
    pub percentiles: BTreeMap<String, BTreeMap<String, Option<u64>>>,
    /// Merged histograms by name.
    pub histograms: BTreeMap<String, Histogram>,
    /// The equations.
    pub books: Books,
    /// Readings of the service.
    pub service: ServiceReadings,
    /// How each worker fared, by index.
    pub workers: Vec<WorkerEvidence>,
    /// Command that repeats this trial alone.
    pub reproduce: String,
}

/// Whether a trial may be used at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Validity {
    /// Usable.
    Valid,
    /// Kept and shown, never in a headline.
    Invalid {
        /// Why; at least one.
        reasons: Vec<Reason>,
    },
}

/// Why a trial is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The rule.
    pub kind: ReasonKind,
    /// What was seen against what is allowed, in words.
    pub detail: String,
}

/// The rules of `docs/METHODOLOGY.md`, "Validity".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// The books don't balance.
    Unaccounted,
    /// A worker didn't deliver a result.
    WorkersMissing,
    /// Workers started too far apart.
    StartSkew,
    /// The generator sent too late.
    GeneratorLate,
    /// The generator ran out of CPU.
    GeneratorCpu,
    /// Too little of the schedule was sent.
    SendRate,
    /// The service process died or was replaced during the trial.
    ServiceRestarted,
    /// A clock jumped.
    ClockStep,
    /// The service's counters were not read at the window's edges.
    ReadingLate,
    /// Too few samples for an objective's percentile.
    WindowShort,
    /// The service failed its protocol check.
    Conformance,
    /// A CPU was shared although the plan asked for it exclusively.
    Isolation,
}

/// Against the objectives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Whether all objectives hold.
    pub passed: bool,
    /// Each objective with what was seen.
    pub objectives: Vec<Judged>,
}

/// One objective and what was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// The objective.
    pub objective: Objective,
    /// The figure; absent when it could not be computed, which fails the objective.
    pub seen: Option<f64>,
    /// Whether it holds.
    pub passed: bool,
}

/// What limited a closed-loop trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BoundBy {
    /// The service used up its CPU: the figure is its capacity.
    Service,
    /// The generator did: the figure is a lower bound, printed with `>=`.
    Generator,
    /// Both did.
    Both,
    /// Neither did: look for a lock, a window, a single-threaded stage.
    Neither,
}

/// Rates and costs of the window. A field that makes no sense for the workload is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Seconds of the window.
    pub window_seconds: f64,
    /// Scheduled per second.
    pub due_per_second: Option<f64>,
    /// Client-written per second: never a throughput figure.
    pub written_per_second: Option<f64>,
    /// Received by the service per second, from its own counters.
    pub received_per_second: Option<f64>,
    /// Delivered per second, says the witness.
    pub delivered_per_second: Option<f64>,
    /// Dropped by the service per second.
    pub dropped_per_second: Option<f64>,
    /// Connections opened per second (storms).
    pub accepted_per_second: Option<f64>,
    /// Messages per write system call.
    pub messages_per_write: Option<f64>,
    /// CPU seconds that the service used in the window.
    pub service_cpu_seconds: Option<f64>,
    /// CPU seconds that all workers used in the window.
    pub worker_cpu_seconds: Option<f64>,
    /// Share of its CPU limit that the service used.
    pub service_cpu_share: Option<f64>,
    /// Share of its CPU limit that the busiest worker used.
    pub worker_cpu_share: Option<f64>,
    /// Service CPU seconds per million messages delivered (or, without a witness, received).
    pub service_cpu_seconds_per_million: Option<f64>,
    /// Worker CPU seconds per million messages sent.
    pub worker_cpu_seconds_per_million: Option<f64>,
    /// Resident memory of the service with the tier's connections open, in bytes.
    pub service_rss_bytes: Option<u64>,
    /// (that - resident memory before the first connection) / open connections, in bytes.
    pub service_bytes_per_connection: Option<f64>,
    /// Share of attempts or messages that failed.
    pub failed_share: Option<f64>,
}

/// Readings of the service around a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceReadings {
    /// Before the workers connected.
    pub before: Option<Reading>,
    /// At the window's start.
    pub window_start: Option<Reading>,
    /// At the window's end.
    pub window_end: Option<Reading>,
    /// After the drain.
    pub after: Option<Reading>,
}

/// `service.json`: the service's side of a trial, as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceFile {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// Its counters, CPU and memory around the trial.
    pub readings: ServiceReadings,
    /// Its books on each connection; absent where it keeps none.
    pub connections: Option<Vec<ConnectionBook>>,
}

/// One reading of the service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// When, unix nanoseconds.
    pub unix_ns: u64,
    /// Its process id: another one means that it was restarted.
    pub pid: u32,
    /// CPU used since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// CPUs that it may use.
    pub cpu_limit: f64,
    /// Throttled CPU periods so far; absent where no quota is in force.
    pub throttled_periods: Option<u64>,
    /// Its own counters.
    pub stats: ServiceStats,
}
