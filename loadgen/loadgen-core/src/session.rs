//! One WebSocket connection, from the connection attempt to the last byte.
//!
//! All calls are non-blocking: they do what the socket allows and return. A session holds memory only for incomplete
//! data: the rest of a write, the beginning of a frame, the parts of a fragmented message.

mod answers;
mod receive;
mod send;
mod special;
mod turnover;

use std::{collections::VecDeque, os::fd::OwnedFd};

use bench_format::result::WorkerBook;
use rustix::{event::epoll, net::sockopt};

use crate::{
    assembly::Assembly,
    clock::monotonic_ns,
    connect::{key, reason, start},
    context::Context,
    deflate::Deflate,
    frame::Opcode,
    receiver::Receiver,
    replies::Outstanding,
    tls::Tls,
    workload::Workload,
};

use answers::Parts;
use send::Later;

/// Close code 1000, "normal closure" (RFC 6455, section 7.4.1).
const NORMAL: [u8; 2] = 1000_u16.to_be_bytes();

/// The state of a connection, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// No attempt has started.
    Idle,
    /// Waiting for the TCP connection.
    Connecting,
    /// Waiting for the response to the upgrade.
    Upgrading,
    /// Upgraded; waiting until the service reports that it is ready.
    AwaitingReady,
    /// Ready; messages may be sent.
    Open,
    /// A Close frame is queued or sent; waiting for the service's.
    Closing,
    /// Both Close frames have been exchanged. The worker waits for the end of the stream, so that the service keeps the
    /// TIME_WAIT state.
    Closed,
    /// The connection has ended.
    Ended,
}

/// What only some connections have.
#[derive(Debug, Default)]
struct Extra {
    /// Unnumbered frames that wait until the queue is empty, because numbered frames are in it.
    later: Later,
    /// The answers that are incomplete.
    parts: Parts,
    tls: Option<Tls>,
    deflate: Option<Box<Deflate>>,
    /// Number of frames that the socket accepted of the numbered message that it hasn't accepted completely.
    frames_of_message: u64,
}

/// One WebSocket connection with its counters.
pub(crate) struct Session {
    socket: Option<OwnedFd>,
    /// Index among the thread's sessions; it identifies the session in epoll events.
    slot: u32,
    /// Index of the connection among those of all workers.
    pub(crate) index: u32,
    pub(crate) stage: Stage,
    pub(crate) started_ns: u64,
    key: String,
    id: String,
    was_open: bool,
    /// Frames that the socket has not accepted completely. The first may have been accepted in part.
    out: Vec<u8>,
    /// Number of bytes of `out` that the socket has accepted.
    out_at: usize,
    /// Number of unnumbered data frames at the front of `out`.
    out_unnumbered: u64,
    /// What only some connections have; present from the first use on.
    extra: Option<Box<Extra>>,
    watches_writes: bool,
    input: Vec<u8>,
    assembly: Assembly,
    /// Due times of messages that wait because the socket is full.
    backlog: VecDeque<u64>,
    outstanding: Outstanding,
    /// Number of numbered messages composed.
    next: u64,
    sent: u64,
    unnumbered: u64,
    replies: u64,
    /// In a ping-pong, messages due inside the window.
    window_messages: u32,
    is_in_ping_pong: bool,
    /// Whether the connection has to go: it gets no more messages of the load.
    pub(crate) is_leaving: bool,
    /// Counts of received published messages; present only if the workload receives.
    receiver: Option<Box<Receiver>>,
    idle_sweeps: u8,
    sent_at_last_sweep: u64,
}

impl Session {
    /// Creates the connection of a slot; `index` counts the connections of all workers.
    pub(crate) fn new(slot: u32, index: u32) -> Self {
        Self {
            socket: None,
            slot,
            index,
            stage: Stage::Idle,
            started_ns: 0,
            key: String::new(),
            id: String::new(),
            was_open: false,
            out: Vec::new(),
            out_at: 0,
            out_unnumbered: 0,
            extra: None,
            watches_writes: false,
            input: Vec::new(),
            assembly: Assembly::default(),
            backlog: VecDeque::new(),
            outstanding: Outstanding::default(),
            next: 0,
            sent: 0,
            unnumbered: 0,
            replies: 0,
            window_messages: 0,
            is_in_ping_pong: false,
            is_leaving: false,
            receiver: None,
            idle_sweeps: 0,
            sent_at_last_sweep: 0,
        }
    }

