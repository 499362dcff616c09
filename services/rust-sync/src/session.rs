//! One session: its numbered frames, its flush ticks, and the one request that it may have in flight. Pure: no sockets.

mod audio;
mod schedule;

use std::time::{Duration, Instant};

pub use audio::{Batch, Pool};
pub use schedule::Schedule;

use crate::protocol::{
    WIRE_BYTES,
    messages::{Circumstances, Cover, Failure, Kind},
};

/// The right to have a request in flight. A session has one; it can't be copied, a request can't be made without it, and it
/// comes back with the answer. So there is never a second request.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The connection that it belongs to.
    pub connection: u64,
}

/// A batch on its way to the inference and back.
#[derive(Debug)]
pub struct Request {
    /// The session's only one.
    pub ticket: Ticket,
    /// The audio: moved, never copied.
    pub batch: Batch,
    /// When the tick ran that sent it.
    pub sent_at: Instant,
    /// How late that tick was.
    pub lateness: Duration,
}

/// What a tick did.
#[derive(Debug)]
pub enum Tick {
    /// A request was in flight; audio goes on to wait.
    Skipped,
    /// There was no audio.
    Empty,
    /// All audio went into this request.
    Flushed(Request),
}

/// Frames that were dropped because too many waited; not reported yet.
#[derive(Clone, Copy, Debug)]
struct Lost {
    cover: Cover,
    oldest_at: Instant,
    newest_at: Instant,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// When it is due.
    pub schedule: Schedule,
    next_seq: u64,
    waiting: Batch,
    lost: Option<Lost>,
    /// `None` while a request is in flight.
    ticket: Option<Ticket>,
    frames_in_flight: u64,
    is_last_flush_done: bool,
}

impl Session {
    /// A session that starts now, of the connection with this key.
    pub fn new(connection: u64, schedule: Schedule) -> Self {
        Self {
            schedule,
            next_seq: 1,
            waiting: Batch::default(),
            lost: None,
            ticket: Some(Ticket { connection }),
            frames_in_flight: 0,
            is_last_flush_done: false,
        }
    }

    /// Takes a run of whole frames as they are on the wire. Returns how many of the oldest frames had to be dropped because
    /// no more than `limit` may wait.
    #[inline]
    pub fn take_run(&mut self, run: &[u8], limit: usize, pool: &mut Pool, now: Instant) -> u64 {
        let dropped = self.make_room(run.len() / WIRE_BYTES, limit, now);
        let fitting = &run[dropped.of_new * WIRE_BYTES..];
        self.waiting.append_run(fitting, self.next_seq + dropped.of_new as u64, pool, now);
        self.next_seq += (run.len() / WIRE_BYTES) as u64;
        dropped.in_all
    }

    /// Takes one frame's audio; otherwise like [`Self::take_run`].
    pub fn take_frame(&mut self, audio: &[u8], limit: usize, pool: &mut Pool, now: Instant) -> u64 {
        let dropped = self.make_room(1, limit, now);
        self.waiting.append_frame(audio, self.next_seq, pool, now);
        self.next_seq += 1;
        dropped.in_all
    }

    #[inline]
    fn make_room(&mut self, frames: usize, limit: usize, now: Instant) -> Dropped {
        let waiting = self.waiting.frames();
        let excess = (waiting + frames).saturating_sub(limit);
        if excess == 0 {
            return Dropped { in_all: 0, of_new: 0 };
        }
        let of_waiting = excess.min(waiting);
        let of_new = excess - of_waiting;
        let oldest_frame_seq = if waiting == 0 { self.next_seq } else { self.waiting.oldest_seq() };
        let oldest_at = if waiting == 0 { now } else { self.waiting.oldest_at() };
        let newest_at = if of_new > 0 { now } else { self.waiting.received_at(of_waiting - 1) };
        let frames = excess as u64;
        let lost = self.lost.get_or_insert(Lost { cover: Cover { oldest_frame_seq, frames: 0 }, oldest_at, newest_at });
        lost.cover.frames += frames;
        lost.newest_at = newest_at;
        self.waiting.drop_oldest(of_waiting);
        Dropped { in_all: frames, of_new }
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

    /// What must be reported before the next batch is sent: nothing while a request is in flight, because frames are covered
    /// in order.
    pub fn take_overflow(&mut self, now: Instant, lateness: Duration) -> Option<(Cover, Failure, Circumstances)> {
        if self.is_in_flight() {
            return None;
        }
        let Lost { cover, oldest_at, newest_at } = self.lost.take()?;
        let message = format!("too many frames waited: the oldest {} were dropped", cover.frames);
        let circumstances = Circumstances {
            oldest_age_ms: milliseconds(now.duration_since(oldest_at)),
            newest_age_ms: milliseconds(now.duration_since(newest_at)),
            flush_lateness_ms: milliseconds(lateness),
            inference_elapsed_ms: None,
            inflight_gateway_batches: 0,
            gateway_buffer_frames: self.waiting.frames() as u64,
        };
        Some((cover, Failure::new(Kind::Overflow, message), circumstances))
    }

    /// The session's request has come back.
    pub fn returned(&mut self, ticket: Ticket) {
        debug_assert!(self.ticket.is_none());
        self.ticket = Some(ticket);
        self.frames_in_flight = 0;
    }

    /// Whether a request is in flight.
    pub fn is_in_flight(&self) -> bool {
        self.ticket.is_none()
    }

    /// Frames that wait.
    pub fn waiting_frames(&self) -> usize {
        self.waiting.frames()
    }

    /// Requests in flight: 0 or 1.
    pub fn requests_in_flight(&self) -> u64 {
        u64::from(self.is_in_flight())
    }

    /// Frames that are in flight.
    pub fn frames_in_flight(&self) -> u64 {
        self.frames_in_flight
    }

    /// Whether now is the time for the flush behind which the session ends: once, when no request is in flight.
    pub fn begin_last_flush(&mut self) -> bool {
        let is_time = !self.is_last_flush_done && !self.is_in_flight();
        self.is_last_flush_done |= is_time;
        is_time
    }

    /// Whether the last flush was answered, or had nothing to send.
    pub fn is_finished(&self) -> bool {
        self.is_last_flush_done && !self.is_in_flight()
    }

    /// The audio that waits, when the session ends.
    pub fn into_waiting(self) -> Batch {
        self.waiting
    }
}

struct Dropped {
    in_all: u64,
    of_new: usize,
}

impl Request {
    /// The circumstances of its failure.
    pub fn circumstances(&self, now: Instant, waiting_frames: usize) -> Circumstances {
        Circumstances {
            oldest_age_ms: milliseconds(now.duration_since(self.batch.oldest_at())),
            newest_age_ms: milliseconds(now.duration_since(self.batch.newest_at())),
            flush_lateness_ms: milliseconds(self.lateness),
            inference_elapsed_ms: Some(milliseconds(now.duration_since(self.sent_at))),
            inflight_gateway_batches: 1,
            gateway_buffer_frames: waiting_frames as u64,
        }
    }
}

/// As the protocol has times.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

#[cfg(test)]
#[path = "session/tests.rs"]
mod tests;
