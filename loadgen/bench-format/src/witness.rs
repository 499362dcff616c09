//! The party that confirms that a message arrived.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The party that confirms that a message arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Witness {
    /// The application that received the message counts it.
    Application,
    /// The reply to the message proves it.
    Reply,
    /// The worker's own connection received a message that the service published, and its sequence number shows gaps.
    Receiver,
    /// No party confirms it, so no throughput figure is published.
    #[default]
    None,
}
