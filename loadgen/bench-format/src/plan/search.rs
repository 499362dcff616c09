//! The capacity search of a ladder: the load that it varies, its bounds, its trials and their confirmation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `ladder search` searches: the largest load that meets the objectives (`docs/METHODOLOGY.md`, "Capacity
/// search").
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
    /// Width at which the search ends: the distance between the largest load that passes and the smallest that fails,
    /// as a share of the latter.
    #[serde(default = "two_percent")]
    pub width: f64,
    /// Share of the duration at a load that may fail the objective; 0.5 compares the median.
    #[serde(default = "super::half")]
    pub exceed_ratio: f64,
    /// How the bounds that were found are confirmed.
    #[serde(default)]
    pub confirm: WireConfirm,
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

/// Confirmation of a search's bounds, with fresh service processes and long windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WireConfirm {
    /// Length of the window, in seconds.
    pub window_seconds: f64,
    /// Trials at each load. If all pass, the load is confirmed; if all fail, it is a solid fail; otherwise it is
    /// borderline.
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
