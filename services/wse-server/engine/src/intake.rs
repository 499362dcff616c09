//! The buffers of a shard: it reads sockets into them and collects the messages for the application in them.
//!
//! Sockets are read into an arena, in which messages are parsed and unmasked without being copied. Once per round, what
//! was collected is frozen into a blob that the application shares. A full arena is reused when its last blob is
//! dropped. The next read overwrites what isn't handed over (pings, dropped messages). This module decides nothing: the
//! caller says how much of a connection may be read.

use std::{collections::VecDeque, mem::MaybeUninit, ops::Range};

use bytes::{Bytes, BytesMut};

use crate::{
    inbound::{Entry, Kind, Queued, Segment},
    key::ConnectionKey,
    runs::{Run, Runs},
};

/// The free space that a read needs, in bytes. Below 256 KiB a flood costs a fifth more, because each read returns
/// fewer messages.
pub(crate) const READ_BYTES: usize = 256 << 10;
/// The size of an arena, in bytes: at least four reads, and small enough that a few arenas stay in the cache.
pub(crate) const ARENA_BYTES: usize = 1 << 20;
/// Messages outside the arena are copied together up to this size, in bytes; larger ones become blobs of their own.
const COPY_BYTES: usize = 16 << 10;
/// The number of entries after which they are handed to the application before more are collected.
const ENTRIES_PER_SEGMENT: usize = 4096;

/// Where the bytes of a message are.
pub(crate) enum PayloadLocation {
    /// In the arena, where the message was read to.
    Arena(Range<usize>),
    /// In a buffer of its own: the message was joined, inflated, or too big for the arena.
    Own(Vec<u8>, Range<usize>),
}

impl PayloadLocation {
    /// The bytes of the message; `arena` is that of the intake.
    #[inline]
    pub(crate) fn bytes<'a>(&'a self, arena: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Arena(range) => &arena[range.clone()],
            Self::Own(bytes, range) => &bytes[range.clone()],
        }
    }
}

#[derive(Clone)]
enum Source {
    Arena,
    Side,
    Own(Bytes),
}

impl Source {
    /// Whether entries of both sources can be in one piece.
    fn is_shared_with(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Arena, Self::Arena) | (Self::Side, Self::Side))
    }
}

/// Successive entries whose data is in the same place.
struct Piece {
    source: Source,
    entries: Vec<Entry>,
    messages: usize,
    /// The bytes of the data of these messages.
    data_bytes: usize,
    runs: Runs,
    /// Messages and bytes that are in a run.
    assigned: (usize, usize),
    has_disconnects: bool,
}

/// What a shard has read and collected in the current round.
pub(crate) struct Intake {
    arena: BytesMut,
    /// Full arenas whose blobs may still be in use, the oldest first.
    spent: VecDeque<BytesMut>,
    /// Small data of this round that is outside the arena, copied together.
    side: BytesMut,
    pieces: Vec<Piece>,
    /// The segments that are ready for the application.
    arrived: Vec<Queued>,
    /// The offset in the arena at which the last kept message ends.
    stored: usize,
    /// The number of entries of this round.
    entries: usize,
    /// The bytes of this round in blobs other than the arena and the side buffer.
    own_bytes: usize,
    /// The index of the first piece that may have messages that are in no run yet.
    unassigned: usize,
    /// Entries and bytes of this round at which no more messages of the current connection are accepted.
    limit: (usize, usize),
    /// Entries and bytes of this round at which the current connection isn't read further.
    stop: (usize, usize),
    /// The number of arenas that exist, and its limit.
    arenas: usize,
    arenas_limit: usize,
}

impl Intake {
    /// `bytes_limit` is the number of bytes that the application may hold. The arenas may have twice as many, because a
    /// blob keeps its whole arena alive.
    pub(crate) fn new(bytes_limit: usize) -> Self {
        Self {
            arena: BytesMut::with_capacity(ARENA_BYTES),
            spent: VecDeque::new(),
            side: BytesMut::new(),
            pieces: Vec::new(),
            arrived: Vec::new(),
            stored: 0,
            entries: 0,
            own_bytes: 0,
            unassigned: 0,
            limit: (0, 0),
            stop: (0, 0),
            arenas: 1,
            arenas_limit: 4 + bytes_limit.saturating_mul(2) / ARENA_BYTES,
        }
    }

    /// Sets the limits for the connection that is read next, as (messages, bytes) counted from now: `room` is accepted,
    /// and after `stop` the connection isn't read further.
    pub(crate) fn allow(&mut self, room: (usize, usize), stop: (usize, usize)) {
        let (entries, bytes) = self.collected();
        let from_here = |more: (usize, usize)| (entries.saturating_add(more.0), bytes.saturating_add(more.1));
        (self.limit, self.stop) = (from_here(room), from_here(stop));
    }

