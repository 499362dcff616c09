//! Publications that wait for Redis: numbered, encoded as commands, bounded, each with an outcome.
//!
//! A publication gets its number and its encoding in the thread that publishes it, under one lock, so that numbers are
//! in the order of the queue. One that is dropped before it has a number leaves no gap; one that is given up later
//! leaves a gap, which receivers count as lost.

use std::{
    borrow::Cow,
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::{
    CHANNEL,
    dead_letters::{DeadLetter, DeadLetters, RedisDeadLetter},
    header::{self, Header},
    recent::Recent,
    resp,
};
use crate::{
    links::Publication,
    lock::lock,
    publications::{Publications, TrackedBytes},
    stats::reasons,
};

/// Bytes of commands that are written, replied to and given up together.
const BATCH_BYTES: usize = 64 << 10;
/// Topics whose numbers are remembered; for a topic that was forgotten a new run of numbers begins.
const NUMBERED_TOPICS: usize = 1 << 16;
/// How many numbers lie between the starts of two runs.
pub(super) const RUN: u64 = 1 << 24;

reasons! {
    /// Why other instances did not get a publication.
    Loss {
        QueueFull = "queue_full",
        /// Redis replied with an error.
        Refused = "refused",
        /// The server stopped before Redis took the publication.
        Stopped = "stopped",
        TooBig = "too_big",
        /// There was no connection to Redis for as long as a publication waits, or too many were lost.
        Unreachable = "unreachable",
        /// No other instance was subscribed to the topic.
        Unwanted = "unwanted",
    }
}

/// The counters of publications. `published = sent + dropped + queued` holds in every reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Books {
    pub(super) published: u64,
    pub(super) sent: u64,
    pub(super) dropped: [u64; Loss::LABELS.len()],
    pub(super) queued: u64,
}

/// Publications in a row, encoded as commands.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) commands: Vec<u8>,
    messages: u32,
    /// Of these, how many have their reply. Replies come in order, so these are the first ones.
    replied: u32,
    /// Where the next message to look at begins: its index in the batch, and its offset in `commands`.
    at: (u32, usize),
    /// How many connections were lost after the batch was taken for them.
    pub(super) attempts: u32,
    queued_at: Instant,
    counted: TrackedBytes,
}

impl Batch {
    fn new(counted: TrackedBytes) -> Self {
        let queued_at = Instant::now();
        Self { commands: Vec::new(), messages: 0, replied: 0, at: (0, 0), attempts: 0, queued_at, counted }
    }

    /// How many replies are still to come.
    pub(super) fn pending_replies(&self) -> u32 {
        self.messages - self.replied
    }

    /// The topic and the payload of the message whose reply comes next.
    pub(super) fn next(&mut self) -> (&str, &[u8]) {
        while self.at.0 < self.replied {
            self.at = (self.at.0 + 1, self.at.1 + command(&self.commands[self.at.1..]).2);
        }
        let (topic, payload, _) = command(&self.commands[self.at.1..]);
        (topic, payload)
    }

    /// Counts one reply of Redis to these commands.
    pub(super) fn advance(&mut self) {
        self.replied += 1;
    }

    /// Removes the messages that have their reply.
    fn trim(&mut self) {
        if self.pending_replies() == 0 {
            self.commands.clear();
        } else if self.replied > 0 {
            self.next();
            self.commands.drain(..self.at.1);
        }
        (self.messages, self.replied, self.at) = (self.pending_replies(), 0, (0, 0));
    }

    /// The messages without a reply as dead letters.
    fn dead_letters(mut self, error: &'static str) -> Vec<DeadLetter> {
        let mut dead_letters = Vec::with_capacity(self.pending_replies() as usize);
        while self.pending_replies() > 0 {
            let (topic, payload) = self.next();
            dead_letters.push(dead_letter(topic, payload, Cow::Borrowed(error)));
            self.advance();
        }
        dead_letters
    }
}

/// The topic and the payload of an encoded command, and the command's length in bytes.
fn command(bytes: &[u8]) -> (&str, &[u8], usize) {
    let (channel, payload, length) = resp::publish(bytes).expect("a batch holds what was written here");
    let topic = std::str::from_utf8(&channel[CHANNEL.len()..]).expect("a topic is text");
    (topic, payload, length)
}

