//! One WebSocket, from the first SYN to the last byte.
//!
//! Non-blocking: every call does what the socket allows and returns. Memory is held only for what is incomplete: the
//! rest of a write, the beginning of a frame, the parts of a fragmented message.

use std::{collections::VecDeque, io, os::fd::OwnedFd};

use bench_format::result::WorkerBook;
use rustix::{event::epoll, io::Errno, net::sockopt};

use crate::{
    clock::monotonic_ns,
    connect::{Upgrade, check_upgrade, key, reason, start},
    context::{Context, Pattern},
    frame::{self, Opcode, append, progress},
    phases::Phase,
    recorder::Metric,
    replies::{Matched, Outstanding},
    workload::{Admission, Messages, Received, Workload},
};

/// Close code 1000, "normal".
const NORMAL: [u8; 2] = 1000_u16.to_be_bytes();

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Not attempted.
    Idle,
    /// Waiting for TCP.
    Connecting,
    /// Waiting for the answer to the upgrade.
    Upgrading,
    /// Waiting for the service to say that it is ready.
    Greeting,
    /// Ready.
    Open,
    /// Close frame queued or sent; the service's is awaited.
    Closing,
    /// Close frames exchanged; the end of the stream is awaited, so that the service keeps the TIME_WAIT.
    Closed,
    /// Over.
    Ended,
}

/// See the module.
pub(crate) struct Session {
    socket: Option<OwnedFd>,
    /// Index among the thread's sessions: what epoll calls it.
    slot: u32,
    pub(crate) stage: Stage,
    pub(crate) started_ns: u64,
    key: String,
    id: String,
    was_open: bool,
    /// Frames that the socket has not taken in full, the first perhaps in part.
    out: Vec<u8>,
    /// How much of `out` the socket has taken.
    out_at: usize,
    /// Unnumbered data frames at the front of `out`.
    out_unnumbered: u64,
    watches_writes: bool,
    input: Vec<u8>,
    fragments: Option<Box<(Opcode, Vec<u8>)>>,
    /// Due times that wait behind a blocked write.
    backlog: VecDeque<u64>,
    outstanding: Outstanding,
    /// Numbered messages composed.
    next: u64,
    sent: u64,
    unnumbered: u64,
    replies: u64,
    /// Ping-pong: messages due inside the window.
    window_messages: u32,
    playing: bool,
    idle_sweeps: u8,
    swept_at: u64,
}

impl Session {
    pub(crate) fn new(slot: u32) -> Self {
        Self {
            socket: None,
            slot,
            stage: Stage::Idle,
            started_ns: 0,
            key: String::new(),
            id: String::new(),
            was_open: false,
            out: Vec::new(),
            out_at: 0,
            out_unnumbered: 0,
            watches_writes: false,
            input: Vec::new(),
            fragments: None,
            backlog: VecDeque::new(),
            outstanding: Outstanding::default(),
            next: 0,
            sent: 0,
            unnumbered: 0,
            replies: 0,
            window_messages: 0,
            playing: false,
            idle_sweeps: 0,
            swept_at: 0,
        }
    }

