//! One core's share of the server: its own epoll, listener and connections. Nothing is shared while messages flow.
//!
//! A round: wait; note what is ready; do what the application asked for; let clients in; read; hand over; keep time.
//! Sockets are registered once, edge-triggered, and what is ready is remembered in a list. So a shard that waits for the
//! application neither spins nor stops writing, and a connection that floods is read once per round like the others.

mod accept;
mod open;
mod read;
mod take;
mod tend;
mod write;

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Instant,
};

use rustix::event::{Timespec, epoll};

use self::{read::Progress, tend::Tending};
use crate::{
    clock,
    config::{Delivery, InboundOverflow},
    connection::{Connection, Phase, Table},
    format::Inflater,
    inbound::Kind,
    intake::Intake,
    key::ConnectionKey,
    outbound::{Backlog, Command},
    server::Shared,
    stats::{Book, CloseReason, Counters, SendDropReason},
};

/// Events taken from the kernel at once.
const EVENTS: usize = 1024;
/// How long to wait before looking again whether an arena has come back, in milliseconds. Nobody tells when one does.
const ARENA_RETRY_MILLIS: u64 = 5;
/// Books of closed connections that are kept for someone to fetch.
const KEPT_BOOKS: usize = 1_000_000;

/// What marks the listener's and the waker's events. No connection has these keys: a table never has so many slots.
const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// Whether the shard reads from its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Going,
    /// The application holds all that it may.
    Paused,
    /// It holds few messages, but they keep all arenas.
    Starved,
}

/// What happens to a message that there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// There is room, because nothing is read while there is none.
    Wait,
    /// It is dropped.
    Drop,
    /// There is nobody to take any message.
    Discard,
}

pub(crate) struct Shard {
    epoll: OwnedFd,
    listener: Option<OwnedFd>,
    table: Table,
    core: Core,
    tending: Tending,
    /// Connections to read from.
    ready: VecDeque<ConnectionKey>,
    /// Connections to read from when the application lets go.
    parked: VecDeque<ConnectionKey>,
    reading: Reading,
    is_accepting: bool,
    accept_retry_millis: Option<u64>,
    commands: Vec<Command>,
    stop_deadline_millis: Option<u64>,
}

/// What working on one connection needs of its shard.
struct Core {
    index: usize,
    shared: Arc<Shared>,
    overflow: Overflow,
    intake: Intake,
    counters: Counters,
    closed_books: VecDeque<Book>,
    inflater: Inflater,
    /// What the inflater writes to.
    inflated: Vec<u8>,
    /// What is to be written to the connection that is being read.
    replies: Vec<u8>,
    reply_messages: u32,
    /// Where requests are read to.
    request: Vec<u8>,
    random: open::Random,
    #[expect(clippy::vec_box, reason = "the boxes themselves are handed to connections and come back")]
    spare_backlogs: Vec<Box<Backlog>>,
    started: Instant,
    now_millis: u64,
    wall_millis: u64,
}

