//! The request in flight: sends a session's audio to the inference, and the result or the failure to the client.

use std::{
    future::{Future, pending},
    pin::Pin,
    time::Duration,
};

use tokio::time::Instant;

use super::Session;
use crate::{
    backlog::TakenFrames,
    protocol::{self, Failure, Kind, Opcode, Recognition, Wait},
};

/// The request in flight, and the frames that it carries.
pub(super) struct Flight {
    pub(super) taken: TakenFrames,
    began: Instant,
    flush_lateness: Duration,
    answer: Pin<Box<dyn Future<Output = Result<Recognition, Failure>> + Send>>,
}

impl Session {
    /// Sends the client an error for frames that were dropped, if there are any.
    pub(super) fn report_overflow(&mut self, flush_lateness: Duration) {
        let Some(dropped) = self.backlog.take_overflow() else { return };
        let (most, frames) = (self.gateway.max_buffered_frames, dropped.span.frames);
        let message = format!("{most} frames waited: the oldest {frames} were dropped");
        let failure = Failure { kind: Kind::Overflow, status: None, message };
        self.report(dropped, &failure, flush_lateness, None);
    }

    /// Sends all waiting audio as one request, if there is any.
    pub(super) fn flush(&mut self, flush_lateness: Duration) {
        let frames = self.inbox.frames();
        if frames == 0 {
            return;
        }
        let audio = self.inbox.take();
        let taken = self.backlog.leave(frames);
        let answer = Box::pin(self.lane.clone().recognise(taken.span, audio));
        let flight = Flight { taken, began: Instant::now(), flush_lateness, answer };
        let before = self.flight.replace(flight);
        self.gateway.books.with(|counts| {
            counts.waiting -= frames;
            counts.in_flight += frames;
            counts.requests += 1;
            counts.requests_in_flight += 1;
            counts.in_flight_per_connection_max =
                counts.in_flight_per_connection_max.max(1 + before.iter().count() as u64);
        });
    }

    /// Handles the result of the request in flight: counts it and sends the partial or the error.
    pub(super) fn land(&mut self, answer: Result<Recognition, Failure>) {
        let flight = self.flight.take().expect("only a request in flight can end");
        let frames = flight.taken.span.frames;
        self.gateway.books.with(|counts| {
            counts.in_flight -= frames;
            counts.requests_in_flight -= 1;
            match &answer {
                Ok(_) => {
                    counts.answered += 1;
                    counts.delivered += frames;
                }
                Err(failure) => {
                    *counts.failed.entry(failure.kind.name()).or_default() += 1;
                    counts.drop(failure.kind.name(), frames);
                }
            }
        });
        match answer {
            Ok(answer) => {
                self.send(&protocol::partial(flight.taken.span, &answer, self.gateway.echo, flight.flush_lateness));
            }
            Err(failure) => {
                self.report(flight.taken, &failure, flight.flush_lateness, Some(flight.began.elapsed()));
            }
        }
    }

    /// Sends the client the error message that covers `taken`.
    fn report(&mut self, taken: TakenFrames, failure: &Failure, flush_lateness: Duration, elapsed: Option<Duration>) {
        let now = Instant::now();
        let wait = Wait {
            oldest_age: now.saturating_duration_since(taken.oldest_read),
            newest_age: now.saturating_duration_since(taken.newest_read),
            flush_lateness,
            inference_elapsed: elapsed,
            buffered_frames: self.inbox.frames(),
        };
        self.send(&protocol::error(taken.span, failure, wait));
    }

    fn send(&mut self, text: &[u8]) {
        self.outbox.put(Opcode::Text, text, Instant::now());
        self.gateway.books.with(|counts| counts.sent += 1);
    }
}

/// Waits for the response to the request in flight; never completes if there is none.
pub(super) async fn answer(flight: &mut Option<Flight>) -> Result<Recognition, Failure> {
    match flight {
        Some(flight) => flight.answer.as_mut().await,
        None => pending().await,
    }
}
