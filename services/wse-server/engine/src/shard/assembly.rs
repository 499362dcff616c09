//! Memory for incomplete large messages: a budget per shard, reserved before it is used.
//!
//! A frame's header says how long it is. A large frame is read only when there is room for all of it; until then its
//! connection isn't read, so that its client waits and nothing is lost. A connection with a reservation can finish, so
//! no other waits for ever. One that holds a reservation for longer than its message needs at a low rate is closed if
//! others wait.

use std::collections::VecDeque;

use crate::{
    config::Config,
    connection::{Connection, Parked},
    frame::MAX_HEADER,
    key::ConnectionKey,
};

/// Frames longer than this many bytes get a buffer of their own, so that their beginning isn't copied again and again.
pub(super) const BIG_FRAME: usize = 32 << 10;
/// How long a client may hold a reservation while others wait for room, in milliseconds: so long, and the time that the
/// reserved bytes need at [`LEAST_BYTES_PER_MILLI`]. It counts from the start, so a byte now and then wins no time.
const STALL_MILLIS: u64 = 10_000;
/// The rate in bytes per millisecond that a client must reach while others wait.
const LEAST_BYTES_PER_MILLI: u64 = 64;

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
        let fragmented = 2 * config.max_message_size + MAX_HEADER;
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

    /// Whether a connection needs memory for a message and has reserved none yet.
    pub(super) fn begins_large_message(&self, connection: &Connection) -> bool {
        connection.reserved == 0 && self.needed(connection) > 0
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
            if connection.reserved == 0 {
                connection.reserved_millis = now_millis;
            }
            connection.reserved += more;
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

    /// Whether others wait for room while a connection holds its reservation for too long. One that the server itself
    /// doesn't read now isn't stalled.
    pub(super) fn is_stalled(&self, connection: &Connection, now_millis: u64) -> bool {
        let is_read = connection.parked == Parked::No && !connection.has_unparsed && !connection.is_read_suspended;
        let wait_millis = STALL_MILLIS + connection.reserved as u64 / LEAST_BYTES_PER_MILLI;
        connection.reserved > 0
            && self.is_contended()
            && is_read
            && connection.reserved_millis + wait_millis < now_millis
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    /// A connection with a reservation of 640 KB since its start, for which another one waits.
    fn holding() -> (Assembly, Connection) {
        let config = Config { max_partial_bytes: 1, ..Config::default() };
        let mut assembly = Assembly::new(&config, 1);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
        let mut connection = Connection::new(socket, ConnectionKey::new(0, 0, 1), 0);
        (connection.expected, connection.is_readable) = (640_000, false);
        assert_eq!(assembly.reserve(&mut connection, 0), Need::Granted);
        assembly.queue.push_back(ConnectionKey::new(0, 0, 2));
        (assembly, connection)
    }

    #[test]
    fn a_reservation_counts_from_its_start_and_a_byte_now_and_then_wins_no_time() {
        let (mut assembly, mut connection) = holding();
        for second in 0..20 {
            connection.partial.push(0);
            connection.is_readable = second % 2 == 0;
            connection.expected += 1;
            assert_eq!(assembly.reserve(&mut connection, second * SECOND), Need::Granted);
            assert!(!assembly.is_stalled(&connection, second * SECOND), "{second}");
        }
        // Ten seconds, and ten for 640 KB.
        assert!(assembly.is_stalled(&connection, 21 * SECOND));
        connection.is_readable = true;
        assert!(assembly.is_stalled(&connection, 21 * SECOND), "one that always has a byte to read is slow too");
    }

    #[test]
    fn a_reservation_is_held_for_any_time_while_no_other_connection_waits_or_the_server_does_not_read() {
        let (mut assembly, mut connection) = holding();
        connection.parked = Parked::Share;
        assert!(!assembly.is_stalled(&connection, 1000 * SECOND));
        connection.unpark(1000 * SECOND);
        assert!(!assembly.is_stalled(&connection, 1019 * SECOND) && assembly.is_stalled(&connection, 1021 * SECOND));
        assembly.queue.clear();
        assert!(!assembly.is_stalled(&connection, 2000 * SECOND));
    }
}
