//! Reading from a connection: bytes into the arena, messages out of it.

use bytes::BufMut;

use super::{Core, Overflow, assembly::BIG_FRAME};
use crate::{
    connection::{Connection, Phase},
    frame::{self, Opcode, Violation},
    intake::{Place, READ_BYTES},
    receive::{DataKind, Step},
    stats::CloseReason,
};

/// So much is thrown away at once while lingering.
const WASTE_BYTES: usize = 16 << 10;

/// What working on a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is nothing left to read until the socket says so.
    Drained,
    /// There may be more.
    More,
    /// The application holds all that it may.
    Full,
    /// There is no arena to read to.
    Starved,
    /// That was its end.
    Gone(CloseReason),
}

/// Where parsing stopped, and why.
enum Stop {
    /// The frame there isn't whole; it will have so many bytes, if that is known.
    Incomplete(Option<usize>),
    /// The application holds all that it may.
    Full,
    /// The client said goodbye.
    Close(Option<u16>),
    Violation(Violation),
}

impl Core {
    /// Does what a readable connection needs.
    pub(super) fn serve(&mut self, connection: &mut Connection) -> Progress {
        match connection.phase {
            Phase::Handshake => self.open(connection),
            Phase::Open | Phase::Closing => self.read(connection),
            Phase::Lingering => self.waste(connection),
        }
    }

    fn read(&mut self, connection: &mut Connection) -> Progress {
        let progress = if connection.expected > BIG_FRAME && !connection.has_unparsed {
            self.read_big(connection)
        } else {
            self.read_small(connection)
        };
        self.send_replies(connection);
        if connection.ends_when_flushed && connection.backlog.is_none() {
            if self.overflow != Overflow::Echo {
                return Progress::Gone(CloseReason::Client);
            }
            // As in `flush`: echoes are as large as what is echoed.
            connection.ends_when_flushed = false;
            self.half_close(connection);
        }
        progress
    }

    /// Reads into the arena and takes every whole frame out of it.
    fn read_small(&mut self, connection: &mut Connection) -> Progress {
        let may_drop = self.overflow != Overflow::Wait;
        if !may_drop && self.intake.is_full() {
            return Progress::Full;
        }
        if !self.intake.reserve(connection.partial.len(), may_drop) {
            return Progress::Starved;
        }
        let start = self.intake.begin_read(&connection.partial);
        connection.partial = Vec::new();
        // What is here already comes first, or it would grow by a read each time that the application lets go of a little.
        let had_unparsed = std::mem::take(&mut connection.has_unparsed);
        let end = if connection.is_readable && !had_unparsed { self.fill(connection) } else { None };
        let (at, stop) = self.parse(connection, start);
        let rest = &self.intake.bytes()[at..];
        if !rest.is_empty() && matches!(stop, Stop::Incomplete(_) | Stop::Full) {
            connection.partial = rest.to_vec();
        }
        let limit = self.shared.config.max_message_size;
        let stop = match stop {
            // It may be all that comes for a while: text that is wrong already is told so now.
            Stop::Incomplete(_) if !rest.is_empty() => match connection.receiver.check_incomplete(rest, limit) {
                Ok(()) => stop,
                Err(violation) => Stop::Violation(violation),
            },
            stop => stop,
        };
        self.intake.end_read();
        self.conclude(connection, stop).or(end).unwrap_or(if connection.is_readable {
            Progress::More
        } else {
            Progress::Drained
        })
    }

    /// Reads once. Returns how the connection ended, if it did.
    fn fill(&mut self, connection: &mut Connection) -> Option<Progress> {
        // Where large messages wait for room, their beginnings are kept short.
        let most = if self.assembly.is_tight() { BIG_FRAME } else { READ_BYTES };
        match self.intake.read(&connection.socket, most) {
            Ok((0, _)) => Some(Progress::Gone(CloseReason::Eof)),
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
            Err(_) => Some(Progress::Gone(CloseReason::Error)),
        }
    }

    /// What follows from where parsing stopped.
    fn conclude(&mut self, connection: &mut Connection, stop: Stop) -> Option<Progress> {
        connection.expected = 0;
        match stop {
            Stop::Incomplete(expected) => {
                connection.expected = expected.unwrap_or(0);
                None
            }
            Stop::Full => {
                connection.has_unparsed = true;
                Some(Progress::Full)
            }
            Stop::Close(code) => self.answer_close(connection, code),
            Stop::Violation(violation) => {
                self.violated(connection, violation);
                None
            }
        }
    }

