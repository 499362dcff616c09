//! The counters of a service that publishes by itself.

use serde::{Deserialize, Serialize};

/// `GET /stats/publisher`: counters of a service that publishes by itself. Exact while it publishes nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PublisherStats {
    /// How a message reaches its subscribers: `broadcast` reaches every connection of the publisher's own server;
    /// `pubsub` and `cluster` also reach a topic's subscribers on other instances.
    pub mode: String,
    /// Messages per second, with due times fixed in advance; absent for a flood.
    pub rate_per_second: Option<f64>,
    /// What limits the rate: `schedule`, or for a flood `engine`, `receivers`, `offer` or `none`.
    pub backpressure: String,
    /// Whether the service publishes now.
    pub publishing: bool,
    /// Messages handed to the server. Each counts once, regardless of the number of subscribers.
    pub published: u64,
    /// Payload of those messages in bytes, counted once each.
    pub bytes: u64,
    /// Sequence number of the first message; absent before it.
    pub first_sequence: Option<u64>,
    /// Sequence number of the last message; absent before the first. Numbers increase by one.
    pub last_sequence: Option<u64>,
    /// Time in which the service has published, in seconds.
    pub publishing_seconds: f64,
    /// Messages handed over more than 1 ms after they were due.
    pub late: u64,
    /// Largest delay of a message after its due time, in microseconds.
    pub lateness_max_us: u64,
}
