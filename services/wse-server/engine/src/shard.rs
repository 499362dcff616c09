//! One event loop of the server with its own epoll, listener and connections. Shards share nothing while messages flow.
//!
//! A round has these steps: wait; note which sockets are ready; execute the application's commands; accept clients;
//! read; do what is due by the clock; hand over messages. Sockets are registered once and edge-triggered, and ready
//! ones are remembered in a list. So a shard that waits for the application neither spins nor stops writing, and a
//! connection that floods is read once per round as the others are. At its share of the inbound queue it is parked, and
//! the others are read on.

mod accept;
mod assembly;
mod audience;
mod core;
mod deadlines;
mod dispatch;
mod echo;
mod encrypted;
mod fanout;
mod open;
mod parked;
mod pending;
mod quality;
mod read;
mod room;
mod share;
mod standstill;
mod write;

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{Arc, PoisonError},
};

use rustix::event::{Timespec, epoll};

use self::{
    audience::Audiences,
    core::{Core, Overflow},
    deadlines::Deadlines,
    parked::Visits,
    pending::PendingHandshakes,
    quality::Surveys,
    read::Progress,
    standstill::Standstill,
};
use crate::{
    connection::{Connection, Parked, Phase, Table},
    hub::Hub,
    key::ConnectionKey,
    outbound::Command,
    runs::Run,
    stats::CloseReason,
};

/// Events that are taken from the kernel at once.
const EVENTS: usize = 1024;
/// How long to wait before checking again whether an arena is free, in milliseconds. There is no notification for that.
const ARENA_RETRY_MILLIS: u64 = 5;

/// Markers for the events of the listener and the waker. No connection has these keys: a table never has so many slots.
const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// Whether the shard reads more than the reserves of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Active,
    /// The application holds as many messages or bytes as it may.
    Paused,
    /// The application holds few messages, but they keep all arenas in use.
    Starved,
}

pub(crate) struct Shard {
    epoll: OwnedFd,
    listener: Option<OwnedFd>,
    table: Table,
    audiences: Audiences,
    core: Core,
    timers: Deadlines,
    surveys: Surveys,
    pending: PendingHandshakes,
    /// Connections to read from.
    ready: VecDeque<ConnectionKey>,
    /// Connections that aren't read for messages, each once, and some that are read again already.
    parked: VecDeque<ConnectionKey>,
    visits: Visits,
    /// The buffer for what the application has released.
    returned: Vec<Run>,
    standstill: Standstill,
    reading: Reading,
    /// Whether clients may wait in the listener's queue.
    is_accepting: bool,
    descriptor_ceiling: u64,
    /// When to accept again after a pause, in milliseconds of the shard's clock; `None` while there is no pause.
    accept_retry_millis: Option<u64>,
    commands: Vec<Command>,
    /// When a stopping shard ends even if it has connections, in milliseconds of its clock; `None` before that.
    stop_deadline_millis: Option<u64>,
}

