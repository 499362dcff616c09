//! Counts of connections that come and go under load. Pure.

use bench_format::result::{Failures, Turnover, add_counts};

use crate::recorder::{Metric, Recorded};

/// Reasons by which a service refuses an attempt, beside the beginnings below: by TCP, by its subprotocol, by a message of
/// the protocol.
const REFUSALS: [&str; 3] = ["refused", "subprotocol_refused", "refused_by_service"];
/// Beginnings of such reasons: an HTTP status other than 101, a Close frame.
const REFUSALS_BEGIN: [&str; 2] = ["http_", "close_"];

/// The counts of one thread, and what its pattern has not yet acted on.
#[derive(Debug, Default)]
pub(crate) struct TurnoverTally {
    pub(crate) counts: Turnover,
    pub(crate) failures: Failures,
    /// Slots of connections that became ready since the pattern looked last.
    pub(crate) ready: Vec<u32>,
    /// Slots of connections that ended since the pattern looked last.
    pub(crate) ended: Vec<u32>,
    /// When all connections were cut, in nanoseconds of the monotonic clock.
    pub(crate) cut_ns: Option<u64>,
}

impl TurnoverTally {
    /// Counts an attempt that was due in the window and failed.
    pub(crate) fn attempt_failed(&mut self, reason: &str) {
        let is_refusal = REFUSALS.contains(&reason) || REFUSALS_BEGIN.iter().any(|start| reason.starts_with(start));
        let counts = if is_refusal { &mut self.counts.refused } else { &mut self.counts.failed };
        *counts.entry(reason.to_owned()).or_default() += 1;
    }

    /// Counts failures of one kind, in the window or outside it.
    pub(crate) fn fail(&mut self, in_window: bool, kind: String, count: u64) {
        let failures = if in_window { &mut self.failures.window } else { &mut self.failures.outside };
        *failures.entry(kind).or_default() += count;
    }

    /// Counts each attempt of the window that has no value as longer than every other.
    pub(crate) fn censor(&self, recorded: &mut Recorded) {
        let ready = recorded.values(Metric::Handshake).total();
        recorded.censor(Metric::Handshake, self.counts.due.saturating_sub(ready));
        if self.cut_ns.is_some() {
            let back = recorded.values(Metric::Reconnected).total();
            recorded.censor(Metric::Reconnected, self.counts.due.saturating_sub(back));
        }
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        add_counts(&mut self.failures.window, &other.failures.window);
        add_counts(&mut self.failures.outside, &other.failures.outside);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::recorder::Recorder;

    #[test]
    fn a_refusal_is_told_from_other_failures() {
        let mut tally = TurnoverTally::default();
        for reason in ["refused", "http_503", "close_1013", "refused_by_service", "timeout", "reset", "eof"] {
            tally.attempt_failed(reason);
        }
        let reasons = |counts: &BTreeMap<String, u64>| counts.keys().cloned().collect::<Vec<_>>();
        assert_eq!(reasons(&tally.counts.refused), ["close_1013", "http_503", "refused", "refused_by_service"]);
        assert_eq!(reasons(&tally.counts.failed), ["eof", "reset", "timeout"]);
    }

    #[test]
    fn an_attempt_without_an_end_took_longer_than_every_other() {
        let mut recorder = Recorder::<Metric>::new(0, 1_000_000_000);
        recorder.record(Metric::Handshake, 5, 10);
        let mut recorded = recorder.finish();
        let mut tally = TurnoverTally::default();
        tally.counts.due = 3;
        tally.censor(&mut recorded);
        assert_eq!(recorded.values(Metric::Handshake).overflow(), 2);
        assert_eq!(recorded.values(Metric::Reconnected).total(), 0, "nothing was cut");
    }

    #[test]
    fn threads_add_up() {
        let mut one = TurnoverTally::default();
        one.counts.due = 1;
        one.attempt_failed("timeout");
        let mut other = TurnoverTally::default();
        (other.counts.due, other.counts.closed) = (2, 7);
        other.attempt_failed("timeout");
        other.fail(true, "close/unanswered".into(), 3);
        one.add(&other);
        assert_eq!((one.counts.due, one.counts.closed, one.counts.failed["timeout"]), (3, 7, 2));
        assert_eq!(one.failures.window["close/unanswered"], 3);
    }
}
