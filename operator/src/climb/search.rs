//! Adds the trials of the run's searches, one at a time, as the searches decide them and take turns.

use std::collections::HashSet;

use bench_format::{
    plan::WireSearch,
    run::{Search, SearchStep, SearchTrial, TrialEntry, TrialState},
    trial::TrialId,
};

use super::{Climb, ClimbState, Error};
use crate::{
    backend::Backend,
    plan::Ladder,
    rejudge,
    search::{
        course::{Course, FinishedTrial, Step},
        gates,
        losses::TrialSummary,
        turns::{self, Progress},
    },
    step, store,
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
        Ok(Some(course.next(&finished, self.in_turn())?))
    }

    /// Number of searches that have made a trial on a fresh process.
    fn in_turn(&self) -> u32 {
        let full = |entry: &&TrialEntry| entry.search.is_some_and(|purpose| purpose.step != SearchStep::Bounds);
        let of = |entry: &TrialEntry| {
            let TrialId { service, workload, variant, .. } = entry.trial.clone();
            (service, workload, variant)
        };
        self.run.trials.iter().filter(full).map(of).collect::<HashSet<_>>().len() as u32
    }

    fn ladder_of(&self, search: &Search) -> Option<(&Ladder, &WireSearch)> {
        let same = |ladder: &&Ladder| ladder.workload == search.workload && ladder.variant == search.variant;
        let ladder = self.plan.ladders.iter().find(same)?;
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
                None => self.summary(entry, &purpose, course.ladder)?,
            };
            running.summaries.insert(index, summary.clone());
            finished.push(FinishedTrial { load: entry.trial.tier, purpose, summary });
        }
        Ok(finished)
    }

    fn summary(&self, entry: &TrialEntry, purpose: &SearchTrial, ladder: &Ladder) -> Result<TrialSummary, Error> {
        Ok(match entry.state {
            TrialState::Finished { .. } => {
                let result = store::read_result(self.store.folder(), &entry.trial)?;
                let mut summary = TrialSummary::of(&result, &ladder.objectives, &self.plan.validity);
                if purpose.step != SearchStep::Bounds && !summary.missed.is_empty() {
                    let workers = rejudge::uploads(&self.store.trial_folder(&entry.trial))?;
                    gates::set_moments(&mut summary.missed, &workers);
                }
                summary
            }
            _ if purpose.service_ended => TrialSummary::service_ended(&ladder.objectives),
            _ => TrialSummary::not_measured(),
        })
    }
}
