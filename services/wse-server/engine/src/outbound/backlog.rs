//! The messages that a client has not read yet, in the order in which they go out.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    frame,
    priority::{Level, PerLevel},
};

/// The largest capacity, in chunks, of an empty backlog that is kept for another connection. A larger one would keep
/// its memory.
const REUSABLE_CHUNKS: usize = 256;

/// Bytes that wait for a client to read, and the number of messages in them.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    pub(crate) messages: u32,
    /// Whether no other connection holds these bytes. They then count as memory that waits for this client.
    pub(crate) is_own: bool,
}

impl Chunk {
    /// Makes a chunk of messages that other connections hold as well.
    pub(crate) fn shared(bytes: Bytes, messages: u32) -> Self {
        Self { bytes, messages, is_own: false }
    }

    fn own_bytes(&self) -> usize {
        if self.is_own { self.bytes.len() } else { 0 }
    }
}

/// What a client hasn't taken yet. Only connections whose socket was full have one.
///
/// The chunk that is partly written goes out first, then the highest level; within a level the oldest chunk.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    partly_sent: Option<PartlySent>,
    levels: [Queue; Level::ALL.len()],
    bytes: usize,
    own_bytes: usize,
    /// Whether the socket was full at the last attempt. What is added after that may overtake by its level.
    pub(crate) is_blocked: bool,
}

/// A chunk that is partly written: its rest must go out next.
#[derive(Debug)]
struct PartlySent {
    chunk: Chunk,
    /// How many of its bytes are written.
    written: usize,
}

impl PartlySent {
    fn rest(&self) -> &[u8] {
        &self.chunk.bytes[self.written..]
    }

    fn own_bytes(&self) -> usize {
        if self.chunk.is_own { self.rest().len() } else { 0 }
    }

    /// How many of its messages are written as a whole. What is sent to one client alone isn't counted by frames,
    /// because it may not consist of frames.
    fn messages_sent(&self) -> u64 {
        if self.chunk.is_own { 0 } else { frame::payloads(&self.chunk.bytes[..self.written]).count() as u64 }
    }
}

/// The chunks of one level that wait.
#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    own_bytes: usize,
}

impl Queue {
    fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.bytes.len();
        self.own_bytes += chunk.own_bytes();
        self.chunks.push_back(chunk);
    }

    fn taken(&mut self, chunk: Chunk) -> Chunk {
        self.bytes -= chunk.bytes.len();
        self.own_bytes -= chunk.own_bytes();
        chunk
    }

    fn pop_oldest(&mut self) -> Option<Chunk> {
        self.chunks.pop_front().map(|chunk| self.taken(chunk))
    }

    fn pop_newest(&mut self) -> Option<Chunk> {
        self.chunks.pop_back().map(|chunk| self.taken(chunk))
    }

    /// Discards everything. Returns the number of messages.
    fn clear(&mut self) -> u64 {
        (self.bytes, self.own_bytes) = (0, 0);
        self.chunks.drain(..).map(|chunk| u64::from(chunk.messages)).sum()
    }
}

impl Backlog {
    /// Adds a chunk at the end of its level. If `written` of its bytes are out already, the backlog must be empty.
    pub(crate) fn push(&mut self, chunk: Chunk, level: Level, written: usize) {
        debug_assert!(written == 0 || self.is_empty());
        self.bytes += chunk.bytes.len() - written;
        if written > 0 {
            self.begin(PartlySent { chunk, written });
            return;
        }
        self.own_bytes += chunk.own_bytes();
        self.levels[level as usize].push(chunk);
    }

    fn begin(&mut self, partly_sent: PartlySent) {
        self.own_bytes += partly_sent.own_bytes();
        self.partly_sent = Some(partly_sent);
    }

    /// Makes the chunk that goes out next the one that nothing overtakes or changes any more.
    pub(crate) fn begin_first(&mut self) {
        if let Some(first) = self.take_first() {
            self.begin(first);
        }
    }

    /// Replaces the bytes of the chunk that goes out next, unless it has begun. From then on nothing overtakes it.
    ///
    /// # Errors
    /// That of `replace`; the chunk is not replaced.
    pub(crate) fn replace_first<E>(&mut self, replace: impl FnOnce(&[u8]) -> Result<Bytes, E>) -> Result<(), E> {
        if self.partly_sent.is_some() {
            return Ok(());
        }
        let Some(mut first) = self.take_first() else { return Ok(()) };
        match replace(&first.chunk.bytes) {
            Ok(bytes) => {
                self.bytes = self.bytes - first.chunk.bytes.len() + bytes.len();
                first.chunk.bytes = bytes;
                self.begin(first);
                Ok(())
            }
            Err(error) => {
                self.begin(first);
                Err(error)
            }
        }
    }

