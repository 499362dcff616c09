//! The connection that publishes: takes what waits, writes it in a row without waiting for answers, and says what became of it.
//!
//! Dead letters, questions and replays go through it too, in line with everything else.

use std::{
    borrow::Cow,
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
    connection::{Connection, Dialer, Problem, refusal},
    header::Header,
    letters::{KEPT, KEPT_SECONDS, Letter},
    outbox::{Batch, letter},
    resp::{self, Answer},
};

/// Bytes that may be under way without an answer.
const PIPELINE_BYTES: usize = 1 << 20;
/// Parts that are written at once.
const PARTS: usize = 16;
/// How often a publication is tried before it is given up.
const ATTEMPTS: u32 = 3;
/// How often a deadline is looked at, in parts of itself.
const LOOKS: u32 = 4;

/// A question to Redis, of a thread that waits for the answer.
pub(super) enum Ask {
    /// How many others have subscribed to a topic by its name.
    Audience(String, SyncSender<usize>),
    /// Publish dead letters of a topic again, the oldest so many. How many there were?
    Replay(String, usize, SyncSender<Result<usize, String>>),
}

/// What is under way.
enum Task {
    Publish(Batch),
    /// Dead letters, with three commands each.
    Save(Vec<u8>, u32, Vec<Arc<Letter>>),
    Audience(Vec<u8>, u64, SyncSender<usize>),
    Letters(Vec<u8>, String, SyncSender<Result<usize, String>>),
    /// Whose answer doesn't matter.
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

/// How a conversation ended.
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

/// Waits for a connection, and gives up meanwhile what waits for too long. Nothing if the server stops.
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
                // Whoever asked has gone if it doesn't take the answer.
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
    /// Of these, how many are written, and how much of the next.
    written: (usize, usize),
    /// Bytes of all tasks.
    bytes: usize,
    /// When something came, or when something began to be waited for.
    heard_at: Instant,
    has_answers: bool,
    /// How often we get the topic asked for last ourselves, and for which version of our interest that holds.
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

    /// Reads what is there, takes what waits, and writes what goes.
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

    /// Gives each answer to what it is the answer of.
    fn listen(&mut self) -> Result<(), Problem> {
        let incoming = std::mem::take(&mut self.connection.incoming);
        let (mut used, mut tally) = (0, Tally::default());
        let listened = loop {
            match resp::answer(&incoming[used..]) {
                Ok(Some((answer, length))) => {
                    used += length;
                    if let Err(problem) = self.answered(&answer, &mut tally) {
                        break Err(problem);
                    }
                }
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(malformed.into()),
            }
        };
        self.connection.incoming = incoming;
        self.connection.used(used);
        if !tally.refused.is_empty() {
            tracing::warn!(refused = tally.refused.len(), error = %tally.refused[0].error, "Redis refused publications");
            self.inner.errors.fetch_add(tally.refused.len() as u64, Ordering::Relaxed);
        }
        self.inner.outbox.settle(tally.sent, tally.unwanted, tally.refused, tally.done);
        listened
    }

    fn answered(&mut self, answer: &Answer<'_>, tally: &mut Tally) -> Result<(), Problem> {
        let Some(task) = self.tasks.front_mut() else { return Err("it answers what nobody asked".into()) };
        let is_done = match task {
            Task::Publish(batch) => {
                let mut copies = |batch: &mut Batch| own_copies(self.inner, &mut self.copies, batch);
                match answer {
                    Answer::Integer(count) if *count as u64 > copies(batch) => tally.sent += 1,
                    Answer::Integer(_) => tally.unwanted += 1,
                    Answer::Error(_) => {
                        let (topic, payload) = batch.next();
                        let error = refusal(answer).unwrap_or_default();
                        tally.refused.push(letter(topic, payload, Cow::Owned(error)));
                    }
                    _ => return Err("it answers PUBLISH with no number".into()),
                }
                batch.advance();
                batch.unanswered() == 0
            }
            Task::Save(_, answers, letters) => {
                *answers -= 1;
                if let Some(error) = refusal(answer) {
                    tracing::warn!(error, topic = &*letters[0].topic, "Redis refused dead letters");
                }
                *answers == 0
            }
            Task::Audience(..) | Task::Letters(..) | Task::Forget(_) => true,
        };
        if !is_done {
            return Ok(());
        }
        self.written.0 = self.written.0.checked_sub(1).ok_or("it answers what it can't have read")?;
        let task = self.tasks.pop_front().expect("it is the one that was looked at");
        self.bytes -= task.commands().len();
        match task {
            Task::Publish(batch) => tally.done += batch.commands.len(),
            // Whoever asked has gone if it doesn't take the answer.
            Task::Audience(_, own, waiting) => drop(waiting.send(audience(answer).saturating_sub(own) as usize)),
            Task::Letters(_, topic, waiting) => drop(waiting.send(self.replay(&topic, answer))),
            Task::Save(..) | Task::Forget(_) => {}
        }
        Ok(())
    }

