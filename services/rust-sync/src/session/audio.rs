//! Audio of consecutive frames, in one piece, and the memory that it is kept in.

use std::time::Instant;

use crate::protocol::{FRAME_BYTES, WIRE_BYTES, append_audio, messages::Cover};

/// Buffers in a pool hold this many frames from the start: a second's, and two that come early.
const ROOM_FRAMES: usize = 52;
/// Spare buffers that are kept at most. More were in flight at once, and will hardly be again.
const MAXIMAL_SPARE: usize = 1024;

/// Frames that were read at one time.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    frames: usize,
    at: Instant,
}

/// Consecutive frames.
#[derive(Debug, Default)]
pub struct Batch {
    audio: Vec<u8>,
    /// Bytes at the front of `audio` that were dropped.
    start: usize,
    oldest_seq: u64,
    /// Oldest first; a handful, because sockets are read seldom.
    arrivals: Vec<Arrival>,
}

impl Batch {
    /// Appends a run of frames as they are on the wire, the first of which has number `seq`.
    #[inline]
    pub fn append_run(&mut self, run: &[u8], seq: u64, pool: &mut Pool, now: Instant) {
        let frames = run.len() / WIRE_BYTES;
        if frames > 0 {
            self.begin(seq, pool);
            append_audio(run, &mut self.audio);
            self.arrived(frames, now);
        }
    }

    /// Appends one frame's audio.
    pub fn append_frame(&mut self, audio: &[u8], seq: u64, pool: &mut Pool, now: Instant) {
        debug_assert_eq!(audio.len(), FRAME_BYTES);
        self.begin(seq, pool);
        self.audio.extend_from_slice(audio);
        self.arrived(1, now);
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
    fn arrived(&mut self, frames: usize, at: Instant) {
        match self.arrivals.last_mut() {
            Some(last) if last.at == at => last.frames += frames,
            _ => self.arrivals.push(Arrival { frames, at }),
        }
    }

    /// Drops the oldest frames; no more than there are.
    pub fn drop_oldest(&mut self, frames: usize) {
        self.start += frames * FRAME_BYTES;
        self.oldest_seq += frames as u64;
        let mut left = frames;
        self.arrivals.retain_mut(|arrival| {
            let gone = left.min(arrival.frames);
            left -= gone;
            arrival.frames -= gone;
            arrival.frames > 0
        });
        // Moved when half is dead, so that memory stays bounded and a move is paid for by as many drops.
        if self.start * 2 >= self.audio.len() {
            self.audio.drain(..self.start);
            self.start = 0;
        }
    }

    /// The audio.
    pub fn audio(&self) -> &[u8] {
        &self.audio[self.start..]
    }

    /// How many frames it is.
    #[inline]
    pub fn frames(&self) -> usize {
        (self.audio.len() - self.start) / FRAME_BYTES
    }

    /// Which frames it is; there must be one.
    pub fn cover(&self) -> Cover {
        Cover { oldest_frame_seq: self.oldest_seq, frames: self.frames() as u64 }
    }

    /// Number of the oldest frame.
    pub fn oldest_seq(&self) -> u64 {
        self.oldest_seq
    }

    /// When the frame `index` behind the oldest was read from its socket; there must be one.
    pub fn received_at(&self, index: usize) -> Instant {
        let mut before = 0;
        let covers = |arrival: &&Arrival| {
            before += arrival.frames;
            index < before
        };
        self.arrivals.iter().find(covers).expect("the frame is there").at
    }

    /// When the oldest frame was read from its socket; there must be one.
    pub fn oldest_at(&self) -> Instant {
        self.arrivals.first().expect("a frame is there").at
    }

    /// When the newest frame was.
    pub fn newest_at(&self) -> Instant {
        self.arrivals.last().expect("a frame is there").at
    }
}

/// Memory for batches that no session needs now, the last used on top: it is in the cache.
#[derive(Debug, Default)]
pub struct Pool {
    spare: Vec<Batch>,
}

impl Pool {
    fn take(&mut self) -> Batch {
        let new = || Batch { audio: Vec::with_capacity(ROOM_FRAMES * FRAME_BYTES), ..Batch::default() };
        self.spare.pop().unwrap_or_else(new)
    }

    /// Gives a batch's memory back.
    pub fn give(&mut self, mut batch: Batch) {
        // A batch that grew in a stall doesn't stay large.
        let is_usual = (1..=4 * ROOM_FRAMES * FRAME_BYTES).contains(&batch.audio.capacity());
        if is_usual && self.spare.len() < MAXIMAL_SPARE {
            batch.audio.clear();
            batch.arrivals.clear();
            batch.start = 0;
            self.spare.push(batch);
        }
    }
}
