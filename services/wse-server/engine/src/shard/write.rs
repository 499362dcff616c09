//! Writes to a connection: at once if its socket takes it, otherwise into its backlog, within the limits.

use std::io::IoSlice;

use bytes::Bytes;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};

use super::{Core, read::Progress};
use crate::{
    connection::{Connection, Phase},
    frame::{self, Violation},
    outbound::{Backlog, Chunk},
    priority::{Level, PerLevel},
    stats::{CloseReason, SendDropReason},
};

/// Chunks per gathering write. Each costs the kernel 30 to 50 ns.
const SLICES: usize = 64;
/// Empty backlogs that are kept for the next connection that needs one.
const SPARE_BACKLOGS: usize = 1024;
/// A client with this many bytes waiting isn't read until it takes some: replies to its requests would only wait too.
const BEHIND_BYTES: usize = 1 << 20;
/// A buffer for replies that grew beyond this many bytes is shrunk to it.
const REPLIES_CAPACITY: usize = 1 << 20;

impl Core {
    /// Sends framed bytes that hold `messages` messages. What the socket doesn't take is copied.
    pub(super) fn send(&mut self, connection: &mut Connection, bytes: &[u8], messages: u32) {
        if self.encrypted > 0 && connection.duplex().is_some() {
            return self.send_frames(connection, bytes, messages);
        }
        let Some(written) = self.try_send(connection, bytes, messages) else { return };
        if written < bytes.len() {
            let bytes = Bytes::copy_from_slice(bytes);
            let level = self.reply_level(connection);
            self.queue_unsent(connection, Chunk { bytes, messages, is_own: true }, level, written);
        }
    }

    /// The same as [`Core::send`], but what the socket doesn't take is shared instead of copied.
    pub(super) fn send_shared(&mut self, connection: &mut Connection, bytes: &Bytes, messages: u32) {
        if self.encrypted > 0 && connection.duplex().is_some() {
            return self.send_frames(connection, bytes, messages);
        }
        let Some(written) = self.try_send(connection, bytes, messages) else { return };
        if written < bytes.len() {
            self.queue_unsent(connection, Chunk::shared(bytes.clone(), messages), Level::Normal, written);
        }
    }

