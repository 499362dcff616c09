//! One session: one task from the upgrade to the last byte. Sessions share only the state in `gateway`.
//!
//! The task waits for the start message, then reacts to messages, ticks, responses of the inference and completed
//! writes, and at the end sends what is left and a Close frame.

mod audio;
mod close_reason;
mod outbox;

use std::{
    future::{Future, pending},
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::extract::ws::{Message, WebSocket};
use futures_util::{
    StreamExt,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    select,
    time::{Interval, MissedTickBehavior, interval_at, sleep_until, timeout},
};

use self::{
    audio::{Audio, TakenFrames},
    close_reason::CloseReason,
    outbox::Outbox,
};
use crate::{
    gateway::Gateway,
    inference::Inference,
    metrics::Counts,
    protocol::{self, Ages, FRAME_BYTES, Failure, Kind, Recognition},
};

/// Time limit for the close handshake, including the messages that wait before the Close frame.
const LINGER: Duration = Duration::from_secs(1);
/// Time limit for a session's last batch when the gateway stops. Together with [`LINGER`] it stays within the
/// contract's 4 s.
const DRAIN: Duration = Duration::from_millis(2_900);

const EXPECTED_START: &str = "first message must be start";
const EXPECTED_AUDIO: &str = "expected binary PCM frames after start";

/// The request in flight.
struct PendingRequest {
    frames: TakenFrames,
    sent_at: Instant,
    flush_lateness: Duration,
    response: Pin<Box<dyn Future<Output = Result<Recognition, Failure>> + Send>>,
}

/// Waits for the response to the request in flight; never completes if there is none.
async fn response(request: &mut Option<PendingRequest>) -> Result<Recognition, Failure> {
    match request {
        Some(request) => request.response.as_mut().await,
        None => pending().await,
    }
}

/// Serves a client until its connection ends.
pub(crate) async fn run(socket: WebSocket, gateway: Arc<Gateway>) {
    let (mut sink, mut stream) = socket.split();
    let mut session = Session::new(gateway);
    let close_reason = session.serve(&mut sink, &mut stream).await;
    session.record_end(&close_reason);
    // After this time the connection is closed even if messages are left.
    let _ = timeout(LINGER, session.close_handshake(&mut sink, &mut stream, &close_reason)).await;
}

type Sink = SplitSink<WebSocket, Message>;
type Stream = SplitStream<WebSocket>;

struct Session {
    gateway: Arc<Gateway>,
    inference: Inference,
    audio: Audio,
    outbox: Outbox,
    /// The `Option` enforces the contract's rule of one request in flight.
    request: Option<PendingRequest>,
}

impl Session {
    fn new(gateway: Arc<Gateway>) -> Self {
        Self {
            inference: gateway.clients.assign(),
            audio: Audio::new(gateway.max_buffered_frames, gateway.flush_interval),
            outbox: Outbox::default(),
            request: None,
            gateway,
        }
    }

    async fn serve(&mut self, sink: &mut Sink, stream: &mut Stream) -> CloseReason {
        let stop = self.gateway.stop.clone();
        let close_reason = match stop.run_until_cancelled(self.open(stream)).await {
            Some(Ok(ticks)) => self.exchange(sink, stream, ticks).await,
            Some(Err(close_reason)) => Err(close_reason),
            None => Err(CloseReason::Shutdown),
        };
        match close_reason {
            Ok(()) => self.drain(sink).await.err().unwrap_or(CloseReason::Shutdown),
            Err(close_reason) => close_reason,
        }
    }

    /// Waits for the start message. Returns the session's flush ticks.
    async fn open(&mut self, stream: &mut Stream) -> Result<Interval, CloseReason> {
        loop {
            let message = stream
                .next()
                .await
                .ok_or(CloseReason::Eof)?
                .map_err(|error| CloseReason::from_read_error(error, EXPECTED_START))?;
            self.gateway.books.with(|counts| count_message_bytes(counts, &message));
            match message {
                Message::Text(text) if protocol::is_start(&text) => break,
                Message::Text(_) | Message::Binary(_) => return Err(CloseReason::BadMessage(1002, EXPECTED_START)),
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(_) => return Err(CloseReason::Client),
            }
        }
        let interval = self.gateway.flush_interval;
        let mut ticks = interval_at((Instant::now() + self.gateway.random_phase() + interval).into(), interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        self.gateway.books.with(|counts| {
            counts.received += 1;
            counts.consumed += 1;
        });
        Ok(ticks)
    }

    /// Handles the session's events until the gateway stops (`Ok`) or the session ends (`Err`).
    async fn exchange(&mut self, sink: &mut Sink, stream: &mut Stream, mut ticks: Interval) -> Result<(), CloseReason> {
        let stop = self.gateway.stop.clone();
        let mut stopped = pin!(stop.cancelled());
        loop {
            let deadline = self.outbox.deadline();
            select! {
                message = stream.next() => self.receive(message.ok_or(CloseReason::Eof)?)?,
                due = ticks.tick() => self.tick(due.elapsed())?,
                response = response(&mut self.request) => self.complete(response)?,
                written = self.outbox.flush(sink), if !self.outbox.is_empty() => written.map_err(CloseReason::from_write_error)?,
                () = stall(deadline), if deadline.is_some() => return Err(CloseReason::SlowConsumer),
                () = &mut stopped => return Ok(()),
            }
        }
    }

    fn receive(&mut self, message: Result<Message, axum::Error>) -> Result<(), CloseReason> {
        let message = message.map_err(|error| CloseReason::from_read_error(error, EXPECTED_AUDIO))?;
        match &message {
            Message::Binary(frame) if frame.len() == FRAME_BYTES => {
                let dropped = self.audio.push(frame, Instant::now());
                self.gateway.books.with(|counts| {
                    count_message_bytes(counts, &message);
                    counts.received += 1;
                    counts.waiting += 1 - dropped;
                    counts.drop(Kind::Overflow.name(), dropped);
                });
            }
            Message::Binary(_) => return Err(CloseReason::BadMessage(1003, "expected 640 byte PCM frame")),
            Message::Text(_) => return Err(CloseReason::BadMessage(1002, EXPECTED_AUDIO)),
            Message::Ping(_) | Message::Pong(_) => {
                self.gateway.books.with(|counts| count_message_bytes(counts, &message))
            }
            Message::Close(_) => return Err(CloseReason::Client),
        }
        Ok(())
    }

    /// Handles a tick that runs `lateness` after it was due.
    fn tick(&mut self, lateness: Duration) -> Result<(), CloseReason> {
        self.gateway.books.with(|counts| {
            counts.lateness.record(lateness);
            match (&self.request, self.audio.frames()) {
                (Some(_), _) => counts.ticks.skipped += 1,
                (None, 0) => counts.ticks.empty += 1,
                (None, _) => counts.ticks.flushed += 1,
            }
        });
        if self.request.is_none() { self.flush(lateness) } else { Ok(()) }
    }

    /// Reports the frames that were dropped, then sends those that wait as one request.
    fn flush(&mut self, flush_lateness: Duration) -> Result<(), CloseReason> {
        if let Some(dropped) = self.audio.take_dropped() {
            let (limit, frames) = (self.gateway.max_buffered_frames, dropped.span.frames);
            let message = format!("{limit} frames waited: the oldest {frames} were dropped");
            self.report(dropped, &Failure { kind: Kind::Overflow, status: None, message }, flush_lateness, None)?;
        }
        let Some((frames, audio)) = self.audio.take() else { return Ok(()) };
        let count = frames.span.frames;
        let response = Box::pin(self.inference.clone().recognise(frames.span, audio));
        let previous =
            self.request.replace(PendingRequest { frames, sent_at: Instant::now(), flush_lateness, response });
        self.gateway.books.with(|counts| {
            counts.waiting -= count;
            counts.in_flight += count;
            counts.requests += 1;
            counts.requests_in_flight += 1;
            counts.in_flight_per_connection_max =
                counts.in_flight_per_connection_max.max(1 + previous.iter().count() as u64);
        });
        Ok(())
    }

    /// Handles the result of the request in flight: counts it and sends the partial or the error.
    fn complete(&mut self, response: Result<Recognition, Failure>) -> Result<(), CloseReason> {
        let Some(request) = self.request.take() else { return Ok(()) };
        let count = request.frames.span.frames;
        self.gateway.books.with(|counts| {
            counts.in_flight -= count;
            counts.requests_in_flight -= 1;
            match &response {
                Ok(_) => {
                    counts.answered += 1;
                    counts.delivered += count;
                }
                Err(failure) => counts.fail(failure.kind.name(), count),
            }
        });
        match response {
            Ok(response) => {
                self.send(protocol::partial(request.frames.span, &response, self.gateway.echo, request.flush_lateness))
            }
            Err(failure) => {
                self.report(request.frames, &failure, request.flush_lateness, Some(request.sent_at.elapsed()))
            }
        }
    }

    /// Sends the client the error message that covers `frames`.
    fn report(
        &mut self,
        frames: TakenFrames,
        failure: &Failure,
        flush_lateness: Duration,
        inference_elapsed: Option<Duration>,
    ) -> Result<(), CloseReason> {
        let ages = Ages {
            oldest: frames.oldest_read_at.elapsed(),
            newest: frames.newest_read_at.elapsed(),
            flush_lateness,
            inference_elapsed,
            buffered_frames: self.audio.frames(),
        };
        self.send(protocol::error(frames.span, failure, ages))
    }

    fn send(&mut self, text: String) -> Result<(), CloseReason> {
        let bytes = frame_bytes(text.len());
        self.outbox.push(text)?;
        self.gateway.books.with(|counts| {
            counts.sent += 1;
            counts.bytes_sent += bytes;
        });
        Ok(())
    }

    /// Runs when the gateway stops: waits for the request in flight, sends the frames that wait as a last request, and
    /// waits for that one.
    async fn drain(&mut self, sink: &mut Sink) -> Result<(), CloseReason> {
        let drained = async {
            loop {
                if self.request.is_none() {
                    self.flush(Duration::ZERO)?;
                }
                if self.request.is_none() {
                    return Ok(());
                }
                let response = response(&mut self.request).await;
                self.complete(response)?;
                self.outbox.flush(sink).await.map_err(CloseReason::from_write_error)?;
            }
        };
        timeout(DRAIN, drained).await.unwrap_or(Ok(()))
    }

    /// Moves the session's frames and its connection to their final counters. A request in flight is abandoned.
    fn record_end(&mut self, close_reason: &CloseReason) {
        let waiting = self.audio.frames();
        let in_flight = self.request.take().map(|request| request.frames.span.frames);
        self.gateway.books.with(|counts| {
            counts.waiting -= waiting;
            counts.drop("closed", waiting);
            if let Some(frames) = in_flight {
                counts.in_flight -= frames;
                counts.requests_in_flight -= 1;
                counts.abandoned += 1;
                counts.drop("closed", frames);
            }
            if matches!(close_reason, CloseReason::BadMessage(..) | CloseReason::InvalidUtf8(_)) {
                counts.received += 1;
                counts.drop("protocol", 1);
            }
            counts.close(close_reason.label());
        });
    }

    /// Sends the Close frame after the messages that wait, then reads until the client has closed. If bytes were left
    /// unread, the kernel would reset the connection and the Close frame might be lost.
    async fn close_handshake(
        &mut self,
        sink: &mut Sink,
        stream: &mut Stream,
        close_reason: &CloseReason,
    ) -> Result<(), axum::Error> {
        if let Some(close) = close_reason.close() {
            self.outbox.push_last(close);
            self.outbox.flush(sink).await?;
        }
        if let CloseReason::Violation(..) | CloseReason::InvalidUtf8(_) = close_reason {
            // The library reads nothing after such an error. Waiting gives the Close frame time to arrive.
            pending::<()>().await;
        }
        // If the client sent the first Close frame, polling the stream also writes the library's reply.
        while stream.next().await.is_some() {}
        Ok(())
    }
}

async fn stall(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

/// Counts the bytes of a message, and those of the pong that the library sends in reply to a ping.
fn count_message_bytes(counts: &mut Counts, message: &Message) {
    /// Size of the masking key in a client's frame, in bytes.
    const MASK: u64 = 4;
    let bytes = frame_bytes(match message {
        Message::Text(text) => text.len(),
        Message::Binary(data) | Message::Pong(data) | Message::Ping(data) => data.len(),
        Message::Close(_) => return,
    });
    counts.bytes_received += bytes + MASK;
    if let Message::Ping(_) = message {
        counts.bytes_sent += bytes;
    }
}

/// Size of an unmasked frame with this payload, header included, in bytes.
fn frame_bytes(payload: usize) -> u64 {
    let header = match payload {
        0..=125 => 2,
        126..=0xffff => 4,
        _ => 10,
    };
    header + payload as u64
}
