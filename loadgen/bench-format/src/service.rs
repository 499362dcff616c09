//! What a service says of itself on its metrics port (`services/README.md` is the contract).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /stats`: one consistent reading of the service's counters. All are monotonic since the process started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceStats {
    /// The service's name in the registry.
    pub service: String,
    /// Its version.
    pub version: String,
    /// Seconds since the process started.
    pub uptime_seconds: f64,
    /// How connections ended up.
    pub connections: ConnectionStats,
    /// What became of messages.
    pub messages: MessageStats,
    /// Bytes of WebSocket frames, headers included.
    pub bytes: ByteStats,
    /// What the application itself counted; absent where messages reach no application.
    #[serde(default)]
    pub application: Option<ApplicationStats>,
    /// What a gateway counted of its inference requests; absent where there are none.
    #[serde(default)]
    pub inference: Option<InferenceStats>,
}

/// `GET /stats/publisher`: what a service that publishes by itself has published. Exact while it publishes nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublisherStats {
    /// How a message reaches its subscribers: `broadcast`.
    pub mode: String,
    /// Messages per second, each due at a time that is fixed before; absent for a flood.
    pub rate_per_second: Option<f64>,
    /// What holds it back: `schedule`, `engine` or `none`.
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

/// A gateway's requests to the inference behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InferenceStats {
    /// Requests begun.
    pub requests: u64,
    /// Requests whose answer was passed on as a partial.
    pub answered: u64,
    /// Requests that failed, by the `kind` of the error frame.
    pub failed: BTreeMap<String, u64>,
    /// Requests whose connection was gone before they were answered.
    pub abandoned: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Flush ticks that found a request in flight and left the audio where it was.
    pub ticks_skipped: u64,
    /// Audio held in memory now, waiting or in flight, in bytes.
    pub buffered_bytes: u64,
}

/// How connections ended up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionStats {
    /// Upgraded and registered.
    pub accepted: u64,
    /// Open now.
    pub open: u64,
    /// Closed, by reason.
    pub closed: BTreeMap<String, u64>,
    /// Refused, by reason.
    pub rejected: BTreeMap<String, u64>,
}

/// What became of messages. `received = consumed + delivered + sum(dropped) + queued`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageStats {
    /// Complete data messages taken from sockets.
    pub received: u64,
    /// Answered by the service itself (pings, hellos): they never concern the application.
    pub consumed: u64,
    /// Handed to the application.
    pub delivered: u64,
    /// Not handed over, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Waiting for the application.
    pub queued: u64,
    /// Of those received: text that was malformed and reached the application as it was.
    pub malformed: u64,
    /// Data messages handed to sockets.
    pub sent: u64,
    /// Meant to be sent but dropped, by reason.
    pub send_dropped: BTreeMap<String, u64>,
}

/// Bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByteStats {
    /// Read from sockets after the upgrade.
    pub received: u64,
    /// Written to sockets after the upgrade.
    pub sent: u64,
}

/// What the application counted, inside the loop that received the messages. This is the witness of `application`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplicationStats {
    /// Messages whose connection, type and data were read.
    pub delivered: u64,
    /// Sum of the sequence numbers found in them, modulo 2^64.
    pub sequence_sum: u64,
    /// Messages that carried no sequence number.
    pub unnumbered: u64,
}

/// `GET /stats/connections`: one entry per connection since the last reading of a closed one. A closed connection's
/// entry is kept until it was fetched once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionBooks {
    /// The entries, in no order.
    pub connections: Vec<ConnectionBook>,
}

/// A service's books on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionBook {
    /// The id that the service told the client.
    pub id: String,
    /// Whether it is open.
    pub open: bool,
    /// Data messages taken from its socket.
    pub received: u64,
    /// Of those, answered by the service itself.
    pub consumed: u64,
    /// Of those, not handed to the application, all reasons together.
    pub dropped: u64,
    /// Data messages that its socket took whole, the service's own included. Absent: the service doesn't count them.
    #[serde(default)]
    pub sent: Option<u64>,
    /// Data messages for it that no socket took, all reasons together.
    #[serde(default)]
    pub send_dropped: Option<u64>,
    /// What the application counted for this connection.
    #[serde(default)]
    pub application: Option<ApplicationStats>,
}

/// The JSON line that a service prints on standard output when it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// Always `ready`.
    pub event: String,
    /// Where clients connect, `host:port`.
    pub address: String,
    /// Where `/stats` and the others are served, `host:port`.
    pub metrics_address: String,
    /// Its process id.
    pub pid: u32,
}
