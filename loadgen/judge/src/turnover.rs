//! Connections that come and go under load: their equations and figures. Pure.

use std::collections::BTreeMap;

use bench_format::{
    Name,
    histogram::Recorder,
    result::{Equation, Figures, Turnover},
};

use crate::{merge::Merged, rates::ratio};

/// The histogram of the times until connections were ready again.
const RECONNECTED: &str = "reconnected_ns";

/// The equations of the workers' attempts and connections; empty for other loads.
pub(crate) fn equations(merged: &Merged) -> Vec<Equation> {
    let Some(turnover) = &merged.turnover else { return Vec::new() };
    let early = merged.connections.closed_early.values().sum();
    let attempts = [
        ("ready", turnover.ready),
        ("refused", turnover.refused.values().sum()),
        ("failed", turnover.failed.values().sum()),
        ("not made", turnover.not_made),
    ];
    let connections = [("closed", turnover.closed), ("ended early", early), ("open at the end", turnover.open_at_end)];
    let terms =
        |terms: &[(&str, u64)]| terms.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>();
    vec![
        Equation::new("attempts due = ready + refused + failed + not made", turnover.due, terms(&attempts)),
        Equation::new(
            "open = closed under load + ended early + open at the end",
            merged.connections.open,
            terms(&connections),
        ),
    ]
}

/// Share of the window's attempts that the service refused or that failed; `None` without attempts.
pub(crate) fn failed_share(turnover: &Turnover) -> Option<f64> {
    let failed: u64 = turnover.refused.values().chain(turnover.failed.values()).sum();
    ratio(failed, turnover.due as f64)
}

/// Adds the times until connections were ready again.
pub(crate) fn reconnected(figures: &mut Figures, merged: &Merged) {
    let after = |percent| reconnected_ms(&merged.histograms, percent);
    figures.reconnected_first_ms = after(0.0);
    figures.reconnected_half_ms = after(50.0);
    figures.reconnected_99_percent_ms = after(99.0);
    figures.reconnected_all_ms = after(100.0);
}

/// Milliseconds until this share of the connections was ready again; 0 percent is the first one. `None` if fewer came
/// back. No number of samples is required, because every connection is counted and none is a sample.
pub(crate) fn reconnected_ms(histograms: &BTreeMap<Name, Recorder>, percent: f64) -> Option<f64> {
    let times = histograms.get(RECONNECTED)?;
    let rank = ((percent / 100.0 * times.total() as f64).ceil() as u64).max(1);
    let is_known = rank <= times.count();
    is_known.then(|| times.values().value_at_quantile(rank as f64 / times.count() as f64) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use bench_format::{
        plan::{Figure, Objective},
        result::{TrialResult, Validity},
        trial_file::BookKeeping,
    };

    use super::*;
    use crate::fixture::open;

    /// A trial in which 100 connections were cut, 90 of which came back, one each millisecond.
    fn of(change: impl FnOnce(&mut Turnover)) -> TrialResult {
        let mut files = open();
        let upload = &mut files.uploads[0];
        let before = upload.connections.open;
        upload.connections.attempted += 100;
        upload.connections.open += 90;
        upload.connections.failed = [("http_503".to_owned(), 10)].into();
        let mut times = Recorder::new();
        (1..=90).for_each(|ms| times.record(ms * 1_000_000));
        times.censor(10);
        upload.histograms.insert(Name::from_static(RECONNECTED), times.encode());
        let mut turnover = Turnover {
            due: 100,
            ready: 90,
            refused: [("http_503".to_owned(), 10)].into(),
            closed: 90,
            open_at_end: before,
            ..Turnover::default()
        };
        change(&mut turnover);
        upload.turnover = Some(turnover);
        // Only the workers' own equations are of interest here.
        files.trial.keeping = BookKeeping::None;
        let objective =
            |percent| Objective { figure: Figure::ReconnectedMs { percent }, at_most: Some(50.5), at_least: None };
        files.trial.objectives = [50.0, 99.0].map(objective).into();
        files.judge().unwrap().result
    }

    #[test]
    fn attempts_and_connections_that_are_not_accounted_for_make_the_trial_invalid() {
        let details = |change: fn(&mut Turnover)| match of(change).validity {
            Validity::Valid => String::new(),
            Validity::Invalid { reasons } => reasons[0].detail.clone(),
        };
        assert_eq!(details(|_| ()), "");
        assert!(
            details(|turnover| turnover.ready -= 1).starts_with("attempts due = ready + refused + failed + not made")
        );
        assert!(details(|turnover| turnover.open_at_end -= 1).starts_with("open = closed under load + ended early"));
    }

    #[test]
    fn each_time_until_connections_were_back_is_that_of_a_rank_among_all() {
        let TrialResult { figures, verdict, .. } = of(|_| ());
        let near = |figure: Option<f64>, ms: f64| figure.is_some_and(|value| (value / ms - 1.0).abs() < 0.002);
        assert!(near(figures.reconnected_first_ms, 1.0) && near(figures.reconnected_half_ms, 50.0), "{figures:?}");
        let rest = (figures.reconnected_99_percent_ms, figures.reconnected_all_ms);
        assert_eq!(rest, (None, None), "a tenth never came back");
        assert_eq!(verdict.unwrap().objectives.iter().map(|judged| judged.passed).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_refused_attempt_counts_among_those_of_the_window() {
        assert_eq!(of(|_| ()).figures.failed_share, Some(0.1));
    }
}
