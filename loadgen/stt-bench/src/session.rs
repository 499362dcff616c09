//! One session: a WebSocket that sends a frame of audio every 20 ms and receives a partial for each batch of frames.
//!
//! Non-blocking: every call does what the socket allows and returns. A blocked socket doesn't stop the clock: frames
//! that come due meanwhile wait, and their latency counts from when they were due. Frames are composed when they are
//! sent, so waiting frames take no memory.

mod receive;
mod send;

use std::{collections::VecDeque, net::SocketAddr, os::fd::OwnedFd};

use bench_format::result::{ConnectionCounts, WorkerBook};
use loadgen_core::{
    assembly::Assembly,
    clock::monotonic_ns,
    connect::{key, reason, start},
    frame::Opcode,
};
use rustix::{event::epoll, net::sockopt};

use crate::{
    audio::FRAME_NS,
    context::{Context, LoadState},
    coverage::Coverage,
};

/// Frames between two flushes of a gateway: one flush a second (`services/README.md`, "Gateways").
const FLUSH_FRAMES: u64 = 50;
/// Close code 1000, normal closure (RFC 6455, section 7.4.1).
const NORMAL: [u8; 2] = 1000_u16.to_be_bytes();

/// State of a session, in the order in which it passes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The TCP connection is being opened.
    Connecting,
    /// The upgrade request is sent or queued; the response is awaited.
    Upgrading,
    /// The session sends audio.
    Open,
    /// A Close frame is queued or sent; the gateway's is awaited.
    Closing,
    /// Close frames were exchanged; the gateway is to end the stream, so that the TIME_WAIT state is on its side.
    Closed,
    /// The socket is closed.
    Ended,
}

/// When the frames of a trial are due.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// When the trial's first frame is due, in nanoseconds of the monotonic clock.
    pub(crate) first_due_ns: u64,
    /// Frames of earlier trials on the same connection.
    pub(crate) base: u64,
}

impl Pace {
    /// When frame `seq` is due, in nanoseconds of the monotonic clock.
    #[inline]
    pub(crate) fn due_ns(&self, seq: u64) -> u64 {
        self.first_due_ns + (seq - self.base - 1) * FRAME_NS
    }

    /// Number of the last frame that was due before a moment; `base` when there was none.
    pub(crate) fn due_before(&self, moment_ns: u64) -> u64 {
        self.base + moment_ns.saturating_sub(self.first_due_ns).div_ceil(FRAME_NS)
    }
}

/// State of one connection, and of the trial's frames on it.
pub(crate) struct Session {
    socket: Option<OwnedFd>,
    pub(crate) stage: Stage,
    /// Index among the thread's sessions, and the data of its epoll events.
    slot: u32,
    /// Index among the sessions of all workers; it determines the session's audio.
    index: u64,
    pace: Pace,
    /// Frames due since the connection opened.
    due: u64,
    /// Frames that the socket accepted in full since the connection opened.
    sent: u64,
    coverage: Coverage,
    /// For each frame that was sent and isn't covered yet: how late it was sent, in microseconds.
    delays: VecDeque<u32>,
    /// Whether the protocol's first message, which has no frame number, was sent in full.
    started: bool,
    /// The upgrade request, control frames, or the rest of a message that the socket accepted in part. `out_at` bytes
    /// of it are sent.
    out: Vec<u8>,
    out_at: usize,
    out_is: Out,
    /// Since when the socket accepts no bytes, in nanoseconds of the monotonic clock; 0 while it accepts them.
    blocked_since_ns: u64,
    watches_writes: bool,
    pub(crate) attempted_ns: u64,
    key: String,
    input: Vec<u8>,
    assembly: Assembly,
    /// First messages of this trial: 1, or 0 on a connection that was kept.
    unnumbered: u64,
    replies: u64,
    /// Whether it ended before we closed it. That is the failure then, and its unanswered frames are no further one.
    ended_early: bool,
}

/// The kind of data that `out` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Start,
    Frame,
    /// The upgrade request or control frames.
    Other,
}

impl Session {
    /// Starts a connection attempt; a failure at once ends the session and is counted.
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

    /// Starts a trial on this connection: `index` is the session's among all workers.
    pub(crate) fn assign(&mut self, index: u64, first_due_ns: u64) {
        self.index = index;
        self.pace = Pace { first_due_ns, base: self.due };
    }

    /// Resets the counts of a trial after they were reported.
    pub(crate) fn reset_trial(&mut self) {
        self.pace.base = self.due;
        (self.unnumbered, self.replies) = (0, 0);
    }