    /// Starts the connection attempt. Its latency counts from `due_ns`.
    pub(crate) fn connect<W: Workload>(
        &mut self,
        cx: &mut Context<W>,
        target: std::net::SocketAddr,
        source: Option<std::net::SocketAddr>,
        due_ns: u64,
        random: &mut u64,
    ) {
        cx.connections.attempted += 1;
        cx.connections.in_flight += 1;
        self.started_ns = due_ns;
        self.stage = Stage::Connecting;
        let registered = start(target, source, cx.receive_buffer).and_then(|socket| {
            epoll::add(&cx.epoll, &socket, self.data(), epoll::EventFlags::OUT)?;
            Ok(socket)
        });
        match registered {
            Ok(socket) => {
                self.key = key(random);
                self.socket = Some(socket);
                self.watches_writes = true;
            }
            Err(error) => self.end(cx, reason(&error)),
        }
    }

    fn data(&self) -> epoll::EventData {
        epoll::EventData::new_u64(u64::from(self.slot))
    }

    /// Handles an epoll event.
    #[inline]
    pub(crate) fn on_event<W: Workload>(&mut self, cx: &mut Context<W>, flags: epoll::EventFlags) {
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

    fn on_connected<W: Workload>(&mut self, cx: &mut Context<W>) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) | Ok(Err(error)) = sockopt::socket_error(socket) {
            return self.end(cx, reason(&error.into()));
        }
        if let Some(client) = cx.workload.tls(self.index) {
            match Tls::new(client) {
                Ok(tls) => self.extra().tls = Some(tls),
                Err(_) => return self.end(cx, "tls"),
            }
        }
        self.stage = Stage::Upgrading;
        let target = &cx.targets[self.index as usize % cx.targets.len()];
        let own = cx.workload.request(&target.host, self.index);
        self.out = own.as_ref().unwrap_or(&cx.upgrade).bytes_offering(&self.key, cx.workload.deflate());
        self.flush(cx);
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    /// The encryption of the connection, if it has one.
    #[inline]
    fn tls(&mut self) -> Option<&mut Tls> {
        self.extra.as_mut()?.tls.as_mut()
    }

    #[inline]
    pub(super) fn on_writable<W: Workload>(&mut self, cx: &mut Context<W>) {
        if !self.out.is_empty() {
            self.flush(cx);
        } else if self.extra.is_some() {
            self.flush_tls(cx);
        }
        if self.out.is_empty() && self.stage == Stage::Open {
            if cx.flooding {
                self.flood(cx);
            } else {
                self.pump(cx);
            }
        }
    }

    /// Called every few seconds: sends the keepalive if nothing was sent for `limit` sweeps.
    pub(crate) fn sweep<W: Workload>(&mut self, cx: &mut Context<W>, limit: u8) {
        let total = self.sent + self.unnumbered;
        if self.stage != Stage::Open || total != self.sent_at_last_sweep {
            self.sent_at_last_sweep = total;
            self.idle_sweeps = 0;
            return;
        }
        self.idle_sweeps += 1;
        if self.idle_sweeps >= limit
            && let Some((opcode, keepalive)) =
                cx.workload.keepalive().map(|(opcode, payload)| (opcode, payload.to_vec()))
        {
            self.send_unnumbered(cx, opcode, &keepalive);
        }
    }

    /// Whether nothing is in flight: no message to send, no reply and no publication of the window to wait for.
    pub(crate) fn is_settled<W: Workload>(&self, cx: &Context<W>) -> bool {
        self.stage != Stage::Open
            || (self.out.is_empty()
                && self.backlog.is_empty()
                && (!cx.workload.expects_replies() || self.outstanding.is_empty())
                && self.receiver.as_ref().is_none_or(|receiver| receiver.reached))
    }

