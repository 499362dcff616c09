//! Adds the trials of the run's searches, one at a time, as the searches decide them and take turns.

use bench_format::{
    plan::WireSearch,
    run::{Search, SearchStep},
};

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
                Some(Step::Measure(made, entry)) => {
                    self.watch_search(index, entry.search.map(|purpose| purpose.step), running)?;
                    (made, Some(entry))
                }
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
        let Some(course) = self.course(index) else { return Ok(None) };
        let finished = self.finished(&course, running)?;
        Ok(Some(course.next(&finished, turns::searches_in_turn(&self.run.trials))?))
    }

    /// Reports to the watcher what a search knows before its next trial.
    fn watch_search(&self, index: usize, step: Option<SearchStep>, running: &mut ClimbState) -> Result<(), Error> {
        if let (Some(course), Some(step)) = (self.course(index), step) {
            let finished = self.finished(&course, running)?;
            self.watcher.searching(&self.run.searches[index], course.so_far(&finished, step));
        }
        Ok(())
    }

    /// A search of the run; `None` if it is finished or not one of the plan's.
    fn course(&self, index: usize) -> Option<Course<'_>> {
        let search = self.run.searches.get(index).filter(|search| search.found.is_none())?;
        let (ladder, wire) = self.ladder_of(search)?;
        Some(Course { service: &search.service, ladder, search: wire })
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