/// A message of this instance as a dead letter.
pub(super) fn dead_letter(topic: &str, payload: &[u8], error: Cow<'static, str>) -> DeadLetter {
    let (header, text) = Header::split(payload)
        .ok()
        .and_then(|(header, text)| Some((header?, text)))
        .expect("a queued payload has this instance's header");
    let text = std::str::from_utf8(text).expect("a publication is text");
    DeadLetter { topic: topic.into(), text: text.into(), origin: header.origin, stamp: header.stamp, error }
}

struct State {
    /// The next number of each topic.
    numbers: Recent<u64>,
    /// How many runs of numbers have begun.
    runs: u64,
    /// Batches that wait to be written, the oldest first.
    waiting: VecDeque<Batch>,
    /// Bytes of everything queued, including what is written and waits for its reply.
    bytes: usize,
    books: Books,
    dead_letters: DeadLetters,
    is_closed: bool,
}

/// The queue of publications that wait for Redis, with its dead letters and counters.
pub(super) struct Outbox {
    state: Mutex<State>,
    publications: Publications,
    origin: u64,
    /// The most bytes that may be queued; 0 switches the limit off.
    limit: usize,
    /// Notified when something was queued.
    pub(super) filled: Notify,
}

impl Outbox {
    pub(super) fn new(origin: u64, limit: usize, publications: Publications) -> Self {
        let state = State {
            numbers: Recent::new(NUMBERED_TOPICS),
            runs: 0,
            waiting: VecDeque::new(),
            bytes: 0,
            books: Books::default(),
            dead_letters: DeadLetters::default(),
            is_closed: false,
        };
        Self { state: Mutex::new(state), publications, origin, limit, filled: Notify::new() }
    }

    /// Queues publications, or drops those for which there is no room.
    pub(super) fn publish(&self, topic: &str, publications: &[Publication<'_>]) {
        let mut state = lock(&self.state);
        for publication in publications {
            let text = publication.text.as_bytes();
            let stamp = publication.stamp;
            state.books.published += 1;
            let longest = text.len() + topic.len() + header::LONGEST + 64;
            let loss = match () {
                () if state.is_closed => Some(Loss::Stopped),
                () if longest > resp::LONGEST => Some(Loss::TooBig),
                () if self.limit > 0 && state.bytes + longest > self.limit => Some(Loss::QueueFull),
                () => None,
            };
            if let Some(loss) = loss {
                let text = Box::from(&*publication.text);
                let error = Cow::Borrowed(loss.error());
                state
                    .add_dead_letter(DeadLetter { topic: topic.into(), text, origin: self.origin, stamp, error }, loss);
                continue;
            }
            let number = Some(state.number(topic));
            state.put(&self.publications, topic, Header { origin: self.origin, number, stamp }, text);
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Queues dead letters once more.
    pub(super) fn publish_again(&self, dead_letters: &[DeadLetter]) {
        let mut state = lock(&self.state);
        for dead_letter in dead_letters {
            state.books.published += 1;
            state.put(&self.publications, &dead_letter.topic, dead_letter.header(), dead_letter.text.as_bytes());
        }
        drop(state);
        self.filled.notify_one();
    }

    /// Takes the next batch to write.
    pub(super) fn take(&self) -> Option<Batch> {
        lock(&self.state).waiting.pop_front()
    }

    /// Counts replies: `sent` and `unwanted` publications and the refused ones. `done` is the size in bytes of the
    /// batches that have all their replies.
    pub(super) fn settle(&self, sent: u64, unwanted: u64, refused: Vec<DeadLetter>, done: usize) {
        let mut state = lock(&self.state);
        state.books.sent += sent;
        state.books.dropped[Loss::Unwanted as usize] += unwanted;
        state.books.queued -= sent + unwanted + refused.len() as u64;
        state.bytes -= done;
        refused.into_iter().for_each(|dead_letter| state.add_dead_letter(dead_letter, Loss::Refused));
    }

    /// A connection was lost before these batches had their replies. It isn't known whether Redis published them, so
    /// they are sent again with the same numbers, and receivers drop the duplicates. A batch that was lost
    /// `max_attempts` times is given up.
    pub(super) fn put_back(&self, batches: impl DoubleEndedIterator<Item = Batch>, max_attempts: u32) {
        let mut state = lock(&self.state);
        for mut batch in batches.rev() {
            let before = batch.commands.len();
            batch.attempts += 1;
            batch.trim();
            state.bytes -= before - batch.commands.len();
            if batch.pending_replies() == 0 {
                continue;
            }
            if batch.attempts >= max_attempts {
                state.give_up(batch, Loss::Unreachable);
            } else {
                state.waiting.push_front(batch);
            }
        }
    }

    /// Gives up batches that have waited for a connection for `max_wait`, counted from `lost_at` or from when they were
    /// queued, whichever is later.
    pub(super) fn give_up_old(&self, now: Instant, lost_at: Instant, max_wait: Duration) {
        let mut state = lock(&self.state);
        let is_old = |batch: &mut Batch| now.saturating_duration_since(batch.queued_at.max(lost_at)) >= max_wait;
        while let Some(batch) = state.waiting.pop_front_if(is_old) {
            state.give_up(batch, Loss::Unreachable);
        }
    }

    /// Refuses further publications, and gives up those that wait.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        while let Some(batch) = state.waiting.pop_front() {
            state.give_up(batch, Loss::Stopped);
        }
    }

    /// Takes the dead letters that Redis hasn't stored, the oldest first.
    pub(super) fn unsaved(&self) -> Vec<Arc<DeadLetter>> {
        let mut state = lock(&self.state);
        if state.dead_letters.has_unsaved() { state.dead_letters.unsaved().into() } else { Vec::new() }
    }

    pub(super) fn put_back_dead_letters(&self, dead_letters: Vec<Arc<DeadLetter>>) {
        lock(&self.state).dead_letters.put_back(dead_letters);
    }

    /// The dead letters that the application hasn't fetched; each is returned once.
    pub(super) fn fetch_dead_letters(&self) -> Vec<RedisDeadLetter> {
        lock(&self.state).dead_letters.fetch()
    }

    /// The counters, and how many dead letters the application may fetch.
    pub(super) fn books(&self) -> (Books, usize) {
        let state = lock(&self.state);
        (state.books, state.dead_letters.unfetched())
    }
}

impl Loss {
    fn error(self) -> &'static str {
        match self {
            Self::QueueFull => "the queue for Redis is full",
            Self::Refused => "Redis refused the publication",
            Self::Stopped => "the server stopped before the publication was sent to Redis",
            Self::TooBig => "the publication is too large for Redis",
            Self::Unreachable => "Redis could not be reached",
            Self::Unwanted => "no other instance is subscribed",
        }
    }
}

