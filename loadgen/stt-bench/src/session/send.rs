//! What a session sends: its first message, frames when they are due, control frames, and what a socket didn't accept.

use loadgen_core::{
    clock::monotonic_ns,
    connect::reason,
    frame::{self, Opcode},
};
use rustix::{event::epoll, io::Errno, net::SendFlags};

use super::{Out, Session, Stage};
use crate::{audio::FRAME_BYTES, context::Context, metrics::Metric, protocol};

/// Most frames that go out in one write after they waited behind a blocked socket.
const CATCH_UP: u64 = 16;
/// Bytes of a frame on the wire: header and length (4), mask (4), audio.
const WIRE_BYTES: usize = FRAME_BYTES + 8;

impl Session {
    /// The next frame is due at `due_ns`; sends it, unless the socket is blocked.
    #[inline]
    pub(crate) fn on_due(&mut self, cx: &mut Context, due_ns: u64, now_ns: u64) {
        self.count_due(cx, due_ns, now_ns);
        if self.blocked_since_ns == 0 {
            self.pump(cx, now_ns);
        }
    }

    /// Counts the next frame as due.
    #[inline]
    pub(crate) fn count_due(&mut self, cx: &mut Context, due_ns: u64, now_ns: u64) {
        self.due += 1;
        cx.tally.due += 1;
        if let Some(load) = &mut cx.load
            && load.phases.in_window(due_ns)
        {
            cx.tally.window_due += 1;
            load.recorder.record(Metric::Lateness, now_ns.saturating_sub(due_ns), now_ns);
        }
    }

    /// Sends the frames that are due, as far as the socket accepts them.
    #[inline]
    fn pump(&mut self, cx: &mut Context, now_ns: u64) {
        while self.sent < self.due && self.out.is_empty() && self.stage == Stage::Open {
            let count = (self.due - self.sent).min(CATCH_UP);
            cx.batch.clear();
            if !self.started {
                cx.batch.push(Opcode::Text, protocol::START, cx.masks.next_mask());
            }
            let head = cx.batch.bytes().len();
            for seq in self.sent + 1..=self.sent + count {
                cx.batch.push(Opcode::Binary, cx.audio.frame(self.index, seq), cx.masks.next_mask());
            }
            let Some(socket) = &self.socket else { return };
            match rustix::net::send(socket, cx.batch.bytes(), SendFlags::NOSIGNAL) {
                Ok(written) => self.on_written(cx, head, written, now_ns),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.blocked(cx, now_ns),
                Err(error) => return self.end(cx, reason(&error.into())),
            }
        }
    }

    /// Counts what the socket accepted of the batch, whose first `head` bytes are the first message, and keeps the rest
    /// of a message that was cut.
    #[inline]
    fn on_written(&mut self, cx: &mut Context, head: usize, written: usize, now_ns: u64) {
        let frames = written.saturating_sub(head) / WIRE_BYTES;
        cx.moved(now_ns, |moving| {
            moving.writes += 1;
            moving.bytes_sent += written as u64;
            moving.sent += frames as u64;
        });
        self.blocked_since_ns = 0;
        if head > 0 && written >= head {
            self.on_started();
        }
        (0..frames).for_each(|_| self.on_sent(cx, now_ns));
        let all = cx.batch.bytes().len();
        if written < all {
            let (from, to, out_is) = if written < head {
                (0, head, Out::Start)
            } else {
                let from = head + frames * WIRE_BYTES;
                (from, (from + WIRE_BYTES).min(all), Out::Frame)
            };
            self.out.extend_from_slice(&cx.batch.bytes()[from..to]);
            (self.out_at, self.out_is) = (written - from, out_is);
            self.blocked(cx, now_ns);
        }
    }

    fn on_started(&mut self) {
        self.started = true;
        self.unnumbered += 1;
    }

    /// Counts the next frame as sent in full.
    #[inline]
    fn on_sent(&mut self, cx: &mut Context, now_ns: u64) {
        self.sent += 1;
        let due_ns = self.pace.due_ns(self.sent);
        let delay_ns = now_ns.saturating_sub(due_ns);
        self.delays.push_back((delay_ns / 1000).min(u64::from(u32::MAX)) as u32);
        if let Some(load) = &mut cx.load
            && load.phases.in_window(due_ns)
        {
            load.recorder.record(Metric::Delay, delay_ns, now_ns);
        }
    }

    #[cold]
    fn blocked(&mut self, cx: &mut Context, now_ns: u64) {
        if self.blocked_since_ns == 0 {
            self.blocked_since_ns = now_ns.max(1);
        }
        self.watch_writes(cx, true);
    }

    pub(super) fn on_writable(&mut self, cx: &mut Context) {
        if !self.out.is_empty() {
            self.flush(cx);
        }
        if self.out.is_empty() && self.socket.is_some() {
            self.pump(cx, monotonic_ns());
            if self.out.is_empty() && (self.sent == self.due || self.stage != Stage::Open) {
                self.blocked_since_ns = 0;
                self.watch_writes(cx, false);
            }
        }
    }

    /// Writes what `out` holds.
    pub(super) fn flush(&mut self, cx: &mut Context) {
        let Some(socket) = &self.socket else { return };
        let now = monotonic_ns();
        match rustix::net::send(socket, &self.out[self.out_at..], SendFlags::NOSIGNAL) {
            Ok(written) => {
                self.out_at += written;
                self.blocked_since_ns = 0;
                cx.moved(now, |moving| {
                    moving.writes += 1;
                    moving.bytes_sent += written as u64;
                });
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return self.end(cx, reason(&error.into())),
        }
        if self.out_at < self.out.len() {
            return self.blocked(cx, now);
        }
        (self.out, self.out_at) = (Vec::new(), 0);
        match std::mem::replace(&mut self.out_is, Out::Other) {
            Out::Start => self.on_started(),
            Out::Frame => {
                cx.moved(now, |moving| moving.sent += 1);
                self.on_sent(cx, now);
            }
            Out::Other => {}
        }
        if self.stage != Stage::Open || self.sent == self.due {
            self.watch_writes(cx, false);
        }
    }

    /// Sends a control frame, after what `out` still holds.
    pub(super) fn send_control(&mut self, cx: &mut Context, opcode: Opcode, payload: &[u8]) {
        let idle = self.out.is_empty();
        frame::append(&mut self.out, opcode, payload, cx.masks.next_mask());
        if idle {
            self.flush(cx);
        }
    }

    /// Subscribes to writability in epoll, or ends the subscription.
    fn watch_writes(&mut self, cx: &mut Context, wanted: bool) {
        let Some(socket) = &self.socket else { return };
        if wanted != self.watches_writes {
            let flags = if wanted { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            if epoll::modify(&cx.epoll, socket, self.data(), flags).is_ok() {
                self.watches_writes = wanted;
            }
        }
    }
}
