//! Whoever wants to know how a climb goes while it goes. The climb tells; it never waits for an answer.

use bench_format::{
    result::TrialResult,
    run::{Run, Search},
    timeline::TimelineStep,
    trial::TrialId,
};

use crate::print;

/// Told what happens. Calls come on the climb's own thread: they must be quick.
pub trait Watcher {
    /// A step begins.
    fn step(&self, _step: TimelineStep, _trial: Option<&TrialId>) {}
    /// The run's file was written.
    fn run(&self, _run: &Run) {}
    /// A trial has a result.
    fn result(&self, _result: &TrialResult) {}
    /// A trial could not be measured.
    fn failed(&self, _trial: &TrialId, _reason: &str) {}
    /// A search has found what it looked for.
    fn found(&self, _search: &Search) {}
    /// A trial was interrupted and will be repeated.
    fn interrupted(&self, _trial: &TrialId, _reason: &str) {}
}

/// A person at a terminal: a line per trial.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminal;

impl Watcher for Terminal {
    fn result(&self, result: &TrialResult) {
        eprintln!("{}", print::line(result));
    }

    fn failed(&self, trial: &TrialId, reason: &str) {
        eprintln!("{trial}: failed: {reason}");
    }

    fn found(&self, search: &Search) {
        eprintln!("{}", print::search::line(search));
    }

    fn interrupted(&self, trial: &TrialId, reason: &str) {
        eprintln!("{trial}: interrupted, to be repeated: {reason}");
    }
}
