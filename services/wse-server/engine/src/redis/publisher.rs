//! The publishing connection: writes what waits in the outbox without waiting for replies in between, and reports the
//! outcomes.
//!
//! Dead letters, audience queries and replays use the same connection, in the order in which they come.

mod replies;

use std::{
    collections::VecDeque,
    io::IoSlice,
    pin::pin,
    sync::{Arc, atomic::Ordering, mpsc::SyncSender},
    time::Instant,
};

use tokio::{
    io::Interest as Readiness,
    select,
    sync::mpsc::UnboundedReceiver,
    time::{interval, sleep},
};

use super::{
    CHANNEL, DEAD_LETTERS, Inner, STOP_TIMEOUT,
    connection::{Connection, Dialer, Problem},
    dead_letters::{DeadLetter, RETENTION_SECONDS},
    outbox::Batch,
    resp,
};
use crate::links::recent_items::RETAINED_ITEMS;

/// Bytes of commands that may be without a reply.
const PIPELINE_BYTES: usize = 1 << 20;
/// Slices in one vectored write.
const PARTS: usize = 16;
/// A publication is given up when this many connections were lost before its reply came.
const ATTEMPTS: u32 = 3;
/// How often a deadline is checked while it runs.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// A request from a thread that waits for the response.
pub(super) enum Query {
    /// The number of other Redis connections that are subscribed to a topic by its name.
    Audience(String, SyncSender<usize>),
    /// Publish the oldest dead letters of a topic again, at most so many. The response is how many there were.
    Replay(String, usize, SyncSender<Result<usize, String>>),
}

/// Commands on the connection that wait for replies.
enum Task {
    Publish(Batch),
    /// Dead letters to store: the commands (three per dead letter), how many replies are outstanding, the dead letters.
    Save(Vec<u8>, u32, Vec<Arc<DeadLetter>>),
    Audience(Vec<u8>, u64, SyncSender<usize>),
    DeadLetters(Vec<u8>, String, SyncSender<Result<usize, String>>),
    /// Commands whose reply has no effect.
    Forget(Vec<u8>),
}

impl Task {
    fn commands(&self) -> &[u8] {
        match self {
            Self::Publish(batch) => &batch.commands,
            Self::Save(commands, ..)
            | Self::Audience(commands, ..)
            | Self::DeadLetters(commands, ..)
            | Self::Forget(commands) => commands,
        }
    }
}

/// Why a connection's work ended.
enum StopReason {
    Stopped,
    Lost(Problem),
}

/// Publishes until the server stops.
pub(super) async fn run(inner: Arc<Inner>, mut queries: UnboundedReceiver<Query>) {
    let mut dialer = Dialer::new(&inner.address, &inner.times, format!("wse-{:016x}-out", inner.origin));
    let (mut lost_at, mut lost): (Instant, Option<Problem>) = (Instant::now(), None);
    let mut is_reconnect = false;
    loop {
        let Some(connection) = connect(&inner, &mut dialer, &mut queries, lost_at, lost.take()).await else { break };
        if std::mem::replace(&mut is_reconnect, true) {
            inner.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        inner.publishes.store(true, Ordering::SeqCst);
        let mut conversation = Conversation::new(&inner, connection);
        let end = conversation.run(&mut queries).await;
        inner.publishes.store(false, Ordering::SeqCst);
        if conversation.has_replies {
            dialer.succeeded();
        }
        conversation.end();
        match end {
            StopReason::Stopped => break,
            StopReason::Lost(problem) => (lost_at, lost) = (Instant::now(), Some(problem)),
        }
    }
    inner.outbox.close();
}

/// Waits for a connection, and meanwhile gives up publications that have waited for too long. `None` if the server
/// stops.
async fn connect(
    inner: &Inner,
    dialer: &mut Dialer<'_>,
    queries: &mut UnboundedReceiver<Query>,
    lost_at: Instant,
    lost: Option<Problem>,
) -> Option<Connection> {
    let mut stopped = inner.stop.subscribe();
    let mut check = interval(inner.times.connection_wait() / CHECKS_PER_TIMEOUT);
    let mut dialing = pin!(async {
        if let Some(problem) = lost {
            dialer.failed(&problem).await;
        }
        dialer.dial().await
    });
    loop {
        select! {
            connection = &mut dialing => return Some(connection),
            _ = check.tick() => inner.outbox.give_up_old(Instant::now(), lost_at, inner.times.connection_wait()),
            _ = stopped.wait_for(|is_stopped| *is_stopped) => return None,
            Some(query) = queries.recv() => match query {
                // Sending fails if the thread that asked no longer waits.
                Query::Audience(_, reply) => drop(reply.send(0)),
                Query::Replay(_, _, reply) => drop(reply.send(Err("there is no connection to Redis now".into()))),
            },
        }
    }
}

struct Conversation<'a> {
    inner: &'a Inner,
    connection: Connection,
    tasks: VecDeque<Task>,
    /// How many tasks are written completely, and how many bytes of the next one.
    written: (usize, usize),
    /// Bytes of the commands of all tasks.
    bytes: usize,
    /// When the last bytes arrived, or when the first task was pushed after a time without any.
    last_received_at: Instant,
    has_replies: bool,
    /// The topic of the last publication, the version of the interest, and how many copies this instance gets of it
    /// then.
    copies: (String, u64, u64),
}

impl<'a> Conversation<'a> {
    fn new(inner: &'a Inner, connection: Connection) -> Self {
        Self {
            inner,
            connection,
            tasks: VecDeque::new(),
            written: (0, 0),
            bytes: 0,
            last_received_at: Instant::now(),
            has_replies: false,
            copies: (String::new(), 0, 0),
        }
    }

