//! The messages between the coordinator and a worker: one assignment for each trial, and the barrier around it.
//!
//! The protocol is JSON over HTTP, and the worker sends every request (`docs/PROTOCOL.md`, "Coordinator"): it
//! registers, asks for the next assignment, reports ready, gets `start_at`, runs and uploads. A request about a trial
//! names the run, the trial, the attempt and the worker. Other requests only read, or set the same state
//! again. A repeated request therefore has the effect of one.

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Name,
    plan::{Load, Message},
    terms::Terms,
    websocket::WebsocketTask,
};

/// Identifies a trial within a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrialId {
    /// Name of the service in the registry.
    pub service: Name,
    /// Name of the workload.
    pub workload: Name,
    /// Variant of the ladder.
    pub variant: Name,
    /// Connections or sessions; in a search over a rate, messages per second.
    pub tier: u32,
    /// Number of the service process within the tier, from 1.
    pub process: u32,
    /// Number of the trial on that process, from 1.
    pub repeat: u32,
}

/// Formats the id as the trial's folder inside `trials/` of a bundle.
impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, workload, variant, tier, process, repeat } = self;
        write!(f, "{service}/{workload}/{variant}/{tier}-p{process}-r{repeat}")
    }
}

/// The error for a text that isn't the folder name of a trial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" names no trial; it is SERVICE/WORKLOAD/VARIANT/TIER-pPROCESS-rREPEAT")]
pub struct NoTrialId(String);

/// Parses the folder name that `Display` writes.
impl FromStr for TrialId {
    type Err = NoTrialId;

    fn from_str(text: &str) -> Result<Self, NoTrialId> {
        let parse = || {
            let [service, workload, variant, last] = text.split('/').collect::<Vec<_>>().try_into().ok()?;
            let (tier, process_and_repeat) = last.split_once("-p")?;
            let (process, repeat) = process_and_repeat.split_once("-r")?;
            let number = |digits: &str| digits.parse().ok();
            Some(Self {
                service: service.parse().ok()?,
                workload: workload.parse().ok()?,
                variant: variant.parse().ok()?,
                tier: number(tier)?,
                process: number(process)?,
                repeat: number(repeat)?,
            })
        };
        // Accept only the canonical form: `+1` parses as a number but never occurs in a folder's name.
        parse().filter(|trial| trial.to_string() == text).ok_or_else(|| NoTrialId(text.into()))
    }
}

/// What one worker does in one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt, from 1. An interrupted trial is repeated under the next number.
    pub attempt: u32,
    /// Index of this worker, from 0.
    pub worker: u32,
    /// Number of workers that share the trial.
    pub workers: u32,
    /// Address of the service, `host:port`.
    pub address: String,
    /// Number of connections of this worker.
    pub connections: u32,
    /// Index of the worker's first connection among the connections of all workers.
    pub first_connection: u32,
    /// Seed of the trial's schedules. Each worker mixes its own index into it.
    pub seed: u64,
    /// How load is offered. The rate of an open load is this worker's share.
    pub load: Load,
    /// Format, size and coalescing of the messages.
    pub message: Message,
    /// Duration of the load before the window, in nanoseconds.
    pub warmup_ns: u64,
    /// Length of the window, in nanoseconds.
    pub window_ns: u64,
    /// Longest time to wait for messages in flight after the window, in nanoseconds.
    pub drain_ns: u64,
    /// Reply time in nanoseconds above which a message counts as `late` instead of `delivered`; absent without such an
    /// objective.
    #[serde(default)]
    pub late_after_ns: Option<u64>,
    /// Keep the connections open for the next assignment, which may ask for more or fewer. Set only for workloads whose
    /// connections are idle after a drain.
    #[serde(default)]
    pub keep_connections: bool,
    /// Settings of the service that its worker needs, by environment variable. They are the variables listed as `told`
    /// in `services/services.toml` that the registry or the plan sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// How the service is spoken to; present only for services that the plan itself describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub websocket: Option<Box<WebsocketTask>>,
    /// Write one raw row for each reply in the window and upload them (`PUT /v1/workers/{worker}/samples`), if the
    /// workload supports it.
    #[serde(default)]
    pub samples: bool,
    /// Check the service's protocol before and after the load, on separate connections. Only worker 0 does it. Off for
    /// a service that only discards what it receives.
    #[serde(default)]
    pub protocol_check: bool,
}

/// `POST /v1/workers`: a worker registers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// Index of the worker, set on its command line.
    pub worker: u32,
    /// Process id of the worker, for the evidence and for its CPU limit.
    pub pid: u32,
    /// Start time of the worker process, in nanoseconds since the Unix epoch. In containers every worker is process 1,
    /// so only this value distinguishes a worker from its replacement.
    #[serde(default)]
    pub started_at_unix_ns: u64,
    /// Program and version, for example `wse-bench 0.1.0`.
    pub program: String,
    /// The workloads that the worker supports, each with the terms on which it is judged.
    pub workloads: BTreeMap<String, Terms>,
}

