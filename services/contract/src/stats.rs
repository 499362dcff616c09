//! What a service counts: connections, messages and bytes of all of its clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /stats`: one consistent reading of the service's counters. All are monotonic since the process started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// How connections ended up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ByteStats {
    /// Read from sockets after the upgrade.
    pub received: u64,
    /// Written to sockets after the upgrade.
    pub sent: u64,
}

/// What the application counted, inside the loop that received the messages. This is the witness of `application`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApplicationStats {
    /// Messages whose connection, type and data were read.
    pub delivered: u64,
    /// Sum of the sequence numbers found in them, modulo 2^64.
    pub sequence_sum: u64,
    /// Messages that carried no sequence number.
    pub unnumbered: u64,
}

/// A gateway's requests to the inference behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
