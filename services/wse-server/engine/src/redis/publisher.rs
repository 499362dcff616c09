//! The publishing connection: writes what waits in the outbox without waiting for replies in between, and reports the
//! outcomes.
//!
//! Dead letters, audience queries and replays use the same connection, in the order in which they come.

mod answers;

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
    CHANNEL, DEAD_LETTERS, FAREWELL, Inner,
    connection::{Connection, Dialer, Problem},
    letters::{KEPT_SECONDS, Letter},
    outbox::Batch,
    resp,
};
use crate::links::last::KEPT;

/// Bytes of commands that may be without a reply.
const PIPELINE_BYTES: usize = 1 << 20;
/// Slices in one vectored write.
const PARTS: usize = 16;
/// A publication is given up when this many connections were lost before its reply came.
const ATTEMPTS: u32 = 3;
/// How often a deadline is checked while it runs.
const LOOKS: u32 = 4;

/// A request from a thread that waits for the response.
pub(super) enum Ask {
    /// The number of other Redis connections that are subscribed to a topic by its name.
    Audience(String, SyncSender<usize>),
    /// Publish the oldest dead letters of a topic again, at most so many. The response is how many there were.
    Replay(String, usize, SyncSender<Result<usize, String>>),
}

/// Commands on the connection that wait for replies.
enum Task {
    Publish(Batch),
    /// Dead letters to store: the commands (three per dead letter), how many replies are outstanding, the dead letters.
    Save(Vec<u8>, u32, Vec<Arc<Letter>>),
    Audience(Vec<u8>, u64, SyncSender<usize>),
    Letters(Vec<u8>, String, SyncSender<Result<usize, String>>),
    /// Commands whose reply has no effect.
    Forget(Vec<u8>),
}

impl Task {
    fn commands(&self) -> &[u8] {
        match self {
            Self::Publish(batch) => &batch.commands,
            Self::Save(commands, ..)
            | Self::Audience(commands, ..)
            | Self::Letters(commands, ..)
            | Self::Forget(commands) => commands,
        }
    }
}

/// Why a connection's work ended.
enum End {
    Stopped,
    Lost(Problem),
}

