//! Progress reports of a climb. The climb calls a watcher and never waits for a result.

use bench_format::{
    comparison::Comparison,
    result::TrialResult,
    run::{Run, Search},
    timeline::TimelineStep,
    trial::TrialId,
};

use crate::print;

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

impl Watcher for Terminal {
    fn usage(&self, service: &str, description: &str) {
        eprintln!("{service}: {description}");
    }

    fn result(&self, result: &TrialResult) {
        eprintln!("{}", print::line(result));
    }

    fn failed(&self, trial: &TrialId, reason: &str) {
        eprintln!("{trial}: failed: {reason}");
    }

    fn found(&self, search: &Search) {
        eprintln!("{}", print::search::line(search));
    }

    fn pair(&self, comparison: &Comparison) {
        eprintln!("{}", print::compare::progress(comparison));
    }

    fn interrupted(&self, trial: &TrialId, reason: &str) {
        eprintln!("{trial}: interrupted, to be repeated: {reason}");
    }
}
