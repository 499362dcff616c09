//! The default objective of speech-to-text, and whether a run met it. Pure.

use bench_format::histogram::percentile_ns;
use judge::merge::Merged;
use serde::Serialize;

/// Histogram, percentile, milliseconds that are allowed.
const LATENCIES: [(&str, f64, f64); 4] = [
    ("newest_ns", 50.0, TIGHTEST_MS),
    ("newest_ns", 95.0, 350.0),
    ("oldest_ns", 50.0, 1200.0),
    ("oldest_ns", 95.0, 1650.0),
];
/// The tightest of them: it says how late the generator may be.
pub(super) const TIGHTEST_MS: f64 = 200.0;
/// Failures allowed for each partial of the window.
const ERROR_SHARE: f64 = 1e-5;

/// Whether the objective was met.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// `pass` or `fail`.
    pub verdict: &'static str,
    /// Each condition.
    pub gates: Vec<Gate>,
}

/// One condition of an objective.
#[derive(Clone, Debug, Serialize)]
pub struct Gate {
    /// What is judged.
    pub figure: String,
    /// Largest value that passes.
    pub at_most: f64,
    /// As measured; absent when the samples can't carry it, which fails.
    pub measured: Option<f64>,
    /// Whether it passes.
    pub pass: bool,
}

impl Gate {
    fn new(figure: String, at_most: f64, measured: Option<f64>) -> Self {
        Self { figure, at_most, measured, pass: measured.is_some_and(|value| value <= at_most) }
    }
}

impl Verdict {
    pub(super) fn of(merged: &Merged) -> Self {
        let mut gates: Vec<Gate> = LATENCIES
            .iter()
            .map(|(histogram, percentile, at_most)| {
                let measured = merged.histograms.get(*histogram).and_then(|found| percentile_ns(found, *percentile));
                let name = histogram.trim_end_matches("_ns");
                Gate::new(format!("{name}_p{percentile}_ms"), *at_most, measured.map(|ns| ns as f64 / 1e6))
            })
            .collect();
        let failures: u64 = merged.failures.window.values().sum();
        let share = (merged.window.replies > 0).then(|| failures as f64 / merged.window.replies as f64);
        gates.push(Gate::new("error_share".into(), ERROR_SHARE, share));
        let verdict = if gates.iter().all(|gate| gate.pass) { "pass" } else { "fail" };
        Self { verdict, gates }
    }
}

#[cfg(test)]
mod tests {
    use bench_format::{histogram::Recorder, result::WindowCounts};

    use super::*;

    fn merged(newest_ms: u64, failures: u64) -> Merged {
        let recorder = |ms: u64| {
            let mut recorder = Recorder::new();
            recorder.record_n(ms * 1_000_000, 1000);
            recorder
        };
        let mut merged = Merged {
            window: WindowCounts { replies: 100_000, ..WindowCounts::default() },
            histograms: [("newest_ns".into(), recorder(newest_ms)), ("oldest_ns".into(), recorder(1100))].into(),
            ..Merged::default()
        };
        merged.failures.window.insert("session/closed".into(), failures);
        merged
    }

    #[test]
    fn a_run_inside_the_objective_passes_with_one_failure_in_100_000() {
        assert_eq!(Verdict::of(&merged(100, 1)).verdict, "pass");
        assert_eq!(Verdict::of(&merged(100, 2)).verdict, "fail");
    }

    #[test]
    fn the_gate_that_failed_is_named() {
        let verdict = Verdict::of(&merged(300, 0));
        let failed: Vec<_> = verdict.gates.iter().filter(|gate| !gate.pass).map(|gate| gate.figure.as_str()).collect();
        assert_eq!((verdict.verdict, failed), ("fail", vec!["newest_p50_ms"]));
    }

    #[test]
    fn nothing_measured_is_no_pass() {
        assert_eq!(Verdict::of(&Merged::default()).verdict, "fail");
    }
}
