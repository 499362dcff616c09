//! Why a session ended, in the books and for its client.

use crate::{inbox::Violation, protocol::Close};

/// Why a session ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client closed.
    Client(Close),
    /// The client broke a rule.
    Violation(Violation),
    /// The client doesn't read.
    SlowConsumer,
    /// The gateway stops.
    Shutdown,
    /// The stream ended without a close.
    Eof,
    /// The socket failed.
    Error,
}

impl End {
    /// Its name in the books.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Violation(violation) if violation.close.code == Some(1009) => "too_big",
            Self::Violation(_) => "protocol",
            Self::SlowConsumer => "slow_consumer",
            Self::Shutdown => "shutdown",
            Self::Eof => "eof",
            Self::Error => "error",
        }
    }

    /// The close frame that the client gets, if it can still get one.
    pub(crate) fn close(&self) -> Option<Close> {
        match self {
            Self::Client(close) => Some(close.clone()),
            Self::Violation(violation) => Some(violation.close.clone()),
            Self::SlowConsumer => Some(Close::new(1013, "client does not read")),
            Self::Shutdown => Some(Close::new(1001, "gateway stops")),
            Self::Eof | Self::Error => None,
        }
    }
}
