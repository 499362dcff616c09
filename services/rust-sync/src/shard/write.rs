//! Outbound bytes: written at once; what the kernel doesn't take is kept.

use std::time::{Duration, Instant};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::SendFlags,
};

use super::{
    Shard,
    connection::{Connection, Phase},
};
use crate::{metrics::CloseReason, protocol::SLOW_CONSUMER};

/// Bytes that may wait for a client, from the contract.
const MAXIMAL_UNSENT: usize = 64 << 10;
/// Time without progress after which a client is closed, from the contract.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

impl Shard {
    /// Writes a message to a WebSocket, and closes it if too many bytes wait.
    pub(super) fn send(&mut self, connection: &mut Connection, now: Instant, put: impl FnOnce(&mut Vec<u8>)) {
        self.put(connection, now, put);
        let is_open = matches!(connection.phase, Phase::Open | Phase::Started(_));
        if is_open && connection.unsent.len() > MAXIMAL_UNSENT {
            self.refuse(connection, SLOW_CONSUMER, now);
        }
    }

    /// Writes a message to a WebSocket without a check of the limit.
    pub(super) fn put(&mut self, connection: &mut Connection, now: Instant, put: impl FnOnce(&mut Vec<u8>)) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        put(&mut scratch);
        self.counters.bytes_sent += scratch.len() as u64;
        self.write(connection, &scratch, now);
        self.scratch = scratch;
    }

    /// Writes bytes; those that the kernel doesn't take are kept in `unsent`.
    pub(super) fn write(&mut self, connection: &mut Connection, bytes: &[u8], now: Instant) {
        let mut rest = bytes;
        if connection.unsent.is_empty() {
            match rustix::net::send(&connection.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &bytes[sent..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return self.end(connection, CloseReason::Error),
            }
            connection.progress_at = now;
        }
        connection.unsent.extend_from_slice(rest);
    }

    /// Writes kept bytes, as many as the kernel takes.
    pub(super) fn write_unsent(&mut self, connection: &mut Connection, now: Instant) {
        while !connection.unsent.is_empty() {
            match rustix::net::send(&connection.socket, &connection.unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    connection.unsent.drain(..sent);
                    connection.progress_at = now;
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => return self.end(connection, CloseReason::Error),
            }
        }
        connection.unsent = Vec::new();
        self.shut_down_when_sent(connection);
    }

    /// Closes the connection if bytes wait and none was written for [`STALL_TIMEOUT`].
    pub(super) fn close_if_stalled(&mut self, connection: &mut Connection, now: Instant) {
        if !connection.unsent.is_empty() && now.duration_since(connection.progress_at) > STALL_TIMEOUT {
            self.refuse(connection, SLOW_CONSUMER, now);
        }
    }

    /// Registers the events that the connection's phase needs. A session usually needs none.
    pub(super) fn update_interest(&self, connection: &mut Connection) {
        let mut interest = match connection.phase {
            Phase::Handshake { .. } | Phase::Open | Phase::Ending { .. } => EventFlags::IN,
            Phase::Started(_) | Phase::Removed => EventFlags::empty(),
        };
        interest.set(EventFlags::OUT, !connection.unsent.is_empty());
        if interest == connection.interest {
            return;
        }
        let data = EventData::new_u64(connection.key);
        let changed = if interest.is_empty() {
            epoll::delete(&self.epoll, &connection.socket)
        } else if connection.interest.is_empty() {
            epoll::add(&self.epoll, &connection.socket, data, interest)
        } else {
            epoll::modify(&self.epoll, &connection.socket, data, interest)
        };
        // The kernel may lack memory for it. The next change, or the visit at the end of the phase, tries again.
        if changed.is_ok() {
            connection.interest = interest;
        }
    }
}
