//! Sends the batches of a session to inference, and the results or errors to the client. Here the flaws of inference
//! requests are made: repeated batches, silent errors, sessions that don't survive an error.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{
    SECOND_BATCH, Session, SessionEnd,
    batches::{Batch, Span},
};
use crate::gateway::{
    config::Flaw,
    inference::{Failure, InferenceResponse},
    messages::{self, FRAME_BYTES, FailureContext, GatewayValues},
    outbox::Outbox,
    wire,
};

/// Three frames of 20 ms. If the newest frame of a batch is older than this when the batch is sent, the client had
/// stopped sending audio. The age of such a batch says nothing about delays, so it isn't recorded.
const END_OF_AUDIO: Duration = Duration::from_millis(60);

/// A request that has ended.
pub(super) struct FinishedRequest {
    batch: Batch,
    requested_at: Instant,
    outcome: Result<InferenceResponse, Failure>,
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Session {
    /// Sends a batch to inference, without waiting for the response.
    pub(super) fn send_request(&mut self, batch: Batch) {
        self.in_flight += 1;
        self.in_flight_frames += batch.span.range.frames;
        let mut book = self.shared.books.open();
        book.inference.requests += 1;
        book.inference.in_flight += 1;
        book.max_in_flight = book.max_in_flight.max(self.in_flight);
        drop(book);
        let (shared, delay) = (self.shared.clone(), self.delays.next().unwrap_or_default());
        self.flights.spawn(async move {
            let requested_at = Instant::now();
            let outcome = shared.inference.infer(batch.audio.clone()).await;
            if outcome.is_ok() && !delay.is_zero() {
                sleep(delay).await;
            }
            FinishedRequest { batch, requested_at, outcome }
        });
    }

    /// Waits for all requests in flight.
    pub(super) async fn finish_all_requests(&mut self, outbox: &Outbox) -> Result<(), SessionEnd> {
        while let Some(finished) = self.flights.join_next().await {
            if let Ok(finished) = finished {
                self.finish_request(finished, outbox)?;
            }
        }
        Ok(())
    }

    /// Counts a request that has ended, and sends its result or error to the client.
    pub(super) fn finish_request(&mut self, finished: FinishedRequest, outbox: &Outbox) -> Result<(), SessionEnd> {
        let FinishedRequest { batch, requested_at, outcome } = finished;
        let repeated = self.flaw() == Flaw::RepeatedBatch && batch.ordinal == 0;
        let frames = if repeated { 0 } else { batch.span.range.frames };
        self.in_flight -= 1;
        self.in_flight_frames -= frames;
        let mut book = self.shared.books.open();
        book.inference.in_flight -= 1;
        book.messages.queued -= frames;
        book.inference.buffered_bytes -= frames * FRAME_BYTES;
        match &outcome {
            Ok(_) => {
                book.inference.answered += 1;
                book.messages.delivered += frames + u64::from(self.flaw() == Flaw::LyingBooks);
            }
            Err(failure) => {
                *book.inference.failed.entry(failure.kind.as_str().into()).or_default() += 1;
                book.drop_frames(failure.kind.as_str(), frames);
            }
        }
        drop(book);
        match outcome {
            Ok(inference_response) => self.send_partial(&batch, requested_at, &inference_response, outbox)?,
            Err(failure) => {
                self.send_error(&batch.span, &failure, batch.lateness, Some(requested_at), outbox)?;
                self.dead |= self.flaw() == Flaw::DeadAfterError;
            }
        }
        if self.flaw() == Flaw::RepeatedBatch && batch.ordinal == SECOND_BATCH {
            self.request_again(batch);
        }
        if self.flaw() == Flaw::EagerFlush && self.skipped {
            self.flush(Duration::ZERO, outbox)?;
        }
        Ok(())
    }

    /// The flaw `repeated-batch`: sends the same batch again. Its frames were counted already.
    fn request_again(&mut self, batch: Batch) {
        let frames = batch.span.range.frames;
        self.send_request(Batch { ordinal: 0, ..batch });
        self.in_flight_frames -= frames;
    }

    fn send_partial(
        &self,
        batch: &Batch,
        requested_at: Instant,
        inference_response: &InferenceResponse,
        outbox: &Outbox,
    ) -> Result<(), SessionEnd> {
        let config = &self.shared.config;
        let gateway_values = GatewayValues {
            cpu_passes: config.cpu_passes.get(),
            model_delay_ms: config.model_delay_ms,
            flush_lateness_ms: milliseconds(batch.lateness),
        };
        let mut range = batch.span.range;
        range.frames = inference_response.audio_bytes / FRAME_BYTES;
        let text = messages::partial(range, inference_response, gateway_values, config.flaw);
        let (newest, oldest) = (batch.span.newest_at.elapsed(), batch.span.oldest_at.elapsed());
        outbox.push(wire::text(&text))?;
        let mut book = self.shared.books.open();
        book.messages.sent += 1;
        if requested_at.duration_since(batch.span.newest_at) < END_OF_AUDIO {
            book.newest.record(newest.as_nanos() as u64);
            book.oldest.record(oldest.as_nanos() as u64);
        }
        Ok(())
    }

    pub(super) fn send_error(
        &self,
        span: &Span,
        failure: &Failure,
        lateness: Duration,
        requested_at: Option<Instant>,
        outbox: &Outbox,
    ) -> Result<(), SessionEnd> {
        if self.flaw() == Flaw::SilentError {
            return Ok(());
        }
        let context = FailureContext {
            oldest_age_ms: milliseconds(span.oldest_at.elapsed()),
            newest_age_ms: milliseconds(span.newest_at.elapsed()),
            flush_lateness_ms: milliseconds(lateness),
            inference_elapsed_ms: requested_at.map(|requested_at| milliseconds(requested_at.elapsed())),
            waiting: self.waiting.len() as u64,
        };
        outbox.push(wire::text(&messages::error(span.range, failure, context, self.flaw())))?;
        self.shared.books.open().messages.sent += 1;
        Ok(())
    }
}
