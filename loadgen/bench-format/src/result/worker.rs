//! What a worker uploads: counts, histograms, books of its connections, and evidence about itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ThreadsUse, Turnover};
use crate::{Name, environment::Environment, histogram::Histogram, trial::TrialId, witness::Witness};

/// Body of `PUT /v1/workers/{worker}/result`, stored as `workers/<index>.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerResult {
    /// Version of the format; see [`crate::SCHEMA`].
    pub schema: u32,
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt, from the assignment.
    pub attempt: u32,
    /// Index of the worker, from 0.
    pub worker: u32,
    /// The party that confirms that a message arrived.
    pub witness: Witness,
    /// Connection counts over the whole trial.
    pub connections: ConnectionCounts,
    /// Connections that came and went under load; absent for other loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turnover: Option<Turnover>,
    /// Message counts from the start of the warm-up to the end of the drain.
    pub messages: MessageCounts,
    /// Counts of the measured window.
    pub window: WindowCounts,
    /// Histograms of the window by name, with the unit as suffix: `response_ns`, `service_ns`, `delay_ns`,
    /// `handshake_ns`.
    pub histograms: BTreeMap<Name, Histogram>,
    /// The same values in intervals of one second.
    #[serde(default)]
    pub intervals: Vec<Interval>,
    /// One book for each connection that was opened.
    #[serde(default)]
    pub books: Vec<WorkerBook>,
    /// Failures by kind, if the workload counts failures apart from messages.
    #[serde(default)]
    pub failures: Failures,
    /// The first distinct error frames, if the protocol has error frames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub error_samples: Vec<ErrorSample>,
    /// Findings of the protocol check; absent if this worker made none.
    #[serde(default)]
    pub conformance: Option<Conformance>,
    /// Evidence about the worker itself: CPU, memory, clock, throttling.
    pub evidence: WorkerEvidence,
    /// The machine on which the worker ran.
    pub environment: Environment,
}

/// Connection counts of a whole trial. `attempted = open + sum(failed)`; `closed_early` counts some of the open ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionCounts {
    /// Attempts to open a connection, successful or not.
    pub attempted: u64,
    /// Connections that reached the protocol's ready state.
    pub open: u64,
    /// Attempts that failed before that, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Open connections that ended before the worker closed them, by reason.
    pub closed_early: BTreeMap<String, u64>,
}

impl ConnectionCounts {
    /// The reason in `closed_early` of a connection that the worker gave up, because its socket took no byte for longer
    /// than the worker waits: the service reads nothing more.
    pub const UNREAD: &str = "send_timeout";
}

/// Message counts. Each message has exactly one outcome:
/// `due = delivered + late + wrong + sum(dropped) + lost + unsent`, and `sent = due - unsent`.
///
/// If the service publishes, the worker sends no messages. Then `due` counts the messages published between the first
/// and the last message of a connection, once for each connection, and `lost` those whose absence no counter explains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageCounts {
    /// Messages that the schedule made due or a closed loop offered.
    pub due: u64,
    /// Messages handed to the socket completely.
    pub sent: u64,
    /// Messages whose arrival the witness confirms. A worker whose witness is the application reports 0, and the judge
    /// fills in the count.
    pub delivered: u64,
    /// Messages that arrived later than the objective allows.
    pub late: u64,
    /// Messages with a wrong reply.
    pub wrong: u64,
    /// Messages that the service dropped and counted, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Messages that were sent and that no counter explains.
    pub lost: u64,
    /// Messages that were due but never handed to the socket.
    pub unsent: u64,
    /// Replies that came twice. They are not an outcome.
    pub duplicates: u64,
    /// Replies that came out of order. They are not an outcome.
    pub reorders: u64,
    /// Bytes written to sockets, headers included.
    pub bytes_sent: u64,
    /// Bytes read from sockets, headers included.
    pub bytes_received: u64,
}

/// Kind of the failure that counts rows for which a worker had no room, so that its samples lack them. It is the
/// worker's failure and therefore never counts in the window.
pub const SAMPLES_LOST: &str = "samples/overflow";

/// Failures by kind (`session/closed`, `inference_request/timeout`, `content/checksum`). Each failure counts once,
/// where it occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failures {
    /// Failures in the measured window.
    pub window: BTreeMap<String, u64>,
    /// Failures before or after the window.
    pub outside: BTreeMap<String, u64>,
}

/// An error frame, without the fields that differ from batch to batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorSample {
    /// The gateway's stage in which the error occurred.
    pub stage: String,
    /// Kind of the error, for programs.
    pub kind: String,
    /// Description of the error, for people.
    pub message: String,
    /// HTTP status of the inference response; absent if there was none.
    pub inference_status: Option<u16>,
    /// Whether a later request may succeed.
    pub retryable: bool,
}

/// The protocol check of the service, made on separate connections before the load's first connection and after the
/// last reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conformance {
    /// Findings before the load; empty if the check passed.
    pub before: Vec<String>,
    /// Findings after the load; empty if the check passed.
    pub after: Vec<String>,
    /// Number of connections that the check opened. `connections` of the result doesn't count them, but `books` lists
    /// them, with unnumbered messages only.
    #[serde(default)]
    pub opened: u64,
    /// Number of the check's messages that were answered, if the service counts replies. `messages` of the result
    /// doesn't count them.
    #[serde(default)]
    pub answered: u64,
    /// The check's messages that the service dropped and reported, by reason, if the service counts replies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, u64>,
}

