//! What a shard does by the clock and by command: keep-alive pings, idle and late clients, and the application's
//! commands.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{Core, Overflow, Shard, fanout::Joined, read::Progress};
use crate::{
    close_handshake::CloseHandshake,
    config::Config,
    connection::{Connection, Phase},
    envelope,
    frame::{self, Opcode},
    handshake::Refusal,
    key::ConnectionKey,
    outbound::{Backlog, Chunk, Command},
    priority::Level,
    stats::{Book, CloseReason, RejectReason, SendDropReason},
};

/// How long a client may take to reply to a Close frame, or to read its last response, in milliseconds.
const CLOSE_MILLIS: u64 = 2000;
/// Connections that a sweep visits per round; takes a tenth of a millisecond if nothing is to be done for them.
const SWEPT_PER_ROUND: usize = 1024;
/// Consecutive ticks with dropped messages after which a client is given up.
const SLOW_TICKS: u8 = 2;

/// A walk over all connections, a few per round.
struct Sweep {
    next_slot: usize,
    /// The ping to send to each connection; `None` for a sweep without pings. It is empty in echo mode, which sends no
    /// pings.
    ping: Option<Bytes>,
}

/// What is due when, in milliseconds of the shard's clock. Deadlines of one kind are equally long, so their queues are
/// sorted by themselves.
pub(super) struct Deadlines {
    ping_millis: u64,
    idle_millis: u64,
    handshake_millis: u64,
    next_ping_millis: u64,
    next_check_millis: u64,
    sweep: Option<Sweep>,
    handshakes: VecDeque<(u64, ConnectionKey)>,
    closing: VecDeque<(u64, ConnectionKey)>,
    /// Closing connections of a drain, which may have a longer deadline.
    drained: VecDeque<(u64, ConnectionKey)>,
}

impl Deadlines {
    pub(super) fn new(config: &Config) -> Self {
        let ping_millis = config.ping_interval.as_millis().max(1) as u64;
        Self {
            ping_millis,
            idle_millis: config.idle_timeout.as_millis() as u64,
            handshake_millis: config.handshake_timeout.as_millis() as u64,
            // Counted from the start, as in the reference; at the start itself there are no connections to ping.
            next_ping_millis: ping_millis,
            next_check_millis: 0,
            sweep: None,
            handshakes: VecDeque::new(),
            closing: VecDeque::new(),
            drained: VecDeque::new(),
        }
    }

    /// How often to look for idle connections: they are closed late by at most an eighth of the timeout.
    fn check_millis(&self) -> u64 {
        (self.idle_millis / 8).clamp(20, 5000)
    }

    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// When the next thing is due.
    pub(super) fn next_millis(&self) -> u64 {
        let queues = [self.handshakes.front(), self.closing.front(), self.drained.front()];
        let deadlines = queues.into_iter().flatten().map(|(deadline, _)| *deadline);
        deadlines.fold(self.next_ping_millis.min(self.next_check_millis), u64::min)
    }

    /// Sets the deadline of a new connection that hasn't completed its request.
    pub(super) fn watch_new(&mut self, connection: &Connection, core: &Core) {
        if connection.phase == Phase::Handshake {
            self.handshakes.push_back((core.now_millis + self.handshake_millis, connection.key));
        }
    }

    /// Sets the deadline of a connection that is being closed.
    pub(super) fn watch(&mut self, connection: &mut Connection, core: &Core) {
        let is_closing = matches!(connection.phase, Phase::Closing | Phase::Lingering);
        if is_closing && !std::mem::replace(&mut connection.is_watched, true) {
            self.closing.push_back((core.now_millis + CLOSE_MILLIS, connection.key));
        }
    }

    fn take_expired(queue: &mut VecDeque<(u64, ConnectionKey)>, now: u64) -> Option<ConnectionKey> {
        queue.pop_front_if(|(deadline, _)| *deadline <= now).map(|(_, key)| key)
    }
}

impl Shard {
    /// Does what is due.
    pub(super) fn deadlines(&mut self) {
        let now = self.core.now_millis;
        while let Some(key) = Deadlines::take_expired(&mut self.timers.handshakes, now) {
            self.with(key, |core, connection| match connection.phase {
                Phase::Handshake => core.refuse(connection, Refusal::RequestTimeout, RejectReason::Timeout),
                _ => Progress::Drained,
            });
        }
        while let Some(key) = Deadlines::take_expired(&mut self.timers.closing, now)
            .or_else(|| Deadlines::take_expired(&mut self.timers.drained, now))
        {
            self.with(key, |_, _| Progress::Closed(CloseReason::Error));
        }
        if self.timers.sweep.is_none() {
            self.start_sweep(now);
        }
        self.sweep();
    }

