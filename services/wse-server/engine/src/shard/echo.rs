//! Sending messages back as they came, whatever they mean.

use bytes::BufMut;

use super::Core;
use crate::{
    connection::Connection,
    frame::{self, Opcode, Violation},
    intake::Place,
    receive::DataKind,
};

impl Core {
    /// Answers a message with itself. It counts as consumed: the engine answered it.
    pub(super) fn echo(&mut self, connection: &mut Connection, kind: DataKind, place: Place) -> Result<(), Violation> {
        let bytes = match &place {
            Place::Arena(range) => &self.intake.bytes()[range.clone()],
            Place::Own(bytes, range) => &bytes[range.clone()],
        };
        let opcode = match kind {
            DataKind::Text if simdutf8::basic::from_utf8(bytes).is_err() => return Err(Violation::InvalidUtf8),
            DataKind::Text => Opcode::Text,
            DataKind::Binary => Opcode::Binary,
        };
        frame::put_header(&mut self.replies, opcode, bytes.len());
        self.replies.put_slice(bytes);
        connection.last_data_millis = self.now_millis;
        self.count_answered(connection, 1);
        Ok(())
    }
}
