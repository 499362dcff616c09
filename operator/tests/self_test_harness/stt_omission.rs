//! Audio that a gateway answers after the window, or never, fails the objective.
//!
//! The test brings the leak back in its own code: judged by the answers that arrived in the window, as the harness once
//! did, the same trial is inside the same bounds.

use std::fs;

use bench_format::{
    histogram::{Recorder, percentile_ns},
    plan::Figure,
    result::TrialResult,
};

use crate::run::{Attempts, Checked, Run, ensure, sound};

/// The gateway of the plan.
const GATEWAY: &str = "self-test-gateway-none";
/// The bounds of the plan for the 95th percentiles of `newest` and `oldest`, in milliseconds.
const BOUNDS_MS: (f64, f64) = (1000.0, 2500.0);
/// Length of the plan's window, in milliseconds.
const WINDOW_MS: f64 = 8000.0;

/// The figures whose objective was missed.
fn missed(result: &TrialResult) -> Vec<String> {
    let verdict = result.verdict.iter().flat_map(|verdict| &verdict.objectives);
    let name = |figure: &Figure| match figure {
        Figure::PercentileMs { histogram, .. } => histogram.clone(),
        other => serde_json::to_value(other).unwrap().as_str().unwrap().to_owned(),
    };
    verdict.filter(|judged| !judged.passed).map(|judged| name(&judged.objective.figure)).collect()
}

/// A sound trial that misses the objective on each of `figures`.
fn misses(result: &TrialResult, figures: &[&str]) -> Checked {
    sound(result)?;
    let missed = missed(result);
    ensure(figures.iter().all(|figure| missed.iter().any(|name| name == figure)), || {
        format!("the objective fails at {missed:?} and not at all of {figures:?}")
    })
}

/// The leak: 95th percentiles of `newest` and `oldest` in milliseconds, by the answers that arrived in the window.
fn of_answers_in_the_window(run: &Run, variant: &str) -> (f64, f64) {
    let rows = fs::read(run.trial_folder(GATEWAY, variant).join("workers/0.samples.csv.zst")).unwrap();
    let rows = String::from_utf8(zstd::decode_all(&rows[..]).unwrap()).unwrap();
    let mut lines = rows.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| header.iter().position(|found| *found == name).unwrap();
    let (newest_ms, oldest_ms, received_ms) =
        (column("newest_latency_ms"), column("oldest_latency_ms"), column("received_ms"));
    let (mut newest, mut oldest) = (Recorder::new(), Recorder::new());
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let ms = |at: usize| cells[at].parse::<f64>().unwrap();
        if ms(received_ms) < WINDOW_MS {
            newest.record((ms(newest_ms) * 1e6) as u64);
            oldest.record((ms(oldest_ms) * 1e6) as u64);
        }
    }
    let p95_ms = |recorder: &Recorder| percentile_ns(recorder, 95.0).map_or(0.0, |ns| ns as f64 / 1e6);
    (p95_ms(&newest), p95_ms(&oldest))
}

/// Asserts that the trial misses `figures`, and that the answers of its window alone are inside the bounds.
fn assert_closed(run: &Run, result: &TrialResult, variant: &str, figures: &[&str]) {
    assert_eq!(misses(result, figures), Ok(()), "{variant}\n{}", run.output);
    let leaking = of_answers_in_the_window(run, variant);
    assert!(leaking.0 <= BOUNDS_MS.0 && leaking.1 <= BOUNDS_MS.1, "{variant}: no leak to close: {leaking:?}");
    assert_eq!(result.figures.error_share, Some(0.0), "{variant}: failures alone would have failed it");
}

#[test]
fn sessions_that_fall_silent_fail_the_objective() {
    let mut attempts = Attempts::of("stt-omission");
    let (answered, run) = attempts.trial(GATEWAY, "answered");
    assert_eq!((sound(&answered), missed(&answered)), (Ok(()), vec![]), "\n{}", run.output);
    assert!(misses(&answered, &["late_share"]).is_err(), "a gateway that answers in time is found late");
    // One per cent of the frames is in no 95th percentile; only the share that is late shows it.
    for (variant, figures) in [
        ("one-percent", &["late_share"][..]),
        ("thirty-percent", &["frame", "late_share", "answers_per_session_second"]),
        ("held-back", &["frame", "late_share", "answers_per_session_second"]),
        ("frozen", &["frame", "late_share", "answers_per_session_second"]),
    ] {
        let (result, run) = attempts.trial(GATEWAY, variant);
        assert_closed(run, &result, variant, figures);
    }
}
