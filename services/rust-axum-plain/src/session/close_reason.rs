//! Why a session ended: its reason in the books and its close code for the client.

use axum::extract::ws::{CloseFrame, Message};
use tungstenite::error::{CapacityError, Error as LibraryError, ProtocolError};

use super::outbox::SlowConsumer;

/// Why a session ended.
#[derive(Debug)]
pub(super) enum CloseReason {
    /// The client sent a Close frame. The library replies to it.
    Client,
    /// The client sent a message that the contract forbids; close code and reason.
    BadMessage(u16, &'static str),
    /// The client sent text that is not UTF-8; the close reason. The library reads nothing after it.
    InvalidUtf8(&'static str),
    /// The client violated the WebSocket protocol in another way; close code and reason. The library reads nothing
    /// after it.
    Violation(u16, &'static str),
    /// The client doesn't read its messages: too many bytes waited, or none was written for too long.
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
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Violation(1009, _) => "too_big",
            Self::BadMessage(..) | Self::InvalidUtf8(_) | Self::Violation(..) => "protocol",
            Self::SlowConsumer => "slow_consumer",
            Self::Shutdown => "shutdown",
            Self::Eof => "eof",
            Self::Error => "error",
        }
    }

    /// The Close frame that the gateway sends; `None` if the client closed first or the connection is broken.
    pub(super) fn close(&self) -> Option<Message> {
        let (code, reason) = match *self {
            Self::BadMessage(code, reason) | Self::Violation(code, reason) => (code, reason),
            Self::InvalidUtf8(reason) => (1002, reason),
            Self::SlowConsumer => (1013, "client does not read"),
            Self::Shutdown => (1001, "gateway stops"),
            Self::Client | Self::Eof | Self::Error => return None,
        };
        Some(Message::Close(Some(CloseFrame { code, reason: reason.into() })))
    }

    /// Maps a read error. `text_refused` is the close reason for text in the session's current state.
    pub(super) fn from_read_error(error: axum::Error, text_refused: &'static str) -> Self {
        match error.into_inner().downcast_ref() {
            // The client may still be there, but a Close frame is not sent on a stream that has ended.
            Some(LibraryError::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => Self::Eof,
            Some(LibraryError::Protocol(_)) => Self::Violation(1002, "protocol error"),
            Some(LibraryError::Capacity(CapacityError::MessageTooLong { .. })) => {
                Self::Violation(1009, "message too big")
            }
            Some(LibraryError::Utf8(_)) => Self::InvalidUtf8(text_refused),
            _ => Self::Error,
        }
    }

    /// Maps a write error.
    pub(super) fn from_write_error(error: axum::Error) -> Self {
        match error.into_inner().downcast_ref() {
            // Messages wait in the outbox, so only pongs can fill the library's write buffer.
            Some(LibraryError::WriteBufferFull(_)) => Self::SlowConsumer,
            _ => Self::Error,
        }
    }
}

impl From<SlowConsumer> for CloseReason {
    fn from(SlowConsumer: SlowConsumer) -> Self {
        Self::SlowConsumer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: LibraryError) -> CloseReason {
        CloseReason::from_read_error(axum::Error::new(error), "no text here")
    }

    #[test]
    fn library_errors_reach_the_client_as_their_close_code() {
        assert!(matches!(
            of(LibraryError::Protocol(ProtocolError::NonZeroReservedBits)),
            CloseReason::Violation(1002, _)
        ));
        let too_long = CapacityError::MessageTooLong { size: 2, max_size: 1 };
        assert!(matches!(of(LibraryError::Capacity(too_long)), CloseReason::Violation(1009, _)));
        assert!(matches!(of(LibraryError::Utf8(String::new())), CloseReason::InvalidUtf8("no text here")));
        assert!(matches!(of(LibraryError::Protocol(ProtocolError::ResetWithoutClosingHandshake)), CloseReason::Eof));
        assert!(matches!(of(LibraryError::ConnectionClosed), CloseReason::Error));
    }
}
