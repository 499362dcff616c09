//! The books of each connection. Where a service keeps books in total only, there are none.

use serde::{Deserialize, Serialize};

use crate::stats::ApplicationStats;

/// `GET /stats/connections`: one entry per connection since the last reading of a closed one. A closed connection's
/// entry is kept until it was fetched once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConnectionBooks {
    /// The entries, in no order.
    pub connections: Vec<ConnectionBook>,
}

/// A service's books on one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
