//! Progress reports of a climb. The climb calls a watcher and never waits for a result.

use bench_format::{
    comparison::Comparison,
    result::TrialResult,
    run::{CrashCause, Run, Search},
    timeline::TimelineStep,
    trial::TrialId,
};

use crate::{print, search::so_far::SoFar};

/// Receives progress reports. The calls are made on the climb's thread, so they must not block.
pub trait Watcher {
    /// A step begins; `trial` is absent for a step outside a trial.
    fn step(&self, _step: TimelineStep, _trial: Option<&TrialId>) {}
    /// `run.json` was written.
    fn run(&self, _run: &Run) {}
    /// It is known whose CPU time and memory are read as those of a service, or that they can't be.
    fn usage(&self, _service: &str, _description: &str) {}
    /// A trial has a result.
    fn result(&self, _result: &TrialResult) {}
    /// A trial could not be measured.
    fn failed(&self, _trial: &TrialId, _reason: &str) {}
    /// The service ended under a trial's load, which is the trial's verdict.
    fn crashed(&self, _trial: &TrialId, _cause: CrashCause, _reason: &str) {}
    /// A search goes on; what it knows before its next trial.
    fn searching(&self, _search: &Search, _so_far: SoFar) {}
    /// A search has a result.
    fn found(&self, _search: &Search) {}
    /// A pair of the comparison has ended; its last look or dropped pair is new.
    fn pair(&self, _comparison: &Comparison) {}
    /// A trial was interrupted and will be repeated.
    fn interrupted(&self, _trial: &TrialId, _reason: &str) {}
}

/// Prints a line per trial on standard error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminal;

impl Terminal {
    /// The line of a finished trial.
    pub fn result_line(result: &TrialResult) -> String {
        print::line(result)
    }

    /// The line of a trial that could not be measured.
    pub fn failed_line(trial: &TrialId, reason: &str) -> String {
        format!("{trial}: failed: {reason}")
    }

    /// The line of a trial under whose load the service ended.
    pub fn crashed_line(trial: &TrialId, cause: CrashCause, reason: &str) -> String {
        format!("{trial}: failed: {}: {reason}", cause.as_str())
    }

    /// The line of a search that has ended.
    pub fn found_line(search: &Search) -> String {
        print::search::line(search)
    }

    /// What a pair adds to a comparison.
    pub fn pair_line(comparison: &Comparison) -> String {
        print::compare::progress(comparison)
    }

    /// The line of a trial that will be repeated.
    pub fn interrupted_line(trial: &TrialId, reason: &str) -> String {
        format!("{trial}: interrupted, to be repeated: {reason}")
    }
}

impl Watcher for Terminal {
    fn usage(&self, service: &str, description: &str) {
        eprintln!("{service}: {description}");
    }

    fn result(&self, result: &TrialResult) {
        eprintln!("{}", Self::result_line(result));
    }

    fn failed(&self, trial: &TrialId, reason: &str) {
        eprintln!("{}", Self::failed_line(trial, reason));
    }

    fn crashed(&self, trial: &TrialId, cause: CrashCause, reason: &str) {
        eprintln!("{}", Self::crashed_line(trial, cause, reason));
    }

    fn found(&self, search: &Search) {
        eprintln!("{}", Self::found_line(search));
    }

    fn pair(&self, comparison: &Comparison) {
        eprintln!("{}", Self::pair_line(comparison));
    }

    fn interrupted(&self, trial: &TrialId, reason: &str) {
        eprintln!("{}", Self::interrupted_line(trial, reason));
    }
}
