//! Connections that come and go, as text.

use std::collections::BTreeMap;

use bench_format::result::{ConnectionCounts, Figures, Turnover};

/// The times until connections were back that were cut. A time is missing where fewer came back. If the generator bound
/// the trial, the service may have been faster.
pub(super) fn reconnected(figures: &Figures, is_generator_bound: bool) -> String {
    let at_most = if is_generator_bound { "<= " } else { "" };
    let times = [
        ("first", figures.reconnected_first_ms),
        ("half", figures.reconnected_half_ms),
        ("99 %", figures.reconnected_99_percent_ms),
        ("all", figures.reconnected_all_ms),
    ];
    let time = |(share, ms): (&str, Option<f64>)| match ms {
        Some(ms) => format!("{share} {at_most}{ms:.1} ms"),
        None => format!("{share} never"),
    };
    format!("back: {}", times.map(time).join(", "))
}

/// What went wrong with connections that came and went, one sentence each; empty if nothing did.
pub(super) fn missed(turnover: &Turnover, connections: &ConnectionCounts) -> Vec<String> {
    let due = turnover.due;
    let of = |counts: &BTreeMap<String, u64>, what: &str| {
        (!counts.is_empty()).then(|| format!("{} of {due} attempts {what} ({})", sum(counts), kinds(counts)))
    };
    let some = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
    let all = [
        of(&turnover.refused, "refused"),
        of(&turnover.failed, "failed"),
        some(turnover.not_made, "attempts not made"),
        ended_early(connections),
        some(turnover.unanswered_messages, "messages unanswered when their connection was closed as planned"),
        some(turnover.unanswered_closes, "Close frames not answered"),
    ];
    all.into_iter().flatten().collect()
}

/// The connections that ended before the worker closed them, with the reasons; `None` without any.
pub(super) fn ended_early(connections: &ConnectionCounts) -> Option<String> {
    let early = &connections.closed_early;
    (!early.is_empty()).then(|| format!("{} connections ended early ({})", sum(early), kinds(early)))
}

fn kinds(counts: &BTreeMap<String, u64>) -> String {
    counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
}

fn sum(counts: &BTreeMap<String, u64>) -> u64 {
    counts.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_did_not_come_back_has_no_time() {
        let figures =
            Figures { reconnected_first_ms: Some(1.04), reconnected_half_ms: Some(12.5), ..Figures::default() };
        assert_eq!(reconnected(&figures, false), "back: first 1.0 ms, half 12.5 ms, 99 % never, all never");
        assert!(reconnected(&figures, true).starts_with("back: first <= 1.0 ms, half <= 12.5 ms"));
    }

    #[test]
    fn what_went_wrong_is_told_in_words() {
        let turnover = Turnover {
            due: 100,
            refused: [("http_503".to_owned(), 10)].into(),
            failed: [("reset".to_owned(), 1), ("timeout".to_owned(), 2)].into(),
            unanswered_messages: 4,
            ..Turnover::default()
        };
        assert_eq!(
            missed(&turnover, &ConnectionCounts::default()),
            [
                "10 of 100 attempts refused (10 http_503)",
                "3 of 100 attempts failed (1 reset, 2 timeout)",
                "4 messages unanswered when their connection was closed as planned"
            ]
        );
        assert_eq!(missed(&Turnover::default(), &ConnectionCounts::default()), [""; 0]);
        let early = [("eof".to_owned(), 1), ("protocol".to_owned(), 2)].into();
        let connections = ConnectionCounts { closed_early: early, ..ConnectionCounts::default() };
        let expected = "3 connections ended early (1 eof, 2 protocol)";
        assert_eq!(missed(&Turnover::default(), &connections), [expected]);
    }
}
