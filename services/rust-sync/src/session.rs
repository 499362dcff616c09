//! One session: its numbered frames, its flush ticks, and the one request that it may have in flight. It does no I/O
//! and reads no clock.

mod audio;
mod schedule;

use std::time::{Duration, Instant};

pub use audio::{Batch, Pool};
pub use schedule::Schedule;

use crate::protocol::{
    WIRE_BYTES,
    messages::{ErrorContext, Failure, Kind, Span},
};

/// The right to have a request in flight. A session has one. It can't be copied, a request can't be made without it,
/// and it returns with the response. So there is never a second request.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Key of the connection that it belongs to.
    pub connection: u64,
}

/// A request: a batch on its way to the inference and back.
#[derive(Debug)]
pub struct Request {
    /// The session's only ticket.
    pub ticket: Ticket,
    /// The audio, which is moved and never copied.
    pub batch: Batch,
    /// When the tick ran that sent the request.
    pub sent_at: Instant,
    /// Lateness of that tick.
    pub lateness: Duration,
}

/// The result of a tick.
#[derive(Debug)]
pub enum Tick {
    /// A request was in flight; audio continues to wait.
    Skipped,
    /// No audio was waiting.
    Empty,
    /// All waiting audio is in this request.
    Flushed(Request),
}

/// Frames that were dropped because too many waited, and not reported yet.
#[derive(Clone, Copy, Debug)]
struct Overflow {
    span: Span,
    oldest_at: Instant,
    newest_at: Instant,
}

/// The state of one session.
#[derive(Debug)]
pub struct Session {
    /// When the session's ticks and visits are due.
    pub schedule: Schedule,
    next_seq: u64,
    waiting: Batch,
    overflow: Option<Overflow>,
    /// `None` while a request is in flight.
    ticket: Option<Ticket>,
    frames_in_flight: u64,
    is_last_flush_done: bool,
}

impl Session {
    /// Creates the session of the connection with this key.
    pub fn new(connection: u64, schedule: Schedule) -> Self {
        Self {
            schedule,
            next_seq: 1,
            waiting: Batch::default(),
            overflow: None,
            ticket: Some(Ticket { connection }),
            frames_in_flight: 0,
            is_last_flush_done: false,
        }
    }

    /// Adds a run of complete frames in wire format. Returns how many of the oldest frames were dropped because no more
    /// than `limit` may wait.
    #[inline]
    pub fn take_run(&mut self, run: &[u8], limit: usize, pool: &mut Pool, now: Instant) -> u64 {
        let dropped = self.make_room(run.len() / WIRE_BYTES, limit, now);
        let fitting = &run[dropped.of_new * WIRE_BYTES..];
        self.waiting.append_run(fitting, self.next_seq + dropped.of_new as u64, pool, now);
        self.next_seq += (run.len() / WIRE_BYTES) as u64;
        dropped.total
    }

    /// Adds one frame's audio; otherwise like [`Self::take_run`].
    pub fn take_frame(&mut self, audio: &[u8], limit: usize, pool: &mut Pool, now: Instant) -> u64 {
        let dropped = self.make_room(1, limit, now);
        self.waiting.append_frame(audio, self.next_seq, pool, now);
        self.next_seq += 1;
        dropped.total
    }

    #[inline]
    fn make_room(&mut self, frames: usize, limit: usize, now: Instant) -> Dropped {
        let waiting = self.waiting.frames();
        let excess = (waiting + frames).saturating_sub(limit);
        if excess == 0 {
            return Dropped { total: 0, of_new: 0 };
        }
        let of_waiting = excess.min(waiting);
        let of_new = excess - of_waiting;
        let oldest_frame_seq = if waiting == 0 { self.next_seq } else { self.waiting.oldest_seq() };
        let oldest_at = if waiting == 0 { now } else { self.waiting.oldest_at() };
        let newest_at = if of_new > 0 { now } else { self.waiting.received_at(of_waiting - 1) };
        let frames = excess as u64;
        let overflow =
            self.overflow.get_or_insert(Overflow { span: Span { oldest_frame_seq, frames: 0 }, oldest_at, newest_at });
        overflow.span.frames += frames;
        overflow.newest_at = newest_at;
        self.waiting.drop_oldest(of_waiting);
        Dropped { total: frames, of_new }
    }

