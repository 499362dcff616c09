//! Each connection's share of the inbound queue: how much it may hand over now, and what happens when it finds no room.
//!
//! A connection may have its share of the queue ([`Share`]), as long as the queue isn't full. A small reserve is beyond
//! the limit of all, so that a message of a quiet connection gets in although others have filled the queue. What a
//! connection has in the queue is counted here, and counted down when the application reports what it has released.

use super::{Core, Overflow, Reading, Shard};
use wse_utilities::bucket::TokenBucket;

use crate::{
    config::RateLimit,
    connection::{Connection, Parked, Phase},
    limits::Share,
    stats::{CloseReason, DropReason},
};

/// What a read of a connection may add to the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// Whether the connection may be read for messages at all.
    pub(super) may_read: bool,
    /// The room for its messages, and for their bytes.
    room: (usize, usize),
}

impl Core {
    /// Works out what a connection may hand over, and limits the read that follows to it.
    pub(super) fn allow(&mut self, connection: &mut Connection) -> Allowance {
        let (room, pace) = (self.room_for(connection), self.pace(connection));
        let waits = self.overflow == Overflow::Wait;
        let stop = if waits { (room.0.min(pace), room.1) } else { (pace, usize::MAX) };
        let (messages, bytes) = self.left(self.room_with_reserves);
        // The oldest messages make way after the read, which is short, unless the application itself holds so many.
        let makes_way = self.overflow == Overflow::DropOldest && messages > 0 && bytes > 0;
        let limit = if makes_way { (usize::MAX, usize::MAX) } else { room };
        self.intake.allow(limit, stop);
        Allowance { may_read: stop.0 > 0 && stop.1 > 0, room }
    }

    /// Counts what a read of a connection has added to the queue.
    pub(super) fn charge(&mut self, connection: &mut Connection, allowance: Allowance) {
        let (messages, bytes) = self.intake.end_run(connection.key);
        if messages == 0 {
            return;
        }
        connection.queued += messages;
        connection.queued_bytes += bytes;
        if let Some(bucket) = connection.extras.as_mut().and_then(|extras| extras.inbound.as_mut()) {
            let now = self.now_millis as f64 / 1000.0;
            // A large message that was begun is completed; it may be one more than the limit allows.
            let taken = bucket.tokens(now).min(messages as f64);
            bucket.acquire(taken, now);
        }
        if self.overflow == Overflow::DropOldest {
            let over = (messages.saturating_sub(allowance.room.0), bytes.saturating_sub(allowance.room.1));
            if over != (0, 0) {
                self.drop_oldest(connection, over);
            }
        }
    }

    /// Drops the oldest queued messages of a connection, in place of those that found no room.
    fn drop_oldest(&mut self, connection: &mut Connection, over: (usize, usize)) {
        // The queue is searched from its front, so a sixteenth of the share goes at once.
        let messages = over.0.max(self.share.messages / 16).max(1);
        self.hand_over();
        let (messages, bytes) = self.shared.inbound.evict(connection.key, messages, over.1);
        connection.queued -= messages;
        connection.queued_bytes -= bytes;
        connection.dropped += messages as u64;
        self.counters.dropped[DropReason::InboundOverflow as usize] += messages as u64;
    }

    /// The room for messages of a connection, and for their bytes.
    fn room_for(&self, connection: &Connection) -> (usize, usize) {
        if matches!(self.overflow, Overflow::Discard | Overflow::Echo) {
            return (usize::MAX, usize::MAX);
        }
        let (queued, queued_bytes) = (connection.queued, connection.queued_bytes);
        let own = self.share.left(queued, queued_bytes);
        let all = if self.is_queue_full { (0, 0) } else { self.left(self.room) };
        let reserve = Share::RESERVE.left(queued, queued_bytes);
        let beyond = self.left(self.room_with_reserves);
        let within = |own: usize, all: usize, reserve: usize, beyond: usize| own.min(all.max(reserve.min(beyond)));
        (within(own.0, all.0, reserve.0, beyond.0), within(own.1, all.1, reserve.1, beyond.1))
    }

    /// What is left of the room for all, without what was collected in this round.
    fn left(&self, (messages, bytes): (usize, usize)) -> (usize, usize) {
        let (collected, collected_bytes) = self.intake.collected();
        (messages.saturating_sub(collected), bytes.saturating_sub(collected_bytes))
    }