    /// Starts the attempt. Its latency counts from `due_ns`.
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
        let registered = start(target, source).and_then(|socket| {
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

    /// epoll says that something happened.
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
        self.stage = Stage::Upgrading;
        self.out = cx.upgrade.bytes(&self.key);
        self.flush(cx);
    }

    #[inline]
    fn on_writable<W: Workload>(&mut self, cx: &mut Context<W>) {
        if !self.out.is_empty() {
            self.flush(cx);
        }
        if self.out.is_empty() && self.stage == Stage::Open {
            if cx.flooding {
                self.flood(cx);
            } else {
                self.pump(cx);
            }
        }
    }

    fn on_readable<W: Workload>(&mut self, cx: &mut Context<W>) {
        let Some(socket) = &self.socket else { return };
        let mut buffer = std::mem::take(&mut cx.read_buffer);
        let before = self.input.len();
        if buffer.len() < before * 2 {
            buffer.resize(before * 2, 0);
        }
        buffer[..before].copy_from_slice(&self.input);
        let read = rustix::io::read(socket, &mut buffer[before..]);
        match read {
            Ok(0) => self.on_end_of_stream(cx),
            Ok(length) => {
                self.input.clear();
                cx.tally.bytes_received += length as u64;
                let used = self.consume(cx, &buffer[..before + length], monotonic_ns());
                if self.socket.is_some() {
                    self.input.extend_from_slice(&buffer[used..before + length]);
                    if self.input.is_empty() {
                        self.input = Vec::new();
                    }
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => self.end(cx, reason(&error.into())),
        }
        cx.read_buffer = buffer;
    }

    fn on_end_of_stream<W: Workload>(&mut self, cx: &mut Context<W>) {
        self.end(cx, "eof");
    }

    /// Takes all complete parts of `bytes`; returns how many bytes that were.
    fn consume<W: Workload>(&mut self, cx: &mut Context<W>, bytes: &[u8], now_ns: u64) -> usize {
        let mut used = 0;
        if self.stage == Stage::Upgrading {
            match check_upgrade(bytes, &self.key) {
                Upgrade::Incomplete => return 0,
                Upgrade::Failed(reason) => {
                    self.end(cx, &reason);
                    return bytes.len();
                }
                Upgrade::Done(length) => {
                    used = length;
                    self.stage = Stage::Greeting;
                    self.key = String::new();
                }
            }
        }
        while self.socket.is_some() {
            match frame::parse(&bytes[used..]) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    used += frame.length;
                    self.on_frame(cx, &frame, now_ns);
                }
                Err(_) => self.end(cx, "protocol"),
            }
        }
        used
    }

    fn on_frame<W: Workload>(&mut self, cx: &mut Context<W>, frame: &frame::Frame<'_>, now_ns: u64) {
        match (frame.opcode, frame.last) {
            (Opcode::Ping, _) => self.send_control(cx, Opcode::Pong, frame.payload),
            (Opcode::Pong, _) => {}
            (Opcode::Close, _) => self.on_close(cx, frame.payload),
            (Opcode::Text | Opcode::Binary, true) if self.fragments.is_none() => {
                self.on_message(cx, frame.opcode, frame.payload, now_ns);
            }
            (Opcode::Text | Opcode::Binary, false) if self.fragments.is_none() => {
                self.fragments = Some(Box::new((frame.opcode, frame.payload.to_vec())));
            }
            (Opcode::Continuation, last) => match self.fragments.take() {
                None => self.end(cx, "protocol"),
                Some(mut fragments) => {
                    fragments.1.extend_from_slice(frame.payload);
                    if last {
                        self.on_message(cx, fragments.0, &fragments.1, now_ns);
                    } else {
                        self.fragments = Some(fragments);
                    }
                }
            },
            _ => self.end(cx, "protocol"),
        }
    }

    fn on_message<W: Workload>(&mut self, cx: &mut Context<W>, opcode: Opcode, payload: &[u8], now_ns: u64) {
        match self.stage {
            Stage::Greeting => match cx.workload.admit(opcode, payload) {
                Admission::Waiting => {}
                Admission::Refused(reason) => self.end(cx, &reason),
                Admission::Ready { connection_id } => self.on_ready(cx, connection_id, now_ns),
            },
            Stage::Open | Stage::Closing if cx.workload.expects_replies() => {
                match cx.workload.classify(opcode, payload) {
                    Received::Other => {}
                    Received::Wrong => self.on_wrong(cx, now_ns),
                    Received::Reply { sequence } => self.on_reply(cx, sequence, now_ns),
                }
            }
            _ => {}
        }
    }

    fn on_ready<W: Workload>(&mut self, cx: &mut Context<W>, connection_id: String, now_ns: u64) {
        self.id = connection_id;
        self.stage = Stage::Open;
        self.was_open = true;
        cx.opened(now_ns);
        if let Some(greeting) = cx.workload.greeting().map(<[u8]>::to_vec) {
            self.send_unnumbered(cx, &greeting);
        }
        if let (Pattern::Storm { .. }, Some(load)) = (cx.pattern, &mut cx.load) {
            let ready_ns = monotonic_ns();
            load.recorder.record(Metric::Handshake, ready_ns.saturating_sub(self.started_ns), ready_ns);
        }
    }

    fn on_reply<W: Workload>(&mut self, cx: &mut Context<W>, sequence: u64, now_ns: u64) {
        let n = sequence.wrapping_sub(cx.workload.first_sequence());
        match self.outstanding.reply(n) {
            Matched::Duplicate => cx.tally.duplicates += 1,
            Matched::Unknown => self.on_wrong(cx, now_ns),
            Matched::Answer { slot, reordered } => {
                self.replies += 1;
                cx.tally.replies += 1;
                cx.tally.reorders += u64::from(reordered);
                if let Some(load) = &mut cx.load
                    && load.phases.in_window(slot.due_ns)
                {
                    load.recorder.record(Metric::Response, now_ns.saturating_sub(slot.due_ns), now_ns);
                    if matches!(cx.pattern, Pattern::Open { .. }) {
                        load.recorder.record(Metric::Service, now_ns.saturating_sub(slot.sent_ns), now_ns);
                    }
                }
                self.play(cx, now_ns);
            }
        }
    }

    fn on_wrong<W: Workload>(&mut self, cx: &mut Context<W>, now_ns: u64) {
        if self.outstanding.settle_oldest() {
            cx.tally.wrong += 1;
            self.play(cx, now_ns);
        } else {
            cx.tally.duplicates += 1;
        }
    }

    fn on_close<W: Workload>(&mut self, cx: &mut Context<W>, payload: &[u8]) {
        let code = payload.first_chunk::<2>().map_or(1005, |code| u16::from_be_bytes(*code));
        match self.stage {
            Stage::Closing => self.stage = Stage::Closed,
            Stage::Open => {
                // Answered, so that a service which waits for it is not kept; then nothing more is expected.
                self.send_control(cx, Opcode::Close, payload.first_chunk::<2>().map_or(&[], |code| &code[..]));
                self.end(cx, &format!("close_{code}"));
            }
            Stage::Closed | Stage::Ended => {}
            _ => self.end(cx, &format!("close_{code}")),
        }
    }

    /// Ping-pong: starts taking part.
    pub(crate) fn join<W: Workload>(&mut self, cx: &mut Context<W>, now_ns: u64) {
        if self.stage == Stage::Open {
            self.playing = true;
            cx.playing += 1;
            self.play(cx, now_ns);
        }
    }

    /// Ping-pong: sends the next message, unless this connection has done its share.
    fn play<W: Workload>(&mut self, cx: &mut Context<W>, now_ns: u64) {
        let (Pattern::PingPong { per_connection }, Some(load), true) = (cx.pattern, &cx.load, self.playing) else {
            return;
        };
        let go = match load.phases.at(now_ns) {
            Phase::Hold | Phase::WarmUp => true,
            Phase::Window => per_connection.is_none_or(|most| self.window_messages < most),
            Phase::Drain | Phase::Over => false,
        };
        if !go || self.stage != Stage::Open {
            return self.leave(cx);
        }
        self.window_messages += u32::from(load.phases.in_window(now_ns));
        self.offer(cx, now_ns);
        self.pump(cx);
    }

    fn leave<W: Workload>(&mut self, cx: &mut Context<W>) {
        if self.playing {
            self.playing = false;
            cx.playing -= 1;
        }
    }

    /// A message is due. A blocked socket doesn't stop the clock: it waits with its due time.
    pub(crate) fn offer<W: Workload>(&mut self, cx: &mut Context<W>, due_ns: u64) {
        self.count_due(cx, 1, due_ns);
        if self.stage != Stage::Open {
            cx.tally.unsent += 1;
            return;
        }
        self.backlog.push_back(due_ns);
    }

    /// Hands the socket what is due, as far as it takes it.
    pub(crate) fn pump<W: Workload>(&mut self, cx: &mut Context<W>) {
        while self.out.is_empty() && !self.backlog.is_empty() && self.stage == Stage::Open {
            if self.overrun(cx) {
                return;
            }
            cx.batch.clear();
            let mut count = 0;
            while count < cx.coalesce
                && let Some(due_ns) = self.backlog.pop_front()
            {
                self.outstanding.compose(due_ns);
                self.compose(cx, cx.unix_us(due_ns));
                count += 1;
            }
            self.write_batch(cx, count);
        }
    }

    /// Hands the socket one batch; epoll brings us back for the next, so that all connections get their turn.
    #[inline]
    fn flood<W: Workload>(&mut self, cx: &mut Context<W>) {
        if self.overrun(cx) {
            return;
        }
        cx.batch.clear();
        for _ in 0..cx.coalesce {
            self.compose(cx, 0);
        }
        // No clock here: a flood's window is cut by the thread, a batch of connections at a time.
        cx.tally.due += cx.coalesce;
        self.write_batch(cx, cx.coalesce);
    }

    #[inline]
    fn compose<W: Workload>(&mut self, cx: &mut Context<W>, unix_us: u64) {
        let sequence = cx.workload.first_sequence() + self.next;
        let opcode = cx.messages.opcode();
        let mask = cx.masks.next_mask();
        cx.batch.push(opcode, cx.messages.payload(sequence, unix_us), mask);
        self.next += 1;
    }

    fn count_due<W: Workload>(&self, cx: &mut Context<W>, count: u64, due_ns: u64) {
        cx.tally.due += count;
        if cx.load.as_ref().is_some_and(|load| load.phases.in_window(due_ns)) {
            cx.tally.window_due += count;
        }
    }

    /// Ends a connection whose sequence numbers are used up.
    #[inline]
    fn overrun<W: Workload>(&mut self, cx: &mut Context<W>) -> bool {
        let over = self.next + cx.coalesce > cx.workload.most_messages();
        if over {
            self.end(cx, "sequence_wrap");
        }
        over
    }

    #[inline]
    fn write_batch<W: Workload>(&mut self, cx: &mut Context<W>, count: u64) {
        let Some(socket) = &self.socket else { return };
        let bytes = cx.batch.bytes();
        match rustix::io::write(socket, bytes) {
            Ok(length) if length == bytes.len() => {
                cx.tally.writes += 1;
                cx.tally.bytes_sent += length as u64;
                self.count_sent(cx, count);
            }
            Ok(length) => {
                cx.tally.writes += 1;
                cx.tally.bytes_sent += length as u64;
                let progress = progress(bytes, length);
                self.out = bytes[progress.boundary..].to_vec();
                self.out_at = length - progress.boundary;
                self.count_sent(cx, progress.data_frames);
                self.watch_writes(cx);
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.out = bytes.to_vec();
                self.watch_writes(cx);
            }
            Err(error) => self.write_failed(cx, error),
        }
    }

    /// Writes the rest of what is queued.
    fn flush<W: Workload>(&mut self, cx: &mut Context<W>) {
        while self.out_at < self.out.len() {
            let Some(socket) = &self.socket else { return };
            match rustix::io::write(socket, &self.out[self.out_at..]) {
                Ok(length) => {
                    cx.tally.writes += 1;
                    cx.tally.bytes_sent += length as u64;
                    self.out_at += length;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return self.write_failed(cx, error),
            }
        }
        if self.stage == Stage::Upgrading {
            // Not frames: sent in full or not at all.
            if self.out_at == self.out.len() {
                self.drop_out();
            }
        } else {
            let progress = progress(&self.out, self.out_at);
            if progress.boundary == self.out.len() {
                self.drop_out();
            } else {
                self.out.drain(..progress.boundary);
                self.out_at -= progress.boundary;
            }
            self.count_data_frames(cx, progress.data_frames);
        }
        self.watch_writes(cx);
    }

    fn drop_out(&mut self) {
        self.out = Vec::new();
        self.out_at = 0;
    }

    /// The socket refuses bytes: what the service sent last may say why.
    fn write_failed<W: Workload>(&mut self, cx: &mut Context<W>, error: Errno) {
        let reading = !cx.read_buffer.is_empty();
        if reading {
            self.on_readable(cx);
        }
        self.end(cx, reason(&io::Error::from(error)));
    }

    fn count_data_frames<W: Workload>(&mut self, cx: &mut Context<W>, frames: u64) {
        let unnumbered = frames.min(self.out_unnumbered);
        self.out_unnumbered -= unnumbered;
        self.unnumbered += unnumbered;
        self.count_sent(cx, frames - unnumbered);
    }

    #[inline]
    fn count_sent<W: Workload>(&mut self, cx: &mut Context<W>, count: u64) {
        self.sent += count;
        cx.tally.sent += count;
        if !cx.tracks_due() || count == 0 {
            return;
        }
        let now_ns = monotonic_ns();
        let open = matches!(cx.pattern, Pattern::Open { .. });
        let load = &mut cx.load;
        self.outstanding.sent(count, now_ns, |slot| {
            if let Some(load) = load
                && open
                && load.phases.in_window(slot.due_ns)
            {
                load.recorder.record(Metric::Delay, now_ns.saturating_sub(slot.due_ns), now_ns);
            }
        });
        if !cx.workload.expects_replies() {
            self.outstanding.settle_sent();
        }
    }

    /// Sends a text message that carries no number. Only when nothing else is queued, so that it is first in `out`.
    fn send_unnumbered<W: Workload>(&mut self, cx: &mut Context<W>, payload: &[u8]) {
        if self.out.is_empty() {
            append(&mut self.out, Opcode::Text, payload, cx.masks.next_mask());
            self.out_unnumbered = 1;
            self.flush(cx);
        }
    }

    fn send_control<W: Workload>(&mut self, cx: &mut Context<W>, opcode: Opcode, payload: &[u8]) {
        append(&mut self.out, opcode, payload, cx.masks.next_mask());
        self.flush(cx);
    }

    /// Every few seconds: sends something if nothing was sent for `limit` sweeps.
    pub(crate) fn sweep<W: Workload>(&mut self, cx: &mut Context<W>, limit: u8) {
        let total = self.sent + self.unnumbered;
        if self.stage != Stage::Open || total != self.swept_at {
            self.swept_at = total;
            self.idle_sweeps = 0;
            return;
        }
        self.idle_sweeps += 1;
        if self.idle_sweeps >= limit
            && let Some(keepalive) = cx.workload.keepalive().map(<[u8]>::to_vec)
        {
            self.send_unnumbered(cx, &keepalive);
        }
    }

    /// Whether nothing is on its way any more.
    pub(crate) fn is_settled<W: Workload>(&self, cx: &Context<W>) -> bool {
        self.stage != Stage::Open
            || (self.out.is_empty()
                && self.backlog.is_empty()
                && (!cx.workload.expects_replies() || self.outstanding.is_empty()))
    }

    /// Says goodbye, after everything that is queued. The socket stays until the service has answered: closing it with
    /// unread data would reset the connection and destroy what is in flight.
    pub(crate) fn close<W: Workload>(&mut self, cx: &mut Context<W>) {
        if self.stage == Stage::Open {
            self.leave(cx);
            self.stage = Stage::Closing;
            self.send_control(cx, Opcode::Close, &NORMAL);
        }
    }

    /// The attempt took too long, or the trial is over.
    pub(crate) fn give_up<W: Workload>(&mut self, cx: &mut Context<W>, why: &str) {
        if self.stage != Stage::Idle && self.stage != Stage::Ended {
            self.end(cx, why);
        }
    }

    #[cold]
    fn end<W: Workload>(&mut self, cx: &mut Context<W>, why: &str) {
        match self.stage {
            Stage::Idle | Stage::Ended => return,
            Stage::Connecting | Stage::Upgrading | Stage::Greeting => cx.failed(why, monotonic_ns()),
            Stage::Open => cx.closed_early(why),
            Stage::Closing | Stage::Closed => {}
        }
        self.leave(cx);
        self.stage = Stage::Ended;
        cx.tally.unsent += self.next - self.sent + self.backlog.len() as u64;
        // Also takes the descriptor out of the epoll set.
        self.socket = None;
        self.backlog = VecDeque::new();
        self.input = Vec::new();
        self.drop_out();
    }

    /// Asks epoll for writability while there is something to write.
    pub(crate) fn watch_writes<W: Workload>(&mut self, cx: &mut Context<W>) {
        let wanted = !self.out.is_empty() || (cx.flooding && self.stage == Stage::Open);
        let Some(socket) = &self.socket else { return };
        if wanted != self.watches_writes {
            let flags = if wanted { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            if epoll::modify(&cx.epoll, socket, self.data(), flags).is_ok() {
                self.watches_writes = wanted;
            }
        }
    }

    /// This worker's books on the connection, if it was ever ready.
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
        })
    }

    /// The socket, for evidence.
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.socket.as_ref()
    }
}

/// first + (first + 1) + … over `count` numbers, modulo 2^64.
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
        // Wraps as a sum of u64 does.
        assert_eq!(sequence_sum(u64::MAX - 1, 3), (u64::MAX - 1).wrapping_mul(3).wrapping_add(3));
    }
}