    /// Whether no more messages of the current connection are accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.is_beyond(self.limit)
    }

    /// Whether the current connection must not be read further.
    pub(crate) fn must_stop(&self) -> bool {
        self.is_beyond(self.stop)
    }

    fn is_beyond(&self, (entries, bytes): (usize, usize)) -> bool {
        self.entries >= entries || self.stored + self.side.len() + self.own_bytes >= bytes
    }

    /// The entries of this round and their bytes, frame headers included.
    pub(crate) fn collected(&self) -> (usize, usize) {
        (self.entries, self.stored + self.side.len() + self.own_bytes)
    }

    /// Notes that the messages kept since the last call are of `connection`. Returns their number and the bytes of their
    /// data, without frame headers.
    pub(crate) fn end_run(&mut self, connection: ConnectionKey) -> (usize, usize) {
        let (mut messages, mut bytes) = (0, 0);
        for piece in &mut self.pieces[self.unassigned..] {
            let run = Run {
                connection,
                messages: piece.messages - piece.assigned.0,
                bytes: piece.data_bytes - piece.assigned.1,
            };
            if run.messages > 0 {
                piece.assigned = (piece.messages, piece.data_bytes);
                piece.runs.push(run);
                messages += run.messages;
                bytes += run.bytes;
            }
        }
        // The last piece may still grow.
        self.unassigned = self.pieces.len().saturating_sub(1);
        (messages, bytes)
    }

    /// Whether so much is collected that it should be handed over before the next read.
    pub(crate) fn is_due(&self) -> bool {
        self.entries >= ENTRIES_PER_SEGMENT
    }

    /// Makes room for a read after `partial` bytes. Returns false if no arena is available; `ignores_limit` allows one
    /// more arena than the limit.
    pub(crate) fn reserve(&mut self, partial: usize, ignores_limit: bool) -> bool {
        let needed = READ_BYTES + partial;
        if self.arena.capacity() - self.arena.len() >= needed {
            return true;
        }
        // If no blob of it is alive, the arena is reused from its start.
        if self.arena.is_empty() && self.arena.try_reclaim(needed.max(ARENA_BYTES)) {
            return true;
        }
        let Some(fresh) = self.fresh_arena(needed, ignores_limit) else { return false };
        self.seal();
        let used = std::mem::replace(&mut self.arena, fresh);
        self.spent.push_back(used);
        true
    }

    fn fresh_arena(&mut self, needed: usize, ignores_limit: bool) -> Option<BytesMut> {
        let free = self.spent.iter_mut().take(4).position(|arena| arena.try_reclaim(needed.max(ARENA_BYTES)));
        if let Some(index) = free {
            return self.spent.remove(index);
        }
        if self.arenas >= self.arenas_limit && !ignores_limit {
            return None;
        }
        self.arenas += 1;
        Some(BytesMut::with_capacity(needed.max(ARENA_BYTES)))
    }

    /// Frees arenas that aren't needed; one is kept.
    pub(crate) fn shrink(&mut self) {
        while self.spent.front_mut().is_some_and(|arena| arena.try_reclaim(1)) {
            self.spent.pop_front();
            self.arenas -= 1;
        }
    }

    /// Freezes the arena so far into a blob; the entries of this round then refer to the blob.
    fn seal(&mut self) {
        if self.arena.is_empty() {
            return;
        }
        let blob = self.arena.split().freeze();
        self.own_bytes += blob.len();
        self.stored = 0;
        for piece in self.pieces.iter_mut().filter(|piece| matches!(piece.source, Source::Arena)) {
            piece.source = Source::Own(blob.clone());
        }
    }

    /// Starts a read with the bytes of an incomplete frame from the read before. Returns the offset of these bytes.
    pub(crate) fn begin_read(&mut self, partial: &[u8]) -> usize {
        let start = self.arena.len();
        self.stored = start;
        self.arena.extend_from_slice(partial);
        start
    }

    /// Reads at most `maximum` bytes from `socket` and appends them. Returns the number of bytes that were read and the
    /// number that there was room for.
    pub(crate) fn read(
        &mut self,
        socket: &impl std::os::fd::AsFd,
        maximum: usize,
    ) -> rustix::io::Result<(usize, usize)> {
        let spare: &mut [MaybeUninit<u8>] = self.arena.spare_capacity_mut();
        let room = spare.len().min(maximum);
        let read = rustix::io::read(socket, &mut spare[..room])?.0.len();
        let length = self.arena.len() + read;
        // SAFETY: the kernel has initialised `read` bytes behind the old length, within the capacity.
        unsafe { self.arena.set_len(length) };
        Ok((read, room))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.arena
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.arena
    }

    /// Ends a read: what is after the last kept message is overwritten by the next read.
    pub(crate) fn end_read(&mut self) {
        self.arena.truncate(self.stored);
    }

    /// Keeps a message that is in the arena at `location`. The other ranges are relative to its start.
    #[inline]
    pub(crate) fn push_in_arena(
        &mut self,
        kind: Kind,
        connection: ConnectionKey,
        location: Range<usize>,
        data: Range<usize>,
        message_type: Option<Range<usize>>,
    ) {
        self.stored = location.end;
        let entry = entry(kind, connection, location.start, data, message_type);
        self.push_entry(Source::Arena, entry);
    }

    /// Keeps a message. Ranges are relative to its start in `location`.
    pub(crate) fn push(
        &mut self,
        kind: Kind,
        connection: ConnectionKey,
        location: PayloadLocation,
        data: Range<usize>,
        message_type: Option<Range<usize>>,
    ) {
        let (source, base) = match location {
            PayloadLocation::Arena(range) => return self.push_in_arena(kind, connection, range, data, message_type),
            PayloadLocation::Own(bytes, range) if range.len() <= COPY_BYTES => {
                let base = self.side.len();
                self.side.extend_from_slice(&bytes[range]);
                (Source::Side, base)
            }
            PayloadLocation::Own(bytes, range) => {
                self.own_bytes += bytes.len();
                (Source::Own(bytes.into()), range.start)
            }
        };
        self.push_entry(source, entry(kind, connection, base, data, message_type));
    }

    /// Keeps a connection event. It is never refused, because the application needs it to interpret the messages.
    pub(crate) fn push_event(&mut self, kind: Kind, connection: ConnectionKey, id: &str, data: &[u8]) {
        let start = self.side.len();
        self.side.extend_from_slice(data);
        let end = self.side.len();
        self.side.extend_from_slice(id.as_bytes());
        let type_len = id.len() as u16;
        let entry = Entry { connection, start: start as u32, end: end as u32, type_start: end as u32, type_len, kind };
        self.push_entry(Source::Side, entry);
    }

    #[inline]
    fn push_entry(&mut self, source: Source, entry: Entry) {
        self.entries += 1;
        let is_message = usize::from(entry.kind.is_message());
        let data_bytes = is_message * (entry.end - entry.start) as usize;
        let is_disconnect = entry.kind == Kind::Disconnect;
        match self.pieces.last_mut() {
            Some(piece) if piece.source.is_shared_with(&source) => {
                piece.entries.push(entry);
                piece.messages += is_message;
                piece.data_bytes += data_bytes;
                piece.has_disconnects |= is_disconnect;
            }
            _ => {
                self.pieces.push(Piece {
                    source,
                    entries: vec![entry],
                    messages: is_message,
                    data_bytes,
                    runs: Runs::default(),
                    assigned: (0, 0),
                    has_disconnects: is_disconnect,
                });
            }
        }
    }

    /// Turns what was collected into segments for the application. The bytes of each blob are charged to one segment
    /// only.
    pub(crate) fn arrived(&mut self) -> &mut Vec<Queued> {
        if self.pieces.is_empty() {
            return &mut self.arrived;
        }
        let arena = if self.arena.is_empty() { Bytes::new() } else { self.arena.split().freeze() };
        let side = if self.side.is_empty() { Bytes::new() } else { self.side.split().freeze() };
        let (mut charged_arena, mut charged_side) = (arena.len(), side.len());
        for piece in self.pieces.drain(..) {
            let (blob, bytes) = match piece.source {
                Source::Arena => (arena.clone(), std::mem::take(&mut charged_arena)),
                Source::Side => (side.clone(), std::mem::take(&mut charged_side)),
                Source::Own(blob) => {
                    let bytes = blob.len();
                    (blob, bytes)
                }
            };
            let segment = Segment { blob, entries: piece.entries };
            let Piece { messages, runs, has_disconnects, .. } = piece;
            self.arrived.push(Queued { segment, bytes, messages, runs, has_disconnects });
        }
        (self.stored, self.entries, self.own_bytes, self.unassigned) = (0, 0, 0, 0);
        &mut self.arrived
    }
}

/// Builds the entry of a message that starts at `base`. A type longer than 65535 bytes is left out.
#[inline]
fn entry(
    kind: Kind,
    connection: ConnectionKey,
    base: usize,
    data: Range<usize>,
    message_type: Option<Range<usize>>,
) -> Entry {
    let message_type = message_type.filter(|range| range.len() <= usize::from(u16::MAX)).unwrap_or(0..0);
    Entry {
        connection,
        // An arena, a round's side buffer and a message are far below 4 GiB; `Config::validate` limits the message.
        start: (base + data.start) as u32,
        end: (base + data.end) as u32,
        type_start: (base + message_type.start) as u32,
        type_len: message_type.len() as u16,
        kind,
    }
}

#[cfg(test)]
mod tests;
