//! A thread's connections, and the keys by which epoll, the wheel and the inference thread refer to them.

use std::{os::fd::OwnedFd, time::Instant};

use rustix::event::epoll::EventFlags;

use crate::{protocol::Assembly, session::Session};

/// One client connection, from accept until its socket is closed.
pub(super) struct Connection {
    pub(super) key: u64,
    pub(super) socket: OwnedFd,
    pub(super) phase: Phase,
    /// Bytes that were read and don't form a complete frame or request yet.
    pub(super) pending: Vec<u8>,
    pub(super) assembly: Assembly,
    /// Bytes that the kernel hasn't taken yet.
    pub(super) unsent: Vec<u8>,
    /// When the kernel last took some of these bytes.
    pub(super) progress_at: Instant,
    /// The events that are registered with epoll.
    pub(super) interest: EventFlags,
    /// When the next visit is due. The wheel may hold older entries, which come earlier and are ignored.
    pub(super) visit_at: Instant,
}

/// The phase of a connection.
pub(super) enum Phase {
    /// The HTTP request is incomplete.
    Handshake {
        /// Deadline of the request; after it, the response is 408.
        until: Instant,
    },
    /// A WebSocket before its start message.
    Open,
    /// A WebSocket with a started session.
    Started(Session),
    /// The last bytes are written or queued. Inbound bytes are discarded, so that no reset overtakes the last bytes.
    Ending {
        /// When the connection is closed at the latest.
        until: Instant,
        /// Whether the sending side is shut down.
        is_shut_down: bool,
    },
    /// The connection is to be removed.
    Removed,
}

/// All connections of a thread, in a slab with reusable entries.
#[derive(Default)]
pub(super) struct Connections {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
}

#[derive(Default)]
struct Entry {
    /// Distinguishes connections that used the same entry one after the other.
    generation: u32,
    connection: Option<Box<Connection>>,
}

/// Generations wrap around at this value, so that keys beyond it are free for other uses.
const GENERATIONS: u32 = 1 << 31;

impl Connections {
    /// Allocates an entry and stores the connection that `new` creates for its key.
    pub(super) fn insert(&mut self, new: impl FnOnce(u64) -> Connection) {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        let key = u64::from(entry.generation) << 32 | u64::from(index);
        entry.connection = Some(Box::new(new(key)));
    }

    /// Takes a connection out, to be put back or removed; `None` if it no longer exists.
    pub(super) fn take(&mut self, key: u64) -> Option<Box<Connection>> {
        let entry = self.entries.get_mut(key as u32 as usize)?;
        if u64::from(entry.generation) == key >> 32 { entry.connection.take() } else { None }
    }

    /// Puts a connection back into its entry.
    pub(super) fn put_back(&mut self, connection: Box<Connection>) {
        let index = connection.key as u32 as usize;
        self.entries[index].connection = Some(connection);
    }

    /// Frees the entry of a connection that was taken out.
    pub(super) fn free(&mut self, key: u64) {
        let index = key as u32;
        let entry = &mut self.entries[index as usize];
        entry.generation = (entry.generation + 1) % GENERATIONS;
        self.vacant.push(index);
    }

    /// The keys of all connections.
    pub(super) fn keys(&self) -> Vec<u64> {
        self.entries.iter().filter_map(|entry| entry.connection.as_ref()).map(|connection| connection.key).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.vacant.len() == self.entries.len()
    }
}
