//! The receiving side of a session: bytes to frames, frames to messages, messages to replies.

use rustix::io::Errno;

use super::{Session, Stage};
use crate::{
    clock::monotonic_ns,
    connect::{Upgrade, check_upgrade, reason},
    context::Context,
    frame::{self, Opcode},
    pattern::Pattern,
    receiver::{Reading, Receiver},
    recorder::Metric,
    replies::Matched,
    workload::{Received, Workload},
};

/// Largest message that is assembled from fragments or inflated, in bytes; it equals the largest frame.
pub(super) const LARGEST_MESSAGE: usize = frame::LARGEST_FRAME as usize;

impl Session {
    pub(super) fn on_readable<W: Workload>(&mut self, cx: &mut Context<W>) {
        // What TLS has decrypted makes no socket readable, so all of it is read now.
        while self.read(cx) && self.tls().is_some() {}
        if self.tls().is_some() && self.socket.is_some() {
            // The handshake may be over, so that queued bytes can go, and what is due behind them: no event will say so.
            self.on_writable(cx);
        }
    }

    /// Reads once; returns whether there may be more.
    fn read<W: Workload>(&mut self, cx: &mut Context<W>) -> bool {
        if self.socket.is_none() {
            return false;
        }
        let mut buffer = std::mem::take(&mut cx.read_buffer);
        let incomplete = self.input.len();
        if buffer.len() < incomplete * 2 {
            buffer.resize(incomplete * 2, 0);
        }
        buffer[..incomplete].copy_from_slice(&self.input);
        let read = self.read_socket(&mut buffer[incomplete..]);
        match read {
            Ok(0) => self.on_end_of_stream(cx),
            Ok(length) => {
                self.input.clear();
                cx.tally.bytes_received += length as u64;
                let used = self.take_read(cx, &buffer[..incomplete + length]);
                if self.socket.is_some() {
                    self.input.extend_from_slice(&buffer[used..incomplete + length]);
                    if self.input.is_empty() {
                        self.input = Vec::new();
                    }
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => self.end(cx, reason(&error.into())),
        }
        cx.read_buffer = buffer;
        read.is_ok_and(|length| length > 0)
    }

    /// Reads from the socket, decrypted if the connection is encrypted.
    #[inline]
    fn read_socket(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let Some(socket) = &self.socket else { return Err(Errno::AGAIN) };
        match self.extra.as_mut().and_then(|extra| extra.tls.as_mut()) {
            None => rustix::io::read(socket, buffer),
            Some(tls) => tls.read(socket, buffer),
        }
    }

    /// Handles the bytes of one read, preceded by the rest of the previous read. A frame counts with the read that
    /// completes it.
    fn take_read<W: Workload>(&mut self, cx: &mut Context<W>, bytes: &[u8]) -> usize {
        let (now_ns, deliveries_before) = (monotonic_ns(), cx.tally.deliveries);
        let used = self.consume(cx, bytes, now_ns);
        let deliveries = cx.tally.deliveries - deliveries_before;
        if deliveries > 0 && cx.load.as_ref().is_some_and(|load| load.phases.in_window(now_ns)) {
            cx.tally.window_deliveries += deliveries;
            cx.tally.window_reads += 1;
            cx.tally.window_bytes += used as u64;
        }
        used
    }

    /// Handles consecutive published messages until another frame follows; returns the number of bytes handled.
    fn take_published<W: Workload>(&mut self, cx: &mut Context<W>, bytes: &[u8], now_ns: u64) -> usize {
        let (Some(receiver), Some(publishing)) = (&mut self.receiver, cx.pattern.publishing()) else { return 0 };
        if W::IS_SCRIPTED || !matches!(self.stage, Stage::Open | Stage::Closing) || !self.assembly.is_idle() {
            return 0;
        }
        let load = cx.load.as_mut().map(|load| (load.phases, &mut load.recorder, load.publisher_offset_ns));
        let handled = Reading { now_ns, publishing, load }.take_published(&*cx.workload, receiver, bytes);
        cx.tally.deliveries += handled.deliveries;
        handled.used
    }

    /// Handles a receiver's message that `take_published` doesn't: a fragmented or binary one, or one before the
    /// connection is ready.
    fn take_other<W: Workload>(&mut self, cx: &mut Context<W>, opcode: Opcode, payload: &[u8], now_ns: u64) {
        let (Some(receiver), Some(publishing)) = (&mut self.receiver, cx.pattern.publishing()) else { return };
        if W::IS_SCRIPTED {
            return;
        }
        if opcode != Opcode::Text || !matches!(self.stage, Stage::Open | Stage::Closing) {
            receiver.others += 1;
            return;
        }
        let load = cx.load.as_mut().map(|load| (load.phases, &mut load.recorder, load.publisher_offset_ns));
        let published = Reading { now_ns, publishing, load }.take(&*cx.workload, receiver, payload);
        cx.tally.deliveries += u64::from(published);
    }

    pub(super) fn on_end_of_stream<W: Workload>(&mut self, cx: &mut Context<W>) {
        self.end(cx, "eof");
    }

    /// Handles all complete parts of `bytes`; returns the number of bytes handled.
    pub(super) fn consume<W: Workload>(&mut self, cx: &mut Context<W>, bytes: &[u8], now_ns: u64) -> usize {
        let mut used = 0;
        if self.stage == Stage::Upgrading {
            match check_upgrade(bytes, &self.key, cx.workload.subprotocols(), cx.workload.deflate()) {
                Upgrade::Incomplete => return 0,
                Upgrade::Failed(reason) => {
                    self.end(cx, &reason);
                    return bytes.len();
                }
                Upgrade::Done { length, deflate } => {
                    used = length;
                    self.negotiated(cx, deflate);
                    self.stage = Stage::AwaitingReady;
                    self.key = String::new();
                    self.receiver = self.receives(cx).then(|| Box::new(Receiver::of(cx.pattern)));
                    if W::IS_SCRIPTED {
                        self.begin(cx, now_ns);
                    }
                }
            }
        }
        while self.socket.is_some() {
            used += self.take_published(cx, &bytes[used..], now_ns);
            match frame::parse(&bytes[used..]) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    used += frame.length;
                    self.on_frame(cx, &frame, now_ns);
                }
                Err(violation) => match self.on_special_frame(cx, &bytes[used..], violation, now_ns) {
                    0 => break,
                    length => used += length,
                },
            }
        }
        used
    }