    fn start_sweep(&mut self, now: u64) {
        if now >= self.timers.next_ping_millis {
            self.timers.next_ping_millis = now + self.timers.ping_millis;
            if let Some(recovery) = self.core.shared.recovery.as_ref().filter(|_| self.core.index == 0) {
                recovery.forget_old(self.core.wall_millis);
            }
            let text = envelope::server_ping(self.core.wall_millis);
            let ping = match self.core.overflow {
                Overflow::Echo => Bytes::new(),
                _ => frame::encode(Opcode::Text, text.as_bytes()),
            };
            self.timers.sweep = Some(Sweep { next_slot: 0, ping: Some(ping) });
        } else if now >= self.timers.next_check_millis {
            self.timers.next_check_millis = now + self.timers.check_millis();
            self.timers.sweep = Some(Sweep { next_slot: 0, ping: None });
            self.core.intake.shrink();
            self.look_at_application(now);
        }
    }

    fn sweep(&mut self) {
        let Some(mut sweep) = self.timers.sweep.take() else { return };
        let end = (sweep.next_slot + SWEPT_PER_ROUND).min(self.table.slots());
        let oldest = self.core.now_millis.checked_sub(self.timers.idle_millis);
        for slot in sweep.next_slot..end {
            let Some(mut connection) = self.table.take_slot(slot) else { continue };
            if connection.phase == Phase::Open {
                self.core.check_connection(&mut connection, sweep.ping.as_ref(), oldest);
            }
            self.settle(connection, Progress::Drained);
        }
        sweep.next_slot = end;
        self.timers.sweep = (end < self.table.slots()).then_some(sweep);
    }

