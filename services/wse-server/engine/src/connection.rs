//! One connection as its shard keeps it, and the shard's table of connections. An idle connection owns no buffer.

use std::{os::fd::OwnedFd, sync::Arc};

use uuid::Uuid;
use wse_utilities::{crypto::Key, duplex::Duplex};

use wse_utilities::bucket::TokenBucket;

use crate::{
    encryption::{Secured, Session},
    key::ConnectionKey,
    outbound::Backlog,
    receive::Receiver,
    stats::{Book, CloseReason},
};

/// The stages of a connection, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The request is incomplete.
    Handshake,
    /// Messages flow in both directions.
    Open,
    /// A Close frame is on its way to the client and its own is awaited; messages that arrive until then still count.
    Closing,
    /// Input is discarded until the client closes its side, so that it can read what was sent last.
    Lingering,
}

/// State that few connections need, allocated on first use.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// The agreed key, once an encryption key was exchanged.
    pub(crate) secured: Option<Secured>,
    /// How many key exchanges have failed on this connection.
    pub(crate) failed_exchanges: u8,
    /// When the connection is to be closed because its token has expired, in milliseconds since the Unix epoch.
    pub(crate) expires_millis: Option<u64>,
    /// The limit on its messages, if one is configured and it has sent any.
    pub(crate) inbound: Option<TokenBucket>,
}

/// What a connection that isn't read waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    /// Nothing: it is read.
    No,
    /// The inbound queue is full, or no arena is free.
    Queue,
    /// It has its share of the inbound queue.
    Share,
    /// It has sent more messages than its rate limit allows.
    Rate,
}

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) key: ConnectionKey,
    pub(crate) id: Uuid,
    /// The beginning of a frame or of the request, kept until the rest arrives.
    pub(crate) partial: Vec<u8>,
    /// The length of the frame that begins in `partial`, in bytes; 0 while it is unknown.
    pub(crate) expected: usize,
    /// How many bytes of `partial` need no second look. Of an incomplete text frame: the part of its payload that is
    /// UTF-8. Of frames that wait: those that were searched for pings.
    pub(crate) checked: usize,
    /// The messages that the application holds, queued ones included.
    pub(crate) queued: usize,
    /// The bytes of their data.
    pub(crate) queued_bytes: usize,
    pub(crate) receiver: Receiver,
    pub(crate) backlog: Option<Box<Backlog>>,
    pub(crate) extras: Option<Box<Extras>>,
    /// When the last text or binary frame arrived, in milliseconds of the shard's clock.
    pub(crate) last_data_millis: u64,
    pub(crate) received: u64,
    pub(crate) consumed: u64,
    pub(crate) dropped: u64,
    /// Messages that the socket has taken whole. `send_dropped` counts the messages that no socket will take.
    pub(crate) sent: u64,
    pub(crate) send_dropped: u64,
    pub(crate) phase: Phase,
    pub(crate) parked: Parked,
    /// The connection is in the shard's list of parked connections; it may be read again already.
    pub(crate) is_visited: bool,
    /// Why the connection is being closed; `None` while it is not.
    pub(crate) reason: Option<CloseReason>,
    /// Whether the client was admitted: only then does it count as a connection.
    pub(crate) is_registered: bool,
    pub(crate) uses_message_pack: bool,
    /// The socket may have more to read.
    pub(crate) is_readable: bool,
    /// The client has closed its side: the socket is read until its end.
    pub(crate) is_hung_up: bool,
    /// `partial` holds whole frames for which there was no room.
    pub(crate) has_unparsed: bool,
    /// The frame that begins in `partial` is read to the end without the arena.
    pub(crate) owns_frame: bool,
    /// The connection is in the shard's list of connections to read from.
    pub(crate) is_queued: bool,
    /// The connection is in the shard's list of connections to write to.
    pub(crate) is_dirty: bool,
    /// All that is left to do is to write the rest of the backlog.
    pub(crate) closes_when_flushed: bool,
    /// Messages to it were dropped since the last tick.
    pub(crate) is_dropping: bool,
    /// The connection has a deadline for its close handshake.
    pub(crate) is_watched: bool,
    /// The connection is one of the pending handshakes: the client is not admitted yet.
    pub(crate) is_pending_handshake: bool,
    /// The connection has subscriptions or topic rules, which are removed with it.
    pub(crate) is_subscriber: bool,
    /// The socket isn't read until the client takes what waits for it.
    pub(crate) is_read_suspended: bool,
    /// The client has taken something since the last tick.
    pub(crate) has_progressed: bool,
    /// The number of successive ticks at which the client was too slow.
    pub(crate) slow_ticks: u8,
    /// The bytes reserved for the large message that is being received.
    pub(crate) reserved: usize,
    /// When the first of these bytes were reserved, or the connection was last read again after it had to wait, in
    /// milliseconds of the shard's clock.
    pub(crate) reserved_millis: u64,
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, key: ConnectionKey, now_millis: u64) -> Self {
        Self {
            socket,
            key,
            id: Uuid::nil(),
            partial: Vec::new(),
            expected: 0,
            checked: 0,
            queued: 0,
            queued_bytes: 0,
            receiver: Receiver::default(),
            backlog: None,
            extras: None,
            last_data_millis: now_millis,
            received: 0,
            consumed: 0,
            dropped: 0,
            sent: 0,
            send_dropped: 0,
            phase: Phase::Handshake,
            parked: Parked::No,
            is_visited: false,
            reason: None,
            is_registered: false,
            uses_message_pack: false,
            is_readable: true,
            is_hung_up: false,
            has_unparsed: false,
            owns_frame: false,
            is_queued: false,
            is_dirty: false,
            closes_when_flushed: false,
            is_dropping: false,
            is_watched: false,
            is_pending_handshake: false,
            is_subscriber: false,
            is_read_suspended: false,
            has_progressed: false,
            slow_ticks: 0,
            reserved: 0,
            reserved_millis: 0,
        }
    }

    /// Lets a parked connection be read again. The time for which the server didn't read it doesn't count against it.
    pub(crate) fn unpark(&mut self, now_millis: u64) {
        self.parked = Parked::No;
        self.reserved_millis = now_millis;
    }

    /// Forgets what has arrived and wasn't processed, as nothing of it counts any more.
    pub(crate) fn forget_input(&mut self) {
        self.receiver.forget();
        self.partial = Vec::new();
        (self.expected, self.checked) = (0, 0);
        (self.has_unparsed, self.owns_frame) = (false, false);
    }

    /// Whether there is something to parse or to read.
    pub(crate) fn has_input(&self) -> bool {
        self.is_readable || self.has_unparsed
    }

    /// Whether the connection is in the middle of a message that may need a reservation.
    pub(crate) fn is_assembling(&self) -> bool {
        self.expected > 0 || self.receiver.held_bytes() > 0 || self.reserved > 0
    }

    /// Whether it has a token that has expired and is to be closed for that.
    pub(crate) fn has_expired(&self, wall_millis: u64) -> bool {
        let expires_millis = self.extras.as_ref().and_then(|extras| extras.expires_millis);
        expires_millis.is_some_and(|expires_millis| expires_millis <= wall_millis)
    }

    /// The key that encrypts its messages, if one was exchanged.
    pub(crate) fn secured(&self) -> Option<&Secured> {
        self.extras.as_ref()?.secured.as_ref()
    }

    /// The key of its messages, with encryption of version 1.
    pub(crate) fn message_key(&self) -> Option<&Arc<Key>> {
        match &self.secured()?.session {
            Session::Messages(key) => Some(key),
            Session::Frames(_) => None,
        }
    }

    /// The keys of its data frames, with encryption of version 2.
    pub(crate) fn duplex(&mut self) -> Option<&mut Duplex> {
        match &mut self.extras.as_mut()?.secured.as_mut()?.session {
            Session::Messages(_) => None,
            Session::Frames(duplex) => Some(duplex),
        }
    }

    pub(crate) fn book(&self, open: bool) -> Book {
        let Self { id, received, consumed, dropped, sent, send_dropped, .. } = *self;
        Book { id, open, received, consumed, dropped, sent, send_dropped }
    }
}

