//! Decides the comparison again from the results of its trials, and compares what it shows with `run.json`.

use bench_format::{
    comparison::{Comparison, ComparisonProgress},
    run::RunState,
};
use driver::http::chain;

use super::{Bundle, difference, planned, report::Check};
use crate::{
    compare::{
        course::{Course, FinishedTrial},
        trial,
    },
    step,
};

pub(super) fn check(bundle: &Bundle<'_>, comparison: &Comparison) -> Check {
    let mut check = Check::new("comparison");
    let finished = bundle.run.state == RunState::Finished;
    match decide(bundle, comparison) {
        Err(reason) => check.find("run.json", format!("comparison: {reason}")),
        // The contract's check ends a comparison before its first trial.
        Ok(_) if bundle.run.trials.is_empty() && comparison.progress.end.is_some() => {
            check.not_checked.push("it ended before its first trial".into());
        }
        // Between two trials, `run.json` has what the trials before the open one show.
        Ok(progress) => {
            let stored = serde_json::to_value(&comparison.progress).expect("our types have no map keys but strings");
            if let Some(difference) = difference::first(&stored, &progress) {
                check.find("run.json", format!("comparison.progress.{difference}{}", bundle.note()));
            }
            if finished && progress.end.is_none() {
                check.find("run.json", "comparison: its pairs don't decide yet, but the run is finished");
            }
        }
    }
    check.summary = format!("{} pairs decided again", comparison.progress.looks.len());
    check
}

/// What the trials show.
fn decide(bundle: &Bundle<'_>, comparison: &Comparison) -> Result<ComparisonProgress, String> {
    let run = bundle.run;
    let sides = [&comparison.a, &comparison.b].map(|side| side.service.to_string());
    if run.plan.services != sides || sides[0] == sides[1] {
        return Err(format!("its sides {} are not the services of its plan", sides.join(" and ")));
    }
    let Some(first) = run.trials.first() else { return Ok(ComparisonProgress::default()) };
    let ladder = planned::ladder(run, first)?;
    let ended = run.trials.iter().filter(|entry| !step::is_open(&entry.state));
    let finished: Result<Vec<FinishedTrial>, String> =
        ended.map(|entry| trial::finished(bundle.folder, entry).map_err(|error| chain(&error))).collect();
    let course = Course::after(comparison, &ladder.load, &finished?).map_err(|error| error.to_string())?;
    Ok(course.into_progress())
}
