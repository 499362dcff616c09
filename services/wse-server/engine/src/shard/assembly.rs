//! Memory for messages that aren't whole yet: so much for all of them together, promised before it is used.
//!
//! A frame says how long it will be. A large one is read only when there is room for all of it; until then its
//! connection isn't read, so that its client waits and nothing is lost. Whoever has a promise can finish, so nobody
//! waits for ever; whoever has one, keeps others waiting and sends nothing is closed.

use std::collections::VecDeque;

use super::{Core, Shard, read::BIG_FRAME};
use crate::{
    config::Config,
    connection::{Connection, Phase},
    frame::MAXIMAL_HEADER,
    key::ConnectionKey,
    stats::CloseReason,
};

/// How long a client may say nothing in the middle of a large message while others wait for its room, in milliseconds.
const STALL_MILLIS: u64 = 10_000;

/// One shard's room.
pub(super) struct Assembly {
    left: usize,
    /// What a message of several frames is promised: how long it will be isn't known, and joining doubles its buffer.
    fragmented: usize,
    /// Who waits for room, first come first served.
    queue: VecDeque<ConnectionKey>,
}

/// What a connection needs before it may be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It has what it needs.
    Nothing,
    /// Its turn.
    Wait,
    /// A message in large parts: there was room for one, but there is none for more.
    GiveUp,
}

impl Assembly {
    /// The limit is the process's, each shard has its equal share, but room for one message at least.
    pub(super) fn new(config: &Config, shards: usize) -> Self {
        let fragmented = 2 * config.max_message_size + MAXIMAL_HEADER;
        Self { left: (config.max_partial_bytes / shards).max(fragmented), fragmented, queue: VecDeque::new() }
    }

    fn wanted(&self, connection: &Connection) -> usize {
        let held = connection.receiver.held_bytes();
        if held > 0 && held + connection.expected > BIG_FRAME {
            self.fragmented
        } else if connection.expected > BIG_FRAME {
            connection.expected
        } else {
            0
        }
    }

    /// Promises a connection room for the message that it is in the middle of, or says that there is none.
    pub(super) fn promise(&mut self, connection: &mut Connection, now_millis: u64) -> Need {
        let wanted = self.wanted(connection);
        let more = wanted.saturating_sub(connection.reserved);
        if more > self.left {
            // Whoever waited with a promise would keep from others what they wait for.
            return if connection.reserved > 0 { Need::GiveUp } else { Need::Wait };
        }
        if more > 0 {
            self.left -= more;
            connection.reserved += more;
            connection.reserved_millis = now_millis;
        }
        Need::Nothing
    }

    /// Takes back what a connection doesn't need any more.
    pub(super) fn settle(&mut self, connection: &mut Connection) {
        if self.wanted(connection) == 0 {
            self.take_back(connection);
        }
    }

    /// Takes back all of it.
    pub(super) fn take_back(&mut self, connection: &mut Connection) {
        self.left += std::mem::take(&mut connection.reserved);
    }

    /// Whether some wait for room.
    pub(super) fn is_tight(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a connection keeps others waiting and does nothing.
    pub(super) fn is_stalled(&self, connection: &Connection, now_millis: u64) -> bool {
        connection.reserved > 0
            && self.is_tight()
            && !connection.has_input()
            && connection.reserved_millis + STALL_MILLIS < now_millis
    }
}

impl Shard {
    /// After a read: whether the connection may be read on. If not, it has been put where it waits.
    pub(super) fn make_room(&mut self, connection: &mut Connection) -> bool {
        if !matches!(connection.phase, Phase::Open | Phase::Closing) {
            return true;
        }
        match self.core.assembly.promise(connection, self.core.now_millis) {
            Need::Nothing => true,
            Need::Wait => {
                connection.is_listed = true;
                self.core.assembly.queue.push_back(connection.key);
                false
            }
            Need::GiveUp => {
                self.core.crowd_out(connection);
                true
            }
        }
    }

    /// Has those who wait go on, as far as there is room.
    pub(super) fn grant(&mut self) {
        while let Some(&key) = self.core.assembly.queue.front() {
            if let Some(connection) = self.table.get_mut(key) {
                let is_reading = matches!(connection.phase, Phase::Open | Phase::Closing);
                if is_reading && self.core.assembly.promise(connection, self.core.now_millis) == Need::Wait {
                    return;
                }
                self.ready.push_back(key);
            }
            self.core.assembly.queue.pop_front();
        }
    }
}

impl Core {
    /// Ends a connection whose message there is no room for.
    fn crowd_out(&mut self, connection: &mut Connection) {
        connection.receiver.forget();
        connection.partial = Vec::new();
        connection.expected = 0;
        connection.has_unparsed = false;
        if connection.phase == Phase::Open {
            self.close(connection, 1013, "too many large messages", CloseReason::Crowded);
        }
        connection.phase = Phase::Lingering;
        self.half_close(connection);
    }
}
