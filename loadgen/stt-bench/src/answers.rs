//! Answers between the socket and their judgement.
//!
//! To know what a batch of an unusual size must sound like takes 64 000 dependent steps a second of audio, a tenth of a
//! millisecond, and a gateway at its limit has no usual sizes. So in the window such answers are put aside, and judged
//! when the load is over: a generator that thinks while frames come due is late, and would be the limit itself.

use crate::protocol::Partial;

/// Steps of checksums that may be put aside; about five seconds of work. What comes after that is judged at once.
const MOST_STEPS: u64 = 4_000_000_000;

/// What an answer did to the frames of its session. Frames were sent, at the latest when it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// Index of the session among those of all workers.
    pub(crate) session: u64,
    /// Frames that are answered by it for the first time.
    pub(crate) fresh: u64,
    /// Of those, answered later than their objective.
    pub(crate) late: u64,
    /// None where some of its frames had been answered before.
    pub(crate) times: Option<Times>,
    /// When it came.
    pub(crate) at_ns: u64,
}

/// Of a batch's first and last frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) oldest_due_ns: u64,
    pub(crate) oldest_sent_ns: u64,
    pub(crate) newest_due_ns: u64,
    pub(crate) newest_sent_ns: u64,
}

/// Answers that are not judged yet, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    pub(crate) answers: Vec<(Partial<'static>, Answered)>,
    /// Steps that their checksums take.
    steps: u64,
}

impl Aside {
    /// Puts an answer aside, unless there is too much already.
    pub(crate) fn take(&mut self, partial: &Partial<'_>, answered: Answered, steps: u64) -> bool {
        let room = self.steps.saturating_add(steps) <= MOST_STEPS;
        if room {
            self.steps += steps;
            self.answers.push((partial.clone().into_owned(), answered));
        }
        room
    }
}
