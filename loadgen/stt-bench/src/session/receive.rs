//! What arrives on a session: bytes to WebSocket frames, those to messages, messages to the audio frames that they
//! answer.

use loadgen_core::{
    clock::monotonic_ns,
    connect::{Upgrade, check_upgrade, reason},
    frame::{self, Opcode},
};
use rustix::io::Errno;

use super::{Session, Stage};
use crate::{
    books::as_key,
    context::Context,
    coverage::Covered,
    deferred::{FrameResult, Times},
    protocol::{self, ErrorFrame, Message, Partial},
};

/// Largest message that is accepted, in bytes; the protocol's messages have a few hundred.
const LARGEST_MESSAGE: usize = 64 << 10;

impl Session {
    pub(super) fn on_readable(&mut self, cx: &mut Context) {
        let Some(socket) = &self.socket else { return };
        let mut buffer = std::mem::take(&mut cx.read_buffer);
        let before = self.input.len();
        if buffer.len() < before * 2 {
            buffer.resize(before * 2, 0);
        }
        buffer[..before].copy_from_slice(&self.input);
        match rustix::io::read(socket, &mut buffer[before..]) {
            Ok(0) => self.end(cx, "eof"),
            Ok(length) => {
                self.input.clear();
                cx.tally.bytes_received += length as u64;
                let used = self.consume(cx, &buffer[..before + length], monotonic_ns());
                if self.socket.is_some() {
                    self.input.extend_from_slice(&buffer[used..before + length]);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => self.end(cx, reason(&error.into())),
        }
        cx.read_buffer = buffer;
    }

    /// Handles all complete parts of `bytes`; returns how many bytes they took.
    fn consume(&mut self, cx: &mut Context, bytes: &[u8], now_ns: u64) -> usize {
        let mut used = 0;
        if self.stage == Stage::Upgrading {
            match check_upgrade(bytes, &self.key, &[], None) {
                Upgrade::Incomplete => return 0,
                Upgrade::Failed(reason) => {
                    self.end(cx, &reason);
                    return bytes.len();
                }
                Upgrade::Done { length, .. } => {
                    used = length;
                    self.on_open(cx, now_ns);
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

    fn on_open(&mut self, cx: &mut Context, now_ns: u64) {
        self.stage = Stage::Open;
        self.key = String::new();
        cx.attempts.in_flight -= 1;
        cx.attempts.opened += 1;
        cx.alive += 1;
        cx.handshakes.record(now_ns.saturating_sub(self.attempted_ns));
    }

    fn on_frame(&mut self, cx: &mut Context, frame: &frame::Frame<'_>, now_ns: u64) {
        match frame.opcode {
            Opcode::Ping => self.send_control(cx, Opcode::Pong, frame.payload),
            // The load doesn't use Pong frames. Binary messages are ignored in `on_message`.
            Opcode::Pong => {}
            Opcode::Close => self.on_close(cx, frame.payload),
            Opcode::Text | Opcode::Binary | Opcode::Continuation => match self.assembly.take(frame, LARGEST_MESSAGE) {
                Ok(Some((opcode, payload))) => self.on_message(cx, opcode, &payload, now_ns),
                Ok(None) => {}
                Err(_) => self.end(cx, "protocol"),
            },
        }
    }

    fn on_close(&mut self, cx: &mut Context, payload: &[u8]) {
        let code = payload.first_chunk::<2>().map_or(1005, |code| u16::from_be_bytes(*code));
        match self.stage {
            Stage::Closing => self.stage = Stage::Closed,
            Stage::Open => {
                // Answered, so that a gateway that waits for the Close frame is not kept; then the session is over.
                self.send_control(cx, Opcode::Close, payload.first_chunk::<2>().map_or(&[], |code| &code[..]));
                self.end(cx, &format!("close_{code}"));
            }
            Stage::Closed | Stage::Ended | Stage::Connecting | Stage::Upgrading => {}
        }
    }

    fn on_message(&mut self, cx: &mut Context, opcode: Opcode, payload: &[u8], now_ns: u64) {
        // After its Close a gateway sends nothing more, and binary messages have no meaning in this direction.
        if opcode != Opcode::Text || !matches!(self.stage, Stage::Open | Stage::Closing) {
            return;
        }
        match protocol::parse(payload) {
            Ok(Message::Partial(partial)) => self.on_partial(cx, &partial, now_ns),
            Ok(Message::Error(error)) => self.on_error(cx, &error, now_ns),
            Err(_) => self.end(cx, "protocol"),
        }
    }

    fn on_partial(&mut self, cx: &mut Context, partial: &Partial<'_>, now_ns: u64) {
        let (oldest, newest) = (partial.oldest_frame_seq, partial.newest_frame_seq);
        // A partial about frames that were not sent isn't judged; `cover` counts the failure.
        let exists = newest <= self.sent;
        let times = self.times(oldest, newest);
        let covered = self.cover(cx, oldest, newest, now_ns);
        if covered.newly_covered > 0 {
            self.replies += 1;
            cx.moved(now_ns, |moving| {
                moving.replies += 1;
                moving.answered += covered.newly_covered;
            });
        }
        let answer = FrameResult {
            session: self.index,
            newly_covered: covered.newly_covered,
            late: self.late_frames(cx, newest - covered.newly_covered, newest, now_ns),
            times: times.filter(|_| covered.again == 0),
            newest_due_ns: if exists && covered.newly_covered > 0 { self.pace.due_ns(newest) } else { 0 },
            at_ns: now_ns,
        };
        if exists {
            cx.judge_or_defer(partial, answer);
        } else {
            cx.tally.wrong += covered.newly_covered;
        }
    }

    fn on_error(&mut self, cx: &mut Context, error: &ErrorFrame<'_>, now_ns: u64) {
        let covered = self.cover(cx, error.oldest_frame_seq, error.newest_frame_seq, now_ns);
        let kind = as_key(&error.kind);
        cx.fail(self.index, &format!("{}/{kind}", as_key(&error.stage)), now_ns);
        cx.errors.keep(error);
        if covered.newly_covered > 0 {
            *cx.tally.dropped.entry(kind.to_owned()).or_default() += covered.newly_covered;
        }
    }

    /// Marks frames as answered; counts gaps, repetitions and frames that were not sent.
    fn cover(&mut self, cx: &mut Context, oldest: u64, newest: u64, now_ns: u64) -> Covered {
        let before = self.coverage.to;
        let covered = self.coverage.take(oldest, newest, self.sent);
        self.delays.drain(..(self.coverage.to - before) as usize);
        cx.tally.lost += covered.gap;
        cx.tally.duplicates += covered.again;
        if let Some(failure) = covered.failure() {
            cx.fail(self.index, failure, now_ns);
        }
        covered
    }

    /// When the first and the last frame of a batch were due and sent; `None` when one of them was covered before or
    /// was not sent.
    fn times(&self, oldest: u64, newest: u64) -> Option<Times> {
        let time = |seq: u64| {
            let delay_us = *self.delays.get(seq.checked_sub(self.coverage.to + 1)? as usize)?;
            let due_ns = self.pace.due_ns(seq);
            Some((due_ns, due_ns + u64::from(delay_us) * 1000))
        };
        let ((oldest_due_ns, oldest_sent_ns), (newest_due_ns, newest_sent_ns)) = (time(oldest)?, time(newest)?);
        Some(Times { oldest_due_ns, oldest_sent_ns, newest_due_ns, newest_sent_ns })
    }

    /// How many of the frames `after + 1..=to` are answered later than the objective allows.
    fn late_frames(&self, cx: &Context, after: u64, to: u64, now_ns: u64) -> u64 {
        if cx.late_after_ns == u64::MAX {
            return 0;
        }
        self.pace.due_before(now_ns.saturating_sub(cx.late_after_ns)).clamp(after, to) - after
    }
}