/// All connections of a shard. Slots are reused, keys are not.
pub(crate) struct Table {
    shard: u8,
    next_serial: u32,
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
}

impl Table {
    pub(crate) fn new(shard: u8) -> Self {
        Self { shard, next_serial: 0, slots: Vec::new(), free: Vec::new() }
    }

    /// How many slots there are, used or free.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Creates a connection for a socket and assigns it a slot; [`Table::put`] then stores it.
    ///
    /// # Errors
    /// Returns the socket if the table is full.
    pub(crate) fn insert(&mut self, socket: OwnedFd, now_millis: u64) -> Result<Box<Connection>, OwnedFd> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < ConnectionKey::SLOTS => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return Err(socket),
        };
        let key = ConnectionKey::new(self.shard, self.next_serial, slot);
        self.next_serial = self.next_serial.wrapping_add(1);
        Ok(Box::new(Connection::new(socket, key, now_millis)))
    }

    /// Stores a connection that [`Table::insert`] or [`Table::take`] returned.
    pub(crate) fn put(&mut self, connection: Box<Connection>) {
        let slot = connection.key.slot();
        self.slots[slot] = Some(connection);
    }

    /// Takes a connection out, so that it can be borrowed beside the rest of the shard. Only a pointer moves.
    pub(crate) fn take(&mut self, key: ConnectionKey) -> Option<Box<Connection>> {
        self.slots.get_mut(key.slot())?.take_if(|connection| connection.key == key)
    }

    /// Takes the connection in a slot, if there is one.
    pub(crate) fn take_slot(&mut self, slot: usize) -> Option<Box<Connection>> {
        self.slots.get_mut(slot)?.take()
    }

    pub(crate) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.slots.get_mut(key.slot())?.as_deref_mut().filter(|connection| connection.key == key)
    }

    /// Frees the slot of a connection that was taken out and won't be put back.
    pub(crate) fn release(&mut self, key: ConnectionKey) {
        self.free.push(key.slot());
    }

    /// The connections in a range of slots.
    pub(crate) fn range(&self, slots: std::ops::Range<usize>) -> impl Iterator<Item = &Connection> {
        self.slots[slots].iter().flatten().map(Box::as_ref)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().flatten().map(Box::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OwnedFd {
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()
    }

    #[test]
    fn a_stale_key_finds_nothing_in_a_slot_that_is_used_again() {
        let mut table = Table::new(3);
        let first = table.insert(socket(), 0).unwrap();
        let old = first.key;
        table.release(old);
        drop(first);
        let second = table.insert(socket(), 0).unwrap();
        let new = second.key;
        table.put(second);
        assert_eq!((old.slot(), old.shard()), (new.slot(), 3));
        assert!(table.get_mut(old).is_none() && table.take(old).is_none() && table.get_mut(new).is_some());
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 192, "{}", size_of::<Connection>());
    }
}
