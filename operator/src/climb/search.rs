//! Adds the trials of the run's searches, one at a time, as the searches decide them and take turns.

use bench_format::{plan::WireSearch, run::Search};

use super::{Climb, ClimbState, Error};
use crate::{
    backend::Backend,
    plan::Ladder,
    search::{
        course::{Course, FinishedTrial, Step},
        turns::{self, Progress},
    },
    search_trial, step,
};

impl<B: Backend> Climb<'_, B> {
    /// Adds the next trial of the search whose turn it is, unless a trial is open.
    pub(super) fn search(&mut self, running: &mut ClimbState) -> Result<(), Error> {
        if self.run.trials.iter().any(|entry| step::is_open(&entry.state)) {
            return Ok(());
        }
        let (mut progress, mut entries) = (Vec::new(), Vec::new());
        for index in 0..self.run.searches.len() {
            let (made, entry) = match self.step_of(index, running)? {
                Some(Step::Measure(made, entry)) => (made, Some(entry)),
                Some(Step::SearchResult(found)) => {
                    self.run.searches[index].found = Some(*found);
                    self.watcher.found(&self.run.searches[index]);
                    self.save_run()?;
                    (Progress::Finished, None)
                }
                None => (Progress::Finished, None),
            };
            progress.push(made);
            entries.push(entry);
        }
        if let Some(entry) = turns::next(&progress).and_then(|index| entries.swap_remove(index)) {
            self.run.trials.push(*entry);
            self.save_run()?;
        }
        Ok(())
    }

    /// The next step of a search; `None` if it is finished.
    fn step_of(&self, index: usize, running: &mut ClimbState) -> Result<Option<Step>, Error> {
        let search = &self.run.searches[index];
        let Some((ladder, wire)) = self.ladder_of(search).filter(|_| search.found.is_none()) else { return Ok(None) };
        let course = Course { service: &search.service, ladder, search: wire };
        let finished = self.finished(&course, running)?;
        Ok(Some(course.next(&finished, turns::searches_in_turn(&self.run.trials))?))
    }

    fn ladder_of(&self, search: &Search) -> Option<(&Ladder, &WireSearch)> {
        let ladder = self.plan.ladder(&search.workload, &search.variant)?;
        Some((ladder, ladder.search.as_ref()?))
    }

    /// The finished trials of a search. Each result is read once and cached, so a resumed climb decides from the same
    /// data.
    fn finished(&self, course: &Course<'_>, running: &mut ClimbState) -> Result<Vec<FinishedTrial>, Error> {
        let mut finished = Vec::new();
        for (index, entry) in self.run.trials.iter().enumerate() {
            let Some(purpose) = entry.search.filter(|_| course.has(entry)) else { continue };
            let summary = match running.summaries.get(&index) {
                Some(summary) => summary.clone(),
                None => {
                    let bundle = self.store.folder();
                    search_trial::summary(bundle, entry, &purpose, course.ladder, &self.plan.validity)?
                }
            };
            running.summaries.insert(index, summary.clone());
            finished.push(FinishedTrial { load: entry.trial.tier, purpose, summary });
        }
        Ok(finished)
    }
}
