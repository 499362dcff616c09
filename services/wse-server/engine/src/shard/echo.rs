//! Echo mode: messages are sent back as they came, and their content isn't interpreted.

use bytes::BufMut;

use super::Core;
use crate::{
    connection::Connection,
    frame::{self, Opcode, Violation},
    intake::PayloadLocation,
    receive::DataKind,
};

impl Core {
    /// Replies to a message with the message itself. It counts as consumed, as the engine replied to it.
    pub(super) fn echo(
        &mut self,
        connection: &mut Connection,
        kind: DataKind,
        location: PayloadLocation,
    ) -> Result<(), Violation> {
        let bytes = location.bytes(self.intake.bytes());
        let opcode = match kind {
            DataKind::Text if simdutf8::basic::from_utf8(bytes).is_err() => return Err(Violation::InvalidUtf8),
            DataKind::Text => Opcode::Text,
            DataKind::Binary => Opcode::Binary,
        };
        frame::put_header(&mut self.replies, opcode, bytes.len());
        self.replies.put_slice(bytes);
        connection.last_data_millis = self.now_millis;
        self.count_consumed(connection, 1);
        Ok(())
    }
}