/// `GET /v1/workers/{worker}/next`: the worker's next step. The coordinator responds within 20 s; it sends `wait` if
/// the step isn't known by then.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "one a trial; a box would only move the bytes")]
pub enum Next {
    /// The step isn't known yet: send the request again.
    Wait,
    /// Prepare this trial, then report ready.
    Trial(Assignment),
    /// The run is over: exit with success.
    Finished,
}

/// `POST /v1/workers/{worker}/ready`: the worker has opened its connections, or it reports why it can't.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt, from the assignment.
    pub attempt: u32,
    /// Number of open connections; 0 for a workload that opens them inside the window.
    pub open: u32,
    /// Why the worker can't take part in the trial; absent if it can.
    #[serde(default)]
    pub problem: Option<String>,
}

/// The response to [`Ready`]. It comes when all workers are ready.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum Release {
    /// Not all workers are ready: send the same [`Ready`] again.
    Wait,
    /// Load starts at this moment.
    Start {
        /// Start of the warm-up, in nanoseconds since the Unix epoch by the coordinator's clock. The window begins
        /// `warmup_ns` later.
        start_at_unix_ns: u64,
        /// How far the clock by which the service publishes is ahead of the coordinator's, in nanoseconds; 0 for a service
        /// that doesn't publish, and where both have one clock.
        #[serde(default, skip_serializing_if = "is_zero")]
        publisher_ahead_ns: i64,
    },
    /// The trial is cancelled: ask for the next assignment.
    Abandoned {
        /// Why the trial was cancelled.
        reason: String,
    },
}

/// `POST /v1/workers/{worker}/window-over`: the worker has finished its load before the end of its window. It keeps its
/// connections open until the service has been read, because closing them is work that doesn't belong to the window.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowOver {
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt, from the assignment.
    pub attempt: u32,
}

/// The response to [`WindowOver`]. It comes when all workers have finished, at the latest at the end of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum DrainRelease {
    /// The service has not been read yet: send the same [`WindowOver`] again.
    Wait,
    /// The service has been read or the trial is cancelled: drain and close the connections.
    Drain,
}

/// `POST /v1/workers/{worker}/progress`: what the worker has done so far in a trial, for the display of a terminal. No figure
/// of a result depends on it, and it isn't stored.
///
/// The counts are those since the start of the trial, warm-up included, up to a moment ago.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Id of the run.
    pub run: String,
    /// Id of the trial.
    pub trial: TrialId,
    /// Number of the attempt, from the assignment.
    pub attempt: u32,
    /// Number of open connections.
    pub open: u64,
    /// Messages that were due; in a closed loop, those that were composed.
    pub due: u64,
    /// Messages that the sockets took.
    pub sent: u64,
    /// Replies, or publications that were received.
    pub answered: u64,
    /// Attempts that failed, connections that ended early, and messages that were answered wrong or could not be sent.
    pub errors: u64,
    /// The window's latencies: the index of a [bucket](crate::buckets) and its count, for those that are not empty.
    pub latencies: Vec<(u32, u64)>,
    /// CPU time of the worker since it started, in nanoseconds.
    pub cpu_ns: u64,
    /// Number of CPUs that the worker may use.
    pub cpu_limit: f64,
}

/// `GET /v1/clock`: the coordinator's clock, from which the worker estimates its own offset.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// Wall-clock time in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
}

/// How another machine's clock differs from this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Its clock minus ours, in nanoseconds.
    pub ahead_ns: i64,
    /// Half of the shortest round trip, in nanoseconds.
    pub uncertainty_ns: u64,
}

impl ClockOffset {
    /// Number of round trips, of which the shortest determines how far a clock is ahead.
    pub const ROUND_TRIPS: usize = 12;

    /// The estimate of a round trip that began at `sent_unix_ns` by our clock and took `duration_ns`: the other clock was
    /// read at some moment of it.
    pub fn of_round_trip(sent_unix_ns: u64, duration_ns: u64, theirs: Clock) -> Self {
        let uncertainty_ns = duration_ns / 2;
        Self { ahead_ns: theirs.unix_ns as i64 - (sent_unix_ns + uncertainty_ns) as i64, uncertainty_ns }
    }

    /// The more certain one of this estimate and an earlier one.
    pub fn or_surer(self, earlier: Option<Self>) -> Self {
        earlier.filter(|earlier| earlier.uncertainty_ns <= self.uncertainty_ns).unwrap_or(self)
    }
}

fn is_zero(ns: &i64) -> bool {
    *ns == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_read_back_from_its_folder() {
        let text = "rust-sync/sessions/standard/1000-p1-r2";
        assert_eq!(text.parse::<TrialId>().unwrap().to_string(), text);
        for wrong in ["", "a/b/c/1-p1", "a/b/c/d/1-p1-r1", "a/b/c/+1-p1-r1", "a/b/c/1-p1-r1 ", "../b/c/1-p1-r1"] {
            assert_eq!(wrong.parse::<TrialId>(), Err(NoTrialId(wrong.into())));
        }
    }
}
