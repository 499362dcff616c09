//! Answers between their arrival and their judgement.
//!
//! Computing the expected result for a batch of an unusual size takes 64 000 dependent steps for a second of audio, a
//! tenth of a millisecond, and a gateway at its limit sends many sizes. So in the window such answers are deferred
//! until the load is over: a generator that computes while frames come due sends late, and would be the bottleneck
//! itself.

use crate::protocol::Partial;

/// Most checksum steps that are deferred, about five seconds of work; further answers are judged at once.
const MOST_STEPS: u64 = 4_000_000_000;

/// What an answer means for the frames of its session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameResult {
    /// Index of the session among those of all workers.
    pub(crate) session: u64,
    /// Frames that it answers for the first time.
    pub(crate) newly_covered: u64,
    /// Of those, frames that were answered later than the objective allows.
    pub(crate) late: u64,
    /// Absent when some of its frames had been answered before, or were not sent.
    pub(crate) times: Option<Times>,
    /// When its last frame was due, in nanoseconds of the monotonic clock; meaningless when it answers no new frame.
    pub(crate) newest_due_ns: u64,
    /// When it arrived, in nanoseconds of the monotonic clock.
    pub(crate) at_ns: u64,
}

/// Times of a batch's first and last frame, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) oldest_due_ns: u64,
    pub(crate) oldest_sent_ns: u64,
    pub(crate) newest_due_ns: u64,
    pub(crate) newest_sent_ns: u64,
}

/// Answers that are not judged yet, in the order in which they arrived.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    pub(crate) partials: Vec<(Partial<'static>, FrameResult)>,
    /// Checksum steps that judging them takes.
    steps: u64,
}

impl Deferred {
    /// Defers an answer; returns false, and keeps nothing, when the limit of steps is reached.
    pub(crate) fn add(&mut self, partial: &Partial<'_>, answered: FrameResult, steps: u64) -> bool {
        let has_room = self.steps.saturating_add(steps) <= MOST_STEPS;
        if has_room {
            self.steps += steps;
            self.partials.push((partial.clone().into_owned(), answered));
        }
        has_room
    }
}
