//! A service's counts of each connection. A service with totals only doesn't serve them.

use serde::{Deserialize, Serialize};

use crate::stats::ApplicationStats;

/// `GET /stats/connections?since=CURSOR`: one entry for each open connection, and one for each connection that has
/// closed since the reading that returned the cursor; without a cursor, for each closed one that is kept. A connection
/// that closed during a reading may be in the next one again. A service without cursors returns the entry of a closed
/// connection once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConnectionBooks {
    /// The entries, in no particular order.
    pub connections: Vec<ConnectionBook>,
    /// What to give as `since` for the next reading; absent if `since` was, or the service has no cursors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A service's counts of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConnectionBook {
    /// The id that the service has sent to the client.
    pub id: String,
    /// Whether the connection is open.
    pub open: bool,
    /// Data messages read from the connection's socket.
    pub received: u64,
    /// Messages, among those received, that the service itself answered or handled.
    pub consumed: u64,
    /// Messages, among those received, that were dropped before the application got them, for any reason.
    pub dropped: u64,
    /// Data messages that the socket accepted completely, including the service's own; absent if the service doesn't
    /// count them.
    #[serde(default)]
    pub sent: Option<u64>,
    /// Data messages for the connection that its socket didn't accept, for any reason; absent if the service doesn't
    /// count them.
    #[serde(default)]
    pub send_dropped: Option<u64>,
    /// The application's counts for this connection; absent if messages reach no application.
    #[serde(default)]
    pub application: Option<ApplicationStats>,
}