    async fn run(&mut self, queries: &mut UnboundedReceiver<Query>) -> StopReason {
        let mut stopped = self.inner.stop.subscribe();
        let mut check = interval(self.inner.times.reply / CHECKS_PER_TIMEOUT);
        let mut stop_deadline = pin!(sleep(STOP_TIMEOUT));
        loop {
            if let Err(problem) = self.work() {
                return StopReason::Lost(problem);
            }
            let is_stopping = *stopped.borrow();
            if is_stopping && self.tasks.is_empty() {
                return StopReason::Stopped;
            }
            let readiness = match self.written.0 < self.tasks.len() {
                true => Readiness::READABLE | Readiness::WRITABLE,
                false => Readiness::READABLE,
            };
            select! {
                ready = self.connection.stream.ready(readiness) => {
                    if let Err(error) = ready {
                        return StopReason::Lost(format!("failed to wait: {error}"));
                    }
                }
                () = self.inner.outbox.filled.notified(), if self.bytes < PIPELINE_BYTES => {}
                _ = stopped.changed(), if !is_stopping => stop_deadline.set(sleep(STOP_TIMEOUT)),
                () = &mut stop_deadline, if is_stopping => return StopReason::Stopped,
                Some(query) = queries.recv() => self.query(query),
                _ = check.tick() => {
                    let is_silent = !self.tasks.is_empty() && self.last_received_at.elapsed() >= self.inner.times.reply;
                    if is_silent {
                        return StopReason::Lost(format!("no reply within {:?}", self.inner.times.reply));
                    }
                }
            }
        }
    }

    /// Reads what has arrived, takes what waits in the outbox, and writes what the socket takes.
    fn work(&mut self) -> Result<(), Problem> {
        while self.connection.read()? {
            self.last_received_at = Instant::now();
            self.has_replies = true;
            self.read_replies()?;
        }
        loop {
            self.take();
            if self.written.0 == self.tasks.len() || self.write()? == 0 {
                return Ok(());
            }
        }
    }

    fn push(&mut self, task: Task) {
        if self.tasks.is_empty() {
            self.last_received_at = Instant::now();
        }
        self.bytes += task.commands().len();
        self.tasks.push_back(task);
    }

    fn take(&mut self) {
        while self.bytes < PIPELINE_BYTES
            && let Some(batch) = self.inner.outbox.take()
        {
            self.push(Task::Publish(batch));
        }
        let dead_letters = self.inner.outbox.unsaved();
        if !dead_letters.is_empty() {
            self.save(dead_letters);
        }
    }

    fn write(&mut self) -> Result<usize, Problem> {
        let mut parts = [IoSlice::new(&[]); PARTS];
        let mut count = 0;
        for (part, task) in parts.iter_mut().zip(self.tasks.range(self.written.0..)) {
            let skipped = if count == 0 { self.written.1 } else { 0 };
            *part = IoSlice::new(&task.commands()[skipped..]);
            count += 1;
        }
        let written = self.connection.write(&parts[..count])?;
        let mut remaining = written;
        while remaining > 0 {
            let remaining_bytes = self.tasks[self.written.0].commands().len() - self.written.1;
            if remaining < remaining_bytes {
                self.written.1 += remaining;
                break;
            }
            remaining -= remaining_bytes;
            self.written = (self.written.0 + 1, 0);
        }
        Ok(written)
    }

    fn query(&mut self, query: Query) {
        let mut commands = Vec::new();
        match query {
            Query::Audience(topic, reply) => {
                let channel = format!("{CHANNEL}{topic}");
                put(&mut commands, &["PUBSUB", "NUMSUB", &channel]);
                let own = u64::from(self.inner.interest.has_name(&topic));
                self.push(Task::Audience(commands, own, reply));
            }
            Query::Replay(topic, limit, reply) => {
                let limit = limit.clamp(1, RETAINED_ITEMS);
                put(&mut commands, &["LRANGE", &format!("{DEAD_LETTERS}{topic}"), &format!("-{limit}"), "-1"]);
                self.push(Task::DeadLetters(commands, topic, reply));
            }
        }
    }

    fn save(&mut self, dead_letters: Vec<Arc<DeadLetter>>) {
        let mut commands = Vec::new();
        for dead_letter in &dead_letters {
            let list = format!("{DEAD_LETTERS}{}", dead_letter.topic);
            let parts: [&[u8]; 3] = [b"LPUSH", list.as_bytes(), &dead_letter.saved()];
            resp::put_command(&mut commands, parts.into_iter());
            put(&mut commands, &["LTRIM", &list, "0", &(RETAINED_ITEMS - 1).to_string()]);
            put(&mut commands, &["EXPIRE", &list, &RETENTION_SECONDS.to_string()]);
        }
        self.push(Task::Save(commands, 3 * dead_letters.len() as u32, dead_letters));
    }

    /// Returns tasks without a reply to where they came from.
    fn end(&mut self) {
        let mut batches = Vec::new();
        for task in self.tasks.drain(..) {
            match task {
                Task::Publish(batch) => batches.push(batch),
                // Redis may have stored some of them already: storing twice is better than not at all.
                Task::Save(_, _, dead_letters) => self.inner.outbox.put_back_dead_letters(dead_letters),
                Task::Audience(_, _, waiting) => drop(waiting.send(0)),
                Task::DeadLetters(_, _, waiting) => drop(waiting.send(Err("the connection to Redis was lost".into()))),
                Task::Forget(_) => {}
            }
        }
        self.inner.outbox.put_back(batches.into_iter(), ATTEMPTS);
    }
}

fn put(out: &mut Vec<u8>, arguments: &[&str]) {
    resp::put_command(out, arguments.iter().map(|argument| argument.as_bytes()));
}