    pub(super) fn on_frame<W: Workload>(&mut self, cx: &mut Context<W>, frame: &frame::Frame<'_>, now_ns: u64) {
        match frame.opcode {
            Opcode::Ping => self.send_control(cx, Opcode::Pong, frame.payload),
            Opcode::Pong => {}
            Opcode::Close => self.on_close(cx, frame.payload),
            Opcode::Continuation => self.on_continuation(cx, frame, now_ns),
            Opcode::Text | Opcode::Binary => match self.assembly.take(frame, LARGEST_MESSAGE) {
                Ok(Some((opcode, payload))) => self.on_message(cx, opcode, &payload, now_ns),
                Ok(None) => {}
                Err(_) => self.end(cx, "protocol"),
            },
        }
    }

    pub(super) fn on_message<W: Workload>(&mut self, cx: &mut Context<W>, opcode: Opcode, payload: &[u8], now_ns: u64) {
        self.take_other(cx, opcode, payload, now_ns);
        match self.stage {
            Stage::AwaitingReady => {
                let connection = &mut cx.protocol[self.slot as usize];
                let admission = cx.workload.admit(connection, opcode, payload, &mut cx.outbox);
                self.on_admission(cx, admission, now_ns);
            }
            Stage::Open | Stage::Closing if W::IS_SCRIPTED => self.on_scripted_message(cx, opcode, payload, now_ns),
            Stage::Open | Stage::Closing if cx.workload.expects_replies() => {
                let received = cx.workload.classify(opcode, payload);
                self.on_received(cx, received, now_ns);
            }
            _ => {}
        }
    }

