//! Frames that wait for a tick, and the batches that ticks make of them.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{SECOND_BATCH, Session, SessionEnd};
use crate::gateway::{
    config::Flaw,
    inference::{Failure, Kind},
    messages::{FRAME_BYTES, FrameRange},
    outbox::Outbox,
};

/// A frame that waits for its tick.
pub(super) struct BufferedFrame {
    sequence: u64,
    at: Instant,
    audio: Vec<u8>,
}

/// Consecutive frames with one outcome, and when the oldest and the newest of them arrived.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) range: FrameRange,
    pub(super) oldest_at: Instant,
    pub(super) newest_at: Instant,
}

/// The content of one request to the inference.
#[derive(Clone)]
pub(super) struct Batch {
    pub(super) span: Span,
    pub(super) audio: Bytes,
    /// How late its tick was.
    pub(super) lateness: Duration,
    /// Number of the session's flush that made it, from 1; flushes without a batch count too. 0 for a repeated batch.
    pub(super) ordinal: u64,
}

impl Session {
    /// Adds a frame to those that wait; drops the oldest one if there is no room.
    pub(super) fn buffer_frame(&mut self, audio: Vec<u8>) {
        self.sequence += 1;
        self.waiting.push_back(BufferedFrame { sequence: self.sequence, at: Instant::now(), audio });
        let surplus = self.waiting.len() > self.shared.config.buffered_frames();
        let mut book = self.shared.books.open();
        book.messages.received += 1;
        if !surplus {
            book.messages.queued += 1;
            book.inference.buffered_bytes += FRAME_BYTES;
            return;
        }
        book.drop_frames("overflow", 1);
        drop(book);
        let Some(BufferedFrame { sequence, at, .. }) = self.waiting.pop_front() else { return };
        let empty_range = FrameRange { oldest: sequence, newest: sequence, frames: 0 };
        let span = self.overflowed.get_or_insert(Span { range: empty_range, oldest_at: at, newest_at: at });
        span.range.newest = sequence;
        span.range.frames += 1;
        span.newest_at = at;
    }

    /// Reports dropped frames, and sends all frames that wait to the inference.
    pub(super) fn flush(&mut self, lateness: Duration, outbox: &Outbox) -> Result<(), SessionEnd> {
        self.skipped = false;
        if let Some(span) = self.overflowed.take() {
            let message = format!("more than {} frames waited", self.shared.config.max_buffered_frames);
            let failure = Failure { kind: Kind::Overflow, message, status: None, retryable: false };
            self.send_error(&span, &failure, lateness, None, outbox)?;
        }
        if self.dead {
            return Ok(());
        }
        if let Some(batch) = self.gather(lateness) {
            if self.flaw() == Flaw::LostBatch && batch.ordinal == SECOND_BATCH {
                let frames = batch.span.range.frames;
                self.shared.books.open().messages.delivered += frames;
                self.forget(frames);
                return Ok(());
            }
            self.send_request(batch);
        }
        Ok(())
    }

    /// Combines all frames that wait to one batch; `None` when there are none.
    fn gather(&mut self, lateness: Duration) -> Option<Batch> {
        self.batches += 1;
        let every = self.shared.config.every.get();
        let mut buffered: Vec<BufferedFrame> = self.waiting.drain(..).collect();
        if self.flaw() == Flaw::SilentDrop {
            // For each frame number that is a multiple of k one of the batch's oldest frames is discarded: a gap before
            // the batch.
            let lost = buffered.iter().filter(|buffered| buffered.sequence.is_multiple_of(every)).count();
            buffered.drain(..lost);
            self.forget(lost as u64);
        }
        if self.flaw() == Flaw::SwappedFrames && self.batches == SECOND_BATCH && buffered.len() >= 4 {
            let (one, other) = buffered.split_at_mut(2);
            std::mem::swap(&mut one[1].audio, &mut other[0].audio);
        }
        let (first, last) = (buffered.first()?, buffered.last()?);
        let range = FrameRange { oldest: first.sequence, newest: last.sequence, frames: buffered.len() as u64 };
        let span = Span { range, oldest_at: first.at, newest_at: last.at };
        let keep =
            |buffered: &&BufferedFrame| self.flaw() != Flaw::LostFrame || !buffered.sequence.is_multiple_of(every);
        let audio: Vec<u8> = buffered.iter().filter(keep).flat_map(|buffered| buffered.audio.iter().copied()).collect();
        Some(Batch { span, audio: audio.into(), lateness, ordinal: self.batches })
    }

    /// Removes frames from those that the books count as queued.
    fn forget(&self, frames: u64) {
        let mut book = self.shared.books.open();
        book.messages.queued -= frames;
        book.inference.buffered_bytes -= frames * FRAME_BYTES;
    }
}
