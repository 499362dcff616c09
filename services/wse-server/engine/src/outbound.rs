//! From the application to the shards: mailboxes of commands, and what waits on a connection for its client to read.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
};

use bytes::Bytes;

use crate::{
    inbound::Kind,
    key::ConnectionKey,
    limits::Waker,
    stats::Book,
    topics::{Change, Pick, TopicId},
};

/// How many bytes of commands may wait for a shard before whoever sends waits too.
const MAILBOX_BYTES: usize = 64 << 20;

/// A backlog that has been longer is not kept for the next client: its memory would be.
const HANDY_CHUNKS: usize = 256;

/// Whom a publication is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// All connections.
    All,
    /// Whoever listens to any of these topics.
    Topics(Arc<[TopicId]>),
}

/// What a shard is asked to do.
pub(crate) enum Command {
    /// Send one framed message.
    Send(ConnectionKey, Bytes),
    /// Send one framed message to several.
    Publish(Target, Bytes),
    /// Send one framed message to this member of a queue group, or to another if that one can't take it.
    Deliver(Pick, Bytes),
    /// Tell the application that a user joined or left.
    Presence(Kind, String),
    /// Keep a connection's subscriptions so.
    Change(ConnectionKey, Change),
    /// Close a connection.
    Disconnect(ConnectionKey),
    /// Tell the books of all connections, and forget those of closed ones.
    Books(SyncSender<Vec<Book>>),
    /// Say goodbye to all, and end.
    Stop,
}

impl Command {
    fn size(&self) -> usize {
        match self {
            Self::Send(_, frame) | Self::Publish(_, frame) | Self::Deliver(_, frame) => frame.len(),
            Self::Presence(..) | Self::Change(..) | Self::Disconnect(_) | Self::Books(_) | Self::Stop => 0,
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

    /// Puts a command in; waits while the shard is too far behind. Returns whether there is still a shard to read it.
    pub(crate) fn put(&self, command: Command) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.bytes >= MAILBOX_BYTES && !waiting.closed {
            waiting = self.emptied.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        self.push(waiting, command)
    }

    /// Puts a command in however many there are: for whoever must not wait, and for what takes no memory to speak of.
    pub(crate) fn put_now(&self, command: Command) -> bool {
        self.push(self.waiting.lock().unwrap_or_else(PoisonError::into_inner), command)
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
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.commands, empty);
        if waiting.bytes >= MAILBOX_BYTES {
            self.emptied.notify_all();
        }
        waiting.bytes = 0;
    }

    /// The shard is gone: whoever waits is let go.
    pub(crate) fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.emptied.notify_all();
    }
}

/// Bytes that wait for a client to read, with how many messages they are.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    pub(crate) messages: u32,
    /// Whether nobody else has these bytes: then they count as memory that waits for this client.
    pub(crate) is_own: bool,
}

impl Chunk {
    fn own_bytes(&self) -> usize {
        if self.is_own { self.bytes.len() } else { 0 }
    }
}

/// What a client hasn't taken yet. Only connections whose socket was full have one.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    own_bytes: usize,
    /// The beginning of the first chunk is out already: the rest has to follow.
    is_half_out: bool,
}

impl Backlog {
    /// Puts a chunk last. `is_rest`: its beginning is out already, so there was nothing here.
    pub(crate) fn push(&mut self, chunk: Chunk, is_rest: bool) {
        debug_assert!(!is_rest || self.chunks.is_empty());
        self.is_half_out |= is_rest;
        self.bytes += chunk.bytes.len();
        self.own_bytes += chunk.own_bytes();
        self.chunks.push_back(chunk);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Of these, the bytes that are in memory for this client alone.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// Whether it is worth keeping for another client, now that it is empty.
    pub(crate) fn is_handy(&self) -> bool {
        self.chunks.capacity() <= HANDY_CHUNKS
    }

    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The bytes of chunk `index`; none if there are not so many.
    pub(crate) fn bytes_of(&self, index: usize) -> &[u8] {
        self.chunks.get(index).map_or(&[], |chunk| &chunk.bytes)
    }

    /// `written` bytes went out. Returns how many messages are out with them, counted at their chunk's last byte.
    pub(crate) fn advance(&mut self, mut written: usize) -> u64 {
        self.bytes -= written;
        let mut messages = 0;
        while let Some(chunk) = self.chunks.front_mut() {
            if written < chunk.bytes.len() {
                self.is_half_out |= written > 0;
                self.own_bytes -= if chunk.is_own { written } else { 0 };
                drop(chunk.bytes.split_to(written));
                break;
            }
            written -= chunk.bytes.len();
            self.own_bytes -= chunk.own_bytes();
            messages += u64::from(chunk.messages);
            self.is_half_out = false;
            self.chunks.pop_front();
        }
        messages
    }

    /// Gives up everything. Returns how many messages that was; one that is half out counts.
    pub(crate) fn clear(&mut self) -> u64 {
        self.is_half_out = false;
        self.give_up()
    }

    /// Gives up what nothing of has gone out yet, so that a closing frame comes next. Returns how many messages that was.
    pub(crate) fn give_up(&mut self) -> u64 {
        let kept = usize::from(self.is_half_out).min(self.chunks.len());
        let lost = self.chunks.iter().skip(kept).map(|chunk| u64::from(chunk.messages)).sum();
        self.chunks.truncate(kept);
        self.bytes = self.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        self.own_bytes = self.chunks.iter().map(Chunk::own_bytes).sum();
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog(sizes: &[usize]) -> Backlog {
        let mut backlog = Backlog::default();
        for size in sizes {
            backlog.push(Chunk { bytes: vec![0; *size].into(), messages: 1, is_own: *size != 11 }, false);
        }
        backlog
    }

    #[test]
    fn a_message_counts_as_sent_with_its_last_byte() {
        let mut backlog = backlog(&[10, 10, 10]);
        assert_eq!((backlog.advance(15), backlog.bytes()), (1, 15));
        assert_eq!((backlog.advance(4), backlog.bytes()), (0, 11));
        assert_eq!((backlog.advance(11), backlog.is_empty()), (2, true));
    }

    #[test]
    fn giving_up_keeps_the_chunk_that_is_half_out() {
        let mut backlog = backlog(&[10, 10, 10]);
        backlog.advance(5);
        assert_eq!((backlog.give_up(), backlog.bytes()), (2, 5));
        assert_eq!((backlog.clear(), backlog.bytes()), (1, 0));
    }

    #[test]
    fn shared_bytes_are_no_memory_of_the_client() {
        let mut backlog = backlog(&[10, 11, 10]);
        assert_eq!((backlog.bytes(), backlog.own_bytes()), (31, 20));
        backlog.advance(15);
        assert_eq!((backlog.bytes(), backlog.own_bytes()), (16, 10));
        backlog.advance(8);
        assert_eq!((backlog.bytes(), backlog.own_bytes()), (8, 8));
        backlog.clear();
        assert_eq!((backlog.bytes(), backlog.own_bytes()), (0, 0));
    }

    #[test]
    fn a_mailbox_without_a_shard_takes_nothing() {
        let mailbox = Mailbox::new(Arc::new(Waker::new().unwrap()));
        assert!(mailbox.put(Command::Publish(Target::All, Bytes::from_static(b"x"))));
        mailbox.close();
        assert!(!mailbox.put(Command::Stop));
    }
}
