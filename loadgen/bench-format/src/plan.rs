//! The plan file (`plans/*.yaml`): which ladders a run climbs and what a trial must reach.
//!
//! These types mirror the file. The operator validates a [`WirePlan`] once and from then on uses its own `Plan`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::websocket::WireWebsocket;

pub use load::{Arrivals, Cut, Load};
pub use search::{SearchOver, SearchStart, SearchTest, WireConfirm, WireRounds, WireSearch};

mod load;
mod search;

/// A plan file: what a run measures, and how.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WirePlan {
    /// Version of the format; see [`crate::SCHEMA`].
    pub schema: u32,
    /// Name of the plan; it becomes part of the run's id.
    pub name: String,
    /// Purpose of the plan, for its readers.
    pub why: String,
    /// Seed of every schedule and every random choice in the run.
    pub seed: u64,
    /// Names from `services/services.toml`, in the order in which they climb.
    pub services: Vec<String>,
    /// Number of worker processes of each tier; the least number where `connections_per_worker` asks for more.
    #[serde(default = "one")]
    pub workers: u32,
    /// Most connections of one worker. A tier gets as many workers as that takes, and as many for each of the service's
    /// `replicas`. Without it, all tiers have `workers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_per_worker: Option<u32>,
    /// Number of trials of each tier.
    #[serde(default = "one")]
    pub repeats: u32,
    /// When a fresh service process replaces the current one.
    #[serde(default)]
    pub service_process: ServiceProcess,
    /// CPUs of each role.
    #[serde(default)]
    pub cpu: CpuShapes,
    /// Seconds of load before the window; they are not measured.
    #[serde(default = "half")]
    pub warmup_seconds: f64,
    /// Length of the measured window, in seconds.
    pub window_seconds: f64,
    /// Longest time, in seconds, that a trial waits for messages in flight after the window.
    #[serde(default = "ten")]
    pub drain_seconds: f64,
    /// Limits beyond which a trial is invalid.
    #[serde(default)]
    pub validity: Thresholds,
    /// Services that keep no books and that no registry lists, and how they are spoken to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub websocket: Option<WireWebsocket>,
    /// The ladders of the plan.
    pub ladders: Vec<WireLadder>,
}

impl WirePlan {
    /// Number of workers for this many connections to a service of this many processes.
    pub fn workers_for(&self, connections: u32, replicas: u32) -> u32 {
        let Some(most) = self.connections_per_worker else { return self.workers };
        let needed = connections.div_ceil(most.max(1)).max(self.workers);
        needed.checked_next_multiple_of(replicas.max(1)).unwrap_or(u32::MAX)
    }
}

/// One ladder: the tiers of one workload in one variant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WireLadder {
    /// Name of the workload, as the service's protocol lists it in `services/services.toml`.
    pub workload: String,
    /// Name that distinguishes this ladder from others of the same workload; it becomes a folder name.
    #[serde(default = "standard")]
    pub variant: String,
    /// Connections (or sessions) of each tier, in rising order. May be left out where there is a `search`.
    #[serde(default)]
    pub tiers: Vec<u32>,
    /// How load is offered.
    pub load: Load,
    /// Format, size and coalescing of the messages.
    #[serde(default)]
    pub message: Message,
    /// Environment variables of the service process in addition to the registry's, for example `DELIVERY: batch`.
    #[serde(default)]
    pub service_env: BTreeMap<String, String>,
    /// Number of service processes, or of its pods in a cluster. Each gets an equal part of the plan's workers, and each
    /// worker loads one. On one machine they also share the service's CPUs equally; in a cluster each pod has those of the
    /// plan. More than one is possible only where ladder starts the service itself.
    #[serde(default = "one")]
    pub replicas: u32,
    /// Environment variables of the inference simulator behind the service in addition to the registry's, for example
    /// `MODEL_DELAY_MS: "40"`.
    #[serde(default)]
    pub inference_env: BTreeMap<String, String>,
    /// Services that climb this ladder; empty means all services of the plan.
    #[serde(default)]
    pub services: Vec<String>,
    /// Replaces the plan's number of repeats for this ladder.
    #[serde(default)]
    pub repeats: Option<u32>,
    /// Replaces the plan's warm-up for this ladder, in seconds. Set it to 0 for a load that ends by itself (a
    /// connection storm, or a fixed number of messages per connection): what such a load does before the window isn't
    /// measured.
    #[serde(default)]
    pub warmup_seconds: Option<f64>,
    /// Replaces the plan's window for this ladder, in seconds.
    #[serde(default)]
    pub window_seconds: Option<f64>,
    /// Keep one raw row for each reply in the window (`workers/<index>.samples.csv.zst`), if the workload supports it.
    #[serde(default)]
    pub samples: bool,
    /// Conditions that a trial must meet to pass. Without objectives there is no verdict.
    #[serde(default)]
    pub objectives: Vec<Objective>,
    /// The search that `ladder search` performs instead of climbing the tiers.
    #[serde(default)]
    pub search: Option<WireSearch>,
}

