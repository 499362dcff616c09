//! The rules for connections that are attempted under load: whether the generator kept their schedule. Pure.

use bench_format::{
    plan::Load,
    result::{Reason, ReasonKind},
};

use super::{generator::too_late, percent, reason};
use crate::case::Case;

/// The attempts' own lateness. Where all are due at one moment, a generator can't start them all at that moment; whether
/// it was the generator that took long then shows in what bound the load.
pub(super) fn attempts_late(case: &Case<'_>) -> Option<Reason> {
    if matches!(case.trial.load, Load::Reconnect { spread_seconds, .. } if spread_seconds == 0.0) {
        return None;
    }
    let lateness = case.merged.histograms.get("attempt_lateness_ns")?;
    too_late(case, "attempt_lateness", lateness).map(|description| reason(ReasonKind::GeneratorLate, description))
}

/// Attempts that were due and not made are the generator's failure, and no outcome of the service.
pub(super) fn attempts_not_made(case: &Case<'_>) -> Option<Reason> {
    let turnover = case.merged.turnover.as_ref()?;
    let (due, allowed) = (turnover.due, case.trial.thresholds.send_share);
    let made = due.saturating_sub(turnover.not_made);
    ((made as f64) < due as f64 * allowed).then(|| {
        let description = format!(
            "{made} of {due} connection attempts that were due were made, allowed at least {}; is the worker's limit of open \
             files too low?",
            percent(allowed)
        );
        reason(ReasonKind::SendRate, description)
    })
}

#[cfg(test)]
mod tests {
    use bench_format::{Name, histogram::Recorder, plan::Cut, result::Turnover};

    use super::*;
    use crate::{
        fixture::{Files, open},
        validity::fixture::{reasons, result},
    };

    /// A trial in which 1 000 connections came, each attempted so late.
    fn late_by(files: &mut Files, ms: u64) {
        let mut lateness = Recorder::new();
        lateness.record_n(ms * 1_000_000, 1000);
        let upload = result(files);
        upload.histograms.insert(Name::from_static("attempt_lateness_ns"), lateness.encode());
        let open_at_end = upload.connections.open;
        upload.turnover = Some(Turnover { due: 1000, ready: 1000, open_at_end, ..Turnover::default() });
    }

    #[test]
    fn attempts_may_be_late_by_5_ms_unless_all_are_due_at_once() {
        assert_eq!(reasons(open(), |files| late_by(files, 4)), Vec::<String>::new());
        let late = reasons(open(), |files| late_by(files, 30));
        let description = "GeneratorLate: the generator was late: p99 of attempt_lateness 30.0 ms, allowed 5 ms";
        assert_eq!(late, [description]);
        let at_once = reasons(open(), |files| {
            late_by(files, 30);
            files.trial.load = Load::Reconnect { cut: Cut::Reset, spread_seconds: 0.0, in_flight: 1 };
        });
        assert_eq!(at_once, Vec::<String>::new());
    }

    #[test]
    fn attempts_that_the_worker_does_not_make_invalidate_the_trial() {
        let not_made = |count| {
            reasons(open(), |files| {
                late_by(files, 1);
                let turnover = result(files).turnover.as_mut().unwrap();
                (turnover.ready, turnover.not_made) = (1000 - count, count);
            })
        };
        assert_eq!(not_made(5), Vec::<String>::new());
        assert!(not_made(6)[0].starts_with("SendRate: 994 of 1000 connection attempts that were due were made"));
    }
}
