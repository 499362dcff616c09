//! The results of a trial: what each worker uploads, and what the judge makes of it.

mod books;
mod fixed_work;
mod judgement;
mod machine;
mod readings;
mod threads;
mod turnover;
mod worker;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    books::{Books, ConnectionCheck, Equation},
    fixed_work::{FIXED_WORK_REMARK, FixedWork, FixedWorkTime},
    judgement::{
        BoundBy, BoundCheck, BoundMeasure, BoundSide, ErrorBudget, Judged, Reason, ReasonKind, Shown, Validity, Verdict,
    },
    machine::{BUSY_SHARE, CpuGroup, ForeignProcess, MachineUse, STEAL_SHARE},
    readings::{InferenceCounts, ProcessReading, PublisherClock, Reading, ServiceFile, ServiceReadings},
    threads::{ThreadReading, ThreadsUse},
    turnover::{Turnover, add_counts},
    worker::{
        Conformance, ConnectionCounts, ErrorSample, Failures, Interval, MessageCounts, RECEIVER_BEHIND, ReceiverBook,
        SAMPLES_LOST, WindowCounts, WorkerBook, WorkerEvidence, WorkerResult,
    },
};
pub use crate::witness::Witness;
use crate::{
    Name,
    histogram::Histogram,
    plan::{Load, Message},
    pod::Pod,
    trial::TrialId,
};

/// `result.json`: a trial, merged over its workers and judged.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialResult {
    /// Version of the format; see [`crate::SCHEMA`].
    pub schema: u32,
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt that succeeded, from 1.
    pub attempt: u32,
    /// Start of the load, in nanoseconds since the Unix epoch.
    pub started_at_unix_ns: u64,
    /// How load was offered, over all workers.
    pub load: Load,
    /// Format, size and coalescing of the messages.
    pub message: Message,
    /// The party that confirms that a message arrived.
    pub witness: Witness,
    /// Whether the result may be used, with the reasons if not.
    pub validity: Validity,
    /// Comparison with the objectives; absent without objectives or if the trial is invalid.
    pub verdict: Option<Verdict>,
    /// What limited the load; absent if nothing was used up and the load was offered as planned.
    pub bound_by: Option<BoundBy>,
    /// What was looked at for `bound_by`; absent in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_checks: Option<Vec<BoundCheck>>,
    /// What others used of the machine's CPUs during the window; absent where it can't be read and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineUse>,
    /// Connection counts, summed over workers.
    pub connections: ConnectionCounts,
    /// Connections that came and went under load, summed over workers; absent for other loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turnover: Option<Turnover>,
    /// Message counts, summed over workers and completed with the service's counts.
    pub messages: MessageCounts,
    /// Rates and costs in the window.
    pub figures: Figures,
    /// Percentiles by histogram name: `p50` … `max`, in nanoseconds. A value is `null`, printed `n/a`, if there are too
    /// few samples.
    pub percentiles: BTreeMap<Name, BTreeMap<String, Option<u64>>>,
    /// Merged histograms by name.
    pub histograms: BTreeMap<Name, Histogram>,
    /// The equations between the counters of workers and service.
    pub books: Books,
    /// Failures by kind, summed over workers.
    #[serde(default)]
    pub failures: Failures,
    /// Readings of the service's counters, CPU and memory.
    pub service: ServiceReadings,
    /// Evidence of each worker, by index.
    pub workers: Vec<WorkerEvidence>,
    /// The pods that took part; empty on a single machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Pod>,
    /// Command that repeats only this trial.
    pub reproduce: String,
}

/// Rates and costs in the window. A figure that has no meaning for the workload is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Length of the window, in seconds.
    pub window_seconds: f64,
    /// Messages due per second, by the schedule.
    pub due_per_second: Option<f64>,
    /// Messages per second that the workers wrote to sockets; never published as throughput.
    pub written_per_second: Option<f64>,
    /// Messages per second that the service received, from its own counters.
    pub received_per_second: Option<f64>,
    /// Messages per second that the witness confirms as delivered.
    pub delivered_per_second: Option<f64>,
    /// Messages per second that the service dropped.
    pub dropped_per_second: Option<f64>,
    /// Connections opened per second (connection storms).
    pub accepted_per_second: Option<f64>,
    /// Messages per write system call of the workers.
    pub messages_per_write: Option<f64>,
    /// CPU seconds that the service and its companions used in the window.
    pub service_cpu_seconds: Option<f64>,
    /// CPU seconds that all workers used in the window.
    pub worker_cpu_seconds: Option<f64>,
    /// Share of its CPU limit that the service used, as a fraction. With companions it is the largest share of any of
    /// them.
    pub service_cpu_share: Option<f64>,
    /// Share of its CPU limit that the busiest worker used, as a fraction.
    pub worker_cpu_share: Option<f64>,
    /// Service CPU seconds per million messages delivered (received, if nothing counts the deliveries).
    pub service_cpu_seconds_per_million: Option<f64>,
    /// Worker CPU seconds per million messages sent, or received if the service publishes.
    pub worker_cpu_seconds_per_million: Option<f64>,
    /// Resident memory of the service with the tier's connections open, in bytes.
    pub service_rss_bytes: Option<u64>,
    /// Memory per open connection, in bytes: the growth of resident memory since before the first connection, divided
    /// by the number of open connections.
    pub service_bytes_per_connection: Option<f64>,
    /// Share of messages or of connection attempts that failed, 0 to 1: the larger of the two.
    pub failed_share: Option<f64>,
    /// Replies per second that the workers received.
    #[serde(default)]
    pub replies_per_second: Option<f64>,
    /// Failures in the window per reply received in it.
    #[serde(default)]
    pub error_share: Option<f64>,
    /// Share of the messages due in the window that were answered later than the longest objective allows, wrongly or
    /// not at all, 0 to 1. Absent without such an objective and in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_share: Option<f64>,
    /// Answers in the window for each second of each session that the tier requires; absent in older bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers_per_session_second: Option<f64>,
    /// CPU seconds that the inference simulator used in the window.
    #[serde(default)]
    pub inference_cpu_seconds: Option<f64>,
    /// Share of its CPU limit that the inference simulator used, as a fraction.
    #[serde(default)]
    pub inference_cpu_share: Option<f64>,
    /// Messages per second that the service published, by its publisher's counter.
    #[serde(default)]
    pub published_per_second: Option<f64>,
    /// Published messages per read system call of the workers.
    #[serde(default)]
    pub messages_per_read: Option<f64>,
    /// Milliseconds from the cut of all connections until the first of them was ready again; absent for other loads, as the
    /// next three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconnected_first_ms: Option<f64>,
    /// The same until half of them were ready again; absent if fewer came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconnected_half_ms: Option<f64>,
    /// The same until 99 % of them were ready again; absent if fewer came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconnected_99_percent_ms: Option<f64>,
    /// The same until all of them were ready again; absent if one did not come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconnected_all_ms: Option<f64>,
    /// Bytes per second that the workers read in frames of published messages, headers included.
    #[serde(default)]
    pub bytes_read_per_second: Option<f64>,
}
