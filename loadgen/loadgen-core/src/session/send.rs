//! The sending side of a session: due messages, floods, the rest of blocked writes, control frames.

use std::io;

use rustix::io::Errno;

use super::{Session, Stage};
use crate::{
    clock::monotonic_ns,
    connect::reason,
    context::Context,
    frame::{Opcode, append, progress},
    pattern::Pattern,
    phases::Phase,
    recorder::Metric,
    workload::{Messages, Workload},
};

/// Most bytes that are queued beside the load, on one connection.
const LARGEST_BACKLOG: usize = 16 << 20;

/// Unnumbered frames that wait until the queue is empty.
#[derive(Debug, Default)]
pub(super) struct Later {
    bytes: Vec<u8>,
    /// Number of the frames, all of them data.
    frames: u64,
}

impl Session {
    /// Lets the connection take part in a ping-pong.
    pub(crate) fn join_ping_pong<W: Workload>(&mut self, cx: &mut Context<W>, now_ns: u64) {
        if self.stage == Stage::Open {
            self.is_in_ping_pong = true;
            cx.in_ping_pong += 1;
            self.send_next_ping(cx, now_ns);
        }
    }

    /// In a ping-pong, sends the next message, unless this connection has sent all its messages.
    pub(super) fn send_next_ping<W: Workload>(&mut self, cx: &mut Context<W>, now_ns: u64) {
        let (Pattern::PingPong { per_connection }, Some(load), true) = (cx.pattern, &cx.load, self.is_in_ping_pong)
        else {
            return;
        };
        let may_send = match load.phases.at(now_ns) {
            Phase::Hold | Phase::WarmUp => true,
            Phase::Window => per_connection.is_none_or(|most| self.window_messages < most),
            Phase::Drain | Phase::Ended => false,
        };
        if !may_send || self.stage != Stage::Open {
            return self.leave_ping_pong(cx);
        }
        self.window_messages += u32::from(load.phases.in_window(now_ns));
        self.offer(cx, now_ns);
        self.pump(cx);
    }

    pub(super) fn leave_ping_pong<W: Workload>(&mut self, cx: &mut Context<W>) {
        if self.is_in_ping_pong {
            self.is_in_ping_pong = false;
            cx.in_ping_pong -= 1;
        }
    }

    /// Accepts a message that is due. If the socket is full, the message waits with its due time.
    pub(crate) fn offer<W: Workload>(&mut self, cx: &mut Context<W>, due_ns: u64) {
        if self.stage != Stage::Open {
            return cx.count_unsent(1, due_ns);
        }
        cx.count_due(1, due_ns);
        self.backlog.push_back(due_ns);
    }

    /// Hands due messages to the socket until it accepts no more.
    pub(crate) fn pump<W: Workload>(&mut self, cx: &mut Context<W>) {
        while self.out.is_empty() && !self.backlog.is_empty() && self.stage == Stage::Open {
            if self.end_if_out_of_numbers(cx) {
                return;
            }
            cx.batch.clear();
            let mut count = 0;
            while count < cx.coalesce
                && let Some(due_ns) = self.backlog.pop_front()
            {
                self.outstanding.add(due_ns);
                self.compose(cx, cx.unix_us(due_ns));
                count += 1;
            }
            self.write_batch(cx, count);
        }
    }

    /// Hands one batch to the socket. The next epoll event triggers the next batch, so all connections get their turn.
    #[inline]
    pub(super) fn flood<W: Workload>(&mut self, cx: &mut Context<W>) {
        if self.end_if_out_of_numbers(cx) {
            return;
        }
        cx.batch.clear();
        for _ in 0..cx.coalesce {
            self.compose(cx, 0);
        }
        // No clock is read here: the thread ends a flood's window after a number of batches over all connections.
        cx.tally.due += cx.coalesce;
        self.write_batch(cx, cx.coalesce);
    }

    #[inline]
    pub(super) fn compose<W: Workload>(&mut self, cx: &mut Context<W>, unix_us: u64) {
        let sequence = cx.workload.first_sequence() + self.next;
        self.next += 1;
        if cx.has_special_messages {
            return self.compose_special(cx, sequence, unix_us);
        }
        let mask = cx.masks.next_mask();
        let (opcode, payload) = cx.messages.message(&cx.protocol[self.slot as usize], sequence, unix_us);
        cx.batch.push(opcode, payload, mask);
    }

    /// Ends a connection whose sequence numbers are used up. Returns whether it did.
    #[inline]
    pub(super) fn end_if_out_of_numbers<W: Workload>(&mut self, cx: &mut Context<W>) -> bool {
        let is_over = self.next + cx.coalesce > cx.workload.most_messages();
        if is_over {
            self.end(cx, "sequence_wrap");
        }
        is_over
    }

