//! Reads from a connection: bytes into the arena, messages out of it.

use bytes::BufMut;

use super::{Core, Overflow, assembly::BIG_FRAME};
use crate::{
    connection::{Connection, Phase},
    frame::{self, Opcode, Violation},
    intake::{PayloadLocation, READ_BYTES},
    receive::{DataKind, Step},
    stats::CloseReason,
};

/// Frames up to this length in bytes are kept with what follows them, because it costs little to copy their beginning
/// again. No control frame is longer.
const SMALL_FRAME: usize = 1 << 10;
/// Bytes that are read and discarded at once from a connection that is no longer read.
const DISCARD_BYTES: usize = 16 << 10;

/// The result of work on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing is left to read until the socket reports more.
    Drained,
    /// There may be more to read.
    More,
    /// The application holds as much of this connection as it may.
    Full,
    /// No arena is free.
    Starved,
    /// The connection has ended.
    Closed(CloseReason),
}

/// The reason why parsing stopped.
enum Stop {
    /// The frame is incomplete; the number is its length in bytes, if its header has arrived.
    Incomplete(Option<usize>),
    /// The application holds as much of this connection as it may.
    Full,
    /// A Close frame with its code, if it has one.
    Close(Option<u16>),
    Violation(Violation),
}

impl Core {
    /// Does what a readable connection needs in its phase.
    pub(super) fn serve(&mut self, connection: &mut Connection) -> Progress {
        match connection.phase {
            Phase::Handshake => self.open(connection),
            Phase::Open | Phase::Closing => self.read(connection),
            Phase::Lingering => self.discard(connection),
        }
    }

    fn read(&mut self, connection: &mut Connection) -> Progress {
        let allowance = self.allow(connection);
        let progress = if connection.owns_frame && !connection.has_unparsed {
            // A frame that was begun is completed, as its memory is reserved.
            self.read_big(connection)
        } else if allowance.may_read {
            self.read_small(connection)
        } else {
            Progress::Full
        };
        self.charge(connection, allowance);
        self.send_replies(connection);
        if std::mem::take(&mut self.is_overflown) {
            self.close_overflown(connection);
        }
        if connection.closes_when_flushed && connection.backlog.is_none() {
            if self.overflow != Overflow::Echo {
                return Progress::Closed(CloseReason::Client);
            }
            // As in `flush`: the echoes that the kernel still holds may be large, so the connection isn't closed at
            // once.
            connection.closes_when_flushed = false;
            self.half_close(connection);
        }
        progress
    }

    /// Reads into the arena and takes every complete frame out of it.
    fn read_small(&mut self, connection: &mut Connection) -> Progress {
        let may_drop = self.overflow != Overflow::Wait;
        if !self.intake.reserve(connection.partial.len(), may_drop) {
            return Progress::Starved;
        }
        let start = self.intake.begin_read(&connection.partial);
        let was_within_frame = !std::mem::take(&mut connection.partial).is_empty();
        // What has arrived already is parsed first. Otherwise it would grow by one read each time the application
        // releases a little.
        let had_unparsed = std::mem::take(&mut connection.has_unparsed);
        let end = if connection.is_readable && !had_unparsed { self.fill(connection) } else { None };
        let (at, stop) = self.parse(connection, start);
        let rest = &self.intake.bytes()[at..];
        if !rest.is_empty() && matches!(stop, Stop::Incomplete(_) | Stop::Full) {
            connection.partial = rest.to_vec();
        }
        let is_same_frame = was_within_frame && at == start;
        if !is_same_frame {
            connection.checked = 0;
        }
        let limit = self.shared.config.max_message_size;
        let stop = match stop {
            // The rest may take long: text that is invalid already ends the connection now.
            Stop::Incomplete(length) => match connection.receiver.check_incomplete(rest, connection.checked, limit) {
                Ok(checked) => {
                    connection.checked = checked;
                    let length = length.unwrap_or(0);
                    // A frame that comes in many pieces would be copied with each of them.
                    connection.owns_frame = length > BIG_FRAME || is_same_frame && length > SMALL_FRAME;
                    Stop::Incomplete(Some(length))
                }
                Err(violation) => Stop::Violation(violation),
            },
            stop => stop,
        };
        self.intake.end_read();
        self.finish_read(connection, stop).or(end).unwrap_or(if connection.is_readable {
            Progress::More
        } else {
            Progress::Drained
        })
    }

