//! The commands that wait for a shard.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::SyncSender};

use bytes::Bytes;

use super::backlog::Chunk;
use crate::{
    close_handshake::CloseHandshake,
    inbound::Kind,
    key::ConnectionKey,
    limits::Waker,
    lock::lock,
    priority::Level,
    quality::{Grades, Quality},
    stats::Book,
    topics::{Pick, SubscriptionChange, TopicId},
};

/// How many bytes of commands may wait for a shard before a sender has to wait.
const MAILBOX_BYTES: usize = 64 << 20;

/// The receivers of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// All connections of the server.
    All,
    /// The subscribers of any of these topics.
    Topics(Arc<[TopicId]>),
}

/// A request to a shard.
pub(crate) enum Command {
    /// Send one framed message.
    Send(ConnectionKey, Bytes),
    /// Send one framed message that was published earlier.
    Replay(ConnectionKey, Bytes),
    /// Send one framed event with this priority.
    Event(ConnectionKey, Bytes, Level),
    /// Send framed messages to several connections.
    Publish(Target, Chunk),
    /// Send one framed message to this member of a queue group, or to another member if that one can't take it.
    Deliver(Pick, Bytes),
    /// Notify the application that a user joined or left.
    Presence(Kind, String),
    /// Change a connection's subscriptions.
    SubscriptionChange(ConnectionKey, SubscriptionChange),
    /// Close the connection with this key.
    Disconnect(ConnectionKey),
    /// Reply with the books of the open connections, and of those that have closed since the one with this number.
    Books(u64, SyncSender<Vec<Book>>),
    /// Reply with the quality of a connection.
    Quality(ConnectionKey, SyncSender<Option<Quality>>),
    /// Reply with the grades of all connections.
    Survey(SyncSender<Grades>),
    /// Start the close handshake with all clients.
    Drain(Arc<CloseHandshake>),
    /// Start the close handshake with all clients, then end the shard.
    Stop,
    /// Panic, as a fault in the shard's code would.
    #[cfg(test)]
    Panic,
}

impl Command {
    fn size(&self) -> usize {
        match self {
            Self::Send(_, frame) | Self::Replay(_, frame) | Self::Event(_, frame, _) | Self::Deliver(_, frame) => {
                frame.len()
            }
            Self::Publish(_, chunk) => chunk.bytes.len(),
            Self::Presence(..)
            | Self::SubscriptionChange(..)
            | Self::Disconnect(_)
            | Self::Books(..)
            | Self::Quality(..)
            | Self::Survey(_)
            | Self::Drain(_)
            | Self::Stop => 0,
            #[cfg(test)]
            Self::Panic => 0,
        }
    }
}

#[derive(Default)]
struct Waiting {
    commands: Vec<Command>,
    bytes: usize,
    closed: bool,
}

/// The commands that wait for one shard.
pub(crate) struct Mailbox {
    waiting: Mutex<Waiting>,
    emptied: Condvar,
    waker: Arc<Waker>,
}

impl Mailbox {
    pub(crate) fn new(waker: Arc<Waker>) -> Self {
        Self { waiting: Mutex::default(), emptied: Condvar::new(), waker }
    }

    /// Adds a command; waits while too many bytes wait for the shard. Returns false if the shard has ended.
    pub(crate) fn put(&self, command: Command) -> bool {
        let mut waiting = lock(&self.waiting);
        while waiting.bytes >= MAILBOX_BYTES && !waiting.closed {
            waiting = self.emptied.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        self.push(waiting, command)
    }

    /// Adds a command without waiting: for callers that must not wait, and for commands that take little memory.
    /// Returns false if the shard has ended.
    pub(crate) fn put_now(&self, command: Command) -> bool {
        self.push(lock(&self.waiting), command)
    }

    /// Whether [`Mailbox::put`] would wait.
    pub(crate) fn is_full(&self) -> bool {
        lock(&self.waiting).bytes >= MAILBOX_BYTES
    }

    fn push(&self, mut waiting: MutexGuard<'_, Waiting>, command: Command) -> bool {
        if waiting.closed {
            return false;
        }
        waiting.bytes += command.size();
        waiting.commands.push(command);
        drop(waiting);
        self.waker.wake();
        true
    }

    /// Swaps all waiting commands with `empty`.
    pub(crate) fn take(&self, empty: &mut Vec<Command>) {
        debug_assert!(empty.is_empty());
        let mut waiting = lock(&self.waiting);
        std::mem::swap(&mut waiting.commands, empty);
        if waiting.bytes >= MAILBOX_BYTES {
            self.emptied.notify_all();
        }
        waiting.bytes = 0;
    }

    /// Marks the shard as ended and releases the senders that wait.
    pub(crate) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.emptied.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_mailbox_accepts_no_command() {
        let mailbox = Mailbox::new(Arc::new(Waker::new().unwrap()));
        assert!(mailbox.put(Command::Publish(Target::All, Chunk::shared(Bytes::from_static(b"x"), 1))));
        mailbox.close();
        assert!(!mailbox.put(Command::Stop));
    }
}