impl State {
    /// The next number of a topic. A new run begins beyond every number that the topic can have had in its last run: to
    /// be forgotten it needed many other topics meanwhile, and each of these began a run.
    fn number(&mut self, topic: &str) -> u64 {
        let runs = &mut self.runs;
        let next = self.numbers.get_or_insert_with(topic, || {
            *runs += 1;
            *runs * RUN
        });
        let number = *next;
        *next += 1;
        number
    }

    fn put(&mut self, publications: &Publications, topic: &str, header: Header, text: &[u8]) {
        let size = text.len() + topic.len() + header.length() + 64;
        let has_room = |batch: &&mut Batch| batch.attempts == 0 && batch.commands.len() + size <= BATCH_BYTES;
        if self.waiting.back_mut().filter(has_room).is_none() {
            self.waiting.push_back(Batch::new(publications.count()));
        }
        let batch = self.waiting.back_mut().expect("a batch was added above");
        let before = batch.commands.len();
        let channel = (CHANNEL.as_bytes(), topic.as_bytes());
        resp::put_publish(&mut batch.commands, channel, header.length() + text.len(), |out| {
            header.put(out);
            out.extend_from_slice(text);
        });
        let added = batch.commands.len() - before;
        batch.messages += 1;
        batch.counted.grow(added);
        self.bytes += added;
        self.books.queued += 1;
    }

    fn add_dead_letter(&mut self, dead_letter: DeadLetter, loss: Loss) {
        self.books.dropped[loss as usize] += 1;
        self.dead_letters.add(dead_letter);
    }

    fn give_up(&mut self, batch: Batch, loss: Loss) {
        self.bytes -= batch.commands.len();
        self.books.queued -= u64::from(batch.pending_replies());
        for dead_letter in batch.dead_letters(loss.error()) {
            self.add_dead_letter(dead_letter, loss);
        }
    }
}