    /// Reads once. Returns how the connection ended, if it did.
    fn fill(&mut self, connection: &mut Connection) -> Option<Progress> {
        // While large messages wait for room, their beginnings are kept short.
        let maximum = if self.assembly.is_contended() { BIG_FRAME } else { READ_BYTES };
        match self.intake.read(&connection.socket, maximum) {
            Ok((0, _)) => Some(Progress::Closed(CloseReason::Eof)),
            Ok((read, room)) => {
                self.counters.bytes_received += read as u64;
                // A short read has emptied the socket; the next bytes raise an edge.
                connection.is_readable = read == room || connection.is_hung_up;
                None
            }
            Err(rustix::io::Errno::AGAIN) => {
                connection.is_readable = false;
                None
            }
            Err(rustix::io::Errno::INTR) => None,
            Err(_) => Some(Progress::Closed(CloseReason::Error)),
        }
    }

    /// Acts on the reason why parsing stopped. Returns the connection's progress if it isn't to be read further.
    fn finish_read(&mut self, connection: &mut Connection, stop: Stop) -> Option<Progress> {
        connection.expected = 0;
        if !matches!(stop, Stop::Incomplete(_)) {
            (connection.owns_frame, connection.checked) = (false, 0);
        }
        match stop {
            Stop::Incomplete(expected) => {
                connection.expected = expected.unwrap_or(0);
                None
            }
            Stop::Full => {
                connection.has_unparsed = true;
                Some(Progress::Full)
            }
            Stop::Close(code) => self.reply_to_close(connection, code),
            Stop::Violation(violation) => {
                self.close_for_violation(connection, violation);
                None
            }
        }
    }

    fn reply_to_close(&mut self, connection: &mut Connection, code: Option<u16>) -> Option<Progress> {
        if connection.phase == Phase::Closing {
            return Some(Progress::Closed(CloseReason::Client));
        }
        match code {
            Some(code) => frame::put_close(&mut self.replies, code, ""),
            None => frame::put_header(&mut self.replies, Opcode::Close, 0),
        }
        connection.reason = Some(CloseReason::Client);
        connection.phase = Phase::Lingering;
        connection.closes_when_flushed = true;
        None
    }

    /// Parses frames from the arena, starting at `at`. Returns where and why it stopped.
    fn parse(&mut self, connection: &mut Connection, mut at: usize) -> (usize, Stop) {
        let limit = self.shared.config.max_message_size;
        let is_echo = self.overflow == Overflow::Echo;
        loop {
            let step = match connection.receiver.step(self.intake.bytes_mut(), at, limit) {
                Ok(step) => step,
                Err(violation) => return (at, Stop::Violation(violation)),
            };
            let (result, next) = match step {
                Step::Complete { kind, payload, next } if is_echo => {
                    (self.echo(connection, kind, PayloadLocation::Arena(payload)), next)
                }
                Step::Complete { kind: DataKind::Text, payload, next } => (self.text(connection, payload), next),
                Step::Complete { kind, payload, next } => {
                    (self.message(connection, kind, PayloadLocation::Arena(payload)), next)
                }
                Step::Incomplete(expected) => return (at, Stop::Incomplete(expected)),
                Step::Consumed { next } => (Ok(()), next),
                Step::Joined { kind, payload, next } => {
                    let complete = 0..payload.len();
                    (self.complete(connection, kind, PayloadLocation::Own(payload, complete)), next)
                }
                Step::Ping { payload, next } => {
                    frame::put_header(&mut self.replies, Opcode::Pong, payload.len());
                    self.replies.put_slice(&self.intake.bytes()[payload]);
                    (Ok(()), next)
                }
                Step::Close { code } => return (at, Stop::Close(code)),
            };
            if let Err(violation) = result {
                return (at, Stop::Violation(violation));
            }
            at = next;
            if self.intake.must_stop() && at < self.intake.bytes().len() {
                return (at, Stop::Full);
            }
        }
    }

