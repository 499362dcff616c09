//! One session: a WebSocket that sends a frame of audio every 20 ms and is answered once in a while.
//!
//! Non-blocking: every call does what the socket allows and returns. A blocked socket stops no clock: frames that come
//! due meanwhile wait their turn, and their latency counts from when they were due. Frames are composed when they are
//! sent, so that what waits takes no memory.

mod receive;
mod send;

use std::{collections::VecDeque, net::SocketAddr, os::fd::OwnedFd};

use bench_format::result::WorkerBook;
use loadgen_core::{
    assembly::Assembly,
    clock::monotonic_ns,
    connect::{key, reason, start},
    frame::Opcode,
};
use rustix::{event::epoll, net::sockopt};

use crate::{audio::FRAME_NS, context::Context, coverage::Coverage};

/// Close code 1000, "normal".
const NORMAL: [u8; 2] = 1000_u16.to_be_bytes();

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Waiting for TCP.
    Connecting,
    /// Waiting for the answer to the upgrade.
    Upgrading,
    /// Takes audio.
    Open,
    /// Close frame queued or sent; the gateway's is awaited.
    Closing,
    /// Close frames exchanged; the end of the stream is awaited, so that the gateway keeps the TIME_WAIT.
    Closed,
    /// Over.
    Ended,
}

/// When the frames of a trial are due.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The first of them, in nanoseconds of the monotonic clock.
    pub(crate) first_due_ns: u64,
    /// Frames of earlier trials on the same connection.
    pub(crate) base: u64,
}

impl Pace {
    /// When frame `seq` is due.
    #[inline]
    pub(crate) fn due_ns(&self, seq: u64) -> u64 {
        self.first_due_ns + (seq - self.base - 1) * FRAME_NS
    }

    /// The last frame that was due before a moment; `base` when none was.
    pub(crate) fn due_before(&self, moment_ns: u64) -> u64 {
        self.base + moment_ns.saturating_sub(self.first_due_ns).div_ceil(FRAME_NS)
    }
}

/// See the module.
pub(crate) struct Session {
    socket: Option<OwnedFd>,
    pub(crate) stage: Stage,
    /// Index among the thread's sessions: what epoll calls it.
    slot: u32,
    /// Index among the sessions of all workers: what tells its audio from the others'.
    index: u64,
    pace: Pace,
    /// Frames due so far; so for the next two: since the connection opened.
    due: u64,
    /// Frames that the socket took in full.
    sent: u64,
    coverage: Coverage,
    /// How late each frame was sent that is not covered yet, in microseconds.
    delays: VecDeque<u32>,
    /// Whether the first message, which is no frame, was sent in full.
    started: bool,
    /// The one message that the socket took in part, and how much of it.
    out: Vec<u8>,
    out_at: usize,
    out_is: Out,
    /// Since when the socket takes nothing; 0 while it does.
    blocked_since_ns: u64,
    watches_writes: bool,
    pub(crate) attempted_ns: u64,
    key: String,
    input: Vec<u8>,
    assembly: Assembly,
    /// First messages of this trial (1, or 0 on a connection that was kept) and partials.
    unnumbered: u64,
    replies: u64,
    /// Whether it ended before we closed it: that is the failure, and not that frames got no answer.
    ended_early: bool,
}

/// What waits in `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Start,
    Frame,
    /// Upgrade request or control frames.
    Other,
}

impl Session {
    /// Starts an attempt.
    pub(crate) fn connect(
        cx: &mut Context,
        slot: u32,
        target: SocketAddr,
        source: Option<SocketAddr>,
        random: &mut u64,
    ) -> Self {
        let mut session = Self {
            socket: None,
            stage: Stage::Connecting,
            slot,
            index: 0,
            pace: Pace::default(),
            due: 0,
            sent: 0,
            coverage: Coverage::default(),
            delays: VecDeque::new(),
            started: false,
            out: Vec::new(),
            out_at: 0,
            out_is: Out::Other,
            blocked_since_ns: 0,
            watches_writes: true,
            attempted_ns: monotonic_ns(),
            key: String::new(),
            input: Vec::new(),
            assembly: Assembly::default(),
            unnumbered: 0,
            replies: 0,
            ended_early: false,
        };
        cx.attempts.attempted += 1;
        cx.attempts.in_flight += 1;
        let registered = start(target, source, None).and_then(|socket| {
            epoll::add(&cx.epoll, &socket, session.data(), epoll::EventFlags::OUT)?;
            Ok(socket)
        });
        match registered {
            Ok(socket) => {
                session.key = key(random);
                session.socket = Some(socket);
            }
            Err(error) => session.end(cx, reason(&error)),
        }
        session
    }

    fn data(&self) -> epoll::EventData {
        epoll::EventData::new_u64(u64::from(self.slot))
    }

    /// A new trial begins on this connection.
    pub(crate) fn assign(&mut self, index: u64, first_due_ns: u64) {
        self.index = index;
        self.pace = Pace { first_due_ns, base: self.due };
    }

    /// A trial is over and its books are closed.
    pub(crate) fn forget_trial(&mut self) {
        self.pace.base = self.due;
        (self.unnumbered, self.replies) = (0, 0);
    }

