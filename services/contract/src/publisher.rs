//! What a service that publishes by itself says of its publications.

use serde::{Deserialize, Serialize};

/// `GET /stats/publisher`: what a service that publishes by itself has published. Exact while it publishes nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PublisherStats {
    /// How a message reaches its subscribers: `broadcast`, to every connection of the publisher's own server; `pubsub` and
    /// `cluster`, to a topic's subscribers on other instances too.
    pub mode: String,
    /// Messages per second, each due at a time that is fixed before; absent for a flood.
    pub rate_per_second: Option<f64>,
    /// What holds it back: `schedule`; of a flood `engine`, `receivers`, `offer` or `none`.
    pub backpressure: String,
    /// Whether it publishes now.
    pub publishing: bool,
    /// Messages handed to the server, once each however many subscribers there are.
    pub published: u64,
    /// Their payload in bytes, once each.
    pub bytes: u64,
    /// Number of the first; absent before it.
    pub first_sequence: Option<u64>,
    /// Number of the last; each has one more than the one before.
    pub last_sequence: Option<u64>,
    /// Time in which it published, in seconds.
    pub publishing_seconds: f64,
    /// Messages handed over more than 1 ms after they were due.
    pub late: u64,
    /// The latest of them, in microseconds.
    pub lateness_max_us: u64,
}
