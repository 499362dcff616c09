//! The queue of connections that wait for memory for a large message, and the connections that are closed for lack of
//! it.

use super::{Core, Overflow, Reading, Shard, assembly::Need};
use crate::{
    connection::{Connection, Phase},
    stats::CloseReason,
};

impl Shard {
    /// Reserves memory after a read. Returns whether the connection may be read further; if not, it waits in a queue.
    pub(super) fn make_room(&mut self, connection: &mut Connection) -> bool {
        if !matches!(connection.phase, Phase::Open | Phase::Closing) {
            return true;
        }
        match self.core.reserve(connection) {
            Need::Granted => true,
            Need::Wait => {
                connection.is_queued = true;
                self.core.assembly.queue.push_back(connection.key);
                self.pause_for_large_messages();
                false
            }
            Need::GiveUp => {
                self.core.close_for_memory(connection);
                true
            }
        }
    }

    /// Lets waiting connections go on, as far as there is room.
    pub(super) fn grant(&mut self) {
        while let Some(&key) = self.core.assembly.queue.front() {
            if let Some(connection) = self.table.get_mut(key) {
                let is_reading = matches!(connection.phase, Phase::Open | Phase::Closing);
                if is_reading && self.core.reserve(connection) == Need::Wait {
                    return self.pause_for_large_messages();
                }
                self.ready.push_back(key);
            }
            self.core.assembly.queue.pop_front();
        }
    }

    /// Lets the application wake the shard if it is the application's room that large messages wait for.
    fn pause_for_large_messages(&mut self) {
        if self.core.is_application_full() {
            self.pause(Reading::Paused);
        }
    }
}

impl Core {
    /// Reserves memory for the message that a connection is in the middle of. With a reservation it is read to its end.
    /// So none is given while the application has no room, or each connection could add a large message to a full queue.
    fn reserve(&mut self, connection: &mut Connection) -> Need {
        if self.is_application_full() && self.assembly.begins_large_message(connection) {
            return Need::Wait;
        }
        self.assembly.reserve(connection, self.now_millis)
    }

    /// Whether messages wait for the application to release others.
    pub(super) fn is_application_full(&self) -> bool {
        self.overflow == Overflow::Wait && !self.queue_has_room()
    }

    /// Ends a connection for whose message there is no room.
    fn close_for_memory(&mut self, connection: &mut Connection) {
        connection.forget_input();
        if connection.phase == Phase::Open {
            self.close(connection, 1013, "too many large messages", CloseReason::Crowded);
        }
        connection.phase = Phase::Lingering;
        self.half_close(connection);
    }
}
