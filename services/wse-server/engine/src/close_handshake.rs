//! The close handshake of a drain: close code, reason and time limit, and whether a Close frame can carry them.

use std::time::Duration;

use crate::frame::MAX_CONTROL_PAYLOAD;

/// The longest reason of a Close frame, in bytes: a control frame's payload without the close code (RFC 6455, 5.5).
const LONGEST_REASON: usize = MAX_CONTROL_PAYLOAD - size_of::<u16>();

/// How clients are asked to leave when the server drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseHandshake {
    /// The close code; it must be one that a server may send.
    pub code: u16,
    /// The reason in the Close frame, at most 123 bytes.
    pub reason: String,
    /// How long a client may take to read what waits for it and to complete the close handshake.
    pub timeout: Duration,
}

impl Default for CloseHandshake {
    fn default() -> Self {
        Self { code: 4300, reason: String::new(), timeout: Duration::from_secs(30) }
    }
}

/// Why a code or reason can't be sent in a Close frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseHandshakeError {
    /// RFC 6455 (7.4) reserves the code for another purpose.
    #[error("close code {code} is not allowed: give 1000, 1001, 1008, 1011, 1012, 1013, or one from 3000 to 4999")]
    Code {
        /// The code that was given.
        code: u16,
    },
    /// The reason doesn't fit into a control frame.
    #[error("a close reason has {LONGEST_REASON} bytes at most, this one has {bytes}")]
    TooLong {
        /// The length of the reason that was given.
        bytes: usize,
    },
}

impl CloseHandshake {
    pub(crate) fn check(&self) -> Result<(), CloseHandshakeError> {
        if !matches!(self.code, 1000 | 1001 | 1008 | 1011..=1013 | 3000..=4999) {
            return Err(CloseHandshakeError::Code { code: self.code });
        }
        match self.reason.len() {
            0..=LONGEST_REASON => Ok(()),
            bytes => Err(CloseHandshakeError::TooLong { bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_codes_and_long_reasons_are_refused() {
        let check =
            |code, length| CloseHandshake { code, reason: "x".repeat(length), ..CloseHandshake::default() }.check();
        for code in [1000, 1001, 1012, 3000, 4300, 4999] {
            assert_eq!(check(code, 123), Ok(()), "{code}");
        }
        for code in [0, 999, 1004, 1005, 1006, 1010, 1015, 2999, 5000] {
            assert_eq!(check(code, 0), Err(CloseHandshakeError::Code { code }));
        }
        assert_eq!(check(4300, 124), Err(CloseHandshakeError::TooLong { bytes: 124 }));
    }
}
