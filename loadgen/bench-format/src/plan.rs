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
    /// Connections (or sessions) of each tier, rising. May be left out where there is a `search`.
    #[serde(default)]
    pub tiers: Vec<u32>,
    /// How the load is offered.
    pub load: Load,
    /// What the messages are.
    #[serde(default)]
    pub message: Message,
    /// Environment for the service process on top of the registry's, for example `DELIVERY: batch`.
    #[serde(default)]
    pub service_env: BTreeMap<String, String>,
    /// Processes of the service, each with an equal part of its CPUs and of the plan's workers, which load one each. More
    /// than one only where ladder starts the service itself, on one machine.
    #[serde(default = "one")]
    pub replicas: u32,
    /// Environment for the inference simulator behind the service on top of the registry's, for example
    /// `MODEL_DELAY_MS: "40"`.
    #[serde(default)]
    pub inference_env: BTreeMap<String, String>,
    /// Only these services climb this ladder; empty means all of the plan's.
    #[serde(default)]
    pub services: Vec<String>,
    /// Overrides the plan's repeats for this ladder.
    #[serde(default)]
    pub repeats: Option<u32>,
    /// Overrides the plan's warm-up for this ladder, in seconds. A load that ends by itself (a storm, so many messages
    /// per connection) takes 0: what it does before the window isn't measured.
    #[serde(default)]
    pub warmup_seconds: Option<f64>,
    /// Overrides the plan's window for this ladder, in seconds.
    #[serde(default)]
    pub window_seconds: Option<f64>,
    /// Keep a raw row for each reply of the window (`workers/<index>.samples.csv.zst`), where the workload has rows.
    #[serde(default)]
    pub samples: bool,
    /// What a trial must reach to pass; no objective, no verdict.
    #[serde(default)]
    pub objectives: Vec<Objective>,
    /// What `ladder search` looks for in place of the tiers.
    #[serde(default)]
    pub search: Option<WireSearch>,
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
    /// Each session sends at the pace that its protocol fixes (speech: an audio frame every 20 ms), from its own start
    /// until the window ends, whatever the service does. Latency counts from the due time, as in `open`.
    Sessions {
        /// Seconds over which sessions start one after another, before the warm-up.
        #[serde(default)]
        ramp_seconds: f64,
        /// Milliseconds by which that is stretched, so that sessions don't tick together, before the warm-up.
        #[serde(default)]
        spread_ms: f64,
        /// Connection attempts in flight at once over all workers.
        #[serde(default = "in_flight")]
        in_flight: u32,
    },
}

impl Load {
    /// Whether a schedule says when each message is due, so that the generator can be late.
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Closed { .. })
    }

    /// Whether connections stop after a number of messages each: what is sent before the window is then missing in it.
    pub fn ends_by_itself(&self) -> bool {
        matches!(self, Self::Closed { messages_per_connection: Some(_), .. })
    }

    /// Seconds from the start of the load until all of it is offered: they come before the warm-up.
    pub fn ramp_seconds(&self) -> f64 {
        match *self {
            Self::Sessions { ramp_seconds, spread_ms, .. } => ramp_seconds + spread_ms / 1e3,
            _ => 0.0,
        }
    }
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
    /// The inference simulator behind a speech-to-text gateway.
    #[serde(default)]
    pub inference: CpuShape,
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

/// A search for the largest load that meets the objectives (`docs/METHODOLOGY.md`, "Capacity search"), for `ladder
/// search`.
///
/// Each objective is a goal: a percentile asks that a share of the messages is in time, a share that no more fails, and
/// any other figure that it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WireSearch {
    /// What grows.
    #[serde(default)]
    pub over: SearchOver,
    /// Connections that carry the rate; only where a rate is searched.
    #[serde(default)]
    pub connections: Option<u32>,
    /// The smallest load.
    pub from: u32,
    /// The largest load.
    pub to: u32,
    /// Where the search begins.
    #[serde(default)]
    pub start: SearchStart,
    /// Window of the first, coarse trials, in seconds; absent means as long as the final ones.
    #[serde(default)]
    pub initial_trial_seconds: Option<f64>,
    /// Window of a full trial, in seconds.
    pub final_trial_seconds: f64,
    /// Windows at a load that decide what it is, in seconds together.
    pub duration_sum_seconds: f64,
    /// How close the largest load that passes and the smallest that fails have to be, as a share of the latter.
    #[serde(default = "two_percent")]
    pub width: f64,
    /// Share of the duration at a load that may be bad: 0.5 asks for the median.
    #[serde(default = "half")]
    pub exceed_ratio: f64,
    /// How what was found is confirmed.
    #[serde(default)]
    pub confirm: WireConfirm,
}

/// What grows in a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchOver {
    /// Connections, or sessions.
    #[default]
    Connections,
    /// The rate of an open load over all connections, in messages per second.
    RatePerSecond,
}

/// Where a search begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SearchStart {
    /// At the smallest load, so that a service never sees a load far above its capacity.
    #[default]
    Low,
    /// At the largest load, then at what came through of it.
    High,
}

/// How what a search found is confirmed: fresh service processes, long windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WireConfirm {
    /// The window, in seconds.
    pub window_seconds: f64,
    /// Trials at a load: all pass, it is confirmed; all fail, it is a solid fail; else it is borderline.
    pub repeats: u32,
}

impl Default for WireConfirm {
    fn default() -> Self {
        Self { window_seconds: 45.0, repeats: 2 }
    }
}

/// A figure that an objective can judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Figure {
    /// A percentile of a histogram, in milliseconds.
    PercentileMs {
        /// The histogram's name without its unit: `response`, `service`, `delay`, `handshake`; for speech `newest`,
        /// `oldest`, `flush_lateness`.
        histogram: String,
        /// 0 to 100.
        percentile: f64,
    },
    /// Delivered messages per second in the window.
    DeliveredPerSecond,
    /// Share of messages (or connection attempts) that failed: dropped, wrong, lost, unsent.
    FailedShare,
    /// Failures in the window for each reply received in it: error frames, wrong replies, sessions that ended; each
    /// once.
    ErrorShare,
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
fn two_percent() -> f64 {
    0.02
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
