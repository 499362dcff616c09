//! Connections that aren't read for messages now: their pings are answered all the same.
//!
//! Ten times a second a few KiB are read from each, as long as it has no more than that waiting. Pings and pongs are
//! taken out of what waits, and everything else stays as it is. What a client sends beyond that stays in its socket,
//! and TCP holds it back.

use bytes::BufMut;
use rustix::io::Errno;

use super::{Core, Overflow, Shard, read::Progress};
use crate::{
    connection::{Connection, Parked, Phase},
    frame::{self, Opcode},
    receive::DataKind,
    stats::CloseReason,
};

/// How often parked connections are looked at, in milliseconds.
const VISIT_MILLIS: u64 = 100;
/// Connections that are looked at per round; each costs a system call if its client has sent something.
const VISITED_PER_ROUND: usize = 256;
/// How much of a parked connection's input is looked through, in bytes.
const WAITING_BYTES: usize = 16 << 10;
/// The longest message that is looked at, in bytes; a ping is much shorter.
const LONGEST_PING: usize = 1 << 10;

/// The walks over all parked connections, a few per round.
#[derive(Debug, Default)]
pub(super) struct Visits {
    /// How many are still to be looked at in this walk.
    left: usize,
    /// When the next walk is due, in milliseconds of the shard's clock.
    due_millis: u64,
}

impl Visits {
    pub(super) fn is_walking(&self) -> bool {
        self.left > 0
    }
}

impl Shard {
    /// When parked connections are looked at next; `None` if there are none.
    pub(super) fn next_visit_millis(&self) -> Option<u64> {
        (!self.parked.is_empty()).then_some(self.visits.due_millis)
    }

    /// Answers the pings of parked connections, and reads those again whose rate limit allows it.
    pub(super) fn visit(&mut self) {
        let now = self.core.now_millis;
        if self.visits.left == 0 {
            if self.parked.is_empty() || now < self.visits.due_millis {
                return;
            }
            self.visits = Visits { left: self.parked.len(), due_millis: now + VISIT_MILLIS };
        }
        for _ in 0..self.visits.left.min(VISITED_PER_ROUND) {
            self.visits.left -= 1;
            let Some(key) = self.parked.pop_front() else {
                self.visits.left = 0;
                return;
            };
            let Some(mut connection) = self.table.take(key) else { continue };
            let progress = self.core.attend(&mut connection);
            if connection.parked == Parked::No {
                connection.is_visited = false;
            } else if !matches!(connection.phase, Phase::Open | Phase::Closing) || self.is_due(&connection) {
                connection.unpark(now);
                connection.is_visited = false;
                self.ready.push_back(key);
            } else {
                self.parked.push_back(key);
            }
            self.settle(connection, progress);
        }
    }

    /// Whether a connection that waits because of its rate limit may go on; if not, it is looked at when it may.
    fn is_due(&mut self, connection: &Connection) -> bool {
        let bucket = connection.extras.as_ref().and_then(|extras| extras.inbound.as_ref());
        let Some(bucket) = bucket.filter(|_| connection.parked == Parked::Rate) else { return false };
        let mut bucket = bucket.clone();
        let missing = 1.0 - bucket.tokens(self.core.now_millis as f64 / 1000.0);
        let wait = (missing / bucket.refill_per_second() * 1000.0).ceil();
        if wait > 0.0 {
            self.visits.due_millis = self.visits.due_millis.min(self.core.now_millis + (wait as u64).max(1));
        }
        wait <= 0.0
    }
}

impl Core {
    /// Looks through what a parked connection has sent, and answers its pings.
    fn attend(&mut self, connection: &mut Connection) -> Progress {
        let is_open = matches!(connection.phase, Phase::Open | Phase::Closing);
        let is_within_frame = connection.owns_frame && !connection.has_unparsed;
        let is_behind = connection.backlog.is_some() && self.is_behind(connection);
        if !is_open
            || connection.parked == Parked::No
            || is_within_frame
            || is_behind
            || self.overflow == Overflow::Echo
        {
            return Progress::Drained;
        }
        let progress = self.read_waiting(connection);
        self.answer_waiting(connection);
        self.send_replies(connection);
        progress
    }

    /// Reads what fits into the little that is looked through.
    fn read_waiting(&mut self, connection: &mut Connection) -> Progress {
        let room = WAITING_BYTES.saturating_sub(connection.partial.len());
        if room == 0 || !connection.is_readable {
            return Progress::Drained;
        }
        connection.partial.reserve_exact(room);
        let spare = &mut connection.partial.spare_capacity_mut()[..room];
        match rustix::io::read(&connection.socket, spare).map(|(read, _)| read.len()) {
            // With something left to hand over, the end is noticed again after that.
            Ok(0) if connection.partial.is_empty() => return Progress::Closed(CloseReason::Eof),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(read) => {
                let length = connection.partial.len() + read;
                // SAFETY: the kernel has initialised `read` bytes after the old length, within the capacity.
                unsafe { connection.partial.set_len(length) };
                self.counters.bytes_received += read as u64;
                connection.is_readable = read == room || connection.is_hung_up;
            }
            Err(Errno::AGAIN) => connection.is_readable = false,
            Err(_) if connection.partial.is_empty() => return Progress::Closed(CloseReason::Error),
            Err(_) => {}
        }
        connection.partial.shrink_to_fit();
        Progress::Drained
    }

    /// Takes pings and pongs out of what waits. Frames behind a Close frame or a violation are left alone; both are
    /// acted on when it is their turn.
    fn answer_waiting(&mut self, connection: &mut Connection) {
        let limit = self.shared.config.max_message_size;
        let mut waiting = std::mem::take(&mut connection.partial);
        let mut at = if connection.has_unparsed { connection.checked } else { 0 };
        let mut kept = at;
        while let Ok(Some(header)) = frame::parse_header(&waiting[at..], limit) {
            let end = at + header.frame_bytes();
            if end > waiting.len() || header.opcode == Opcode::Close {
                break;
            }
            let payload = &waiting[at + header.header_bytes..end];
            let kind = if header.fin { header.opcode } else { Opcode::Continuation };
            if !self.answer_frame(connection, kind, header.mask, payload) {
                waiting.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
        }
        let is_changed = kept < at;
        if is_changed {
            waiting.drain(kept..at);
        }
        connection.partial = waiting;
        connection.has_unparsed = kept > 0;
        connection.checked = kept;
        connection.expected = 0;
    }

    /// Answers a frame that is or holds a ping. Returns whether there is nothing more to do for it.
    fn answer_frame(&mut self, connection: &mut Connection, opcode: Opcode, mask: [u8; 4], masked: &[u8]) -> bool {
        let kind = match opcode {
            Opcode::Pong => return true,
            Opcode::Ping => None,
            Opcode::Text => Some(DataKind::Text),
            Opcode::Binary => Some(DataKind::Binary),
            Opcode::Continuation | Opcode::Close => return false,
        };
        if masked.len() > LONGEST_PING {
            return false;
        }
        let mut payload = [0; LONGEST_PING];
        let payload = &mut payload[..masked.len()];
        payload.copy_from_slice(masked);
        frame::unmask(payload, mask);
        let Some(kind) = kind else {
            frame::put_header(&mut self.replies, Opcode::Pong, payload.len());
            self.replies.put_slice(payload);
            return true;
        };
        self.answer_ping(connection, kind, payload)
    }
}