    /// Starts the close handshake, after everything that is queued. The socket stays open until the service has
    /// responded, because closing it with unread data would reset the connection and lose data in flight. Returns whether
    /// the connection was open until then.
    pub(crate) fn close<W: Workload>(&mut self, cx: &mut Context<W>) -> bool {
        if self.stage == Stage::Open {
            self.leave_ping_pong(cx);
            if let Some((opcode, farewell)) = cx.workload.farewell().map(|(opcode, payload)| (opcode, payload.to_vec()))
            {
                self.send_beside_load(cx, opcode, &farewell);
            }
            if self.stage == Stage::Open {
                self.stage = Stage::Closing;
                self.send_control(cx, Opcode::Close, &NORMAL);
                return true;
            }
        }
        false
    }

    /// Ends a connection because its attempt took too long or the trial is over.
    pub(crate) fn give_up<W: Workload>(&mut self, cx: &mut Context<W>, reason: &str) {
        if self.stage != Stage::Idle && self.stage != Stage::Ended {
            self.end(cx, reason);
        }
    }

    /// Ends an attempt that took too long.
    pub(crate) fn time_out<W: Workload>(&mut self, cx: &mut Context<W>) {
        let reason = if self.stage == Stage::AwaitingReady { "ready_timeout" } else { "timeout" };
        self.give_up(cx, reason);
    }

    #[cold]
    fn end<W: Workload>(&mut self, cx: &mut Context<W>, reason: &str) {
        if cx.turnover.is_some() {
            self.count_end(cx, reason);
        }
        match self.stage {
            Stage::Idle | Stage::Ended => return,
            Stage::Connecting | Stage::Upgrading | Stage::AwaitingReady => cx.failed(reason, monotonic_ns()),
            Stage::Open => cx.closed_early(reason),
            Stage::Closing | Stage::Closed => {}
        }
        self.leave_ping_pong(cx);
        self.stage = Stage::Ended;
        cx.tally.unsent += self.next - self.sent + self.backlog.len() as u64;
        // Closing the descriptor also removes it from the epoll set.
        self.socket = None;
        self.backlog = VecDeque::new();
        self.input = Vec::new();
        self.extra = None;
        self.clear_out();
    }

    /// Watches for writability while there is something to write.
    pub(crate) fn watch_writes<W: Workload>(&mut self, cx: &mut Context<W>) {
        // Queued bytes that TLS holds back until its handshake is over don't wait for the socket.
        let waits = match self.tls() {
            Some(tls) => tls.wants_write(),
            None => !self.out.is_empty(),
        };
        let watch = waits || (cx.flooding && self.stage == Stage::Open);
        let Some(socket) = &self.socket else { return };
        if watch != self.watches_writes {
            let flags = if watch { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            if epoll::modify(&cx.epoll, socket, self.data(), flags).is_ok() {
                self.watches_writes = watch;
            }
        }
    }

    /// The worker's book of the connection; `None` if it was never ready.
    pub(crate) fn book<W: Workload>(&self, cx: &Context<W>) -> Option<WorkerBook> {
        self.was_open.then(|| WorkerBook {
            id: self.id.clone(),
            sent: self.sent,
            sequence_sum: if cx.workload.application_sums() {
                sequence_sum(cx.workload.first_sequence(), self.sent)
            } else {
                0
            },
            unnumbered: self.unnumbered,
            replies: self.replies,
            receiver: self.receiver.as_ref().map(|receiver| receiver.book()),
            last_of_window: cx.last_of_window.filter(|_| self.index == 0),
        })
    }

    /// The socket, from which evidence is read.
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }
}

/// `first + (first + 1) + …` over `count` numbers, modulo 2^64.
fn sequence_sum(first: u64, count: u64) -> u64 {
    let (first, count) = (u128::from(first), u128::from(count));
    (first * count + count * count.saturating_sub(1) / 2) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_sum_is_that_of_the_numbers_themselves() {
        for count in [0, 1, 2, 1000] {
            let plain = (0..count).fold(0_u64, |sum, n| sum.wrapping_add(100_000_000 + n));
            assert_eq!(sequence_sum(100_000_000, count), plain);
        }
        // Wraps like a sum of `u64` values.
        assert_eq!(sequence_sum(u64::MAX - 1, 3), (u64::MAX - 1).wrapping_mul(3).wrapping_add(3));
    }
}