    /// Writes what the socket takes now, in order. Returns the number of bytes written, or `None` if nothing is left to
    /// do: all was written, or the messages were dropped and counted.
    fn try_send(&mut self, connection: &mut Connection, bytes: &[u8], messages: u32) -> Option<usize> {
        if connection.backlog.is_some() {
            let has_room = self.has_room(connection, Level::Normal);
            if !has_room {
                self.drop_for_slowness(connection, Level::Normal, messages);
            }
            return has_room.then_some(0);
        }
        match rustix::net::send(&connection.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(written) => {
                self.counters.bytes_sent += written as u64;
                if written == bytes.len() {
                    self.count_sent(connection, u64::from(messages));
                    return None;
                }
                Some(written)
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Some(0),
            Err(_) => {
                // The next read finds out that the connection has failed; until then nothing can be sent.
                self.count_unsent(connection, SendDropReason::Disconnected, u64::from(messages));
                None
            }
        }
    }

    /// The priority of what is sent now. Nothing may follow a Close frame, so while a connection is closing, everything
    /// has the lowest level.
    pub(super) fn reply_level(&self, connection: &Connection) -> Level {
        if connection.phase == Phase::Open { self.reply_level } else { Level::Background }
    }

    /// Whether a message of a level may wait for a client, if necessary in place of messages of lower levels, which are
    /// dropped.
    pub(super) fn has_room(&mut self, connection: &mut Connection, level: Level) -> bool {
        if !self.is_over_limit(connection) {
            return true;
        }
        let maximum = match self.shared.config.max_outbound_queue_bytes {
            0 => usize::MAX,
            limit => limit - 1,
        };
        let surplus = (self.outbound_bytes + 1).saturating_sub(self.outbound_limit);
        // While a Close frame waits, no message is moved any more.
        let Some(backlog) = connection.backlog.as_mut().filter(|_| connection.phase == Phase::Open) else {
            return false;
        };
        let before = backlog.own_bytes();
        let Some(lost) = backlog.make_room(level, maximum, surplus) else { return false };
        self.outbound_bytes -= before - backlog.own_bytes();
        connection.is_dropping = true;
        self.count_all_slow(connection, lost);
        true
    }

    /// Counts messages of a level that were dropped because the client reads too slowly.
    fn count_slow(&mut self, connection: &mut Connection, level: Level, messages: u64) {
        self.count_unsent(connection, SendDropReason::SlowConsumer, messages);
        self.counters.slow_by_level[level as usize] += messages;
    }

    fn count_all_slow(&mut self, connection: &mut Connection, lost: PerLevel) {
        lost.into_iter().zip(Level::ALL).for_each(|(messages, level)| self.count_slow(connection, level, messages));
    }

    fn count_sent(&mut self, connection: &mut Connection, messages: u64) {
        connection.sent += messages;
        self.counters.sent += messages;
    }

    pub(super) fn count_unsent(&mut self, connection: &mut Connection, reason: SendDropReason, messages: u64) {
        connection.send_dropped += messages;
        self.counters.send_dropped[reason as usize] += messages;
    }

    /// Counts what waits for a client that is gone: it won't get that.
    pub(super) fn finish_backlog(&mut self, connection: &mut Connection, backlog: &mut Backlog) {
        let (sent, lost) = backlog.finish();
        self.count_sent(connection, sent);
        self.count_unsent(connection, SendDropReason::Disconnected, lost);
    }

    /// Whether a client has as many bytes waiting as it may have, or all clients of the shard together do.
    pub(super) fn is_over_limit(&self, connection: &Connection) -> bool {
        let limit = self.shared.config.max_outbound_queue_bytes;
        let is_over = |backlog: &Backlog| limit > 0 && backlog.bytes() >= limit;
        connection
            .backlog
            .as_ref()
            .is_some_and(|backlog| is_over(backlog) || self.outbound_bytes >= self.outbound_limit)
    }

    /// Whether a client is so far behind that it isn't read, as replies would only wait too.
    pub(super) fn is_behind(&self, connection: &Connection) -> bool {
        let limit = match self.shared.config.max_outbound_queue_bytes {
            0 => BEHIND_BYTES,
            limit => limit.min(BEHIND_BYTES),
        };
        connection.backlog.as_ref().is_some_and(|backlog| backlog.bytes() >= limit) || self.is_over_limit(connection)
    }

    /// Counts messages that are dropped because the client reads too slowly.
    pub(super) fn drop_for_slowness(&mut self, connection: &mut Connection, level: Level, messages: u32) {
        connection.is_dropping = true;
        self.count_slow(connection, level, u64::from(messages));
    }

    /// Adds a chunk to the backlog, after what waits with the same level; `written` bytes of it were sent already. If
    /// the shard's backlogs would have more than twice their limit, the connection is cut off: one without a backlog
    /// isn't checked against the limit, and thousands of new ones may each add a little.
    pub(super) fn queue_unsent(&mut self, connection: &mut Connection, chunk: Chunk, level: Level, written: usize) {
        if chunk.is_own {
            if self.outbound_bytes + chunk.bytes.len() > 2 * self.outbound_limit.max(chunk.bytes.len()) {
                self.count_slow(connection, level, u64::from(chunk.messages));
                connection.reason.get_or_insert(CloseReason::SlowConsumer);
                // It fails if the client is gone already; either way, the next read finds the end.
                let _ = shutdown(&connection.socket, Shutdown::Both);
                return;
            }
            self.outbound_bytes += chunk.bytes.len() - written;
        }
        let spare = &mut self.spare_backlogs;
        let backlog = connection.backlog.get_or_insert_with(|| spare.pop().unwrap_or_default());
        backlog.push(chunk, level, written);
    }

    /// Keeps an empty backlog for the next connection that needs one.
    pub(super) fn spare(&mut self, mut backlog: Box<Backlog>) {
        backlog.is_blocked = false;
        if self.spare_backlogs.len() < SPARE_BACKLOGS && backlog.is_reusable() {
            self.spare_backlogs.push(backlog);
        }
    }

    /// Writes what waits, as far as the socket takes it.
    pub(super) fn flush(&mut self, connection: &mut Connection) -> Progress {
        let Some(mut backlog) = connection.backlog.take() else { return Progress::Drained };
        let before = backlog.own_bytes();
        while !backlog.is_empty() {
            match self.write_some(connection, &mut backlog) {
                Ok(written) => {
                    self.counters.bytes_sent += written as u64;
                    self.count_sent(connection, backlog.advance(written));
                    connection.has_progressed = true;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    // Encryption makes a chunk longer.
                    self.outbound_bytes = self.outbound_bytes + backlog.own_bytes() - before;
                    backlog.is_blocked = true;
                    connection.backlog = Some(backlog);
                    return Progress::Drained;
                }
                Err(_) => self.finish_backlog(connection, &mut backlog),
            }
        }
        self.outbound_bytes -= before;
        self.spare(backlog);
        // The kernel still holds what a slow client is to read, including the Close frame. Closing a socket with unread
        // input would discard that, so the connection stays until the client closes it.
        connection.closes_when_flushed = false;
        if connection.phase == Phase::Lingering {
            self.half_close(connection);
        }
        Progress::Drained
    }

    /// Writes some of what waits. With encryption of version 2 it is encrypted now, a chunk at a time.
    fn write_some(&self, connection: &mut Connection, backlog: &mut Backlog) -> rustix::io::Result<usize> {
        if self.encrypted == 0 {
            return write_chunks(connection, backlog);
        }
        let Some(duplex) = connection.duplex() else { return write_chunks(connection, backlog) };
        if let Err(error) = Self::seal_first(duplex, backlog) {
            tracing::error!(%error, "messages could not be encrypted: the connection ends");
            let _ = shutdown(&connection.socket, Shutdown::Both);
            return Err(rustix::io::Errno::IO);
        }
        rustix::net::send(&connection.socket, backlog.begun(), SendFlags::NOSIGNAL)
    }

    /// Writes all replies of one read of a connection at once.
    pub(super) fn send_replies(&mut self, connection: &mut Connection) {
        if self.replies.is_empty() {
            return;
        }
        let mut replies = std::mem::take(&mut self.replies);
        let messages = std::mem::take(&mut self.reply_messages);
        self.send(connection, &replies, messages);
        self.reply_level = Level::Normal;
        replies.clear();
        replies.shrink_to(REPLIES_CAPACITY);
        self.replies = replies;
        if connection.phase == Phase::Lingering && !connection.closes_when_flushed {
            self.half_close(connection);
        }
    }

    /// Ends a connection after a protocol violation: the Close frame follows the replies, and the client isn't read any
    /// more.
    pub(super) fn close_for_violation(&mut self, connection: &mut Connection, violation: Violation) {
        if connection.phase != Phase::Closing {
            frame::put_close(&mut self.replies, violation.close_code(), "");
            connection.reason = Some(match violation {
                Violation::InvalidUtf8 => CloseReason::Utf8,
                Violation::TooBig => CloseReason::TooBig,
                _ => CloseReason::Protocol,
            });
        }
        connection.phase = Phase::Lingering;
        connection.forget_input();
    }

    /// Sends a Close frame on an open connection, and waits for the client's.
    pub(super) fn close(&mut self, connection: &mut Connection, code: u16, text: &str, reason: CloseReason) {
        connection.phase = Phase::Closing;
        connection.reason = Some(reason);
        let mut close_frame = Vec::with_capacity(text.len() + frame::MAX_HEADER);
        frame::put_close(&mut close_frame, code, text);
        if let Some(backlog) = &mut connection.backlog {
            // The Close frame waits after everything else, and the limit doesn't apply to it.
            self.outbound_bytes += close_frame.len();
            backlog.push(Chunk { bytes: close_frame.into(), messages: 0, is_own: true }, Level::Background, 0);
        } else {
            self.send(connection, &close_frame, 0);
        }
    }

    /// Gives up a client that doesn't read: what waits is dropped, so that the Close frame is sent as soon as possible.
    pub(super) fn give_up(&mut self, connection: &mut Connection) {
        if let Some(backlog) = &mut connection.backlog {
            let before = backlog.own_bytes();
            let lost = backlog.give_up();
            self.outbound_bytes -= before - backlog.own_bytes();
            self.count_all_slow(connection, lost);
        }
        self.close(connection, 1013, "slow consumer", CloseReason::SlowConsumer);
    }

    /// Ends our side of the connection once nothing waits; the client may still send.
    pub(super) fn half_close(&mut self, connection: &mut Connection) {
        if connection.backlog.is_none() {
            // It fails if the client is gone already, which the next read finds out.
            let _ = shutdown(&connection.socket, Shutdown::Write);
        }
    }
}

/// Writes as many chunks as one system call takes.
fn write_chunks(connection: &Connection, backlog: &Backlog) -> rustix::io::Result<usize> {
    let mut chunks = backlog.iter();
    if backlog.len() == 1 {
        return rustix::net::send(&connection.socket, chunks.next().unwrap_or_default(), SendFlags::NOSIGNAL);
    }
    let slices: [IoSlice<'_>; SLICES] = std::array::from_fn(|_| IoSlice::new(chunks.next().unwrap_or_default()));
    let slices = &slices[..backlog.len().min(SLICES)];
    sendmsg(&connection.socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}
