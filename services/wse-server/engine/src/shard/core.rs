//! The part of a shard that work on a single connection needs, and the removal of a connection.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::assembly::Assembly;
use crate::{
    clock,
    config::{Delivery, InboundOverflow},
    connection::Connection,
    format::Inflater,
    hub::Hub,
    inbound::Kind,
    intake::Intake,
    limits::Share,
    outbound::Backlog,
    priority::Level,
    random::Random,
    stats::{CloseReason, ClosedBooks, Counters},
};

/// What happens to inbound messages, in particular when there is no room for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// They are kept; a connection isn't read while there is no room for its messages.
    Wait,
    /// They are kept, or dropped when there is no room.
    Drop,
    /// They are kept, and older ones of the same connection are dropped when there is no room.
    DropOldest,
    /// They are kept, or dropped when there is no room, and then the connection is closed.
    Disconnect,
    /// They are dropped, as the application takes no messages.
    Discard,
    /// They are sent back to their client.
    Echo,
}

/// The part of a shard that work on a single connection needs.
pub(super) struct Core {
    pub(super) index: usize,
    pub(super) shared: Arc<Hub>,
    pub(super) overflow: Overflow,
    /// What one connection may have in the inbound queue.
    pub(super) share: Share,
    /// How much more fits into the inbound queue, and how much with the reserves, as of the last hand-over.
    pub(super) room: (usize, usize),
    pub(super) room_with_reserves: (usize, usize),
    /// Connections get their reserve only: the queue was full and hasn't been emptied enough.
    pub(super) is_queue_full: bool,
    /// The connection that is read has lost a message and is to be closed for it.
    pub(super) is_overflown: bool,
    pub(super) intake: Intake,
    pub(super) counters: Counters,
    pub(super) closed_books: ClosedBooks,
    pub(super) inflater: Inflater,
    /// The output buffer of the inflater.
    pub(super) inflated: Vec<u8>,
    /// Framed replies to the connection that is being read.
    pub(super) replies: Vec<u8>,
    /// How many messages `replies` holds, control frames excluded.
    pub(super) reply_messages: u32,
    /// The priority of `replies`.
    pub(super) reply_level: Level,
    /// The buffer that handshake requests are read to.
    pub(super) request: Vec<u8>,
    pub(super) random: Random,
    pub(super) assembly: Assembly,
    /// Bytes that wait for clients that read too slowly; the limit is below.
    pub(super) outbound_bytes: usize,
    pub(super) outbound_limit: usize,
    #[expect(clippy::vec_box, reason = "the boxes themselves are handed to connections and come back")]
    pub(super) spare_backlogs: Vec<Box<Backlog>>,
    /// How many connections have an encryption key. While there are none, no key is looked up.
    pub(super) encrypted: usize,
    pub(super) started: Instant,
    /// Milliseconds since `started`, as of this round.
    pub(super) now_millis: u64,
    /// Milliseconds since the Unix epoch, as of this round.
    pub(super) wall_millis: u64,
}

impl Core {
    pub(super) fn new(index: usize, shared: Arc<Hub>) -> Self {
        Self {
            index,
            overflow: match (shared.config.delivery, shared.config.inbound_overflow) {
                (Delivery::Discard, _) => Overflow::Discard,
                (Delivery::Echo, _) => Overflow::Echo,
                (Delivery::Queue, InboundOverflow::Drop) => Overflow::Drop,
                (Delivery::Queue, InboundOverflow::DropOldest) => Overflow::DropOldest,
                (Delivery::Queue, InboundOverflow::Disconnect) => Overflow::Disconnect,
                (Delivery::Queue, InboundOverflow::Backpressure) => Overflow::Wait,
            },
            share: Share::of(&shared.config),
            room: (0, 0),
            room_with_reserves: (0, 0),
            is_queue_full: false,
            is_overflown: false,
            intake: Intake::new(shared.config.max_inbound_queue_bytes),
            assembly: Assembly::new(&shared.config, shared.wakers.len()),
            outbound_bytes: 0,
            outbound_limit: shared.config.max_outbound_bytes.div_ceil(shared.wakers.len()),
            shared,
            counters: Counters::default(),
            closed_books: ClosedBooks::default(),
            inflater: Inflater::default(),
            inflated: Vec::new(),
            replies: Vec::new(),
            reply_messages: 0,
            reply_level: Level::Normal,
            request: Vec::new(),
            random: Random::default(),
            spare_backlogs: Vec::new(),
            encrypted: 0,
            started: Instant::now(),
            now_millis: 0,
            wall_millis: clock::now_millis(),
        }
    }

    /// Updates the clocks, once per round: no message needs a more precise time.
    pub(super) fn tick_clock(&mut self) {
        self.now_millis = self.started.elapsed().as_millis() as u64;
        self.wall_millis = clock::now_millis();
    }

    /// Notes how much fits into the application's queue. Once per hand-over is enough, and cheaper than per read.
    pub(super) fn look_for_room(&mut self) {
        let usage = &self.shared.inbound.usage;
        (self.room, self.room_with_reserves) = (usage.room(), usage.reserve());
    }

    /// Hands the collected messages to the application's queue, together with the counters.
    pub(super) fn hand_over(&mut self) {
        self.shared.inbound.push(self.index, self.intake.arrived(), &self.counters);
        self.look_for_room();
    }

    /// Removes a connection from the registry and the recipients, notifies the application, and keeps the connection's
    /// books.
    pub(super) fn forget(&mut self, connection: &mut Connection, reason: CloseReason) {
        if let Some(mut backlog) = connection.backlog.take() {
            self.outbound_bytes -= backlog.own_bytes();
            self.finish_backlog(connection, &mut backlog);
            self.spare(backlog);
        }
        if !connection.is_registered {
            return;
        }
        self.shared.registry.close(connection.id);
        self.shared.recipients.close(connection.key);
        if connection.extras.take().is_some_and(|extras| extras.secured.is_some()) {
            self.encrypted -= 1;
        }
        match self.shared.config.delivery {
            Delivery::Queue => {
                let id = connection.id.to_string();
                self.intake.push_event(Kind::Disconnect, connection.key, &id, b"");
            }
            Delivery::Discard | Delivery::Echo => self.shared.registry.forget([connection.key].into_iter()),
        }
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
        self.counters.closed[connection.reason.unwrap_or(reason) as usize] += 1;
        let number = self.shared.closed.fetch_add(1, Ordering::SeqCst);
        if !self.closed_books.push(number, connection.book(false)) {
            self.counters.books_evicted += 1;
        }
    }
}