    /// Handles an epoll event.
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

    /// Queues a Close frame after everything else. The socket stays open until the gateway has answered: closing it
    /// with unread data would reset the connection and destroy what is in flight.
    pub(crate) fn close(&mut self, cx: &mut Context) {
        if self.stage == Stage::Open {
            cx.alive -= 1;
            self.stage = Stage::Closing;
            self.send_control(cx, Opcode::Close, &NORMAL);
        }
    }

    /// Ends the session without waiting for the gateway; a failure only if the gateway still owed something.
    pub(crate) fn give_up(&mut self, cx: &mut Context, reason: &str) {
        match self.stage {
            Stage::Closed => self.end(cx, ""),
            Stage::Ended => {}
            _ => self.end(cx, reason),
        }
    }

    #[cold]
    fn end(&mut self, cx: &mut Context, reason: &str) {
        let now = monotonic_ns();
        match self.stage {
            Stage::Ended => return,
            Stage::Connecting | Stage::Upgrading => {
                cx.attempts.in_flight -= 1;
                *cx.attempts.failed.entry(reason.to_owned()).or_default() += 1;
                cx.fail(self.index, &format!("session/{reason}"), now);
            }
            Stage::Open => {
                self.ended_early = true;
                cx.alive -= 1;
                *cx.attempts.closed_early.entry(reason.to_owned()).or_default() += 1;
                let ended_by_gateway = reason == "eof" || reason.starts_with("close_");
                cx.fail(self.index, &format!("session/{}", if ended_by_gateway { "closed" } else { reason }), now);
            }
            // The end of the stream is accepted in place of a Close frame.
            Stage::Closing if reason != "eof" => cx.fail(self.index, &format!("session/{reason}"), now),
            Stage::Closing | Stage::Closed => {}
        }
        self.stage = Stage::Ended;
        // Dropping the socket also removes it from the epoll set.
        self.socket = None;
        (self.out, self.out_at) = (Vec::new(), 0);
        (self.input, self.assembly) = (Vec::new(), Assembly::default());
    }

    /// Ends a session whose socket has accepted no bytes for longer than `send_timeout_ns`.
    pub(crate) fn check_timeout(&mut self, cx: &mut Context, now_ns: u64, send_timeout_ns: u64) {
        if self.blocked_since_ns != 0 && self.socket.is_some() && now_ns > self.blocked_since_ns + send_timeout_ns {
            self.end(cx, ConnectionCounts::UNREAD);
        }
    }

    /// Ends the counts of this trial's frames: those due and never sent, and those sent and never covered. Returns the
    /// connection's book; `None` when nothing was sent.
    pub(crate) fn settle(&mut self, cx: &mut Context) -> Option<WorkerBook> {
        let sent = self.sent - self.pace.base;
        let lost = self.sent - self.coverage.to;
        self.count_unanswered(cx);
        cx.tally.unsent += self.due - self.sent;
        cx.tally.lost += lost;
        if lost > 0 && !self.ended_early {
            // The failure is dated by the first frame without an answer.
            let due_ns = self.pace.due_ns((self.coverage.to + 1).max(self.pace.base + 1));
            cx.fail(self.index, "coverage/uncovered", due_ns);
        }
        (sent + self.unnumbered > 0).then(|| WorkerBook {
            id: String::new(),
            sent,
            sequence_sum: sum_of_range(self.pace.base, self.sent),
            unnumbered: self.unnumbered,
            replies: self.replies,
            receiver: None,
            last_of_window: None,
        })
    }

    /// Counts the frames that the schedule has in the window, and the answers that they lack. A session that failed or
    /// ended has them, too: its audio is due whether or not the gateway can take it.
    fn count_unanswered(&self, cx: &mut Context) {
        let Some(LoadState { phases, .. }) = &cx.load else { return };
        let (before, last) = (self.pace.due_before(phases.window_start_ns), self.pace.due_before(phases.window_end_ns));
        cx.tally.window_scheduled += last - before;
        cx.tally.window_unanswered += last.saturating_sub(self.coverage.to.max(before)) / FLUSH_FRAMES;
    }

    /// The socket, from which evidence reads the congestion control.
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }
}

/// (from + 1) + … + to, modulo 2^64.
fn sum_of_range(from: u64, to: u64) -> u64 {
    let sum_to = |n: u64| u128::from(n) * (u128::from(n) + 1) / 2;
    (sum_to(to) - sum_to(from)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_every_20_ms_independent_of_earlier_sends() {
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
