//! What a worker uploads: its counts, its histograms, its books, and how it fared itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{environment::Environment, histogram::Histogram, trial::TrialId, witness::Witness};

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
    /// What failed, by kind, where the workload counts failures apart from messages.
    #[serde(default)]
    pub failures: Failures,
    /// The first distinct error frames, as they were, where the workload has error frames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub error_samples: Vec<ErrorSample>,
    /// What the protocol check of the service found; absent when this worker made none.
    #[serde(default)]
    pub conformance: Option<Conformance>,
    /// How the worker itself fared.
    pub evidence: WorkerEvidence,
    /// The worker's machine.
    pub environment: Environment,
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
///
/// Where the worker receives what a service publishes, those are due that were published between the first and the last
/// message of a connection, once for each connection; the worker itself sends none, and `lost` are those that nobody
/// explains.
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

/// The failure of rows for which a worker had no room, so that its samples lack them: the worker's, and so never in the
/// window.
pub const SAMPLES_LOST: &str = "samples/overflow";

/// Failures by kind (`session/closed`, `inference_request/timeout`, `content/checksum`), each counted once, where it happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failures {
    /// In the measured window.
    pub window: BTreeMap<String, u64>,
    /// Before or after it.
    pub outside: BTreeMap<String, u64>,
}

/// An error frame, without what differs from batch to batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorSample {
    /// Where in the gateway it happened.
    pub stage: String,
    /// What happened.
    pub kind: String,
    /// The same for people.
    pub message: String,
    /// HTTP status of inference, where there was one.
    pub inference_status: Option<u16>,
    /// Whether a later request may succeed.
    pub retryable: bool,
}

/// The protocol check of the service, made on a connection of its own before the first connection of the load and after
/// the last answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conformance {
    /// What was wrong before; empty when nothing was.
    pub before: Vec<String>,
    /// What was wrong after.
    pub after: Vec<String>,
    /// Connections that the check opened beside those of the load: `connections` of the result doesn't count them, but its
    /// `books` have them, with nothing but unnumbered messages.
    #[serde(default)]
    pub opened: u64,
    /// Messages of the check that were answered, where the service counts answers: `messages` of the result doesn't count
    /// them.
    #[serde(default)]
    pub answered: u64,
    /// Messages of the check that the service dropped and reported, by reason, where it counts answers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, u64>,
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
    /// Answers received in it, or published messages.
    pub replies: u64,
    /// Messages that those answers are for: as many as `replies` where each answers one.
    #[serde(default)]
    pub answered: u64,
    /// Write system calls in it.
    pub writes: u64,
    /// Read system calls that brought published messages in it; only where those are counted.
    #[serde(default)]
    pub reads: u64,
    /// Bytes of the frames that became whole with those, headers included.
    #[serde(default)]
    pub bytes_read: u64,
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
    /// What it received of a service that publishes; absent where the workload doesn't ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<ReceiverBook>,
}

/// A worker's books on what one connection received of a service that publishes.
/// `last - first + 1 = received + missing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiverBook {
    /// Number of its first message; absent when it got none.
    pub first: Option<u64>,
    /// The highest number that it got.
    pub last: Option<u64>,
    /// Numbers that it got, once each.
    pub received: u64,
    /// Numbers between first and last that never came.
    pub missing: u64,
    /// Messages whose number it had already.
    pub duplicated: u64,
    /// Messages that came after a higher number.
    pub reordered: u64,
    /// Messages that call themselves published and carry no number or no time.
    pub wrong: u64,
    /// Messages that are not published ones: greetings, pings.
    pub others: u64,
    /// Whether it got a message that was due after the window: what was published in it has come or never will.
    pub reached: bool,
    /// Whether both sides said goodbye, so that all that was sent to it was read.
    pub closed: bool,
}

impl ReceiverBook {
    /// Numbers from its first to its last.
    pub fn expected(&self) -> u64 {
        self.first.zip(self.last).map_or(0, |(first, last)| last.saturating_sub(first) + 1)
    }

    /// All messages that came, whatever they were.
    pub fn messages(&self) -> u64 {
        self.received + self.duplicated + self.wrong + self.others
    }
}

/// The failure of connections that did not get what was published up to the window's end by the end of the drain.
pub const RECEIVER_BEHIND: &str = "receiver/behind";

/// How a worker itself fared: its innocence, or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerEvidence {
    /// Program and version.
    pub program: String,
    /// When load was to start, unix nanoseconds of the coordinator's clock.
    pub start_at_unix_ns: u64,
    /// From its first connection attempt until each had its outcome, in nanoseconds; absent where connections open in the
    /// window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening_ns: Option<u64>,
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