/// Format, size and coalescing of the messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Encoding, by the protocol's name for it; WSE has `json`, `msgpack` (`M:`) and `compressed` (`C:`).
    #[serde(default = "json")]
    pub format: String,
    /// Size of the message before encoding, in bytes; a workload may round it.
    #[serde(default = "base_size")]
    pub size_bytes: u32,
    /// Number of messages that one write hands to the socket.
    #[serde(default = "one")]
    pub coalesce: u32,
    /// Number of different messages, 1 to 256, drawn in an order without a pattern: each has a type of its own, and the
    /// keys and the length differ. With 1 all messages are alike except for their number. Only a flood of JSON varies.
    #[serde(default = "one")]
    pub shapes: u32,
}

impl Default for Message {
    fn default() -> Self {
        Self { format: json(), size_bytes: base_size(), coalesce: 1, shapes: 1 }
    }
}

/// When a fresh service process replaces the current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceProcess {
    /// At the start of each tier.
    #[default]
    Tier,
    /// Before each trial. Repeats then also vary over processes (Kalibera & Jones, ISMM 2013).
    Repeat,
}

/// CPUs of each role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuShapes {
    /// CPUs of the service under test.
    #[serde(default)]
    pub service: CpuShape,
    /// CPUs of each worker.
    #[serde(default)]
    pub worker: CpuShape,
    /// CPUs of the inference simulator behind a speech-to-text gateway.
    #[serde(default)]
    pub inference: CpuShape,
    /// Workers may run on CPUs of the service if the machine has no others. CPU per message is comparable then, because
    /// it is read from each process. Latencies include the time in which one side waits for the other. Without it, such
    /// a trial is invalid.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_share: bool,
}

/// How much CPU one process of a role may use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuShape {
    /// Number of CPUs. A fraction needs a writable cgroup.
    pub cpus: f64,
}

impl Default for CpuShape {
    fn default() -> Self {
        Self { cpus: 1.0 }
    }
}

/// Limits beyond which a trial is invalid. `docs/METHODOLOGY.md` explains the default values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Largest difference between the workers' actual starts, in milliseconds.
    pub start_skew_ms: f64,
    /// Largest 99th percentile of the generator's own delay, in milliseconds (open loop).
    pub delay_p99_ms: f64,
    /// Largest share of its CPU limit that a worker may use, 0 to 1 (open loop).
    pub worker_cpu_share: f64,
    /// Largest share of CPU periods in which a worker may be throttled, 0 to 1 (open loop).
    pub throttled_share: f64,
    /// Smallest share of the scheduled messages that must have been sent, 0 to 1 (open loop).
    pub send_share: f64,
    /// Share of its CPU limit, 0 to 1, above which a side counts as the bottleneck of a closed-loop flood.
    pub bound_share: f64,
    /// Largest share of a side's CPUs that other programs may use during the window, 0 to 1. Without it, a busy machine
    /// is remarked and the trial stays valid.
    pub busy_share: Option<f64>,
    /// Largest share of a side's CPUs that the hypervisor may take during the window, 0 to 1; the same without it.
    pub steal_share: Option<f64>,
    /// Largest deviation of the fixed work's CPU time from its median in the run, as a share of the median; the same without it.
    pub work_share: Option<f64>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            start_skew_ms: 50.0,
            delay_p99_ms: 5.0,
            worker_cpu_share: 0.9,
            throttled_share: 0.01,
            send_share: 0.995,
            bound_share: 0.9,
            busy_share: None,
            steal_share: None,
            work_share: None,
        }
    }
}

