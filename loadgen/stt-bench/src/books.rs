//! The counters of one load thread. They only grow, and a worker's are the sum over its threads.

use std::collections::BTreeMap;

use bench_format::result::Failures;
use loadgen_core::phases::Phases;

/// Most kinds of failures that are counted apart; a gateway that sends more has them counted under [`OTHER`].
const MOST_KINDS: usize = 64;
/// Longest `stage` and `kind` of an error frame that becomes a key, in bytes.
const LONGEST_KIND: usize = 40;
const OTHER: &str = "other/other";

/// Frames of a trial by outcome, and what moved on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) due: u64,
    /// Frames that were due inside the window.
    pub(crate) window_due: u64,
    /// Frames of the window by the schedule: those of sessions that failed or ended, too.
    pub(crate) window_scheduled: u64,
    /// Answers that the frames of the window still lack at the end of the drain: one for each whole flush interval.
    pub(crate) window_unanswered: u64,
    pub(crate) delivered: u64,
    pub(crate) late: u64,
    pub(crate) wrong: u64,
    pub(crate) dropped: BTreeMap<String, u64>,
    pub(crate) lost: u64,
    pub(crate) unsent: u64,
    /// Frames that were answered more than once: one for each further answer.
    pub(crate) duplicates: u64,
    pub(crate) bytes_received: u64,
    pub(crate) moving: Moving,
    /// `moving`, inside the window only.
    pub(crate) window: Moving,
}

/// Counters that exist for the whole trial and for its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moving {
    /// Frames that the socket accepted in full.
    pub(crate) sent: u64,
    /// Partials that covered at least one frame for the first time.
    pub(crate) replies: u64,
    /// Frames that those partials covered for the first time.
    pub(crate) answered: u64,
    /// System calls that sent bytes.
    pub(crate) writes: u64,
    pub(crate) bytes_sent: u64,
}

/// Connections of a trial, and failures by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    pub(crate) attempted: u64,
    /// Attempts without an outcome yet.
    pub(crate) in_flight: u32,
    pub(crate) opened: u64,
    pub(crate) failed: BTreeMap<String, u64>,
    pub(crate) closed_early: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.window_due += other.window_due;
        self.window_scheduled += other.window_scheduled;
        self.window_unanswered += other.window_unanswered;
        self.delivered += other.delivered;
        self.late += other.late;
        self.wrong += other.wrong;
        add(&mut self.dropped, &other.dropped);
        self.lost += other.lost;
        self.unsent += other.unsent;
        self.duplicates += other.duplicates;
        self.bytes_received += other.bytes_received;
        self.moving.add(&other.moving);
        self.window.add(&other.window);
    }
}

impl Moving {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.replies += other.replies;
        self.answered += other.answered;
        self.writes += other.writes;
        self.bytes_sent += other.bytes_sent;
    }
}

impl Attempts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.attempted += other.attempted;
        self.opened += other.opened;
        add(&mut self.failed, &other.failed);
        add(&mut self.closed_early, &other.closed_early);
    }
}

/// Counts a failure in or outside of the window.
pub(crate) fn count_failure(failures: &mut Failures, kind: &str, in_window: bool) {
    let counts = if in_window { &mut failures.window } else { &mut failures.outside };
    let kind = if counts.len() < MOST_KINDS || counts.contains_key(kind) { kind } else { OTHER };
    match counts.get_mut(kind) {
        Some(count) => *count += 1,
        None => {
            counts.insert(kind.to_owned(), 1);
        }
    }
}

/// Whether a moment is inside the window; false before the load has started.
pub(crate) fn in_window(phases: Option<&Phases>, now_ns: u64) -> bool {
    phases.is_some_and(|phases| phases.in_window(now_ns))
}

/// A `stage` or `kind` as a key of results; `other` when it is too long or has other characters than `[A-Za-z0-9_-]`,
/// because a gateway may send any text.
pub(crate) fn as_key(word: &str) -> &str {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !word.is_empty() && word.len() <= LONGEST_KIND && word.bytes().all(plain) { word } else { "other" }
}

/// Adds `added` to `sum`, reason by reason.
pub(crate) fn add(sum: &mut BTreeMap<String, u64>, added: &BTreeMap<String, u64>) {
    for (reason, count) in added {
        *sum.entry(reason.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_a_gateway_makes_up_are_bounded() {
        let mut failures = Failures::default();
        for n in 0..1000 {
            count_failure(&mut failures, &format!("stage/{n}"), true);
        }
        assert_eq!(failures.window.len(), MOST_KINDS + 1);
        assert_eq!(failures.window.values().sum::<u64>(), 1000);
    }

    #[test]
    fn only_simple_names_become_keys() {
        assert_eq!(
            ["timeout", "http_4xx", "", "a b", &"x".repeat(41)].map(as_key),
            ["timeout", "http_4xx", "other", "other", "other"]
        );
    }
}
