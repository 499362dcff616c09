//! Requests with batches, and the messages to the client about their results.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{
    End, SECOND, Session,
    batches::{Batch, Span},
};
use crate::gateway::{
    config::Flaw,
    inference::{Failure, Inferred},
    messages::{self, Circumstances, FRAME_BYTES, Own},
    outbox::Outbox,
    wire,
};

/// A batch whose newest frame is older than this at its request ends a session's audio. How long it waited says nothing
/// about delays, so its age isn't recorded. Three frames of 20 ms.
const SILENCE: Duration = Duration::from_millis(60);

/// A request that has ended.
pub(super) struct Landed {
    batch: Batch,
    begun: Instant,
    outcome: Result<Inferred, Failure>,
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

impl Session {
    pub(super) fn fly(&mut self, batch: Batch) {
        self.in_flight += 1;
        self.in_flight_frames += batch.span.cover.frames;
        let mut book = self.shared.books.open();
        book.inference.requests += 1;
        book.inference.in_flight += 1;
        book.most_in_flight = book.most_in_flight.max(self.in_flight);
        drop(book);
        let (shared, delay) = (self.shared.clone(), self.delays.next().unwrap_or_default());
        self.flights.spawn(async move {
            let begun = Instant::now();
            let outcome = shared.inference.ask(batch.audio.clone()).await;
            if outcome.is_ok() && !delay.is_zero() {
                sleep(delay).await;
            }
            Landed { batch, begun, outcome }
        });
    }

    /// Waits for all requests in flight.
    pub(super) async fn land_all(&mut self, outbox: &Outbox) -> Result<(), End> {
        while let Some(landed) = self.flights.join_next().await {
            if let Ok(landed) = landed {
                self.land(landed, outbox)?;
            }
        }
        Ok(())
    }

    pub(super) fn land(&mut self, landed: Landed, outbox: &Outbox) -> Result<(), End> {
        let Landed { batch, begun, outcome } = landed;
        let repeated = self.flaw() == Flaw::RepeatedBatch && batch.ordinal == 0;
        let frames = if repeated { 0 } else { batch.span.cover.frames };
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
                *book.inference.failed.entry(failure.kind.word().into()).or_default() += 1;
                book.drop_frames(failure.kind.word(), frames);
            }
        }
        drop(book);
        match outcome {
            Ok(inferred) => self.send_partial(&batch, begun, &inferred, outbox)?,
            Err(failure) => {
                self.tell_failure(&batch.span, &failure, batch.lateness, Some(begun), outbox)?;
                self.dead |= self.flaw() == Flaw::DeadAfterError;
            }
        }
        if self.flaw() == Flaw::RepeatedBatch && batch.ordinal == SECOND {
            self.repeat(batch);
        }
        if self.flaw() == Flaw::EagerFlush && self.skipped {
            self.flush(Duration::ZERO, outbox)?;
        }
        Ok(())
    }

    /// The flaw `repeated-batch`: sends the same batch again. Its frames were counted already.
    fn repeat(&mut self, batch: Batch) {
        let frames = batch.span.cover.frames;
        self.fly(Batch { ordinal: 0, ..batch });
        self.in_flight_frames -= frames;
    }

    fn send_partial(&self, batch: &Batch, begun: Instant, inferred: &Inferred, outbox: &Outbox) -> Result<(), End> {
        let config = &self.shared.config;
        let own = Own {
            cpu_passes: config.cpu_passes.get(),
            model_delay_ms: config.model_delay_ms,
            flush_lateness_ms: milliseconds(batch.lateness),
        };
        let mut cover = batch.span.cover;
        cover.frames = inferred.audio_bytes / FRAME_BYTES;
        let text = messages::partial(cover, inferred, own, config.flaw);
        let (newest, oldest) = (batch.span.newest_at.elapsed(), batch.span.oldest_at.elapsed());
        outbox.push(wire::text(&text))?;
        let mut book = self.shared.books.open();
        book.messages.sent += 1;
        if begun.duration_since(batch.span.newest_at) < SILENCE {
            book.newest.record(newest.as_nanos() as u64);
            book.oldest.record(oldest.as_nanos() as u64);
        }
        Ok(())
    }

    pub(super) fn tell_failure(
        &self,
        span: &Span,
        failure: &Failure,
        lateness: Duration,
        begun: Option<Instant>,
        outbox: &Outbox,
    ) -> Result<(), End> {
        if self.flaw() == Flaw::SilentError {
            return Ok(());
        }
        let circumstances = Circumstances {
            oldest_age_ms: milliseconds(span.oldest_at.elapsed()),
            newest_age_ms: milliseconds(span.newest_at.elapsed()),
            flush_lateness_ms: milliseconds(lateness),
            inference_elapsed_ms: begun.map(|begun| milliseconds(begun.elapsed())),
            waiting: self.waiting.len() as u64,
        };
        outbox.push(wire::text(&messages::error(span.cover, failure, circumstances, self.flaw())))?;
        self.shared.books.open().messages.sent += 1;
        Ok(())
    }
}