    #[inline]
    pub(super) fn on_received<W: Workload>(&mut self, cx: &mut Context<W>, received: Received, now_ns: u64) {
        match received {
            Received::Other => {}
            Received::Wrong => self.on_wrong(cx, now_ns),
            Received::Reply { sequence } => self.on_reply(cx, sequence, now_ns),
            Received::Answer { to, part } => self.on_answer(cx, to, part, now_ns),
            Received::Published(delivery) => self.on_published(cx, delivery, now_ns),
            Received::Violation(reason) => self.end(cx, reason),
        }
    }

    pub(super) fn on_ready<W: Workload>(&mut self, cx: &mut Context<W>, connection_id: String, now_ns: u64) {
        self.id = connection_id;
        self.stage = Stage::Open;
        self.was_open = true;
        cx.opened(now_ns);
        if let Some(first_message) = cx.workload.first_message().map(<[u8]>::to_vec) {
            self.send_unnumbered(cx, Opcode::Text, &first_message);
        }
        if cx.turnover.is_some() {
            self.count_ready(cx);
        }
        if let (Pattern::Storm { .. }, Some(load)) = (cx.pattern, &mut cx.load) {
            let ready_ns = monotonic_ns();
            load.recorder.record(Metric::Handshake, ready_ns.saturating_sub(self.started_ns), ready_ns);
        }
    }

    pub(super) fn on_reply<W: Workload>(&mut self, cx: &mut Context<W>, sequence: u64, now_ns: u64) {
        let n = sequence.wrapping_sub(cx.workload.first_sequence());
        match self.outstanding.reply(n) {
            Matched::Duplicate => cx.tally.duplicates += 1,
            Matched::Unknown => self.on_wrong(cx, now_ns),
            Matched::Answer { slot, reordered } => {
                self.replies += 1;
                cx.tally.replies += 1;
                cx.tally.reorders += u64::from(reordered);
                let response_ns = now_ns.saturating_sub(slot.due_ns);
                cx.tally.late += u64::from(response_ns > cx.late_after_ns);
                if let Some(load) = &mut cx.load
                    && load.phases.in_window(slot.due_ns)
                {
                    load.recorder.record(Metric::Response, response_ns, now_ns);
                    if cx.pattern.is_open() {
                        load.recorder.record(Metric::Service, now_ns.saturating_sub(slot.sent_ns), now_ns);
                    }
                }
                self.send_next_ping(cx, now_ns);
            }
        }
    }

    pub(super) fn on_wrong<W: Workload>(&mut self, cx: &mut Context<W>, now_ns: u64) {
        if self.outstanding.settle_oldest() {
            cx.tally.wrong += 1;
            self.send_next_ping(cx, now_ns);
        } else {
            cx.tally.duplicates += 1;
        }
    }

    pub(super) fn on_close<W: Workload>(&mut self, cx: &mut Context<W>, payload: &[u8]) {
        let code = payload.first_chunk::<2>().map_or(1005, |code| u16::from_be_bytes(*code));
        match self.stage {
            Stage::Closing => {
                self.stage = Stage::Closed;
                if let Some(receiver) = &mut self.receiver {
                    receiver.closed = true;
                }
            }
            Stage::Open => {
                // Respond to the Close frame, so that a service that waits for the response can go on; nothing more is
                // expected.
                self.send_control(cx, Opcode::Close, payload.first_chunk::<2>().map_or(&[], |code| &code[..]));
                self.end(cx, &format!("close_{code}"));
            }
            Stage::Closed | Stage::Ended => {}
            _ => self.end(cx, &format!("close_{code}")),
        }
    }
}
