//! The subscribing connection: subscribes to what clients of this instance need, and hands on the messages that arrive.
//!
//! It isn't read while subscribers here are too far behind. Redis then buffers messages up to its own limit
//! (`client-output-buffer-limit pubsub`) and closes the connection. The gap in the numbers is counted as lost.

use std::{
    borrow::Cow,
    collections::HashMap,
    io::IoSlice,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use tokio::{io::Interest as Readiness, select, time::interval, time::sleep};

use super::{
    CHANNEL, Inner,
    connection::{Connection, Dialer, Problem, error_text},
    history::History,
    inbox::{Inbox, NewMessage},
    interest::Channel,
    resp::{self, Incoming, RedisReply},
};
use crate::{hub::Hub, links::Publication, lock::lock, topics::is_pattern};

/// Names in one command, and changes that are taken at once.
const NAMES_AT_ONCE: usize = 1000;
/// Messages that are handed on together.
const MESSAGES_AT_ONCE: usize = 1024;
/// How long to wait before checking again whether subscribers have caught up.
const PAUSE: Duration = Duration::from_millis(2);
/// How often the time is checked during one heartbeat.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// Why a connection's work ended.
enum StopReason {
    Stopped,
    Lost(Problem),
}

/// Receives until the server stops.
pub(super) async fn run(inner: Arc<Inner>, shared: Arc<Hub>) {
    let mut dialer = Dialer::new(&inner.address, &inner.times, format!("wse-{:016x}-in", inner.origin));
    let mut stopped = inner.stop.subscribe();
    let (mut inbox, mut history, mut lost) = (Inbox::new(inner.origin), History::default(), None::<Problem>);
    let mut is_reconnect = false;
    loop {
        let connection = {
            let dialing = pin!(async {
                if let Some(problem) = lost.take() {
                    dialer.failed(&problem).await;
                }
                dialer.dial().await
            });
            select! {
                connection = dialing => connection,
                _ = stopped.wait_for(|is_stopped| *is_stopped) => return,
            }
        };
        if std::mem::replace(&mut is_reconnect, true) {
            inner.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        inner.receives.store(true, Ordering::SeqCst);
        let mut conversation = Conversation::new(&inner, &shared, connection, inbox, history);
        let stop_reason = conversation.run().await;
        (inbox, history) = (conversation.inbox, conversation.history);
        history.forget_all(&shared);
        inner.receives.store(false, Ordering::SeqCst);
        inner.interest.forget_confirmed();
        match stop_reason {
            StopReason::Stopped => return,
            StopReason::Lost(problem) => lost = Some(problem),
        }
        dialer.succeeded();
    }
}

struct Conversation<'a> {
    inner: &'a Inner,
    shared: &'a Hub,
    connection: Connection,
    inbox: Inbox,
    history: History,
    /// For each pattern in Redis, how many of our patterns translate to it.
    patterns: HashMap<String, usize>,
    out: Vec<u8>,
    /// How many of these bytes are written.
    written: usize,
    last_received_at: Instant,
    is_pinged: bool,
}

impl<'a> Conversation<'a> {
    fn new(inner: &'a Inner, shared: &'a Hub, connection: Connection, inbox: Inbox, history: History) -> Self {
        let mut conversation = Self {
            inner,
            shared,
            connection,
            inbox,
            history,
            patterns: HashMap::new(),
            out: Vec::new(),
            written: 0,
            last_received_at: Instant::now(),
            is_pinged: false,
        };
        let applied = inner.interest.applied();
        for topics in applied.chunks(NAMES_AT_ONCE) {
            conversation.subscribe(topics.iter().map(|topic| (&**topic, true)));
        }
        conversation
    }

    async fn run(&mut self) -> StopReason {
        let mut stopped = self.inner.stop.subscribe();
        let mut check = interval(self.inner.times.heartbeat / CHECKS_PER_TIMEOUT);
        loop {
            let may_read = !self.shared.is_congested();
            if let Err(problem) = self.work(may_read) {
                return StopReason::Lost(problem);
            }
            let readiness = match (may_read, self.is_written()) {
                (true, true) => Some(Readiness::READABLE),
                (true, false) => Some(Readiness::READABLE | Readiness::WRITABLE),
                (false, true) => None,
                (false, false) => Some(Readiness::WRITABLE),
            };
            select! {
                ready = self.connection.stream.ready(readiness.unwrap_or(Readiness::ERROR)), if readiness.is_some() => {
                    if let Err(error) = ready {
                        return StopReason::Lost(format!("failed to wait: {error}"));
                    }
                }
                () = self.inner.interest.changed.notified(), if self.is_written() => {}
                () = sleep(PAUSE), if !may_read => self.last_received_at = Instant::now(),
                _ = check.tick() => if let Err(problem) = self.check() {
                    return StopReason::Lost(problem);
                },
                _ = stopped.wait_for(|is_stopped| *is_stopped) => return StopReason::Stopped,
            }
        }
    }

    fn is_written(&self) -> bool {
        self.written == self.out.len()
    }

    fn work(&mut self, may_read: bool) -> Result<(), Problem> {
        if may_read && self.connection.read()? {
            (self.last_received_at, self.is_pinged) = (Instant::now(), false);
            self.read_messages()?;
        }
        loop {
            if self.is_written() {
                self.out.clear();
                self.written = 0;
                let mut changes = self.inner.interest.changes(NAMES_AT_ONCE);
                changes.retain(|(topic, is_desired)| is_pattern(topic) || self.must_send(topic, *is_desired));
                self.subscribe(changes.iter().map(|(topic, is_desired)| (&**topic, *is_desired)));
            }
            if self.is_written() {
                return Ok(());
            }
            let written = self.connection.write(&[IoSlice::new(&self.out[self.written..])])?;
            self.written += written;
            if written == 0 {
                return Ok(());
            }
        }
    }

    /// Whether Redis has to be notified that a topic (by name) is needed or no longer needed.
    fn must_send(&mut self, topic: &Arc<str>, is_desired: bool) -> bool {
        if is_desired { !self.history.stop_lingering(topic) } else { !self.history.lingers(self.shared, topic) }
    }

    /// Sends a PING or reports a lost connection after a silence, and unsubscribes topics whose time is over.
    fn check(&mut self) -> Result<(), Problem> {
        let expired = self.history.expired(Instant::now());
        self.subscribe(expired.iter().map(|topic| (&**topic, false)));
        let times = &self.inner.times;
        let silence = self.last_received_at.elapsed();
        if silence >= times.heartbeat + times.reply {
            return Err(format!("nothing received for {silence:?}"));
        }
        if silence >= times.heartbeat && !std::mem::replace(&mut self.is_pinged, true) {
            resp::put_command(&mut self.out, [b"PING".as_slice()].into_iter());
        }
        Ok(())
    }

    /// Appends the commands that subscribe and unsubscribe these topics and patterns.
    fn subscribe<'t>(&mut self, changes: impl Iterator<Item = (&'t str, bool)>) {
        let mut names: [Vec<String>; 4] = Default::default();
        for (topic, is_desired) in changes {
            match Channel::of(topic) {
                Channel::Name(name) => names[usize::from(!is_desired)].push(name),
                Channel::Pattern(pattern) => {
                    let subscribers = self.patterns.entry(pattern.clone()).or_default();
                    let before = *subscribers > 0;
                    *subscribers = if is_desired { *subscribers + 1 } else { subscribers.saturating_sub(1) };
                    let after = *subscribers > 0;
                    if !after {
                        self.patterns.remove(&pattern);
                    }
                    // The same Redis pattern may come and go within one call. Only the last change counts, so the
                    // earlier one is removed.
                    if before != after {
                        let other = &mut names[if after { 3 } else { 2 }];
                        match other.iter().position(|known| *known == pattern) {
                            Some(index) => drop(other.swap_remove(index)),
                            None => names[if after { 2 } else { 3 }].push(pattern),
                        }
                    }
                }
            }
        }
        let commands = [b"SUBSCRIBE".as_slice(), b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE"];
        for (command, names) in commands.into_iter().zip(&names).filter(|(_, names)| !names.is_empty()) {
            let parts: Vec<&[u8]> = [command].into_iter().chain(names.iter().map(String::as_bytes)).collect();
            resp::put_command(&mut self.out, parts.into_iter());
        }
    }

    /// Processes what has arrived: hands on messages and applies replies.
    fn read_messages(&mut self) -> Result<(), Problem> {
        let incoming: BytesMut = std::mem::take(&mut self.connection.incoming);
        let mut run = Run::new(self.shared, &mut self.history);
        let mut used = 0;
        let result = loop {
            match resp::incoming(&incoming[used..]) {
                Ok(Some((Incoming::Message(message), length))) => {
                    used += length;
                    if let Some(new_message) = self.inbox.receive(&message) {
                        run.add(new_message);
                    }
                }
                Ok(Some((Incoming::RedisReply(reply), length))) => {
                    used += length;
                    // Messages before the reply are handed on before it takes effect.
                    run.forward();
                    apply_reply(self.inner, self.shared, &mut self.inbox, run.history, &reply);
                }
                Ok(None) => break Ok(()),
                Err(malformed) => break Err(malformed.into()),
            }
        };
        run.forward();
        self.inbox.books.delivered += run.delivered;
        *lock(&self.inner.received) = self.inbox.books;
        self.connection.incoming = incoming;
        self.connection.used(used);
        result
    }
}

