//! The queue of connections that wait for memory for a large message, and the connections that are closed for lack of
//! it.

use super::{Core, Shard, assembly::Need};
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
        match self.core.assembly.reserve(connection, self.core.now_millis) {
            Need::Granted => true,
            Need::Wait => {
                connection.is_queued = true;
                self.core.assembly.queue.push_back(connection.key);
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
                if is_reading && self.core.assembly.reserve(connection, self.core.now_millis) == Need::Wait {
                    return;
                }
                self.ready.push_back(key);
            }
            self.core.assembly.queue.pop_front();
        }
    }
}

impl Core {
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
