//! Memory for messages that aren't whole yet: so much for all of them together, promised before it is used.
//!
//! A frame says how long it will be. A large one is read only when there is room for all of it; until then its
//! connection isn't read, so that its client waits and nothing is lost. Whoever has a promise can finish, so nobody
//! waits for ever; whoever has one, keeps others waiting and sends nothing is closed.

use std::collections::VecDeque;

use crate::{config::Config, connection::Connection, frame::MAXIMAL_HEADER, key::ConnectionKey};

/// Frames above this are read into a buffer of their own, so that their beginning isn't copied again and again.
pub(super) const BIG_FRAME: usize = 32 << 10;
/// How long a client may say nothing in the middle of a large message while others wait for its room, in milliseconds.
const STALL_MILLIS: u64 = 10_000;

/// One shard's room.
pub(super) struct Assembly {
    left: usize,
    /// What a message of several frames is promised: how long it will be isn't known, and joining doubles its buffer.
    fragmented: usize,
    /// Who waits for room, first come first served.
    pub(super) queue: VecDeque<ConnectionKey>,
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
