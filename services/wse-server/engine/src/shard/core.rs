//! What working on one connection needs of its shard, and how a connection is forgotten.

use std::{
    collections::VecDeque,
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
    outbound::Backlog,
    priority::Level,
    random::Random,
    stats::{Book, CloseReason, Counters},
};

/// Books of closed connections that are kept for someone to fetch.
const KEPT_BOOKS: usize = 1_000_000;

/// What happens to a message that there is no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// There is room, because nothing is read while there is none.
    Wait,
    /// It is dropped.
    Drop,
    /// There is nobody to take any message.
    Discard,
    /// Messages go back to where they came from.
    Echo,
}

/// What working on one connection needs of its shard.
pub(super) struct Core {
    pub(super) index: usize,
    pub(super) shared: Arc<Hub>,
    pub(super) overflow: Overflow,
    pub(super) intake: Intake,
    pub(super) counters: Counters,
    pub(super) closed_books: VecDeque<Book>,
    pub(super) inflater: Inflater,
    /// What the inflater writes to.
    pub(super) inflated: Vec<u8>,
    /// What is to be written to the connection that is being read.
    pub(super) replies: Vec<u8>,
    pub(super) reply_messages: u32,
    /// How urgent that is.
    pub(super) reply_level: Level,
    /// Where requests are read to.
    pub(super) request: Vec<u8>,
    pub(super) random: Random,
    pub(super) assembly: Assembly,
    /// Bytes that are kept for clients that don't take them, and how many may be.
    pub(super) outbound_bytes: usize,
    pub(super) outbound_limit: usize,
    #[expect(clippy::vec_box, reason = "the boxes themselves are handed to connections and come back")]
    pub(super) spare_backlogs: Vec<Box<Backlog>>,
    /// Connections with a key. While there are none, nobody looks for keys.
    pub(super) encrypted: usize,
    pub(super) started: Instant,
    pub(super) now_millis: u64,
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
                (Delivery::Queue, InboundOverflow::Backpressure) => Overflow::Wait,
            },
            intake: Intake::new(shared.config.max_inbound_queue_bytes),
            assembly: Assembly::new(&shared.config, shared.wakers.len()),
            outbound_bytes: 0,
            outbound_limit: shared.config.max_outbound_bytes.div_ceil(shared.wakers.len()),
            shared,
            counters: Counters::default(),
            closed_books: VecDeque::new(),
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

    /// Once per round: no message needs to know better.
    pub(super) fn tick_clock(&mut self) {
        self.now_millis = self.started.elapsed().as_millis() as u64;
        self.wall_millis = clock::now_millis();
    }

    pub(super) fn room(&self) -> (usize, usize) {
        let is_kept = matches!(self.overflow, Overflow::Wait | Overflow::Drop);
        if is_kept { self.shared.inbound.held.room() } else { (usize::MAX, usize::MAX) }
    }

    /// Hands over what was collected, and publishes the counters with it.
    pub(super) fn hand_over(&mut self) {
        self.shared.inbound.push(self.index, self.intake.collected(), &self.counters);
    }

    /// A connection is gone: says so to whom it concerns and keeps its books.
    pub(super) fn forget(&mut self, connection: &mut Connection, reason: CloseReason) {
        if let Some(mut backlog) = connection.backlog.take() {
            self.outbound_bytes -= backlog.own_bytes();
            self.count_end(connection, &mut backlog);
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
        if self.closed_books.len() == KEPT_BOOKS {
            self.closed_books.pop_front();
            self.counters.books_evicted += 1;
        }
        self.closed_books.push_back(connection.book(false));
    }
}