impl Shard {
    pub(crate) fn new(index: usize, shared: Arc<Shared>, listener: OwnedFd) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), edges)?;
        let waker = shared.wakers[index].descriptor();
        epoll::add(&epoll, waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener: Some(listener),
            table: Table::new(u8::try_from(index).expect("the configuration allows 256 shards")),
            tending: Tending::new(&shared.config),
            core: Core::new(index, shared),
            ready: VecDeque::new(),
            parked: VecDeque::new(),
            reading: Reading::Going,
            is_accepting: false,
            accept_retry_millis: None,
            commands: Vec::new(),
            stop_deadline_millis: None,
        })
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.is_over() {
            self.wait(&mut events);
            self.core.tick_clock();
            for event in events.drain(..) {
                self.note(event);
            }
            self.obey();
            self.accept();
            self.resume();
            self.read();
            self.tend();
            self.core.hand_over();
        }
        self.end();
    }

    fn is_over(&self) -> bool {
        self.stop_deadline_millis.is_some_and(|deadline| self.table.is_empty() || self.core.now_millis >= deadline)
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) {
        let millis = self.patience_millis();
        let timeout = Timespec { tv_sec: (millis / 1000) as i64, tv_nsec: (millis % 1000 * 1_000_000) as i64 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => tracing::error!(%error, "failed to wait for events"),
        }
    }

    /// How long there is nothing to do unless something happens.
    fn patience_millis(&self) -> u64 {
        if !self.ready.is_empty() || self.is_accepting || self.tending.is_sweeping() || self.has_just_paused() {
            return 0;
        }
        let now = self.core.now_millis;
        let retry = (self.reading == Reading::Starved).then_some(now + ARENA_RETRY_MILLIS);
        let next = [retry, self.accept_retry_millis, self.stop_deadline_millis, Some(self.tending.next_millis())];
        next.into_iter().flatten().min().unwrap_or(now).saturating_sub(now)
    }

    /// Remembers what an event says.
    fn note(&mut self, event: epoll::Event) {
        let flags = event.flags;
        match event.data.u64() {
            LISTENER => self.is_accepting = true,
            WAKER => self.core.shared.wakers[self.core.index].clear(),
            key => {
                let key = ConnectionKey::from_u64(key);
                if flags.contains(epoll::EventFlags::OUT) {
                    self.with(key, |core, connection| core.flush(connection));
                }
                let hung_up = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                let Some(connection) = self.table.get_mut(key) else { return };
                connection.is_hung_up |= flags.intersects(hung_up);
                if flags.intersects(hung_up | epoll::EventFlags::IN) {
                    connection.is_readable = true;
                    if !connection.is_listed {
                        connection.is_listed = true;
                        self.ready.push_back(key);
                    }
                }
            }
        }
    }

    /// Works on a connection beside the core, and removes it if that was its end.
    fn with(&mut self, key: ConnectionKey, work: impl FnOnce(&mut Core, &mut Connection) -> Progress) -> Progress {
        let Some(mut connection) = self.table.take(key) else { return Progress::Drained };
        let progress = work(&mut self.core, &mut connection);
        self.settle(connection, progress)
    }

    /// Puts a connection back after work, or removes it.
    fn settle(&mut self, mut connection: Box<Connection>, progress: Progress) -> Progress {
        match progress {
            Progress::Gone(reason) => self.remove(connection, reason),
            _ => {
                self.tending.watch(&mut connection, &self.core);
                self.table.put(connection);
            }
        }
        progress
    }

    fn remove(&mut self, mut connection: Box<Connection>, reason: CloseReason) {
        self.table.release(connection.key);
        self.core.forget(&mut connection, reason);
    }

    /// Reads on if the application has let go, and asks to be woken if it hasn't.
    fn resume(&mut self) {
        self.core.intake.set_room(self.core.room());
        if self.reading == Reading::Going || self.core.shared.inbound.held.pause(self.core.index) {
            return;
        }
        self.reading = Reading::Going;
        // They have waited longest.
        self.parked.append(&mut self.ready);
        std::mem::swap(&mut self.parked, &mut self.ready);
    }

    /// Whether a pause has begun in this round: then there was no chance yet to ask for a wake-up.
    fn has_just_paused(&self) -> bool {
        self.reading == Reading::Paused && !self.core.shared.inbound.held.is_paused(self.core.index)
    }

    /// Reads once from each connection that has something.
    fn read(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(key) = self.ready.pop_front() else { break };
            let Some(mut connection) = self.table.take(key) else { continue };
            connection.is_listed = false;
            let needs_room = matches!(connection.phase, Phase::Open | Phase::Closing);
            if needs_room && self.reading != Reading::Going {
                connection.is_listed = true;
                self.parked.push_back(key);
                self.table.put(connection);
                continue;
            }
            let progress = self.core.serve(&mut connection);
            match progress {
                Progress::Full | Progress::Starved => {
                    connection.is_listed = true;
                    self.parked.push_front(key);
                    self.pause(progress);
                }
                Progress::More if connection.has_input() => {
                    connection.is_listed = true;
                    self.ready.push_back(key);
                }
                _ => {}
            }
            self.settle(connection, progress);
            if self.core.intake.is_due() {
                self.core.hand_over();
                self.core.intake.set_room(self.core.room());
            }
        }
    }

    fn pause(&mut self, progress: Progress) {
        self.core.counters.pauses += 1;
        // What was collected has to be on its way before anyone waits for it to be let go.
        self.core.hand_over();
        self.reading = if progress == Progress::Starved { Reading::Starved } else { Reading::Paused };
    }

    /// Ends what is left, and leaves the books where they can be fetched.
    fn end(mut self) {
        for slot in 0..self.table.slots() {
            if let Some(connection) = self.table.take_slot(slot) {
                self.remove(connection, CloseReason::Shutdown);
            }
        }
        self.core.hand_over();
        let mailbox = &self.core.shared.mailboxes[self.core.index];
        mailbox.close();
        // Whoever asked for books too late stops waiting when the question is dropped, and finds them here.
        self.commands.clear();
        mailbox.take(&mut self.commands);
        self.commands.clear();
        let mut left = self.core.shared.last_books.lock().unwrap_or_else(PoisonError::into_inner);
        left.extend(self.core.closed_books.drain(..));
    }
}