    /// Runs the tick that is due, `lateness` after its time.
    pub fn tick(&mut self, now: Instant, lateness: Duration) -> Tick {
        let Some(ticket) = self.ticket.take() else { return Tick::Skipped };
        if self.waiting.frames() == 0 {
            self.ticket = Some(ticket);
            return Tick::Empty;
        }
        let batch = std::mem::take(&mut self.waiting);
        self.frames_in_flight = batch.frames() as u64;
        Tick::Flushed(Request { ticket, batch, sent_at: now, lateness })
    }

    /// Takes the overflow that must be reported before the next batch is sent. `None` while a request is in flight,
    /// because frames are covered in order.
    pub fn take_overflow(&mut self, now: Instant, lateness: Duration) -> Option<(Span, Failure, ErrorContext)> {
        if self.is_in_flight() {
            return None;
        }
        let Overflow { span, oldest_at, newest_at } = self.overflow.take()?;
        let message = format!("too many frames waited: the oldest {} were dropped", span.frames);
        let context = ErrorContext {
            oldest_age_ms: milliseconds(now.duration_since(oldest_at)),
            newest_age_ms: milliseconds(now.duration_since(newest_at)),
            flush_lateness_ms: milliseconds(lateness),
            inference_elapsed_ms: None,
            inflight_gateway_batches: 0,
            gateway_buffer_frames: self.waiting.frames() as u64,
        };
        Some((span, Failure::new(Kind::Overflow, message), context))
    }

    /// Records that the session's request has returned.
    pub fn request_returned(&mut self, ticket: Ticket) {
        debug_assert!(self.ticket.is_none());
        self.ticket = Some(ticket);
        self.frames_in_flight = 0;
    }

    /// Whether a request is in flight.
    pub fn is_in_flight(&self) -> bool {
        self.ticket.is_none()
    }

    /// Number of frames that wait.
    pub fn waiting_frames(&self) -> usize {
        self.waiting.frames()
    }

    /// Number of requests in flight, 0 or 1.
    pub fn requests_in_flight(&self) -> u64 {
        u64::from(self.is_in_flight())
    }

    /// Number of frames of the request in flight.
    pub fn frames_in_flight(&self) -> u64 {
        self.frames_in_flight
    }

    /// Whether to run the session's last flush now. Returns true once, when no request is in flight.
    pub fn begin_last_flush(&mut self) -> bool {
        let is_due = !self.is_last_flush_done && !self.is_in_flight();
        self.is_last_flush_done |= is_due;
        is_due
    }

    /// Whether the last flush is complete, either with a response or with no audio to send.
    pub fn is_finished(&self) -> bool {
        self.is_last_flush_done && !self.is_in_flight()
    }

    /// Returns the audio that still waits when the session ends.
    pub fn into_waiting(self) -> Batch {
        self.waiting
    }
}

struct Dropped {
    total: u64,
    of_new: usize,
}

impl Request {
    /// The times and counts that an error about this request reports.
    pub fn context(&self, now: Instant, waiting_frames: usize) -> ErrorContext {
        ErrorContext {
            oldest_age_ms: milliseconds(now.duration_since(self.batch.oldest_at())),
            newest_age_ms: milliseconds(now.duration_since(self.batch.newest_at())),
            flush_lateness_ms: milliseconds(self.lateness),
            inference_elapsed_ms: Some(milliseconds(now.duration_since(self.sent_at))),
            inflight_gateway_batches: 1,
            gateway_buffer_frames: waiting_frames as u64,
        }
    }
}

/// Converts a duration to milliseconds, as messages report times.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

#[cfg(test)]
#[path = "session/tests.rs"]
mod tests;
