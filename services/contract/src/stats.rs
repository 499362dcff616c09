//! The counters of a service: connections, messages and bytes of all its clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `GET /stats`: one consistent reading of the service's counters. Counters only grow while the process runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ServiceStats {
    /// The service's name in the registry.
    pub service: String,
    /// Version of the service.
    pub version: String,
    /// Seconds since the process started.
    pub uptime_seconds: f64,
    /// Counts of connections by state and outcome.
    pub connections: ConnectionStats,
    /// Counts of messages by outcome.
    pub messages: MessageStats,
    /// Bytes of WebSocket frames, headers included.
    pub bytes: ByteStats,
    /// The application's own counts; absent if messages reach no application.
    #[serde(default)]
    pub application: Option<ApplicationStats>,
    /// A gateway's counts of inference requests; absent for other services.
    #[serde(default)]
    pub inference: Option<InferenceStats>,
}

/// Counts of connections by state and outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConnectionStats {
    /// Connections that were upgraded and registered.
    pub accepted: u64,
    /// Connections that are open now.
    pub open: u64,
    /// Connections that have ended, by reason.
    pub closed: BTreeMap<String, u64>,
    /// Connections that were refused, by reason.
    pub rejected: BTreeMap<String, u64>,
}

/// Counts of messages by outcome. `received = consumed + delivered + sum(dropped) + queued`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MessageStats {
    /// Complete data messages read from sockets.
    pub received: u64,
    /// Messages that the service itself answered or handled, such as pings and `client_hello`. The application doesn't
    /// get them.
    pub consumed: u64,
    /// Messages handed to the application.
    pub delivered: u64,
    /// Messages dropped before the application got them, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Messages that wait for the application now.
    pub queued: u64,
    /// Text messages, among those received, that were malformed and reached the application unchanged.
    pub malformed: u64,
    /// Data messages handed to sockets.
    pub sent: u64,
    /// Data messages dropped instead of being handed to sockets, by reason.
    pub send_dropped: BTreeMap<String, u64>,
}

/// Bytes of WebSocket frames, headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ByteStats {
    /// Bytes read from sockets after the upgrade.
    pub received: u64,
    /// Bytes written to sockets after the upgrade.
    pub sent: u64,
}

/// Counts that the application takes in the loop that receives the messages. They are the witness `application`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApplicationStats {
    /// Messages whose connection, type and data the application has read.
    pub delivered: u64,
    /// Sum of the sequence numbers in those messages, modulo 2^64.
    pub sequence_sum: u64,
    /// Messages without a sequence number.
    pub unnumbered: u64,
}

/// Counts of a gateway's inference requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct InferenceStats {
    /// Requests started since the start of the process.
    pub requests: u64,
    /// Requests whose result was sent to the client as a partial.
    pub answered: u64,
    /// Requests that failed, by the `kind` of the error frame.
    pub failed: BTreeMap<String, u64>,
    /// Requests whose connection ended before their response.
    pub abandoned: u64,
    /// Requests that are in flight now.
    pub in_flight: u64,
    /// Flush ticks that found a request in flight and therefore left the audio in the buffer.
    pub ticks_skipped: u64,
    /// Audio in memory now, waiting or in flight, in bytes.
    pub buffered_bytes: u64,
}