/// Publishes until the server stops.
pub(super) async fn run(inner: Arc<Inner>, mut asks: UnboundedReceiver<Ask>) {
    let mut dialer = Dialer::new(&inner.address, &inner.times, format!("wse-{:016x}-out", inner.origin));
    let (mut lost_at, mut lost): (Instant, Option<Problem>) = (Instant::now(), None);
    let mut is_again = false;
    loop {
        let Some(connection) = connect(&inner, &mut dialer, &mut asks, lost_at, lost.take()).await else { break };
        if std::mem::replace(&mut is_again, true) {
            inner.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        inner.publishes.store(true, Ordering::SeqCst);
        let mut conversation = Conversation::new(&inner, connection);
        let end = conversation.run(&mut asks).await;
        inner.publishes.store(false, Ordering::SeqCst);
        if conversation.has_answers {
            dialer.held();
        }
        conversation.end();
        match end {
            End::Stopped => break,
            End::Lost(problem) => (lost_at, lost) = (Instant::now(), Some(problem)),
        }
    }
    inner.outbox.close();
}

/// Waits for a connection, and meanwhile gives up publications that have waited for too long. `None` if the server
/// stops.
async fn connect(
    inner: &Inner,
    dialer: &mut Dialer<'_>,
    asks: &mut UnboundedReceiver<Ask>,
    lost_at: Instant,
    lost: Option<Problem>,
) -> Option<Connection> {
    let mut stopped = inner.stop.subscribe();
    let mut look = interval(inner.times.patience() / LOOKS);
    let mut dialing = pin!(async {
        if let Some(problem) = lost {
            dialer.failed(&problem).await;
        }
        dialer.dial().await
    });
    loop {
        select! {
            connection = &mut dialing => return Some(connection),
            _ = look.tick() => inner.outbox.give_up_old(Instant::now(), lost_at, inner.times.patience()),
            _ = stopped.wait_for(|is_stopped| *is_stopped) => return None,
            Some(ask) = asks.recv() => match ask {
                // Sending fails if the thread that asked no longer waits.
                Ask::Audience(_, answer) => drop(answer.send(0)),
                Ask::Replay(_, _, answer) => drop(answer.send(Err("there is no connection to Redis now".into()))),
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
    heard_at: Instant,
    has_answers: bool,
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
            heard_at: Instant::now(),
            has_answers: false,
            copies: (String::new(), 0, 0),
        }
    }

    async fn run(&mut self, asks: &mut UnboundedReceiver<Ask>) -> End {
        let mut stopped = self.inner.stop.subscribe();
        let mut look = interval(self.inner.times.answer / LOOKS);
        let mut farewell = pin!(sleep(FAREWELL));
        loop {
            if let Err(problem) = self.work() {
                return End::Lost(problem);
            }
            let is_stopping = *stopped.borrow();
            if is_stopping && self.tasks.is_empty() {
                return End::Stopped;
            }
            let readiness = match self.written.0 < self.tasks.len() {
                true => Readiness::READABLE | Readiness::WRITABLE,
                false => Readiness::READABLE,
            };
            select! {
                ready = self.connection.stream.ready(readiness) => {
                    if let Err(error) = ready {
                        return End::Lost(format!("failed to wait: {error}"));
                    }
                }
                () = self.inner.outbox.filled.notified(), if self.bytes < PIPELINE_BYTES => {}
                _ = stopped.changed(), if !is_stopping => farewell.set(sleep(FAREWELL)),
                () = &mut farewell, if is_stopping => return End::Stopped,
                Some(ask) = asks.recv() => self.ask(ask),
                _ = look.tick() => {
                    let is_silent = !self.tasks.is_empty() && self.heard_at.elapsed() >= self.inner.times.answer;
                    if is_silent {
                        return End::Lost(format!("no answer within {:?}", self.inner.times.answer));
                    }
                }
            }
        }
    }

    /// Reads what has arrived, takes what waits in the outbox, and writes what the socket takes.
    fn work(&mut self) -> Result<(), Problem> {
        while self.connection.read()? {
            self.heard_at = Instant::now();
            self.has_answers = true;
            self.listen()?;
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
            self.heard_at = Instant::now();
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
        let letters = self.inner.outbox.unsaved();
        if !letters.is_empty() {
            self.save(letters);
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
        let mut left = written;
        while left > 0 {
            let rest = self.tasks[self.written.0].commands().len() - self.written.1;
            if left < rest {
                self.written.1 += left;
                break;
            }
            left -= rest;
            self.written = (self.written.0 + 1, 0);
        }
        Ok(written)
    }

    fn ask(&mut self, ask: Ask) {
        let mut commands = Vec::new();
        match ask {
            Ask::Audience(topic, answer) => {
                let channel = format!("{CHANNEL}{topic}");
                put(&mut commands, &["PUBSUB", "NUMSUB", &channel]);
                let own = u64::from(self.inner.interest.has_name(&topic));
                self.push(Task::Audience(commands, own, answer));
            }
            Ask::Replay(topic, limit, answer) => {
                let limit = limit.clamp(1, KEPT);
                put(&mut commands, &["LRANGE", &format!("{DEAD_LETTERS}{topic}"), &format!("-{limit}"), "-1"]);
                self.push(Task::Letters(commands, topic, answer));
            }
        }
    }

    fn save(&mut self, letters: Vec<Arc<Letter>>) {
        let mut commands = Vec::new();
        for letter in &letters {
            let list = format!("{DEAD_LETTERS}{}", letter.topic);
            let parts: [&[u8]; 3] = [b"LPUSH", list.as_bytes(), &letter.saved()];
            resp::put_command(&mut commands, parts.into_iter());
            put(&mut commands, &["LTRIM", &list, "0", &(KEPT - 1).to_string()]);
            put(&mut commands, &["EXPIRE", &list, &KEPT_SECONDS.to_string()]);
        }
        self.push(Task::Save(commands, 3 * letters.len() as u32, letters));
    }

    /// Returns tasks without a reply to where they came from.
    fn end(&mut self) {
        let mut batches = Vec::new();
        for task in self.tasks.drain(..) {
            match task {
                Task::Publish(batch) => batches.push(batch),
                // Redis may have stored some of them already: storing twice is better than not at all.
                Task::Save(_, _, letters) => self.inner.outbox.put_back_letters(letters),
                Task::Audience(_, _, waiting) => drop(waiting.send(0)),
                Task::Letters(_, _, waiting) => drop(waiting.send(Err("the connection to Redis was lost".into()))),
                Task::Forget(_) => {}
            }
        }
        self.inner.outbox.put_back(batches.into_iter(), ATTEMPTS);
    }
}

fn put(out: &mut Vec<u8>, words: &[&str]) {
    resp::put_command(out, words.iter().map(|word| word.as_bytes()));
}
