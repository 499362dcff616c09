//! The default objective of speech-to-text, and the verdict as the summary shows it. Pure.

use bench_format::{
    plan::{Figure, Objective},
    result::{self, ErrorBudget},
};
use judge::{Judged, verdict::verdict};
use serde::Serialize;

/// The default objective: that of `plans/stt-slo.yaml`.
///
/// The ages of answers and the error share are those of the published comparison. The other three are ours, because
/// ages of answers say nothing of audio that isn't answered.
pub fn objectives() -> Vec<Objective> {
    let at_most = |figure, bound| Objective { figure, at_most: Some(bound), at_least: None };
    let latency = |histogram: &str, percentile, bound_ms| {
        at_most(Figure::PercentileMs { histogram: histogram.into(), percentile }, bound_ms)
    };
    vec![
        latency("newest", 50.0, 200.0),
        latency("newest", 95.0, 350.0),
        latency("oldest", 50.0, 1200.0),
        latency("oldest", 95.0, 1650.0),
        latency("frame", 95.0, 1650.0),
        at_most(Figure::LateShare, 0.005),
        Objective { figure: Figure::AnswersPerSessionSecond, at_most: None, at_least: Some(0.95) },
        at_most(Figure::ErrorShare, 1e-5),
    ]
}

/// The name by which files write a figure that has no parameters.
fn name(figure: &Figure) -> String {
    let name = serde_json::to_value(figure).ok();
    name.and_then(|name| name.as_str().map(str::to_owned)).expect("a variant without data is written as its name")
}

/// Whether the objective was met, and by which conditions.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The verdict against the objective: `pass` or `fail`.
    pub verdict: &'static str,
    /// Each condition of the objective.
    pub gates: Vec<Gate>,
}

/// One condition of an objective.
#[derive(Clone, Debug, Serialize)]
pub struct Gate {
    /// Name of the figure, such as `newest_p50_ms`.
    pub figure: String,
    /// Largest value that passes; in the figure's unit.
    pub at_most: Option<f64>,
    /// Smallest value that passes; in the figure's unit. Absent where only a largest one is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// Measured value; `null` when there are too few samples for it, which fails.
    pub measured: Option<f64>,
    /// Whether the condition is met; for a budget of errors, whether it isn't shown to be missed.
    pub pass: bool,
    /// What the errors show about a budget of errors; absent for other figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<ErrorBudget>,
}

impl From<result::Judged> for Gate {
    fn from(judged: result::Judged) -> Self {
        let result::Judged { objective, seen, passed, budget } = judged;
        let figure = match &objective.figure {
            Figure::PercentileMs { histogram, percentile } => format!("{histogram}_p{percentile}_ms"),
            other => name(other),
        };
        Self { figure, at_most: objective.at_most, at_least: objective.at_least, measured: seen, pass: passed, budget }
    }
}

impl Verdict {
    /// Judges against `objectives`; a trial may be invalid.
    pub(super) fn of(judged: &Judged, objectives: &[Objective]) -> Self {
        let verdict =
            verdict(objectives, &judged.result.figures, &judged.merged.histograms, Some(&judged.merged.errors()));
        let passed = verdict.as_ref().is_some_and(|verdict| verdict.passed);
        let gates = verdict.into_iter().flat_map(|verdict| verdict.objectives).map(Gate::from).collect();
        Self { verdict: if passed { "pass" } else { "fail" }, gates }
    }
}

#[cfg(test)]
mod tests {
    use bench_format::{histogram::Recorder, result::Shown};
    use judge::fixture::sessions;

    use super::*;

    fn of(newest_ms: u64, failures: u64) -> Verdict {
        let recorder = |ms: u64| {
            let mut recorder = Recorder::new();
            recorder.record_n(ms * 1_000_000, 1000);
            recorder.encode()
        };
        let mut files = sessions();
        files.trial.objectives = objectives();
        let worker = &mut files.uploads[0];
        worker.window.replies = 100_000;
        worker.histograms.insert(bench_format::Name::from_static("newest_ns"), recorder(newest_ms));
        worker.histograms.insert(bench_format::Name::from_static("oldest_ns"), recorder(1100));
        worker.failures.window.insert("session/closed".into(), failures);
        Verdict::of(&files.judge().unwrap(), &objectives())
    }

    #[test]
    fn a_run_inside_the_objective_passes_unless_its_failures_show_a_larger_share() {
        let shown = |failures| {
            let verdict = of(100, failures);
            (verdict.verdict, verdict.gates.last().unwrap().budget.as_ref().map(|budget| budget.shown))
        };
        assert_eq!(shown(0), ("pass", Some(Shown::NotShown)), "100 000 replies can't show one in 100 000");
        assert_eq!(shown(3), ("pass", Some(Shown::NotShown)));
        assert_eq!(shown(4), ("fail", Some(Shown::Missed)));
    }

    #[test]
    fn the_gate_that_failed_is_named() {
        let verdict = of(300, 0);
        let failed: Vec<_> = verdict.gates.iter().filter(|gate| !gate.pass).map(|gate| gate.figure.as_str()).collect();
        assert_eq!((verdict.verdict, failed), ("fail", vec!["newest_p50_ms"]));
    }

    #[test]
    fn gates_are_named_after_figures() {
        let gates = of(100, 0).gates;
        let named: Vec<_> = gates.iter().map(|gate| gate.figure.as_str()).collect();
        let expected = [
            "newest_p50_ms",
            "newest_p95_ms",
            "oldest_p50_ms",
            "oldest_p95_ms",
            "frame_p95_ms",
            "late_share",
            "answers_per_session_second",
            "error_share",
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn a_run_without_measurements_does_not_pass() {
        let mut files = sessions();
        files.uploads.clear();
        assert_eq!(Verdict::of(&files.judge().unwrap(), &objectives()).verdict, "fail");
    }
}
