//! What a protocol sends besides the load: steps of an opening, and responses to the service's messages.

use crate::frame::Opcode;

/// Messages to send on one connection, in order. They carry no sequence number and don't count as load.
#[derive(Debug, Default)]
pub struct Outbox {
    messages: Vec<(Opcode, Vec<u8>)>,
}

impl Outbox {
    /// Adds a message behind those that wait.
    pub fn send(&mut self, opcode: Opcode, payload: Vec<u8>) {
        self.messages.push((opcode, payload));
    }

    /// The messages; they are removed.
    pub fn take(&mut self) -> impl Iterator<Item = (Opcode, Vec<u8>)> + '_ {
        self.messages.drain(..)
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}
