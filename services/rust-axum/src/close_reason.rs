//! Why a session ended: its reason in the books and its close code for the client.

use crate::{inbox::Violation, protocol::Close};

/// Why a session ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The client sent a Close frame; the reply to it.
    Client(Close),
    /// The client violated the WebSocket protocol or the contract.
    Violation(Violation),
    /// The client doesn't read: too many bytes waited, or none was written for too long.
    SlowConsumer,
    /// The gateway is shutting down.
    Shutdown,
    /// The stream ended without a Close frame.
    Eof,
    /// Reading from or writing to the socket failed.
    Error,
}

impl CloseReason {
    /// The label under which the books count this reason.
    pub(crate) fn label(&self) -> &'static str {
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

    /// The Close frame that the gateway sends; `None` if the stream ended or failed.
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
