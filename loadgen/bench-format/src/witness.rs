//! Who says that a message arrived.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who says that a message arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Witness {
    /// Counted inside the application that received it.
    Application,
    /// The answer proves it.
    Reply,
    /// The worker's own connection received it, and its number follows the one before: a service published it.
    Receiver,
    /// Nobody: no throughput figure is published.
    #[default]
    None,
}
