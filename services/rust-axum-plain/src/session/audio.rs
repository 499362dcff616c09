//! Buffers a session's frames until its next tick. It does no I/O and reads no clock.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};

use crate::protocol::{FRAME_BYTES, FRAME_TIME, Span};

/// A batch of frames, and when the first and the last of them were read from the socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TakenFrames {
    pub(super) span: Span,
    pub(super) oldest_read_at: Instant,
    pub(super) newest_read_at: Instant,
}

/// The frames that wait: one contiguous buffer, oldest first.
#[derive(Debug)]
pub(super) struct Audio {
    bytes: BytesMut,
    /// When each waiting frame was read from the socket.
    read_times: VecDeque<Instant>,
    /// Frames that were taken or dropped so far.
    removed: u64,
    max_frames: usize,
    batch_bytes: usize,
    /// Dropped frames that were not reported to the client yet.
    dropped: Option<TakenFrames>,
}

impl Audio {
    /// Creates a buffer for at most `max_frames`. The `interval` between batches determines how much memory is
    /// reserved.
    pub(super) fn new(max_frames: usize, interval: Duration) -> Self {
        let batch = interval.as_millis().div_ceil(FRAME_TIME.as_millis()) as usize + 1;
        Self {
            bytes: BytesMut::new(),
            read_times: VecDeque::new(),
            removed: 0,
            max_frames,
            batch_bytes: batch.min(max_frames) * FRAME_BYTES,
            dropped: None,
        }
    }

    /// Number of frames that wait.
    pub(super) fn frames(&self) -> u64 {
        self.read_times.len() as u64
    }

    /// Adds a frame that was read at `now`. Returns the number of old frames dropped for it, 0 or 1.
    pub(super) fn push(&mut self, frame: &[u8], now: Instant) -> u64 {
        let dropped = (self.read_times.len() == self.max_frames).then(|| self.drop_oldest());
        if self.bytes.capacity() - self.bytes.len() < FRAME_BYTES {
            // Reuses the memory of the last batch if its request has ended.
            self.bytes.reserve(self.batch_bytes);
        }
        self.bytes.extend_from_slice(frame);
        self.read_times.push_back(now);
        dropped.is_some().into()
    }

    /// Takes all waiting frames and their bytes; `None` if no frame waits.
    pub(super) fn take(&mut self) -> Option<(TakenFrames, Bytes)> {
        let frames = TakenFrames {
            span: Span { oldest: self.removed + 1, frames: self.frames() },
            oldest_read_at: *self.read_times.front()?,
            newest_read_at: *self.read_times.back()?,
        };
        self.removed += frames.span.frames;
        self.read_times.clear();
        Some((frames, self.bytes.split().freeze()))
    }

    /// Takes the record of dropped frames; `None` if no frame was dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> Option<TakenFrames> {
        self.dropped.take()
    }

    fn drop_oldest(&mut self) {
        let Some(read_at) = self.read_times.pop_front() else { return };
        self.bytes.advance(FRAME_BYTES);
        self.removed += 1;
        // Dropped frames are reported before the next batch is taken, so they are consecutive.
        let dropped = self.dropped.get_or_insert(TakenFrames {
            span: Span { oldest: self.removed, frames: 0 },
            oldest_read_at: read_at,
            newest_read_at: read_at,
        });
        dropped.span.frames += 1;
        dropped.newest_read_at = read_at;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn frame(number: u64) -> [u8; FRAME_BYTES] {
        [number as u8; FRAME_BYTES]
    }

    #[test]
    fn frames_leave_in_order_with_the_times_at_which_they_were_read() {
        let (first, last) = (Instant::now(), Instant::now() + INTERVAL);
        let mut audio = Audio::new(10, INTERVAL);
        assert_eq!(audio.take(), None);
        audio.push(&frame(1), first);
        audio.push(&frame(2), last);
        let (frames, bytes) = audio.take().unwrap();
        let span = Span { oldest: 1, frames: 2 };
        assert_eq!(frames, TakenFrames { span, oldest_read_at: first, newest_read_at: last });
        assert_eq!(bytes, [frame(1), frame(2)].concat());
        assert_eq!(audio.take(), None);
    }

    #[test]
    fn frames_beyond_the_limit_push_the_oldest_out() {
        let (first, second) = (Instant::now(), Instant::now() + INTERVAL);
        let mut audio = Audio::new(3, INTERVAL);
        let dropped: u64 =
            (1..=5).map(|number| audio.push(&frame(number), if number == 1 { first } else { second })).sum();
        assert_eq!(dropped, 2);
        let span = Span { oldest: 1, frames: 2 };
        assert_eq!(audio.take_dropped(), Some(TakenFrames { span, oldest_read_at: first, newest_read_at: second }));
        assert_eq!(audio.take_dropped(), None);
        let (frames, bytes) = audio.take().unwrap();
        assert_eq!((frames.span, bytes.len()), (Span { oldest: 3, frames: 3 }, 3 * FRAME_BYTES));
        assert_eq!(bytes[0], 3);
    }

    proptest! {
        #[test]
        fn every_frame_leaves_once_and_in_order(limit in 1_usize..8, bursts in prop::collection::vec(0_u64..12, 1..12)) {
            let mut audio = Audio::new(limit, INTERVAL);
            let (mut sent, mut covered) = (0, 0);
            for burst in bursts {
                for _ in 0..burst {
                    sent += 1;
                    audio.push(&frame(sent), Instant::now());
                }
                let dropped = audio.take_dropped().map(|dropped| dropped.span);
                let batch = audio.take();
                let span = batch.as_ref().map(|(frames, _)| frames.span);
                for span in [dropped, span].into_iter().flatten() {
                    prop_assert_eq!(span.oldest, covered + 1);
                    covered += span.frames;
                }
                let bytes = batch.map(|(_, bytes)| bytes).unwrap_or_default();
                prop_assert!(bytes.chunks(FRAME_BYTES).zip(covered + 1 - bytes.len() as u64 / 640..)
                    .all(|(bytes, number)| bytes == frame(number)));
            }
            prop_assert_eq!(covered, sent);
        }
    }
}