    /// Publishes what Redis kept, and has it keep that no longer.
    fn replay(&mut self, topic: &str, answer: &Answer<'_>) -> Result<usize, String> {
        if let Some(error) = refusal(answer) {
            return Err(error);
        }
        let Answer::Array(Some(saved)) = answer else { return Err("it answers LRANGE with no list".into()) };
        let mut letters = Vec::with_capacity(saved.len());
        // The last is the oldest.
        for saved in saved.iter().rev() {
            match saved {
                Answer::Bulk(Some(saved)) => letters.extend(Letter::read(saved)),
                _ => return Err("it answers LRANGE with no strings".into()),
            }
        }
        if letters.len() < saved.len() {
            tracing::warn!(
                topic,
                strangers = saved.len() - letters.len(),
                "the list of dead letters holds others, left out"
            );
        }
        if !saved.is_empty() {
            let mut commands = Vec::new();
            let last = format!("-{}", saved.len() + 1);
            put(&mut commands, &["LTRIM", &format!("{DEAD_LETTERS}{topic}"), "0", &last]);
            self.push(Task::Forget(commands));
        }
        self.inner.outbox.publish_again(&letters);
        Ok(letters.len())
    }

    /// Gives back what has no answer.
    fn end(&mut self) {
        let mut batches = Vec::new();
        for task in self.tasks.drain(..) {
            match task {
                Task::Publish(batch) => batches.push(batch),
                // Some may be there already: twice is better than not at all.
                Task::Save(_, _, letters) => self.inner.outbox.put_back_letters(letters),
                Task::Audience(_, _, waiting) => drop(waiting.send(0)),
                Task::Letters(_, _, waiting) => drop(waiting.send(Err("the connection to Redis was lost".into()))),
                Task::Forget(_) => {}
            }
        }
        self.inner.outbox.put_back(batches.into_iter(), ATTEMPTS);
    }
}

/// Answers of one round.
#[derive(Default)]
struct Tally {
    sent: u64,
    unwanted: u64,
    refused: Vec<Letter>,
    done: usize,
}

/// How many of those who got a batch's next message we are ourselves.
fn own_copies(inner: &Inner, known: &mut (String, u64, u64), batch: &mut Batch) -> u64 {
    let version = inner.interest.version();
    if version == 0 {
        return 0;
    }
    let (topic, payload) = batch.next();
    let is_own = |header: Header| header.origin == inner.origin;
    if !Header::split(payload).is_ok_and(|(header, _)| header.is_some_and(is_own)) {
        // A replay of another's: we are one of those who get it.
        return 0;
    }
    if known.0 != topic || known.1 != version {
        *known = (topic.to_owned(), version, inner.interest.copies(topic));
    }
    known.2
}

/// What PUBSUB NUMSUB says of the one channel that it was asked about.
fn audience(answer: &Answer<'_>) -> u64 {
    match answer {
        Answer::Array(Some(parts)) => match parts.as_slice() {
            [_, Answer::Integer(count)] => u64::try_from(*count).unwrap_or(0),
            _ => 0,
        },
        _ => 0,
    }
}

fn put(out: &mut Vec<u8>, words: &[&str]) {
    resp::put_command(out, words.iter().map(|word| word.as_bytes()));
}
