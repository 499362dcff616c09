//! What to climb, as a person writes it (`plans/*.yaml`).
//!
//! These types mirror the file; the operator turns a [`WirePlan`] once into its checked `Plan` and only that travels.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A plan file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WirePlan {
    /// The format's number; see [`crate::SCHEMA`].
    pub schema: u32,
    /// The plan's name; part of the run's id.
    pub name: String,
    /// Why this plan exists, for its readers.
    pub why: String,
    /// Seed of every schedule and every random choice of the run.
    pub seed: u64,
    /// Names in `services/services.toml`, in the order in which they are climbed.
    pub services: Vec<String>,
    /// Worker processes for each tier.
    #[serde(default = "one")]
    pub workers: u32,
    /// Trials for each tier.
    #[serde(default = "one")]
    pub repeats: u32,
    /// When the service process is replaced by a fresh one.
    #[serde(default)]
    pub service_process: ServiceProcess,
    /// CPU given to each role.
    #[serde(default)]
    pub cpu: CpuShapes,
    /// Seconds before the window, under load, not measured.
    #[serde(default = "half")]
    pub warmup_seconds: f64,
    /// Seconds of the measured window.
    pub window_seconds: f64,
    /// Longest wait, in seconds, for what is in flight when the window ends.
    #[serde(default = "ten")]
    pub drain_seconds: f64,
    /// When a trial is invalid.
    #[serde(default)]
    pub validity: Thresholds,
    /// The ladders.
    pub ladders: Vec<WireLadder>,
}

/// One ladder: tiers of one workload in one variant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WireLadder {
    /// The workload's name, as the service's protocol lists it in `services/services.toml`.
    pub workload: String,
    /// What tells this ladder from others of the same workload; a folder name.
    #[serde(default = "standard")]
    pub variant: String,
    /// Connections (or sessions) of each tier, rising.
    pub tiers: Vec<u32>,
    /// How the load is offered.
    pub load: Load,
    /// What the messages are.
    #[serde(default)]
    pub message: Message,
    /// Environment for the service process on top of the registry's, for example `DELIVERY: batch`.
    #[serde(default)]
    pub service_env: BTreeMap<String, String>,
    /// Only these services climb this ladder; empty means all of the plan's.
    #[serde(default)]
    pub services: Vec<String>,
    /// Overrides the plan's warm-up for this ladder, in seconds. A load that ends by itself (a storm, so many messages per
    /// connection) takes 0: what it does before the window isn't measured.
    #[serde(default)]
    pub warmup_seconds: Option<f64>,
    /// Overrides the plan's window for this ladder, in seconds.
    #[serde(default)]
    pub window_seconds: Option<f64>,
    /// What a trial must reach to pass; no objective, no verdict.
    #[serde(default)]
    pub objectives: Vec<Objective>,
}

/// How load is offered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Load {
    /// A schedule says when each message is due before the trial starts; latency counts from the due time.
    Open {
        /// Messages per second over all connections of all workers.
        rate_per_second: f64,
        /// How due times are spaced.
        #[serde(default)]
        arrivals: Arrivals,
    },
    /// Each connection sends its next message when the last was answered (or, in a flood, when the socket takes it).
    Closed {
        /// Messages per connection; absent means until the window ends.
        #[serde(default)]
        messages_per_connection: Option<u32>,
        /// Connection attempts in flight at once over all workers (storms).
        #[serde(default = "in_flight")]
        in_flight: u32,
    },
}

/// How due times are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Constant,
    /// With exponentially distributed gaps, from the plan's seed.
    Poisson,
}

/// What the messages are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Encoding, in the protocol's words: for WSE `json`, `msgpack` (`M:`) or `compressed` (`C:`).
    #[serde(default = "json")]
    pub format: String,
    /// Bytes of the message before encoding, as the workload rounds it.
    #[serde(default = "base_size")]
    pub size_bytes: u32,
    /// Messages handed to the socket in one write.
    #[serde(default = "one")]
    pub coalesce: u32,
}

impl Default for Message {
    fn default() -> Self {
        Self { format: json(), size_bytes: base_size(), coalesce: 1 }
    }
}

/// When the service process is replaced by a fresh one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceProcess {
    /// At the start of each tier.
    #[default]
    Tier,
    /// Before each trial: repeats then vary over processes too (Kalibera & Jones, ISMM 2013).
    Repeat,
}

/// CPU given to each role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuShapes {
    /// The service under test.
    #[serde(default)]
    pub service: CpuShape,
    /// Each worker.
    #[serde(default)]
    pub worker: CpuShape,
}

/// How much CPU one process of a role may use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuShape {
    /// CPUs; a fraction needs a cgroup that can be written.
    pub cpus: f64,
}

impl Default for CpuShape {
    fn default() -> Self {
        Self { cpus: 1.0 }
    }
}

/// Limits beyond which a trial is invalid. Defaults are those of `docs/METHODOLOGY.md`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Largest difference between the workers' actual starts, in milliseconds.
    pub start_skew_ms: f64,
    /// Largest p99 of the generator's own delay, in milliseconds (open loop).
    pub delay_p99_ms: f64,
    /// Largest share of its CPU limit that a worker may use (open loop).
    pub worker_cpu_share: f64,
    /// Largest share of CPU periods in which a worker may be throttled (open loop).
    pub throttled_share: f64,
    /// Smallest share of the schedule that must have been sent (open loop).
    pub send_share: f64,
    /// Share of its CPU above which a side counts as what bound a closed-loop flood.
    pub bound_share: f64,
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
        }
    }
}

/// One condition on a trial's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// What is judged.
    pub figure: Figure,
    /// The trial passes when the figure is at most this; the unit is in the figure's name.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The trial passes when the figure is at least this.
    #[serde(default)]
    pub at_least: Option<f64>,
}

/// A figure that an objective can judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Figure {
    /// A percentile of a histogram, in milliseconds.
    PercentileMs {
        /// The histogram's name without its unit: `response`, `service`, `delay`, `handshake`.
        histogram: String,
        /// 0 to 100.
        percentile: f64,
    },
    /// Delivered messages per second in the window.
    DeliveredPerSecond,
    /// Share of messages (or connection attempts) that failed: dropped, wrong, lost, unsent.
    FailedShare,
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
fn in_flight() -> u32 {
    256
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
