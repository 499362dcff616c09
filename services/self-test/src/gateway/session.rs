//! One session: its client's messages, its ticks, its end. One task owns all of its state.
//!
//! [`batches`] keeps frames until a tick combines them to a batch; [`flights`] sends batches to the inference and the
//! results to the client.

mod batches;
mod flights;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, split},
    sync::watch,
    task::JoinSet,
    time::{sleep_until, timeout},
};

use self::{
    batches::{BufferedFrame, Span},
    flights::FinishedRequest,
};
use super::{
    config::Flaw,
    messages::{self, FRAME_BYTES},
    outbox::{Outbox, SlowConsumer},
    schedule::Schedule,
    server::Shared,
    wire::{self, Message, ReadError, Reader},
};
use crate::delay::Delays;

/// How long batches in flight may take after SIGTERM.
const DRAIN: Duration = Duration::from_millis(3500);
/// How long a client may take to end its side after Close.
const LINGER: Duration = Duration::from_secs(1);
/// Number of the batch that the flaws about batches affect.
const SECOND_BATCH: u64 = 2;

/// Why a session ends: the reason in the books, and a Close frame to send, if any.
struct SessionEnd {
    reason: &'static str,
    close_message: Option<Vec<u8>>,
}

impl From<SlowConsumer> for SessionEnd {
    fn from(_: SlowConsumer) -> Self {
        SessionEnd { reason: "slow_consumer", close_message: Some(wire::close(1013, "slow consumer")) }
    }
}

/// The state of a session, without its socket.
struct Session {
    shared: Arc<Shared>,
    connected: Instant,
    /// Number of the newest frame.
    sequence: u64,
    batches: u64,
    waiting: VecDeque<BufferedFrame>,
    /// Frames that were dropped for lack of room and not reported yet.
    overflowed: Option<Span>,
    /// Set by the start message.
    schedule: Option<Schedule>,
    /// Requests in flight: at most one, except with a flaw.
    flights: JoinSet<FinishedRequest>,
    /// Frames in flight, which the books need when the session ends early.
    in_flight_frames: u64,
    in_flight: u64,
    delays: Delays,
    /// The flaw `dead-after-error`: no more requests are sent.
    dead: bool,
    /// Whether a tick was skipped since the last flush.
    skipped: bool,
    /// The flaw `racy-two-in-flight`: the next tick that finds a request in flight sends another.
    racy: bool,
    /// Flushes until the session falls silent; `None` if it doesn't.
    flushes_left: Option<u32>,
}

/// Serves a connection from its upgrade until its counters are in the books.
pub async fn run(
    io: impl AsyncRead + AsyncWrite + Send + 'static,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    let (read, write) = split(io);
    let flaw = shared.config.flaw;
    let (mut reader, mut outbox) = (Reader::new(read, flaw), Outbox::new(write, flaw));
    let mut session = Session::new(shared.clone());
    {
        let mut book = shared.books.open();
        book.connections.accepted += 1;
        book.connections.open += 1;
    }
    let mut counted = (0, 0);
    let end = loop {
        let tick = session.due();
        let step = tokio::select! {
            message = reader.next() => session.handle_message(message, &outbox),
            () = until(tick) => session.tick(&outbox),
            Some(finished) = session.flights.join_next() => match finished {
                Ok(finished) => session.finish_request(finished, &outbox),
                Err(_) => Ok(()),
            },
            () = outbox.stuck() => Err(SlowConsumer.into()),
            () = stop_requested(&mut stop) => break session.drain(&outbox).await,
        };
        counted = count(&shared, &reader.received, &outbox, counted);
        if let Err(end) = step {
            break end;
        }
    };
    session.settle();
    let sends_close = end.close_message.is_some();
    {
        let mut book = shared.books.open();
        book.connections.open -= 1;
        *book.connections.closed.entry(end.reason.into()).or_default() += 1;
    }
    outbox.finish(end.close_message).await;
    if sends_close {
        // The client's remaining bytes must be read: closing with unread data resets the connection and may destroy the
        // Close frame.
        let _ = timeout(LINGER, reader.discard()).await;
    }
}

/// Adds the bytes of a connection since the last call to the books.
fn count(shared: &Shared, received: &u64, outbox: &Outbox, before: (u64, u64)) -> (u64, u64) {
    let now = (*received, outbox.sent());
    let mut book = shared.books.open();
    book.bytes.received += now.0 - before.0;
    book.bytes.sent += now.1 - before.1;
    now
}

/// Waits until the gateway stops, or its state is dropped.
async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

impl Session {
    fn new(shared: Arc<Shared>) -> Self {
        let (delays, racy) = (shared.delays(), shared.is_racy());
        let flushes_left = shared.is_silent().then(|| shared.config.silent_after.get());
        Self {
            shared,
            connected: Instant::now(),
            sequence: 0,
            batches: 0,
            waiting: VecDeque::new(),
            overflowed: None,
            schedule: None,
            flights: JoinSet::new(),
            in_flight_frames: 0,
            in_flight: 0,
            delays,
            dead: false,
            skipped: false,
            racy,
            flushes_left,
        }
    }

    fn flaw(&self) -> Flaw {
        self.shared.config.flaw
    }

    fn due(&self) -> Option<Instant> {
        self.schedule.map(|schedule| schedule.due())
    }