    /// How many messages the rate limit allows a connection now.
    fn pace(&mut self, connection: &mut Connection) -> usize {
        let Some(RateLimit { capacity, refill_per_second }) = self.shared.config.inbound_rate_limit else {
            return usize::MAX;
        };
        let now = self.now_millis as f64 / 1000.0;
        let bucket = &mut connection.extras.get_or_insert_default().inbound;
        let bucket = bucket.get_or_insert_with(|| TokenBucket::new(capacity, refill_per_second, capacity, now));
        bucket.tokens(now) as usize
    }

    /// What a connection waits for that may not be read further.
    pub(super) fn why_parked(&mut self, connection: &mut Connection) -> Parked {
        if self.pace(connection) == 0 {
            return Parked::Rate;
        }
        if !self.share.may_resume(connection.queued, connection.queued_bytes) {
            Parked::Share
        } else if !self.queue_has_room() {
            Parked::Queue
        } else {
            // Pings took what room there was for a read.
            Parked::No
        }
    }

    /// Whether the queue has room for more than the reserves of the connections.
    pub(super) fn queue_has_room(&self) -> bool {
        let (messages, bytes) = self.left(self.room);
        !self.is_queue_full && messages > 0 && bytes > 0
    }

    /// Closes a connection whose messages found no room.
    pub(super) fn close_overflown(&mut self, connection: &mut Connection) {
        connection.forget_input();
        if connection.phase == Phase::Open {
            self.close(connection, 1013, "too many messages wait for the application", CloseReason::Overflow);
        }
        connection.phase = Phase::Lingering;
        self.half_close(connection);
    }
}

impl Shard {
    /// Parks a connection: it isn't read for messages until what it waits for is there.
    pub(super) fn park(&mut self, connection: &mut Connection, reason: Parked) {
        connection.parked = reason;
        connection.is_queued = true;
        if !std::mem::replace(&mut connection.is_visited, true) {
            self.parked.push_back(connection.key);
        }
        if reason != Parked::Queue {
            self.core.counters.parked += 1;
        }
    }

    /// Counts down what the application has released, and reads the connections again that waited for it.
    pub(super) fn release_reservation(&mut self) {
        let mut returned = std::mem::take(&mut self.returned);
        self.core.shared.inbound.returns[self.core.index].take(&mut returned);
        for one in returned.drain(..) {
            // The connection may have ended since.
            let Some(connection) = self.table.get_mut(one.connection) else { continue };
            connection.queued = connection.queued.saturating_sub(one.messages);
            connection.queued_bytes = connection.queued_bytes.saturating_sub(one.bytes);
            let may_resume = self.core.share.may_resume(connection.queued, connection.queued_bytes);
            if connection.parked == Parked::Share && may_resume {
                connection.unpark(self.core.now_millis);
                self.ready.push_back(one.connection);
            }
        }
        self.returned = returned;
    }

    /// Reads again if the application has released messages; otherwise asks to be woken when it does.
    pub(super) fn resume(&mut self) {
        self.release_reservation();
        self.core.look_for_room();
        if self.reading == Reading::Active || self.core.shared.inbound.usage.pause(self.core.index) {
            return;
        }
        self.set_reading(Reading::Active);
        for _ in 0..self.parked.len() {
            let Some(key) = self.parked.pop_front() else { break };
            let Some(connection) = self.table.get_mut(key) else { continue };
            match connection.parked {
                Parked::Queue => {
                    connection.unpark(self.core.now_millis);
                    connection.is_visited = false;
                    self.ready.push_back(key);
                }
                Parked::No => connection.is_visited = false,
                Parked::Share | Parked::Rate => self.parked.push_back(key),
            }
        }
        self.grant();
    }

    pub(super) fn set_reading(&mut self, reading: Reading) {
        self.reading = reading;
        self.core.is_queue_full = reading != Reading::Active;
    }

    /// Whether a pause began in this round. The shard hasn't asked for a wake-up yet then, so it must not wait.
    pub(super) fn has_just_paused(&self) -> bool {
        self.reading == Reading::Paused && !self.core.shared.inbound.usage.is_paused(self.core.index)
    }
}