    /// Executes the application's commands.
    pub(super) fn run_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        self.core.shared.mailboxes[self.core.index].take(&mut commands);
        let mut dirty = Vec::new();
        let mut publications = Joined::default();
        for command in commands.drain(..) {
            match command {
                Command::Publish(target, chunk) => {
                    if !publications.accepts(&target) {
                        self.publish(&mut publications);
                    }
                    publications.push(target, chunk);
                }
                other => {
                    // What comes after a publication stays after it.
                    self.publish(&mut publications);
                    self.run_command(other, &mut dirty);
                }
            }
        }
        self.publish(&mut publications);
        self.commands = commands;
        for key in dirty {
            self.flush(key);
        }
    }

    fn run_command(&mut self, command: Command, dirty: &mut Vec<ConnectionKey>) {
        match command {
            Command::Send(key, frame) => self.queue(key, frame, Level::Normal, dirty),
            Command::Replay(key, frame) => self.queue_sealed(key, frame, dirty),
            Command::Event(key, frame, level) => self.queue(key, frame, level, dirty),
            Command::Deliver(pick, frame) => self.deliver(pick, frame, dirty),
            Command::Presence(kind, detail) => self.push_presence_event(kind, &detail),
            Command::SubscriptionChange(key, change) => self.resubscribe(key, change),
            Command::Disconnect(key) => self.disconnect(key),
            Command::Books(since, reply) => {
                // Fails if the caller no longer waits.
                if let Err(error) = reply.try_send(self.books(since)) {
                    tracing::debug!(%error, "the requester no longer waits for the books");
                }
            }
            Command::Quality(key, reply) => self.reply_with_quality(key, &reply),
            Command::Survey(reply) => self.surveys.begin(reply),
            Command::Drain(close_handshake) => self.drain(&close_handshake),
            Command::Stop => self.stop(),
            #[cfg(test)]
            Command::Panic => panic!("a test asked for it"),
            Command::Publish(..) => unreachable!("the caller handles publications"),
        }
    }

    /// Queues a message for a connection. It is written after all commands have been read.
    pub(super) fn queue(&mut self, key: ConnectionKey, frame: Bytes, level: Level, dirty: &mut Vec<ConnectionKey>) {
        let core = &mut self.core;
        let Some(connection) = self.table.get_mut(key).filter(|connection| connection.phase == Phase::Open) else {
            core.counters.send_dropped[SendDropReason::Disconnected as usize] += 1;
            return;
        };
        let overtakes = |backlog: &Backlog| !backlog.is_blocked && backlog.has_below(level);
        let is_untried = connection.is_dirty && connection.backlog.as_deref().is_some_and(overtakes);
        if is_untried || (connection.is_dirty && core.is_over_limit(connection)) {
            // A burst: what came earlier in it may fit into the socket, and is only overtaken if it doesn't.
            core.flush(connection);
        }
        if !core.has_room(connection, level) {
            core.drop_for_slowness(connection, level, 1);
            return;
        }
        core.queue_unsent(connection, Chunk { bytes: frame, messages: 1, is_own: true }, level, 0);
        if !connection.is_dirty {
            connection.is_dirty = true;
            dirty.push(key);
        }
    }

    fn disconnect(&mut self, key: ConnectionKey) {
        self.with(key, |core, connection| {
            if connection.phase == Phase::Open {
                core.close(connection, 4000, "disconnected by the application", CloseReason::Application);
            }
            Progress::Drained
        });
    }

    fn books(&self, since: u64) -> Vec<Book> {
        let closed = self.core.closed_books.since(since);
        let open = self.table.iter().filter(|connection| connection.is_registered);
        closed.chain(open.map(|connection| connection.book(true))).collect()
    }

    /// Closes all open connections, each with a deadline of `close_handshake.timeout` from now. In a repeated drain, those that
    /// are closing keep their deadline.
    fn drain(&mut self, close_handshake: &CloseHandshake) {
        let deadline = self.core.now_millis + close_handshake.timeout.as_millis() as u64;
        for slot in 0..self.table.slots() {
            let Some(mut connection) = self.table.take_slot(slot) else { continue };
            if connection.phase == Phase::Open {
                self.core.close(&mut connection, close_handshake.code, &close_handshake.reason, CloseReason::Drain);
                connection.is_watched = true;
                self.timers.drained.push_back((deadline, connection.key));
            }
            self.settle(connection, Progress::Drained);
        }
    }

    /// Accepts no more clients, and closes all connections.
    fn stop(&mut self) {
        if self.stop_deadline_millis.is_some() {
            return;
        }
        self.listener = None;
        self.is_accepting = false;
        self.accept_retry_millis = None;
        self.stop_deadline_millis = Some(self.core.now_millis + CLOSE_MILLIS);
        for slot in 0..self.table.slots() {
            let Some(mut connection) = self.table.take_slot(slot) else { continue };
            match connection.phase {
                Phase::Open => self.core.close(&mut connection, 1001, "server shutting down", CloseReason::Shutdown),
                Phase::Handshake => {
                    self.core.refuse(&mut connection, Refusal::ServiceUnavailable, RejectReason::Draining);
                }
                Phase::Closing | Phase::Lingering => {}
            }
            self.settle(connection, Progress::Drained);
        }
    }
}

impl Core {
    /// Checks an open connection during a sweep.
    fn check_connection(&mut self, connection: &mut Connection, ping: Option<&Bytes>, oldest_millis: Option<u64>) {
        if connection.has_expired(self.wall_millis) {
            return self.close(connection, 4401, "token expired", CloseReason::Expired);
        }
        // A connection that waits to be read may have sent something since.
        let is_active = connection.has_input();
        if !is_active && oldest_millis.is_some_and(|oldest| connection.last_data_millis < oldest) {
            return self.close(connection, 4408, "idle", CloseReason::Idle);
        }
        // Others may wait for the application instead; then closing this one would help none of them.
        if self.assembly.is_stalled(connection, self.now_millis) && !self.is_application_full() {
            return self.close(connection, 4408, "stalled in the middle of a message", CloseReason::Idle);
        }
        let Some(ping) = ping else { return };
        // Where publishers wait for the slowest subscriber, one that takes nothing would hold up all others.
        let is_awaited = self.shared.config.max_publish_backlog_bytes > 0 && connection.backlog.is_some();
        let is_stuck = (connection.is_read_suspended || is_awaited) && !std::mem::take(&mut connection.has_progressed);
        let is_slow = std::mem::take(&mut connection.is_dropping) || is_stuck;
        connection.slow_ticks = if is_slow { connection.slow_ticks + 1 } else { 0 };
        if connection.slow_ticks >= SLOW_TICKS {
            return self.give_up(connection);
        }
        if !ping.is_empty() {
            self.send_shared(connection, ping, 1);
        }
    }
}