    fn answer_close(&mut self, connection: &mut Connection, code: Option<u16>) -> Option<Progress> {
        if connection.phase == Phase::Closing {
            return Some(Progress::Gone(CloseReason::Client));
        }
        match code {
            Some(code) => frame::put_close(&mut self.replies, code, ""),
            None => frame::put_header(&mut self.replies, Opcode::Close, 0),
        }
        connection.reason = Some(CloseReason::Client);
        connection.phase = Phase::Lingering;
        connection.ends_when_flushed = true;
        None
    }

    /// Takes frames from the arena, from `at`. Returns where it stopped.
    fn parse(&mut self, connection: &mut Connection, mut at: usize) -> (usize, Stop) {
        let limit = self.shared.config.max_message_size;
        let may_drop = self.overflow != Overflow::Wait;
        let is_echo = self.overflow == Overflow::Echo;
        loop {
            let step = match connection.receiver.step(self.intake.bytes_mut(), at, limit) {
                Ok(step) => step,
                Err(violation) => return (at, Stop::Violation(violation)),
            };
            let (result, next) = match step {
                Step::Whole { kind, payload, next } if is_echo => {
                    (self.echo(connection, kind, Place::Arena(payload)), next)
                }
                Step::Whole { kind: DataKind::Text, payload, next } => (self.text(connection, payload), next),
                Step::Whole { kind, payload, next } => (self.message(connection, kind, Place::Arena(payload)), next),
                Step::Incomplete(expected) => return (at, Stop::Incomplete(expected)),
                Step::Nothing { next } => (Ok(()), next),
                Step::Joined { kind, payload, next } => {
                    let whole = 0..payload.len();
                    (self.whole(connection, kind, Place::Own(payload, whole)), next)
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
            if !may_drop && self.intake.is_full() && at < self.intake.bytes().len() {
                return (at, Stop::Full);
            }
        }
    }

    /// Reads a frame that has its own buffer, and no byte beyond it.
    fn read_big(&mut self, connection: &mut Connection) -> Progress {
        let missing = connection.expected - connection.partial.len();
        // Memory follows what came, not what was announced.
        let room = missing.min(connection.partial.len().max(4 * BIG_FRAME));
        connection.partial.reserve_exact(room);
        let spare = &mut connection.partial.spare_capacity_mut()[..room];
        let read = match rustix::io::read(&connection.socket, spare).map(|(read, _)| read.len()) {
            Ok(0) => return Progress::Gone(CloseReason::Eof),
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN) => {
                connection.is_readable = false;
                return Progress::Drained;
            }
            Err(rustix::io::Errno::INTR) => return Progress::More,
            Err(_) => return Progress::Gone(CloseReason::Error),
        };
        let length = connection.partial.len() + read;
        // SAFETY: the kernel has initialised `read` bytes behind the old length, within the capacity.
        unsafe { connection.partial.set_len(length) };
        self.counters.bytes_received += read as u64;
        connection.is_readable = read == room || connection.is_hung_up;
        if connection.partial.len() == connection.expected {
            self.take_big(connection);
        }
        if connection.is_readable { Progress::More } else { Progress::Drained }
    }

    /// A big frame is whole.
    fn take_big(&mut self, connection: &mut Connection) {
        let mut frame = std::mem::take(&mut connection.partial);
        connection.expected = 0;
        let limit = self.shared.config.max_message_size;
        let result = match connection.receiver.step(&mut frame, 0, limit) {
            Ok(Step::Whole { kind, payload, .. }) => self.whole(connection, kind, Place::Own(frame, payload)),
            Ok(Step::Joined { kind, payload, .. }) => {
                let whole = 0..payload.len();
                self.whole(connection, kind, Place::Own(payload, whole))
            }
            Ok(_) => Ok(()),
            Err(violation) => Err(violation),
        };
        if let Err(violation) = result {
            self.violated(connection, violation);
        }
    }

    /// Takes a message that doesn't lie in the arena.
    fn whole(&mut self, connection: &mut Connection, kind: DataKind, place: Place) -> Result<(), Violation> {
        if self.overflow == Overflow::Echo {
            self.echo(connection, kind, place)
        } else {
            self.message(connection, kind, place)
        }
    }

    /// Throws away what a client sends that is no longer listened to, until it hangs up.
    fn waste(&mut self, connection: &mut Connection) -> Progress {
        let mut waste = [0_u8; WASTE_BYTES];
        loop {
            match rustix::io::read(&connection.socket, &mut waste) {
                Ok(0) => return Progress::Gone(CloseReason::Eof),
                Ok(WASTE_BYTES) => return Progress::More,
                Ok(_) if !connection.is_hung_up => {
                    connection.is_readable = false;
                    return Progress::Drained;
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    connection.is_readable = false;
                    return Progress::Drained;
                }
                Err(_) => return Progress::Gone(CloseReason::Error),
            }
        }
    }
}
