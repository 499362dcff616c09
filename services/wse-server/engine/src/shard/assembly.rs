//! Memory for incomplete large messages: a budget per shard, reserved before it is used.
//!
//! A frame's header says how long it is. A large frame is read only when there is room for all of it; until then its
//! connection isn't read, so that its client waits and nothing is lost. A connection with a reservation can finish, so
//! no other waits for ever. One that holds a reservation for long and sends nothing while others wait is closed.

use std::collections::VecDeque;

use crate::{config::Config, connection::Connection, frame::MAXIMAL_HEADER, key::ConnectionKey};

/// Frames longer than this many bytes get a buffer of their own, so that their beginning isn't copied again and again.
pub(super) const BIG_FRAME: usize = 32 << 10;
/// How long a client may hold a reservation while others wait for room, in milliseconds. After that it is closed if it
/// has sent nothing new when a sweep comes by.
const STALL_MILLIS: u64 = 10_000;

/// The budget of one shard.
pub(super) struct Assembly {
    /// Bytes that aren't reserved.
    available: usize,
    /// What is reserved for a message of several frames, in bytes: its length isn't known in advance, and joining
    /// doubles its buffer.
    fragmented: usize,
    /// Connections that wait for room, first come, first served.
    pub(super) queue: VecDeque<ConnectionKey>,
}

/// Whether a connection may be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It has the memory that it needs.
    Granted,
    /// It has no reservation and must wait until there is room.
    Wait,
    /// It has a reservation for a part of its message, but there is no room for the rest.
    GiveUp,
}

impl Assembly {
    /// Each shard gets an equal share of the process's limit, but at least room for one message.
    pub(super) fn new(config: &Config, shards: usize) -> Self {
        let fragmented = 2 * config.max_message_size + MAXIMAL_HEADER;
        Self { available: (config.max_partial_bytes / shards).max(fragmented), fragmented, queue: VecDeque::new() }
    }

    fn needed(&self, connection: &Connection) -> usize {
        let fragment_bytes = connection.receiver.held_bytes();
        if fragment_bytes > 0 && fragment_bytes + connection.expected > BIG_FRAME {
            self.fragmented
        } else if connection.expected > BIG_FRAME {
            connection.expected
        } else {
            0
        }
    }

    /// Reserves memory for the message that a connection is in the middle of.
    pub(super) fn reserve(&mut self, connection: &mut Connection, now_millis: u64) -> Need {
        let needed = self.needed(connection);
        let more = needed.saturating_sub(connection.reserved);
        if more > self.available {
            // Waiting while it holds a reservation could block the others for ever.
            return if connection.reserved > 0 { Need::GiveUp } else { Need::Wait };
        }
        if more > 0 {
            self.available -= more;
            connection.reserved += more;
            connection.reserved_millis = now_millis;
        }
        Need::Granted
    }

    /// Releases a reservation that the connection doesn't need any more.
    pub(super) fn settle(&mut self, connection: &mut Connection) {
        if self.needed(connection) == 0 {
            self.release_reservation(connection);
        }
    }

    /// Releases a connection's whole reservation.
    pub(super) fn release_reservation(&mut self, connection: &mut Connection) {
        self.available += std::mem::take(&mut connection.reserved);
    }

    /// Whether connections wait for room.
    pub(super) fn is_contended(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether others wait for room while a connection has held its reservation for [`STALL_MILLIS`] and has nothing to
    /// read now.
    pub(super) fn is_stalled(&self, connection: &Connection, now_millis: u64) -> bool {
        connection.reserved > 0
            && self.is_contended()
            && !connection.has_input()
            && connection.reserved_millis + STALL_MILLIS < now_millis
    }
}