impl Core {
    fn new(index: usize, shared: Arc<Shared>) -> Self {
        Self {
            index,
            overflow: match (shared.config.delivery, shared.config.inbound_overflow) {
                (Delivery::Discard, _) => Overflow::Discard,
                (Delivery::Queue, InboundOverflow::Drop) => Overflow::Drop,
                (Delivery::Queue, InboundOverflow::Backpressure) => Overflow::Wait,
            },
            intake: Intake::new(shared.config.max_inbound_queue_bytes),
            shared,
            counters: Counters::default(),
            closed_books: VecDeque::new(),
            inflater: Inflater::default(),
            inflated: Vec::new(),
            replies: Vec::new(),
            reply_messages: 0,
            request: Vec::new(),
            random: open::Random::default(),
            spare_backlogs: Vec::new(),
            started: Instant::now(),
            now_millis: 0,
            wall_millis: clock::now_millis(),
        }
    }

    /// Once per round: no message needs to know better.
    fn tick_clock(&mut self) {
        self.now_millis = self.started.elapsed().as_millis() as u64;
        self.wall_millis = clock::now_millis();
    }

    fn room(&self) -> (usize, usize) {
        if self.overflow == Overflow::Discard { (usize::MAX, usize::MAX) } else { self.shared.inbound.held.room() }
    }

    /// Hands over what was collected, and publishes the counters with it.
    fn hand_over(&mut self) {
        self.shared.inbound.push(self.index, self.intake.collected(), &self.counters);
    }

    /// A connection is gone: says so to whom it concerns and keeps its books.
    fn forget(&mut self, connection: &mut Connection, reason: CloseReason) {
        if let Some(mut backlog) = connection.backlog.take() {
            self.counters.send_dropped[SendDropReason::Disconnected as usize] += backlog.clear();
            self.spare_backlogs.push(backlog);
        }
        if !connection.is_registered {
            return;
        }
        self.shared.registry.close(connection.id);
        match self.shared.config.delivery {
            Delivery::Queue => {
                let id = connection.id.to_string();
                self.intake.push_event(Kind::Disconnect, connection.key, &id, b"");
            }
            Delivery::Discard => self.shared.registry.forget([connection.key].into_iter()),
        }
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        self.counters.closed[connection.reason.unwrap_or(reason) as usize] += 1;
        if self.closed_books.len() == KEPT_BOOKS {
            self.closed_books.pop_front();
            self.counters.books_evicted += 1;
        }
        self.closed_books.push_back(connection.book(false));
    }
}