/// One condition on a trial's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// The figure that is compared.
    pub figure: Figure,
    /// The trial passes if the figure is at most this value, in the unit that the figure's name states.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The trial passes if the figure is at least this value.
    #[serde(default)]
    pub at_least: Option<f64>,
}

/// A figure that an objective compares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Figure {
    /// A percentile of a histogram, in milliseconds.
    PercentileMs {
        /// Name of the histogram without its unit: `response`, `service`, `delay`, `handshake`; for speech `newest`,
        /// `oldest`, `flush_lateness` (one value for each answer) and `frame` (one for each audio frame).
        histogram: String,
        /// Percentile, from 0 to 100.
        percentile: f64,
    },
    /// Delivered messages per second in the window.
    DeliveredPerSecond,
    /// Share of the messages (or connection attempts) that were dropped, wrong, lost or unsent, 0 to 1.
    FailedShare,
    /// Failures in the window per reply received in it. Error frames, wrong replies and sessions that ended count once
    /// each.
    ErrorShare,
    /// Share of the messages due in the window that were answered later than the longest objective allows, wrongly or
    /// not at all, 0 to 1. Sessions have it, and open loops with replies.
    LateShare,
    /// Answers in the window for each second of each session that the tier requires. Only speech-to-text sessions have
    /// it.
    AnswersPerSessionSecond,
    /// Milliseconds from the moment at which all connections were cut until so many of them were ready again. Only the
    /// load model `reconnect` has it. Without the figure, because too few came back, the objective is missed.
    ReconnectedMs {
        /// Share of the connections in percent, from 0 to 100; 0 is the first one.
        percent: f64,
    },
    /// Service CPU seconds per million messages received in the window.
    ServiceCpuSecondsPerMillion,
    /// Service memory per open connection, in bytes.
    ServiceBytesPerConnection,
}

fn one() -> u32 {
    1
}
fn half() -> f64 {
    0.5
}
fn ten() -> f64 {
    10.0
}
fn standard() -> String {
    "standard".into()
}
fn json() -> String {
    "json".into()
}
fn base_size() -> u32 {
    175
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(head: &str) -> WirePlan {
        let json = format!(
            r#"{{"schema": 1, "name": "p", "why": "a test", "seed": 1, "services": [], "window_seconds": 1, "ladders": [], {head}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_tier_has_as_many_workers_as_its_connections_take() {
        let plan = plan(r#""workers": 2, "connections_per_worker": 1000"#);
        let workers = |connections| plan.workers_for(connections, 1);
        assert_eq!([1, 2000, 2001, 500_000].map(workers), [2, 2, 3, 500]);
        assert_eq!(plan.workers_for(2001, 2), 4, "each of two processes is loaded by as many workers");
        assert_eq!(plan.workers_for(u32::MAX, 256), 4_295_168);
    }

    #[test]
    fn without_a_limit_all_tiers_have_the_plans_workers() {
        let plan = plan(r#""workers": 3"#);
        assert_eq!([plan.workers_for(1, 1), plan.workers_for(u32::MAX, 2)], [3, 3]);
        assert!(!serde_json::to_string(&plan).unwrap().contains("connections_per_worker"), "older versions read it");
    }
}