    /// The rest of the chunk that has begun.
    pub(crate) fn begun(&self) -> &[u8] {
        self.partly_sent.as_ref().map_or(&[], PartlySent::rest)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The part of [`Backlog::bytes`] that is in memory for this client alone.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own_bytes
    }

    /// Whether this backlog, now empty, is small enough to be kept for another client.
    pub(crate) fn is_reusable(&self) -> bool {
        self.levels.iter().map(|queue| queue.chunks.capacity()).sum::<usize>() <= REUSABLE_CHUNKS
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.partly_sent.is_some()) + self.levels.iter().map(|queue| queue.chunks.len()).sum::<usize>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.partly_sent.is_none() && self.levels.iter().all(|queue| queue.chunks.is_empty())
    }

    /// The bytes that wait, in the order in which they go out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let whole = self.levels.iter().rev().flat_map(|queue| &queue.chunks).map(|chunk| &*chunk.bytes);
        self.partly_sent.iter().map(PartlySent::rest).chain(whole)
    }

    /// Whether anything of a lower level waits that isn't partly written.
    pub(crate) fn has_below(&self, level: Level) -> bool {
        self.levels[..level as usize].iter().any(|queue| !queue.chunks.is_empty())
    }

    /// Removes `written` bytes that went out. Returns how many messages are complete with them, counted at the last
    /// byte of their chunk.
    pub(crate) fn advance(&mut self, mut written: usize) -> u64 {
        self.bytes -= written;
        let mut messages = 0;
        while written > 0 {
            let Some(first) = self.take_first() else { break };
            if written < first.rest().len() {
                self.begin(PartlySent { written: first.written + written, ..first });
                break;
            }
            written -= first.rest().len();
            messages += u64::from(first.chunk.messages);
        }
        messages
    }

    /// Takes the chunk that goes out next. Its bytes still count, but not as memory of the client.
    fn take_first(&mut self) -> Option<PartlySent> {
        let first = self.partly_sent.take().or_else(|| {
            let chunk = self.levels.iter_mut().rev().find_map(Queue::pop_oldest)?;
            Some(PartlySent { chunk, written: 0 })
        })?;
        self.own_bytes -= first.own_bytes();
        Some(first)
    }

    /// Discards messages of levels below `level`, the lowest level first and within a level the newest, until at most
    /// `maximum` bytes are left and `surplus` bytes of memory are freed. Returns the number of discarded messages by level;
    /// `None`, and discards nothing, if discarding all of them would not be enough.
    pub(crate) fn make_room(&mut self, level: Level, maximum: usize, surplus: usize) -> Option<PerLevel> {
        let below = &self.levels[..level as usize];
        let bytes: usize = below.iter().map(|queue| queue.bytes).sum();
        let own_bytes: usize = below.iter().map(|queue| queue.own_bytes).sum();
        if self.bytes - bytes > maximum || own_bytes < surplus {
            return None;
        }
        let (mut lost, own_limit) = (PerLevel::default(), self.own_bytes - surplus);
        for (queue, lost) in self.levels[..level as usize].iter_mut().zip(&mut lost) {
            while (self.bytes > maximum || self.own_bytes > own_limit)
                && let Some(chunk) = queue.pop_newest()
            {
                self.bytes -= chunk.bytes.len();
                self.own_bytes -= chunk.own_bytes();
                *lost += u64::from(chunk.messages);
            }
        }
        Some(lost)
    }

    /// Discards everything, because the client is gone. Returns how many messages were written beyond those that were
    /// counted, and how many were not. A partly written message counts as not written.
    pub(crate) fn finish(&mut self) -> (u64, u64) {
        let partly_sent = self
            .partly_sent
            .take()
            .map(|partly_sent| (partly_sent.messages_sent(), u64::from(partly_sent.chunk.messages)));
        let (out, begun) = partly_sent.unwrap_or_default();
        (out, begun - out + self.give_up().iter().sum::<u64>())
    }

    /// Discards all chunks of which nothing is written, so that a Close frame comes next. Returns the number of
    /// messages by level.
    pub(crate) fn give_up(&mut self) -> PerLevel {
        let lost = std::array::from_fn(|level| self.levels[level].clear());
        self.bytes = self.partly_sent.as_ref().map_or(0, |partly_sent| partly_sent.rest().len());
        self.own_bytes = self.partly_sent.as_ref().map_or(0, PartlySent::own_bytes);
        lost
    }
}

#[cfg(test)]
mod tests;
