//! A thread's connections, and the keys under which everybody else knows them.

use std::{os::fd::OwnedFd, time::Instant};

use rustix::event::epoll::EventFlags;

use crate::{protocol::Assembly, session::Session};

/// One client.
pub(super) struct Connection {
    pub(super) key: u64,
    pub(super) socket: OwnedFd,
    pub(super) phase: Phase,
    /// What was read and isn't whole yet.
    pub(super) pending: Vec<u8>,
    pub(super) assembly: Assembly,
    /// What the kernel hasn't taken yet.
    pub(super) unsent: Vec<u8>,
    /// When the kernel last took some of it.
    pub(super) progress_at: Instant,
    /// What epoll was asked to tell of.
    pub(super) interest: EventFlags,
    /// When it is visited next. The wheel may hold older entries: those come earlier, and mean nothing.
    pub(super) visit_at: Instant,
}

/// How far a connection is.
pub(super) enum Phase {
    /// Its request isn't whole yet.
    Asking {
        /// When it gets 408.
        until: Instant,
    },
    /// A WebSocket whose first message isn't whole yet.
    Open,
    /// A session.
    Started(Session),
    /// Everything was said. What still comes is thrown away, so that no reset overtakes what was said.
    Ending {
        /// When the client has had enough time to read it.
        until: Instant,
        /// Whether the client was told that nothing more comes.
        is_shut: bool,
    },
    /// To be forgotten.
    Gone,
}

/// All connections of a thread.
#[derive(Default)]
pub(super) struct Connections {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
}

#[derive(Default)]
struct Entry {
    /// Tells connections apart that had the same entry one after the other.
    generation: u32,
    connection: Option<Box<Connection>>,
}

/// Generations start over here: keys beyond are no connections'.
const GENERATIONS: u32 = 1 << 31;

impl Connections {
    /// Makes room for a connection and puts in what `new` makes of its key.
    pub(super) fn insert(&mut self, new: impl FnOnce(u64) -> Connection) {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        let key = u64::from(entry.generation) << 32 | u64::from(index);
        entry.connection = Some(Box::new(new(key)));
    }

    /// Takes a connection out, to be put back or forgotten; `None` if it is gone.
    pub(super) fn take(&mut self, key: u64) -> Option<Box<Connection>> {
        let entry = self.entries.get_mut(key as u32 as usize)?;
        if u64::from(entry.generation) == key >> 32 { entry.connection.take() } else { None }
    }

    /// Puts a connection back where it was taken.
    pub(super) fn put_back(&mut self, connection: Box<Connection>) {
        let index = connection.key as u32 as usize;
        self.entries[index].connection = Some(connection);
    }

    /// Frees the entry of a connection that was taken out.
    pub(super) fn forget(&mut self, key: u64) {
        let index = key as u32;
        let entry = &mut self.entries[index as usize];
        entry.generation = (entry.generation + 1) % GENERATIONS;
        self.vacant.push(index);
    }

    /// The keys of all.
    pub(super) fn keys(&self) -> Vec<u64> {
        self.entries.iter().filter_map(|entry| entry.connection.as_ref()).map(|connection| connection.key).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.vacant.len() == self.entries.len()
    }
}