    /// Reads a frame that has its own buffer, and no byte beyond it. What arrives is neither copied nor checked again.
    fn read_big(&mut self, connection: &mut Connection) -> Progress {
        let missing = connection.expected - connection.partial.len();
        // Memory grows with what arrives, not with what the header announces.
        let room = missing.min(connection.partial.len().max(4 * BIG_FRAME));
        connection.partial.reserve_exact(room);
        let spare = &mut connection.partial.spare_capacity_mut()[..room];
        let read = match rustix::io::read(&connection.socket, spare).map(|(read, _)| read.len()) {
            Ok(0) => return Progress::Closed(CloseReason::Eof),
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN) => {
                connection.is_readable = false;
                return Progress::Drained;
            }
            Err(rustix::io::Errno::INTR) => return Progress::More,
            Err(_) => return Progress::Closed(CloseReason::Error),
        };
        let length = connection.partial.len() + read;
        // SAFETY: the kernel has initialised `read` bytes after the old length, within the capacity.
        unsafe { connection.partial.set_len(length) };
        self.counters.bytes_received += read as u64;
        connection.is_readable = read == room || connection.is_hung_up;
        if connection.partial.len() == connection.expected {
            self.take_big(connection);
        } else if connection.expected <= BIG_FRAME {
            let (checked, limit) = (connection.checked, self.shared.config.max_message_size);
            match connection.receiver.check_incomplete(&connection.partial, checked, limit) {
                Ok(checked) => connection.checked = checked,
                Err(violation) => self.close_for_violation(connection, violation),
            }
        }
        if connection.is_readable { Progress::More } else { Progress::Drained }
    }

    /// Processes a big frame that is complete.
    fn take_big(&mut self, connection: &mut Connection) {
        let mut frame = std::mem::take(&mut connection.partial);
        (connection.expected, connection.checked, connection.owns_frame) = (0, 0, false);
        let limit = self.shared.config.max_message_size;
        let result = match connection.receiver.step(&mut frame, 0, limit) {
            Ok(Step::Complete { kind, payload, .. }) => {
                self.complete(connection, kind, PayloadLocation::Own(frame, payload))
            }
            Ok(Step::Joined { kind, payload, .. }) => {
                let complete = 0..payload.len();
                self.complete(connection, kind, PayloadLocation::Own(payload, complete))
            }
            Ok(_) => Ok(()),
            Err(violation) => Err(violation),
        };
        if let Err(violation) = result {
            self.close_for_violation(connection, violation);
        }
    }

    /// Processes a message that is not in the arena.
    fn complete(
        &mut self,
        connection: &mut Connection,
        kind: DataKind,
        location: PayloadLocation,
    ) -> Result<(), Violation> {
        if self.overflow == Overflow::Echo {
            self.echo(connection, kind, location)
        } else {
            self.message(connection, kind, location)
        }
    }

    /// Discards what a client sends while its connection lingers, until the client closes it.
    fn discard(&mut self, connection: &mut Connection) -> Progress {
        let mut discard = [0_u8; DISCARD_BYTES];
        loop {
            match rustix::io::read(&connection.socket, &mut discard) {
                Ok(0) => return Progress::Closed(CloseReason::Eof),
                Ok(DISCARD_BYTES) => return Progress::More,
                Ok(_) if !connection.is_hung_up => {
                    connection.is_readable = false;
                    return Progress::Drained;
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    connection.is_readable = false;
                    return Progress::Drained;
                }
                Err(_) => return Progress::Closed(CloseReason::Error),
            }
        }
    }
}
