//! The request in flight: sends a session's audio to the inference, and the result or the failure to the client.

use std::{
    future::{self, Future},
    pin::Pin,
    time::Duration,
};

use tokio::time::Instant;

use super::Session;
use crate::{
    backlog::TakenFrames,
    protocol::{self, ErrorContext, Failure, Kind, Opcode, Recognition},
};

/// The request in flight, and the frames that it carries.
pub(super) struct PendingRequest {
    pub(super) taken: TakenFrames,
    started_at: Instant,
    flush_lateness: Duration,
    response: Pin<Box<dyn Future<Output = Result<Recognition, Failure>> + Send>>,
}

impl Session {
    /// Sends the client an error for frames that were dropped, if there are any.
    pub(super) fn report_overflow(&mut self, flush_lateness: Duration) {
        let Some(dropped) = self.backlog.take_overflow() else { return };
        let (limit, frames) = (self.gateway.max_buffered_frames, dropped.span.frames);
        let message = format!("{limit} frames waited: the oldest {frames} were dropped");
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
        let taken = self.backlog.remove(frames);
        let response = Box::pin(self.connection.clone().recognise(taken.span, audio));
        let pending = PendingRequest { taken, started_at: Instant::now(), flush_lateness, response };
        let previous = self.pending.replace(pending);
        self.gateway.books.update(|counts| {
            counts.waiting -= frames;
            counts.in_flight += frames;
            counts.requests += 1;
            counts.requests_in_flight += 1;
            counts.in_flight_per_connection_max =
                counts.in_flight_per_connection_max.max(1 + previous.iter().count() as u64);
        });
    }

    /// Handles the result of the request in flight: counts it and sends the partial or the error.
    pub(super) fn complete(&mut self, response: Result<Recognition, Failure>) {
        let pending = self.pending.take().expect("only a request in flight can end");
        let frames = pending.taken.span.frames;
        self.gateway.books.update(|counts| {
            counts.in_flight -= frames;
            counts.requests_in_flight -= 1;
            match &response {
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
        match response {
            Ok(response) => {
                self.send(&protocol::partial(pending.taken.span, &response, self.gateway.echo, pending.flush_lateness));
            }
            Err(failure) => {
                self.report(pending.taken, &failure, pending.flush_lateness, Some(pending.started_at.elapsed()));
            }
        }
    }

    /// Sends the client the error message that covers `taken`.
    fn report(&mut self, taken: TakenFrames, failure: &Failure, flush_lateness: Duration, elapsed: Option<Duration>) {
        let now = Instant::now();
        let context = ErrorContext {
            oldest_age: now.saturating_duration_since(taken.oldest_read_at),
            newest_age: now.saturating_duration_since(taken.newest_read_at),
            flush_lateness,
            inference_elapsed: elapsed,
            buffered_frames: self.inbox.frames(),
        };
        self.send(&protocol::error(taken.span, failure, context));
    }

    fn send(&mut self, text: &[u8]) {
        self.outbox.push(Opcode::Text, text, Instant::now());
        self.gateway.books.update(|counts| counts.sent += 1);
    }
}

/// Waits for the response to the request in flight; never completes if there is none.
pub(super) async fn response(pending: &mut Option<PendingRequest>) -> Result<Recognition, Failure> {
    match pending {
        Some(pending) => pending.response.as_mut().await,
        None => future::pending().await,
    }
}
