//! Why a session ended, in the books and for its client.

use axum::extract::ws::{CloseFrame, Message};
use tungstenite::error::{CapacityError, Error as LibraryError, ProtocolError};

use super::outbox::SlowConsumer;

/// Why a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed. The library answers that.
    Client,
    /// The client sent a message that it may not send.
    Refused(u16, &'static str),
    /// The client sent a text that is no UTF-8: the library reads nothing after that.
    NoText(&'static str),
    /// The client broke another rule of WebSocket: the library reads nothing after that.
    Violation(u16, &'static str),
    /// The client doesn't read.
    SlowConsumer,
    /// The gateway stops.
    Shutdown,
    /// The stream ended without a close frame.
    Eof,
    /// The socket failed.
    Error,
}

impl End {
    /// Its name in the books.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Violation(1009, _) => "too_big",
            Self::Refused(..) | Self::NoText(_) | Self::Violation(..) => "protocol",
            Self::SlowConsumer => "slow_consumer",
            Self::Shutdown => "shutdown",
            Self::Eof => "eof",
            Self::Error => "error",
        }
    }

    /// The close frame that the client gets of us.
    pub(super) fn close(&self) -> Option<Message> {
        let (code, reason) = match *self {
            Self::Refused(code, reason) | Self::Violation(code, reason) => (code, reason),
            Self::NoText(reason) => (1002, reason),
            Self::SlowConsumer => (1013, "client does not read"),
            Self::Shutdown => (1001, "gateway stops"),
            Self::Client | Self::Eof | Self::Error => return None,
        };
        Some(Message::Close(Some(CloseFrame { code, reason: reason.into() })))
    }

    /// What an error in reading means. `text_refused` is the reason with which the session refuses text now.
    pub(super) fn of_error(error: axum::Error, text_refused: &'static str) -> Self {
        match error.into_inner().downcast_ref() {
            // The client may be there still, but no close frame reaches a stream that has ended.
            Some(LibraryError::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => Self::Eof,
            Some(LibraryError::Protocol(_)) => Self::Violation(1002, "protocol error"),
            Some(LibraryError::Capacity(CapacityError::MessageTooLong { .. })) => {
                Self::Violation(1009, "message too big")
            }
            Some(LibraryError::Utf8(_)) => Self::NoText(text_refused),
            _ => Self::Error,
        }
    }

    /// What an error in writing means.
    pub(super) fn of_write(error: axum::Error) -> Self {
        match error.into_inner().downcast_ref() {
            // Only pongs can fill that buffer while messages wait in the outbox.
            Some(LibraryError::WriteBufferFull(_)) => Self::SlowConsumer,
            _ => Self::Error,
        }
    }
}

impl From<SlowConsumer> for End {
    fn from(SlowConsumer: SlowConsumer) -> Self {
        Self::SlowConsumer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: LibraryError) -> End {
        End::of_error(axum::Error::new(error), "no text here")
    }

    #[test]
    fn what_the_library_reports_is_told_to_the_client_by_its_code() {
        assert!(matches!(of(LibraryError::Protocol(ProtocolError::NonZeroReservedBits)), End::Violation(1002, _)));
        let too_long = CapacityError::MessageTooLong { size: 2, max_size: 1 };
        assert!(matches!(of(LibraryError::Capacity(too_long)), End::Violation(1009, _)));
        assert!(matches!(of(LibraryError::Utf8(String::new())), End::NoText("no text here")));
        assert!(matches!(of(LibraryError::Protocol(ProtocolError::ResetWithoutClosingHandshake)), End::Eof));
        assert!(matches!(of(LibraryError::ConnectionClosed), End::Error));
    }
}