/// The worker's counts of the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowCounts {
    /// Actual length of the window, in nanoseconds.
    pub duration_ns: u64,
    /// Messages due in the window.
    pub due: u64,
    /// Messages handed to sockets in the window; never published as throughput.
    pub sent: u64,
    /// Replies, or published messages, received in the window.
    pub replies: u64,
    /// Messages that those replies answer; equal to `replies` if each reply answers one message.
    #[serde(default)]
    pub answered: u64,
    /// Write system calls in the window.
    pub writes: u64,
    /// Read system calls in the window that brought published messages; 0 if the workload doesn't count them.
    #[serde(default)]
    pub reads: u64,
    /// Bytes of the frames that those reads completed, headers included.
    #[serde(default)]
    pub bytes_read: u64,
    /// CPU time that the worker used in the window, in user and kernel mode, in nanoseconds.
    pub cpu_ns: u64,
    /// Connections with a failure in the window; absent where failures aren't counted by connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_connections: Option<u64>,
    /// Largest number of failures of one connection in the window; absent where failures aren't counted by connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_failures: Option<u64>,
}

/// The histograms and failures of one interval of the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Start of the interval, in nanoseconds from the start of the window.
    pub start_ns: u64,
    /// Length of the interval, in nanoseconds.
    pub duration_ns: u64,
    /// Failures in the interval; 0 also where the workload doesn't record their times.
    #[serde(default)]
    pub failed: u64,
    /// Messages handed to sockets in the interval; 0 where the workload sends none or doesn't record when.
    #[serde(default)]
    pub sent: u64,
    /// Histograms by name, as in [`WorkerResult::histograms`].
    pub histograms: BTreeMap<Name, Histogram>,
}

/// A worker's counts of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerBook {
    /// The connection's id from the service; empty if the service gave none.
    pub id: String,
    /// Numbered messages handed to the socket completely.
    pub sent: u64,
    /// Sum of the sequence numbers of those messages, modulo 2^64.
    pub sequence_sum: u64,
    /// Unnumbered messages handed to the socket, such as a `client_hello`.
    pub unnumbered: u64,
    /// Replies received to the numbered messages.
    pub replies: u64,
    /// Counts of received published messages; absent if the workload doesn't receive any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<ReceiverBook>,
    /// Sequence number of the last message that was due in the window, if the connection publishes what others receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_of_window: Option<u64>,
}

/// A worker's counts of the messages that one connection received from a publishing service.
/// `last - first + 1 = received + missing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiverBook {
    /// Sequence number of the first message; absent if none arrived.
    pub first: Option<u64>,
    /// The highest sequence number received; absent if no message arrived.
    pub last: Option<u64>,
    /// Number of distinct sequence numbers received.
    pub received: u64,
    /// Sequence numbers between `first` and `last` that never arrived.
    pub missing: u64,
    /// Messages whose sequence number had arrived before.
    pub duplicated: u64,
    /// Messages that arrived after a message with a higher number.
    pub reordered: u64,
    /// Messages of the published kind that carry no number or no time.
    pub wrong: u64,
    /// Messages of other kinds: greetings, pings.
    pub others: u64,
    /// Whether a message arrived that was due after the window. Then no message of the window can still be on its way.
    pub reached: bool,
    /// Whether the close handshake was completed, so that the worker has read everything that was sent to it.
    pub closed: bool,
}

impl ReceiverBook {
    /// Number of sequence numbers from `first` to `last`.
    pub fn expected(&self) -> u64 {
        self.first.zip(self.last).map_or(0, |(first, last)| last.saturating_sub(first) + 1)
    }

    /// Number of all messages received, of any kind.
    pub fn messages(&self) -> u64 {
        self.received + self.duplicated + self.wrong + self.others
    }
}

/// Kind of the failure that counts connections which, by the end of the drain, had not received all messages published
/// up to the end of the window.
pub const RECEIVER_BEHIND: &str = "receiver/behind";

/// Evidence about a worker itself. It shows whether the generator, and not the service, limited the trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerEvidence {
    /// Program and version, for example `wse-bench 0.1.0`.
    pub program: String,
    /// Planned start of the load, in nanoseconds since the Unix epoch by the coordinator's clock.
    pub start_at_unix_ns: u64,
    /// Time from the first connection attempt until all attempts had ended, in nanoseconds; absent if connections are
    /// opened in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opening_ns: Option<u64>,
    /// Delay of the actual start after the planned start, in nanoseconds.
    pub start_skew_ns: i64,
    /// This machine's clock minus the coordinator's clock, in nanoseconds.
    pub clock_offset_ns: i64,
    /// Uncertainty of that offset, in nanoseconds: half of the shortest round trip.
    pub clock_uncertainty_ns: u64,
    /// Drift between wall clock and monotonic clock during the trial, in nanoseconds. A step of the clock shows here.
    pub clock_step_ns: i64,
    /// Number of CPUs that the worker may use, by affinity and quota.
    pub cpu_limit: f64,
    /// CPU time of the whole trial, in seconds.
    pub cpu_seconds: f64,
    /// CPU periods in the window in which the worker was throttled; absent without a CPU quota.
    pub throttled_periods: Option<u64>,
    /// All CPU periods in the window; absent without a CPU quota.
    pub periods: Option<u64>,
    /// `measured`, or `not_measured` without a CPU quota.
    pub throttling: String,
    /// Time in which the worker was throttled in the window, summed over its CPUs, in nanoseconds; absent without a CPU
    /// quota and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_ns: Option<u64>,
    /// What the worker's threads did in the window; absent if they can't be read and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadsUse>,
    /// Peak resident memory, in bytes.
    pub rss_bytes: u64,
    /// Whether TCP_NODELAY was set on the sockets.
    pub nodelay: bool,
    /// TCP congestion control of the sockets.
    pub congestion_control: String,
    /// Number of connections by the extension that they use, as `Sec-WebSocket-Extensions` names it with all parameters,
    /// or `none`. Empty if no extension was offered, and in older bundles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, u64>,
}
