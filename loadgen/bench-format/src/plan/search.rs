//! The capacity search of a ladder: the load that it varies, the short trials and the rounds of full ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `ladder search` searches: the load at which a trial meets the objectives with probability 0.5
/// (`docs/METHODOLOGY.md`, "Capacity search"). Short trials look for the load at which the rounds begin; all fields but
/// `rounds` are about these.
///
/// Each objective is one goal of the search. A percentile requires that its share of the messages arrives in time,
/// `failed_share` and `error_share` that no larger share fails, and any other figure that its condition holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WireSearch {
    /// The quantity that the search varies.
    #[serde(default)]
    pub over: SearchOver,
    /// Connections that carry the rate; set only in a search over the rate.
    #[serde(default)]
    pub connections: Option<u32>,
    /// The smallest load that is tried.
    pub from: u32,
    /// The largest load that is tried.
    pub to: u32,
    /// The load at which the search begins.
    #[serde(default)]
    pub start: SearchStart,
    /// Window of the first, coarse trials, in seconds; absent means the length of the full trials.
    #[serde(default)]
    pub initial_trial_seconds: Option<f64>,
    /// Window of a full trial, in seconds.
    pub final_trial_seconds: f64,
    /// Sum of the windows at one load, in seconds, that decides whether the load passes or fails.
    pub duration_sum_seconds: f64,
    /// Width at which the short trials end: the distance between the largest load that passes and the smallest that fails,
    /// as a share of the latter.
    #[serde(default = "two_percent")]
    pub width: f64,
    /// Share of the duration at a load that may fail the objective; 0.5 compares the median.
    #[serde(default = "super::half")]
    pub exceed_ratio: f64,
    /// The trials on fresh service processes from which the capacity follows.
    #[serde(default)]
    pub rounds: WireRounds,
    /// Only in plans of schema 2 bundles: how the bounds were confirmed. A new search refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<WireConfirm>,
}

/// The quantity that a search varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchOver {
    /// The number of connections or sessions.
    #[default]
    Connections,
    /// The rate of an open load over all connections, in messages per second.
    RatePerSecond,
}

/// The load at which a search begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SearchStart {
    /// The smallest load, so that a service never receives a load far above its capacity.
    #[default]
    Low,
    /// The largest load, and then that load less its losses.
    High,
}

/// The rounds of a search: in each, every service makes one trial with a fresh process and the plan's full ramp and
/// warm-up. Tests of the loads that pass and fail are made of the same trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WireRounds {
    /// Length of each window, in seconds.
    pub window_seconds: f64,
    /// Half of the 95 % interval at which the rounds of a service end, as a share of the load.
    pub precision: f64,
    /// Trials of a service that are made in any case, without those that were far from its capacity.
    pub at_least: u32,
    /// Trials of a service after which its rounds end in any case, without those that were far from its capacity.
    pub at_most: u32,
    /// Loads that are tested after the rounds.
    pub test: SearchTest,
}

impl Default for WireRounds {
    fn default() -> Self {
        Self { window_seconds: 45.0, precision: 0.02, at_least: 12, at_most: 24, test: SearchTest::default() }
    }
}

/// Loads that a search tests with trials of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SearchTest {
    /// The largest load that passes with probability 0.95, and the smallest that passes with 0.05.
    #[default]
    Both,
    /// The largest load that passes with probability 0.95.
    Confirmed,
}

/// How searches up to schema 2 confirmed their bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WireConfirm {
    /// Length of the window, in seconds.
    pub window_seconds: f64,
    /// Trials at each load.
    pub repeats: u32,
}

impl Default for WireConfirm {
    fn default() -> Self {
        Self { window_seconds: 45.0, repeats: 2 }
    }
}

fn two_percent() -> f64 {
    0.02
}