    /// epoll says that something happened.
    #[inline]
    pub(crate) fn on_event(&mut self, cx: &mut Context, flags: epoll::EventFlags) {
        if self.stage == Stage::Connecting {
            return self.on_connected(cx);
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.on_readable(cx);
        }
        if flags.contains(epoll::EventFlags::OUT) && self.socket.is_some() {
            self.on_writable(cx);
        }
    }

    fn on_connected(&mut self, cx: &mut Context) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) | Ok(Err(error)) = sockopt::socket_error(socket) {
            return self.end(cx, reason(&error.into()));
        }
        self.stage = Stage::Upgrading;
        self.out = cx.upgrade.bytes(&self.key);
        self.flush(cx);
    }

    /// Whether every frame that was due is sent and covered.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.stage == Stage::Open && self.out.is_empty() && self.coverage.to == self.due
    }

    /// Says goodbye, after everything that is queued. The socket stays until the gateway has answered: closing it with
    /// unread data would reset the connection and destroy what is in flight.
    pub(crate) fn close(&mut self, cx: &mut Context) {
        if self.stage == Stage::Open {
            cx.alive -= 1;
            self.stage = Stage::Closing;
            self.send_control(cx, Opcode::Close, &NORMAL);
        }
    }

    /// Ends it, whatever the gateway does; only what was still awaited from it is a failure.
    pub(crate) fn give_up(&mut self, cx: &mut Context, why: &str) {
        match self.stage {
            Stage::Closed => self.end(cx, ""),
            Stage::Ended => {}
            _ => self.end(cx, why),
        }
    }

    #[cold]
    fn end(&mut self, cx: &mut Context, why: &str) {
        let now = monotonic_ns();
        match self.stage {
            Stage::Ended => return,
            Stage::Connecting | Stage::Upgrading => {
                cx.attempts.in_flight -= 1;
                *cx.attempts.failed.entry(why.to_owned()).or_default() += 1;
                cx.fail(&format!("session/{why}"), now);
            }
            Stage::Open => {
                self.ended_early = true;
                cx.alive -= 1;
                *cx.attempts.closed_early.entry(why.to_owned()).or_default() += 1;
                let ended_by_gateway = why == "eof" || why.starts_with("close_");
                cx.fail(&format!("session/{}", if ended_by_gateway { "closed" } else { why }), now);
            }
            // A stream that simply ends is goodbye enough.
            Stage::Closing if why != "eof" => cx.fail(&format!("session/{why}"), now),
            Stage::Closing | Stage::Closed => {}
        }
        self.stage = Stage::Ended;
        // Also takes the descriptor out of the epoll set.
        self.socket = None;
        (self.out, self.out_at) = (Vec::new(), 0);
        (self.input, self.assembly) = (Vec::new(), Assembly::default());
    }

    /// A socket that has taken nothing for too long.
    pub(crate) fn look_for_timeout(&mut self, cx: &mut Context, now_ns: u64, send_timeout_ns: u64) {
        if self.blocked_since_ns != 0 && self.socket.is_some() && now_ns > self.blocked_since_ns + send_timeout_ns {
            self.end(cx, "send_timeout");
        }
    }

    /// Closes the books on this trial's frames: what was due and never sent, what was sent and never covered.
    pub(crate) fn settle(&mut self, cx: &mut Context) -> Option<WorkerBook> {
        let sent = self.sent - self.pace.base;
        let lost = self.sent - self.coverage.to;
        cx.tally.unsent += self.due - self.sent;
        cx.tally.lost += lost;
        if lost > 0 && !self.ended_early {
            // The failure is that of the first frame that got no answer.
            let due_ns = self.pace.due_ns((self.coverage.to + 1).max(self.pace.base + 1));
            cx.fail("coverage/uncovered", due_ns);
        }
        (sent + self.unnumbered > 0).then(|| WorkerBook {
            id: String::new(),
            sent,
            sequence_sum: sum_of_range(self.pace.base, self.sent),
            unnumbered: self.unnumbered,
            replies: self.replies,
            receiver: None,
        })
    }

    /// The socket, for evidence.
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }
}

/// (from + 1) + … + to, modulo 2^64.
fn sum_of_range(from: u64, to: u64) -> u64 {
    let triangle = |n: u64| u128::from(n) * (u128::from(n) + 1) / 2;
    (triangle(to) - triangle(from)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_every_20_ms_whatever_was_sent_before() {
        let pace = Pace { first_due_ns: 1000, base: 70 };
        assert_eq!([71, 72, 121].map(|seq| pace.due_ns(seq)), [1000, 20_001_000, 1_000_001_000]);
        assert_eq!([0, 1000, 1001, 20_001_000, 20_001_001].map(|at| pace.due_before(at)), [70, 70, 71, 71, 72]);
    }

    #[test]
    fn sums_of_ranges_are_those_of_their_numbers() {
        for (from, to) in [(0, 0), (0, 1), (70, 75), (5, 5)] {
            assert_eq!(sum_of_range(from, to), (from + 1..=to).sum::<u64>());
        }
    }
}