    fn handle_message(&mut self, message: Result<Message, ReadError>, outbox: &Outbox) -> Result<(), SessionEnd> {
        let started = self.schedule.is_some();
        match message {
            Ok(Message::Ping(_)) if self.flaw() == Flaw::NoPong => Ok(()),
            Ok(Message::Ping(payload)) => Ok(outbox.push(wire::pong(&payload))?),
            Ok(Message::Pong) => Ok(()),
            Ok(Message::Close(_)) if self.flaw() == Flaw::DeafToClose => Ok(()),
            Ok(Message::Close(payload)) => {
                Err(SessionEnd { reason: "client", close_message: Some(wire::close_echo(&payload)) })
            }
            Ok(Message::Text(text)) if !started && messages::is_start(&text, self.flaw()) => {
                self.start();
                Ok(())
            }
            Ok(_) if !started => self.refuse_message(1002, "first message must be start"),
            Ok(Message::Text(_)) => self.refuse_message(1002, "expected binary PCM frames after start"),
            Ok(Message::Binary(audio)) if audio.len() as u64 != FRAME_BYTES => {
                self.refuse_message(1003, "expected 640 byte PCM frame")
            }
            Ok(Message::Binary(audio)) => {
                self.buffer_frame(audio);
                Ok(())
            }
            Err(ReadError::Violation(close_message)) => self.refuse("protocol", 1002, close_message),
            Err(ReadError::TooLong) => self.refuse("too_big", 1009, "message too long"),
            Err(ReadError::Disconnected) => Err(SessionEnd { reason: "eof", close_message: None }),
        }
    }

    fn start(&mut self) {
        let mut book = self.shared.books.open();
        book.messages.received += 1;
        book.messages.consumed += 1;
        drop(book);
        let begin = if self.flaw() == Flaw::ScheduleFromConnect { self.connected } else { Instant::now() };
        let config = &self.shared.config;
        self.schedule = Some(Schedule::new(begin + self.shared.phase(), config.interval(), config.flaw));
    }

    /// Ends the session because of a violation, with a close code.
    fn refuse(&self, reason: &'static str, code: u16, close_message: &str) -> Result<(), SessionEnd> {
        let code = if self.flaw() == Flaw::CloseCode { 1000 } else { code };
        Err(SessionEnd { reason, close_message: Some(wire::close(code, close_message)) })
    }

    /// Ends the session because of a complete message, which is counted as dropped.
    fn refuse_message(&self, code: u16, close_message: &str) -> Result<(), SessionEnd> {
        let mut book = self.shared.books.open();
        book.messages.received += 1;
        book.drop_frames("protocol", 1);
        drop(book);
        self.refuse("protocol", code, close_message)
    }

    fn tick(&mut self, outbox: &Outbox) -> Result<(), SessionEnd> {
        let Some(schedule) = &mut self.schedule else { return Ok(()) };
        let lateness = schedule.tick(Instant::now());
        let busy = !self.flights.is_empty() && !self.overlaps();
        let outcome = match (busy, self.waiting.is_empty()) {
            (true, _) => "skipped",
            (false, true) => "empty",
            (false, false) => "flushed",
        };
        self.shared.books.open().tick(outcome, lateness);
        self.skipped |= busy;
        if !busy {
            self.flush(lateness, outbox)?;
        }
        if outcome == "flushed" {
            self.fall_silent();
        }
        Ok(())
    }

    /// Counts a flush; after the last one that the session has, its ticks come at the interval of a silent session.
    fn fall_silent(&mut self) {
        self.flushes_left = self.flushes_left.map(|left| left.saturating_sub(1));
        if self.flushes_left == Some(0) {
            self.flushes_left = None;
            self.schedule = Some(Schedule::new(Instant::now(), self.shared.config.silence(), self.flaw()));
        }
    }

    /// Whether a flaw sends although a request is in flight.
    fn overlaps(&mut self) -> bool {
        match self.flaw() {
            Flaw::TwoInFlight => true,
            Flaw::RacyTwoInFlight => std::mem::take(&mut self.racy),
            _ => false,
        }
    }

    /// Shuts the session down: waits for batches in flight, sends the frames that wait, and closes with 1001.
    async fn drain(&mut self, outbox: &Outbox) -> SessionEnd {
        let all = async {
            self.finish_all_requests(outbox).await?;
            self.flush(Duration::ZERO, outbox)?;
            self.finish_all_requests(outbox).await
        };
        match timeout(DRAIN, all).await {
            Ok(Err(end)) => end,
            Ok(Ok(())) | Err(_) => {
                SessionEnd { reason: "shutdown", close_message: Some(wire::close(1001, "shutting down")) }
            }
        }
    }

    /// Counts the frames that wait or are in flight as dropped when the session ends.
    fn settle(&mut self) {
        if self.flaw() == Flaw::Leak && self.in_flight > 0 {
            return;
        }
        self.flights.abort_all();
        let frames = self.waiting.len() as u64 + self.in_flight_frames;
        let mut book = self.shared.books.open();
        book.drop_frames("closed", frames);
        book.messages.queued -= frames;
        book.inference.buffered_bytes -= frames * FRAME_BYTES;
        book.inference.in_flight -= self.in_flight;
        book.inference.abandoned += self.in_flight;
    }
}
