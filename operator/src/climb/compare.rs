//! Adds the trials of the run's comparison, one at a time, until its pairs decide.

use bench_format::{comparison::ComparisonProgress, run::TrialEntry};

use super::{Climb, ClimbState, Error};
use crate::{
    backend::Backend,
    compare::{
        course::{Course, FinishedTrial},
        trial,
    },
    step,
};

impl<B: Backend> Climb<'_, B> {
    /// Adds the comparison's next trial, unless a trial is open or the comparison has ended.
    pub(super) fn compare(&mut self, running: &mut ClimbState) -> Result<(), Error> {
        let Some(comparison) = self.run.comparison.as_ref().filter(|comparison| comparison.progress.end.is_none())
        else {
            return Ok(());
        };
        if self.run.trials.iter().any(|entry| step::is_open(&entry.state)) {
            return Ok(());
        }
        let finished = self.finished_of_pairs(running)?;
        let Some(ladder) = self.plan.ladder(&comparison.workload, &comparison.variant) else { return Ok(()) };
        let course = Course::after(comparison, &ladder.load, &finished)?;
        let (next, progress) = (course.next(), course.into_progress());
        self.note_progress(progress);
        if let Some(next) = next {
            self.run.trials.push(TrialEntry::pending(next));
        }
        self.save_run()
    }

    /// Stores what the pairs show, and reports each pair that is new.
    fn note_progress(&mut self, progress: ComparisonProgress) {
        let Some(comparison) = &mut self.run.comparison else { return };
        let before = std::mem::replace(&mut comparison.progress, progress);
        let known = (before.looks.len(), before.dropped.len());
        if known != (comparison.progress.looks.len(), comparison.progress.dropped.len()) {
            self.watcher.pair(comparison);
        }
    }

    /// The finished trials. Each result is read once and cached.
    fn finished_of_pairs(&self, running: &mut ClimbState) -> Result<Vec<FinishedTrial>, Error> {
        for entry in &self.run.trials[running.pairs.len()..] {
            running.pairs.push(trial::finished(self.store.folder(), entry)?);
        }
        Ok(running.pairs.clone())
    }
}
