//! From the application to the shards: mailboxes of commands, and the backlog of a connection that its client hasn't
//! read.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::SyncSender},
};

use bytes::Bytes;

use crate::{
    close_handshake::CloseHandshake,
    frame,
    inbound::Kind,
    key::ConnectionKey,
    limits::Waker,
    lock::lock,
    priority::{Level, PerLevel},
    quality::{Grades, Quality},
    stats::Book,
    topics::{Pick, SubscriptionChange, TopicId},
};

/// How many bytes of commands may wait for a shard before a sender has to wait.
const MAILBOX_BYTES: usize = 64 << 20;

/// The largest capacity, in chunks, of an empty backlog that is kept for another connection. A larger one would keep
/// its memory.
const REUSABLE_CHUNKS: usize = 256;

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
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::frame::Opcode;

    fn backlog(sizes: &[usize]) -> Backlog {
        let mut backlog = Backlog::default();
        for size in sizes {
            let chunk = Chunk { bytes: vec![0; *size].into(), messages: 1, is_own: *size != 11 };
            backlog.push(chunk, Level::Normal, 0);
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
    fn giving_up_keeps_the_partly_sent_chunk() {
        let mut backlog = backlog(&[10, 10, 10]);
        backlog.advance(5);
        assert_eq!((backlog.give_up(), backlog.bytes()), ([0, 0, 2, 0, 0], 5));
        assert_eq!((backlog.finish(), backlog.bytes()), ((0, 1), 0));
    }

    #[test]
    fn complete_messages_of_a_partly_sent_chunk_count_as_sent_and_the_others_do_not() {
        let mut frames = BytesMut::new();
        for payload in ["one", "two", "three"] {
            frame::put(&mut frames, Opcode::Text, payload.as_bytes());
        }
        let frames = frames.freeze();
        for (written, out) in [(1, 0), (4, 0), (5, 1), (9, 1), (10, 2), (16, 2)] {
            let mut begun = Backlog::default();
            begun.push(Chunk::shared(frames.clone(), 3), Level::Normal, written);
            assert_eq!((begun.bytes(), begun.finish()), (17 - written, (out, 3 - out)), "{written}");
            let mut advanced = Backlog::default();
            advanced.push(Chunk::shared(frames.clone(), 3), Level::Normal, 0);
            advanced.push(Chunk::shared(frames.clone(), 3), Level::Normal, 0);
            assert_eq!(advanced.advance(written), 0);
            assert_eq!(advanced.finish(), (out, 6 - out), "{written}");
        }
    }

    #[test]
    fn shared_bytes_are_not_counted_for_the_client() {
        let mut backlog = backlog(&[10, 11, 10]);
        assert_eq!((backlog.bytes(), backlog.own_bytes()), (31, 20));
        backlog.advance(15);
        assert_eq!((backlog.bytes(), backlog.own_bytes()), (16, 10));
        backlog.advance(8);
        assert_eq!((backlog.bytes(), backlog.own_bytes()), (8, 8));
        backlog.finish();
        assert_eq!((backlog.bytes(), backlog.own_bytes()), (0, 0));
    }

    /// A chunk that is recognisable by its first bytes: its level, then a number, then filling.
    fn marked(level: Level, number: u8, length: usize) -> Chunk {
        let mut bytes = vec![0xFF; length.max(2)];
        bytes[..2].copy_from_slice(&[level as u8, number]);
        Chunk { bytes: bytes.into(), messages: 1, is_own: !number.is_multiple_of(3) }
    }

    /// The levels and numbers of the waiting chunks, in the order in which they go out.
    fn marks(backlog: &Backlog) -> Vec<(u8, u8)> {
        backlog.iter().map(|bytes| (bytes[0], bytes[1])).collect()
    }

    #[test]
    fn a_higher_level_overtakes_chunks_that_are_not_partly_sent() {
        let mut backlog = Backlog::default();
        for (number, level) in [Level::Low, Level::Low, Level::Critical, Level::Normal].into_iter().enumerate() {
            backlog.push(marked(level, number as u8, 10), level, 0);
        }
        assert_eq!(marks(&backlog), [(4, 2), (2, 3), (1, 0), (1, 1)]);
        backlog.advance(25);
        backlog.push(marked(Level::Critical, 9, 10), Level::Critical, 0);
        let lengths: Vec<usize> = backlog.iter().map(<[u8]>::len).collect();
        assert_eq!(lengths, [5, 10, 10], "the rest of the partly sent chunk comes first");
        assert_eq!(marks(&backlog)[1], (4, 9));
        assert!(backlog.has_below(Level::Normal) && !backlog.has_below(Level::Low));
    }

    #[test]
    fn the_lowest_level_makes_room_first_and_of_it_the_newest() {
        let filled = || {
            let mut backlog = Backlog::default();
            for (number, level) in
                [Level::Low, Level::Background, Level::Background, Level::High].into_iter().enumerate()
            {
                backlog.push(marked(level, 3 * number as u8 + 1, 10), level, 0);
            }
            backlog
        };
        let mut backlog = filled();
        assert_eq!(backlog.make_room(Level::Normal, 35, 0), Some([1, 0, 0, 0, 0]));
        assert_eq!(marks(&backlog), [(3, 10), (1, 1), (0, 4)]);
        assert_eq!(backlog.make_room(Level::Normal, 12, 0), Some([1, 1, 0, 0, 0]));
        assert_eq!(marks(&backlog), [(3, 10)]);
        assert_eq!(filled().make_room(Level::Low, 15, 0), None, "the lower levels have too few bytes");
        assert_eq!(filled().make_room(Level::Low, usize::MAX, 11), Some([2, 0, 0, 0, 0]));
        assert_eq!(filled().make_room(Level::Background, 39, 0), None, "its own level is not below it");
    }

    /// An operation on a backlog.
    #[derive(Clone, Debug)]
    enum Step {
        Push(usize, usize),
        Write(prop::sample::Index),
        Room(usize, usize),
        GiveUp,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..5_usize, 2..40_usize).prop_map(|(level, length)| Step::Push(level, length)),
            4 => any::<prop::sample::Index>().prop_map(Step::Write),
            2 => (0..5_usize, 0..200_usize).prop_map(|(level, maximum)| Step::Room(level, maximum)),
            1 => Just(Step::GiveUp),
        ]
    }

    proptest! {
        #[test]
        fn chunks_stay_complete_and_in_order_within_their_level_and_every_byte_is_counted(
            steps in prop::collection::vec(step(), 1..120),
        ) {
            let mut backlog = Backlog::default();
            let (mut next, mut wire, mut dropped, mut sent) = (0_u8, Vec::new(), 0, 0);
            for step in steps {
                match step {
                    Step::Push(level, length) => {
                        backlog.push(marked(Level::ALL[level], next, length), Level::ALL[level], 0);
                        next = next.wrapping_add(1);
                    }
                    Step::Write(index) => {
                        let waiting: Vec<u8> = backlog.iter().flatten().copied().collect();
                        let written = index.index(waiting.len() + 1);
                        wire.extend_from_slice(&waiting[..written]);
                        sent += backlog.advance(written);
                    }
                    Step::Room(level, maximum) => {
                        if let Some(lost) = backlog.make_room(Level::ALL[level], maximum, 0) {
                            prop_assert!(backlog.bytes() <= maximum);
                            prop_assert!(lost[level..].iter().all(|lost| *lost == 0));
                            dropped += lost.iter().sum::<u64>();
                        }
                    }
                    Step::GiveUp => dropped += backlog.give_up().iter().sum::<u64>(),
                }
                prop_assert_eq!(backlog.bytes(), backlog.iter().map(<[u8]>::len).sum::<usize>());
                let chunks = backlog.levels.iter().flat_map(|queue| &queue.chunks).map(Chunk::own_bytes).sum::<usize>();
                prop_assert_eq!(backlog.own_bytes(), backlog.partly_sent.as_ref().map_or(0, PartlySent::own_bytes) + chunks);
                prop_assert_eq!(backlog.len(), backlog.iter().count());
            }
            prop_assert_eq!(u64::from(next), dropped + sent + backlog.len() as u64);
            // The wire holds whole chunks one after the other, and within a level the numbers only grow.
            let rest: Vec<u8> = backlog.iter().flatten().copied().collect();
            wire.extend_from_slice(&rest);
            let (mut at, mut last) = (0, [None; 5]);
            while at < wire.len() {
                let (level, number) = (usize::from(wire[at]), wire[at + 1]);
                prop_assert!(level < 5 && last[level].is_none_or(|last| last < number), "torn at {at}");
                last[level] = Some(number);
                at += 2 + wire[at + 2..].iter().take_while(|byte| **byte == 0xFF).count();
            }
        }
    }

    #[test]
    fn a_closed_mailbox_accepts_no_command() {
        let mailbox = Mailbox::new(Arc::new(Waker::new().unwrap()));
        assert!(mailbox.put(Command::Publish(Target::All, Chunk::shared(Bytes::from_static(b"x"), 1))));
        mailbox.close();
        assert!(!mailbox.put(Command::Stop));
    }
}
