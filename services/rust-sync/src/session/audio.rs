//! Batches: the audio of consecutive frames in one contiguous buffer, and the pool of these buffers.

use std::time::Instant;

use crate::protocol::{FRAME_BYTES, WIRE_BYTES, append_audio, messages::Span};

/// Initial capacity of a buffer in frames: one second of audio, and two frames that arrive early.
const INITIAL_FRAMES: usize = 52;
/// Maximum of spare buffers. A larger number was in flight only in a peak and is unlikely to be needed again.
const MAXIMAL_SPARE: usize = 1024;

/// A group of frames that were read at the same time.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    frames: usize,
    at: Instant,
}

/// Audio of consecutive frames of one session.
#[derive(Debug, Default)]
pub struct Batch {
    audio: Vec<u8>,
    /// Number of dropped bytes at the front of `audio`.
    start: usize,
    oldest_seq: u64,
    /// Oldest first. There are few, because sockets are read a few times per second.
    arrivals: Vec<Arrival>,
}

impl Batch {
    /// Appends a run of frames in wire format; the first has the sequence number `seq`.
    #[inline]
    pub fn append_run(&mut self, run: &[u8], seq: u64, pool: &mut Pool, now: Instant) {
        let frames = run.len() / WIRE_BYTES;
        if frames > 0 {
            self.begin(seq, pool);
            append_audio(run, &mut self.audio);
            self.record_arrival(frames, now);
        }
    }

    /// Appends the audio of one frame with the sequence number `seq`.
    pub fn append_frame(&mut self, audio: &[u8], seq: u64, pool: &mut Pool, now: Instant) {
        debug_assert_eq!(audio.len(), FRAME_BYTES);
        self.begin(seq, pool);
        self.audio.extend_from_slice(audio);
        self.record_arrival(1, now);
    }

    #[inline]
    fn begin(&mut self, seq: u64, pool: &mut Pool) {
        if self.frames() == 0 {
            self.oldest_seq = seq;
            if self.audio.capacity() == 0 {
                let Batch { audio, arrivals, .. } = pool.take();
                (self.audio, self.arrivals) = (audio, arrivals);
            }
        }
        debug_assert_eq!(self.oldest_seq + self.frames() as u64, seq);
    }

    #[inline]
    fn record_arrival(&mut self, frames: usize, at: Instant) {
        match self.arrivals.last_mut() {
            Some(last) if last.at == at => last.frames += frames,
            _ => self.arrivals.push(Arrival { frames, at }),
        }
    }

    /// Drops the oldest frames, at most all.
    pub fn drop_oldest(&mut self, frames: usize) {
        self.start += frames * FRAME_BYTES;
        self.oldest_seq += frames as u64;
        let mut remaining = frames;
        self.arrivals.retain_mut(|arrival| {
            let dropped = remaining.min(arrival.frames);
            remaining -= dropped;
            arrival.frames -= dropped;
            arrival.frames > 0
        });
        // Moved when half of the buffer is unused, so that memory stays bounded and a move is amortised over as many
        // drops.
        if self.start * 2 >= self.audio.len() {
            self.audio.drain(..self.start);
            self.start = 0;
        }
    }

    /// The audio of all frames, oldest first.
    pub fn audio(&self) -> &[u8] {
        &self.audio[self.start..]
    }

    /// Number of frames in the batch.
    #[inline]
    pub fn frames(&self) -> usize {
        (self.audio.len() - self.start) / FRAME_BYTES
    }

    /// The sequence numbers of the frames; the batch must not be empty.
    pub fn span(&self) -> Span {
        Span { oldest_frame_seq: self.oldest_seq, frames: self.frames() as u64 }
    }

    /// Sequence number of the oldest frame.
    pub fn oldest_seq(&self) -> u64 {
        self.oldest_seq
    }

    /// When the frame at `index`, counted from the oldest, was read from its socket. The frame must exist.
    pub fn received_at(&self, index: usize) -> Instant {
        let mut before = 0;
        let covers = |arrival: &&Arrival| {
            before += arrival.frames;
            index < before
        };
        self.arrivals.iter().find(covers).expect("the frame is there").at
    }

    /// When the oldest frame was read from its socket; the batch must not be empty.
    pub fn oldest_at(&self) -> Instant {
        self.arrivals.first().expect("a frame is there").at
    }

    /// When the newest frame was read from its socket; the batch must not be empty.
    pub fn newest_at(&self) -> Instant {
        self.arrivals.last().expect("a frame is there").at
    }
}

/// Buffers that no session uses, the most recently used last, because it is probably in the CPU's cache.
#[derive(Debug, Default)]
pub struct Pool {
    spare: Vec<Batch>,
}

impl Pool {
    fn take(&mut self) -> Batch {
        let new = || Batch { audio: Vec::with_capacity(INITIAL_FRAMES * FRAME_BYTES), ..Batch::default() };
        self.spare.pop().unwrap_or_else(new)
    }

    /// Returns a batch's buffer to the pool.
    pub fn put(&mut self, mut batch: Batch) {
        // Buffers that grew in a stall are not kept.
        let is_reusable = (1..=4 * INITIAL_FRAMES * FRAME_BYTES).contains(&batch.audio.capacity());
        if is_reusable && self.spare.len() < MAXIMAL_SPARE {
            batch.audio.clear();
            batch.arrivals.clear();
            batch.start = 0;
            self.spare.push(batch);
        }
    }
}