/// Applies a reply of Redis to a subscription command.
fn apply_reply(inner: &Inner, shared: &Hub, inbox: &mut Inbox, history: &mut History, reply: &RedisReply<'_>) {
    if let Some(error) = error_text(reply) {
        tracing::error!(error, "Redis refused a subscription");
    }
    let RedisReply::Array(Some(parts)) = reply else { return };
    let [RedisReply::Bulk(Some(kind)), RedisReply::Bulk(Some(name)), RedisReply::Integer(_)] = parts.as_slice() else {
        return;
    };
    let Ok(name) = std::str::from_utf8(name) else { return };
    match *kind {
        b"subscribe" => inner.interest.confirm(&Channel::Name(name.into()), true),
        b"psubscribe" => inner.interest.confirm(&Channel::Pattern(name.into()), true),
        b"unsubscribe" => {
            inner.interest.confirm(&Channel::Name(name.into()), false);
            let topic = name.strip_prefix(CHANNEL).unwrap_or_default();
            inbox.forget_name(topic);
            history.forget_topic(shared, topic);
        }
        b"punsubscribe" => {
            inner.interest.confirm(&Channel::Pattern(name.into()), false);
            inbox.forget_pattern();
            history.forget(shared);
        }
        _ => {}
    }
}

/// Consecutive messages of one topic and one publisher, which are handed on together.
struct Run<'a, 'b> {
    shared: &'a Hub,
    history: &'b mut History,
    topic: &'a str,
    origin: u64,
    publications: Vec<Publication<'a>>,
    delivered: u64,
}

impl<'a, 'b> Run<'a, 'b> {
    fn new(shared: &'a Hub, history: &'b mut History) -> Self {
        Self { shared, history, topic: "", origin: 0, publications: Vec::new(), delivered: 0 }
    }

    fn add(&mut self, new_message: NewMessage<'a>) {
        let is_same = self.topic == new_message.topic && self.origin == new_message.origin;
        if !is_same || self.publications.len() >= MESSAGES_AT_ONCE {
            self.forward();
            (self.topic, self.origin) = (new_message.topic, new_message.origin);
        }
        self.publications.push(Publication { text: Cow::Borrowed(new_message.text), stamp: new_message.stamp });
    }

    fn forward(&mut self) {
        if !self.publications.is_empty() {
            self.history.forward(self.shared, self.origin, self.topic, &self.publications);
            self.delivered += self.publications.len() as u64;
            self.publications.clear();
        }
    }
}