impl Shard {
    pub(crate) fn new(index: usize, shared: Arc<Hub>, listener: OwnedFd) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), edges)?;
        let waker = shared.wakers[index].descriptor();
        epoll::add(&epoll, waker, epoll::EventData::new_u64(WAKER), epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener: Some(listener),
            table: Table::new(u8::try_from(index).expect("the configuration allows 256 shards")),
            audiences: Audiences::default(),
            timers: Deadlines::new(&shared.config),
            surveys: Surveys::default(),
            pending: PendingHandshakes::new(&shared.config, shared.wakers.len()),
            core: Core::new(index, shared),
            ready: VecDeque::new(),
            parked: VecDeque::new(),
            visits: Visits::default(),
            returned: Vec::new(),
            standstill: Standstill::default(),
            reading: Reading::Active,
            is_accepting: false,
            descriptor_ceiling: accept::descriptor_ceiling(),
            accept_retry_millis: None,
            commands: Vec::new(),
            stop_deadline_millis: None,
        })
    }

    /// Serves until the server stops.
    ///
    /// # Errors
    /// The kernel's error if it reports no more events; the shard's clients can't be served then.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.is_over() {
            self.wait(&mut events)?;
            self.core.tick_clock();
            for event in events.drain(..) {
                self.handle_event(event);
            }
            self.run_commands();
            self.accept();
            self.resume();
            self.read();
            self.visit();
            self.deadlines();
            self.survey();
            self.core.hand_over();
        }
        self.finish();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stop_deadline_millis.is_some_and(|deadline| self.table.is_empty() || self.core.now_millis >= deadline)
    }

    fn wait(&self, events: &mut Vec<epoll::Event>) -> std::io::Result<()> {
        let millis = self.wait_millis();
        let timeout = Timespec { tv_sec: (millis / 1000) as i64, tv_nsec: (millis % 1000 * 1_000_000) as i64 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(std::io::Error::other(format!("failed to wait for events: {error}"))),
        }
    }

    /// How long the shard may wait if no event arrives, in milliseconds.
    fn wait_millis(&self) -> u64 {
        let has_sweep = self.timers.is_sweeping() || !self.surveys.is_empty() || self.visits.is_walking();
        if !self.ready.is_empty() || self.is_accepting || has_sweep || self.has_just_paused() {
            return 0;
        }
        let now = self.core.now_millis;
        let retry = (self.reading == Reading::Starved).then_some(now + ARENA_RETRY_MILLIS);
        let visit = self.next_visit_millis();
        let next = [retry, visit, self.accept_retry_millis, self.stop_deadline_millis, Some(self.timers.next_millis())];
        next.into_iter().flatten().min().unwrap_or(now).saturating_sub(now)
    }

    /// Records what an event reports about its socket.
    fn handle_event(&mut self, event: epoll::Event) {
        let flags = event.flags;
        match event.data.u64() {
            LISTENER => self.is_accepting = true,
            WAKER => self.core.shared.wakers[self.core.index].clear(),
            key => {
                let key = ConnectionKey::from_u64(key);
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(key);
                }
                let hung_up = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                let Some(connection) = self.table.get_mut(key) else { return };
                connection.is_hung_up |= flags.intersects(hung_up);
                if flags.intersects(hung_up | epoll::EventFlags::IN) {
                    connection.is_readable = true;
                    if !connection.is_queued {
                        connection.is_queued = true;
                        self.ready.push_back(key);
                    }
                }
            }
        }
    }

    /// Runs `work` with a connection and the core, and removes the connection if that ended it.
    fn with(&mut self, key: ConnectionKey, work: impl FnOnce(&mut Core, &mut Connection) -> Progress) -> Progress {
        let Some(mut connection) = self.table.take(key) else { return Progress::Drained };
        let progress = work(&mut self.core, &mut connection);
        self.settle(connection, progress)
    }

    /// Writes what waits for a connection. If the connection wasn't read because of its backlog and has caught up, it
    /// is read again.
    fn flush(&mut self, key: ConnectionKey) {
        self.with(key, |core, connection| {
            connection.is_dirty = false;
            core.flush(connection)
        });
        let Some(connection) = self.table.get_mut(key) else { return };
        if connection.is_read_suspended && !self.core.is_behind(connection) {
            connection.is_read_suspended = false;
            self.ready.push_back(key);
        }
    }

    /// Puts a connection back after work, or removes it.
    fn settle(&mut self, mut connection: Box<Connection>, progress: Progress) -> Progress {
        if connection.is_pending_handshake && connection.is_registered {
            connection.is_pending_handshake = false;
            self.pending.leave(connection.key);
        }
        match progress {
            Progress::Closed(reason) => self.remove(connection, reason),
            _ => {
                self.timers.watch(&mut connection, &self.core);
                self.table.put(connection);
            }
        }
        progress
    }

    fn remove(&mut self, mut connection: Box<Connection>, reason: CloseReason) {
        self.table.release(connection.key);
        if connection.is_pending_handshake {
            self.pending.leave(connection.key);
        }
        self.end_subscriptions(&connection);
        if connection.reserved > 0 {
            self.core.assembly.release_reservation(&mut connection);
            self.grant();
        }
        self.core.forget(&mut connection, reason);
    }

    /// Reads once from each connection that is ready.
    fn read(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(key) = self.ready.pop_front() else { break };
            let Some(mut connection) = self.table.take(key) else { continue };
            connection.is_queued = false;
            let needs_room = matches!(connection.phase, Phase::Open | Phase::Closing);
            if needs_room && connection.backlog.is_some() && self.core.is_behind(&connection) {
                // The client sends requests and doesn't read the replies: it isn't read until it has taken these.
                connection.is_read_suspended = true;
                connection.is_queued = true;
                self.table.put(connection);
                continue;
            }
            let progress = self.core.serve(&mut connection);
            let may_go_on = matches!(progress, Progress::Closed(_)) || self.check_assembly(&mut connection);
            match progress {
                _ if !may_go_on => {}
                Progress::Full | Progress::Starved => self.stop_reading(&mut connection, progress),
                Progress::More if connection.has_input() => {
                    connection.is_queued = true;
                    self.ready.push_back(key);
                }
                _ => {}
            }
            self.settle(connection, progress);
            if self.core.intake.is_due() {
                self.core.hand_over();
            }
        }
    }

    /// Updates a connection's memory reservation for a partial message. Returns false if the connection has to wait.
    fn check_assembly(&mut self, connection: &mut Connection) -> bool {
        if !connection.is_assembling() {
            return true;
        }
        if connection.reserved > 0 {
            self.core.assembly.settle(connection);
            self.grant();
        }
        self.make_room(connection)
    }

    /// Parks a connection, and if the reason concerns all connections, lets none beyond its reserve.
    fn stop_reading(&mut self, connection: &mut Connection, progress: Progress) {
        let reason = match progress {
            Progress::Starved => Parked::Queue,
            _ => self.core.why_parked(connection),
        };
        if reason == Parked::No {
            connection.is_queued = true;
            self.ready.push_back(connection.key);
            return;
        }
        self.park(connection, reason);
        if reason == Parked::Queue {
            self.pause(if progress == Progress::Starved { Reading::Starved } else { Reading::Paused });
        }
    }

    /// Lets no connection read beyond its reserve until the application has released something.
    fn pause(&mut self, reading: Reading) {
        if self.reading == Reading::Active {
            self.core.counters.pauses += 1;
            // Hands over first: the application can only release what it has.
            self.core.hand_over();
            self.set_reading(reading);
        }
    }

    /// Removes all connections, and stores the books where they can still be read.
    fn finish(mut self) {
        for slot in 0..self.table.slots() {
            if let Some(connection) = self.table.take_slot(slot) {
                self.remove(connection, CloseReason::Shutdown);
            }
        }
        self.core.hand_over();
        let mut books = self.core.shared.last_books.lock().unwrap_or_else(PoisonError::into_inner);
        books.push(std::mem::take(&mut self.core.closed_books));
        drop(books);
        let mailbox = &self.core.shared.mailboxes[self.core.index];
        mailbox.close();
        // A request for books that came too late is dropped, which ends the caller's wait: the books were stored above.
        self.commands.clear();
        mailbox.take(&mut self.commands);
        self.commands.clear();
    }
}