    #[inline]
    pub(super) fn write_batch<W: Workload>(&mut self, cx: &mut Context<W>, count: u64) {
        if self.socket.is_none() {
            return;
        }
        let written = self.write_socket(cx.batch.bytes());
        let bytes = cx.batch.bytes();
        match written {
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
                let count = self.completed(cx, progress.data_frames);
                self.count_sent(cx, count);
                self.watch_writes(cx);
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.out = bytes.to_vec();
                self.watch_writes(cx);
            }
            Err(error) => self.write_failed(cx, error),
        }
    }

    /// Writes to the socket, encrypted if the connection is. Returns the number of bytes that were accepted.
    #[inline]
    fn write_socket(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(socket) = &self.socket else { return Err(Errno::AGAIN) };
        match self.extra.as_mut().and_then(|extra| extra.tls.as_mut()) {
            None => rustix::io::write(socket, bytes),
            Some(tls) => tls.write(socket, bytes),
        }
    }

    /// Hands what TLS has to send by itself to the socket.
    pub(super) fn flush_tls<W: Workload>(&mut self, cx: &mut Context<W>) {
        let (Some(socket), Some(extra)) = (&self.socket, &mut self.extra) else { return };
        let Some(tls) = &mut extra.tls else { return };
        match tls.flush(socket) {
            Ok(()) | Err(Errno::AGAIN) => self.watch_writes(cx),
            Err(error) => self.write_failed(cx, error),
        }
    }

    /// Writes the rest of the queued bytes.
    pub(super) fn flush<W: Workload>(&mut self, cx: &mut Context<W>) {
        while self.out_at < self.out.len() {
            let out = std::mem::take(&mut self.out);
            let written = self.write_socket(&out[self.out_at..]);
            self.out = out;
            match written {
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
            // The upgrade request isn't frames: it is sent completely or counts as not sent.
            if self.out_at == self.out.len() {
                self.clear_out();
            }
        } else {
            let progress = progress(&self.out, self.out_at);
            let is_empty = progress.boundary == self.out.len();
            if is_empty {
                self.clear_out();
            } else {
                self.out.drain(..progress.boundary);
                self.out_at -= progress.boundary;
            }
            self.count_data_frames(cx, progress.data_frames);
            if is_empty && self.extra.as_ref().is_some_and(|extra| extra.later.frames > 0) {
                self.queue_later();
                return self.flush(cx);
            }
        }
        self.watch_writes(cx);
    }

    pub(super) fn clear_out(&mut self) {
        self.out = Vec::new();
        self.out_at = 0;
    }

    /// Handles a failed write. Data that the service sent before may contain the reason, so it is read first.
    pub(super) fn write_failed<W: Workload>(&mut self, cx: &mut Context<W>, error: Errno) {
        let reading = !cx.read_buffer.is_empty();
        if reading {
            self.on_readable(cx);
        }
        self.end(cx, reason(&io::Error::from(error)));
    }

    pub(super) fn count_data_frames<W: Workload>(&mut self, cx: &mut Context<W>, frames: u64) {
        let unnumbered = frames.min(self.out_unnumbered);
        self.out_unnumbered -= unnumbered;
        self.unnumbered += unnumbered;
        let count = self.completed(cx, frames - unnumbered);
        self.count_sent(cx, count);
    }

    #[inline]
    pub(super) fn count_sent<W: Workload>(&mut self, cx: &mut Context<W>, count: u64) {
        self.sent += count;
        cx.tally.sent += count;
        if !cx.tracks_due() || count == 0 {
            return;
        }
        let now_ns = monotonic_ns();
        let open = cx.pattern.is_open();
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

    /// Sends a message without a sequence number, unless other data is queued: it must be first in `out`.
    pub(super) fn send_unnumbered<W: Workload>(&mut self, cx: &mut Context<W>, opcode: Opcode, payload: &[u8]) {
        if self.out.is_empty() {
            let mut frames = std::mem::take(&mut self.out);
            self.append_message(cx, &mut frames, opcode, payload);
            self.out = frames;
            self.out_unnumbered = 1;
            self.flush(cx);
        }
    }

    /// Sends a message without a sequence number. If numbered messages are queued, it waits until they are sent.
    pub(super) fn send_beside_load<W: Workload>(&mut self, cx: &mut Context<W>, opcode: Opcode, payload: &[u8]) {
        if self.out.is_empty() {
            return self.send_unnumbered(cx, opcode, payload);
        }
        let mut frames = std::mem::take(&mut self.extra().later.bytes);
        self.append_message(cx, &mut frames, opcode, payload);
        let waiting = frames.len();
        let later = &mut self.extra().later;
        (later.bytes, later.frames) = (frames, later.frames + 1);
        if waiting > LARGEST_BACKLOG {
            self.end(cx, "responses_unread");
        }
    }

    /// Moves the frames that waited for an empty queue into it.
    fn queue_later(&mut self) {
        if let Some(extra) = &mut self.extra {
            let Later { bytes, frames } = std::mem::take(&mut extra.later);
            (self.out, self.out_unnumbered) = (bytes, frames);
        }
    }

    pub(super) fn send_control<W: Workload>(&mut self, cx: &mut Context<W>, opcode: Opcode, payload: &[u8]) {
        if self.out.len() > LARGEST_BACKLOG {
            // A service that sends pings and doesn't read the pongs.
            return self.end(cx, "pongs_unread");
        }
        append(&mut self.out, opcode, payload, cx.masks.next_mask());
        self.flush(cx);
    }
}
