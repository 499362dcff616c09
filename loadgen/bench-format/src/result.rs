//! What a trial leaves: first as each worker uploads it, then merged and judged.

mod books;
mod judgement;
mod readings;
mod worker;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    books::{Books, ConnectionCheck, Equation},
    judgement::{BoundBy, Judged, Reason, ReasonKind, Validity, Verdict},
    readings::{ProcessReading, Reading, ServiceFile, ServiceReadings},
    worker::{
        Conformance, ConnectionCounts, ErrorSample, Failures, Interval, MessageCounts, RECEIVER_BEHIND, ReceiverBook,
        SAMPLES_LOST, WindowCounts, WorkerBook, WorkerEvidence, WorkerResult,
    },
};
pub use crate::witness::Witness;
use crate::{
    histogram::Histogram,
    plan::{Load, Message},
    pod::Pod,
    trial::TrialId,
};

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
    /// Sums over workers.
    #[serde(default)]
    pub failures: Failures,
    /// Readings of the service.
    pub service: ServiceReadings,
    /// How each worker fared, by index.
    pub workers: Vec<WorkerEvidence>,
    /// The pods that took part; none on a single machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Pod>,
    /// Command that repeats this trial alone.
    pub reproduce: String,
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
    /// CPU seconds that the service used in the window, its companions included.
    pub service_cpu_seconds: Option<f64>,
    /// CPU seconds that all workers used in the window.
    pub worker_cpu_seconds: Option<f64>,
    /// Share of its CPU limit that the service used; with companions that of the busiest of them.
    pub service_cpu_share: Option<f64>,
    /// Share of its CPU limit that the busiest worker used.
    pub worker_cpu_share: Option<f64>,
    /// Service CPU seconds per million messages delivered (or, without a witness, received).
    pub service_cpu_seconds_per_million: Option<f64>,
    /// Worker CPU seconds per million messages sent, or received where a service publishes.
    pub worker_cpu_seconds_per_million: Option<f64>,
    /// Resident memory of the service with the tier's connections open, in bytes.
    pub service_rss_bytes: Option<u64>,
    /// (that - resident memory before the first connection) / open connections, in bytes.
    pub service_bytes_per_connection: Option<f64>,
    /// Share of attempts or messages that failed.
    pub failed_share: Option<f64>,
    /// Replies received per second.
    #[serde(default)]
    pub replies_per_second: Option<f64>,
    /// Failures in the window per reply received in it.
    #[serde(default)]
    pub error_share: Option<f64>,
    /// CPU seconds that the inference simulator used in the window.
    #[serde(default)]
    pub inference_cpu_seconds: Option<f64>,
    /// Share of its CPU limit that the inference simulator used.
    #[serde(default)]
    pub inference_cpu_share: Option<f64>,
    /// Messages that a service published per second, by its publisher's own count.
    #[serde(default)]
    pub published_per_second: Option<f64>,
    /// Published messages per read system call of the workers.
    #[serde(default)]
    pub messages_per_read: Option<f64>,
    /// Bytes that published messages brought to the workers per second, headers included.
    #[serde(default)]
    pub bytes_read_per_second: Option<f64>,
}
