//! Adds the trials of a search to the run, one at a time, as the search decides them.

use bench_format::{
    plan::WireSearch,
    run::{Search, SearchTrial, TrialEntry, TrialState},
};

use super::{Climb, ClimbState, Error};
use crate::{
    backend::Backend,
    plan::Ladder,
    search::{
        course::{Course, FinishedTrial, Step},
        losses::TrialSummary,
    },
    step, store,
};

impl<B: Backend> Climb<'_, B> {
    /// Adds the next trial of the first unfinished search, unless a trial is open.
    pub(super) fn search(&mut self, running: &mut ClimbState) -> Result<(), Error> {
        while !self.run.trials.iter().any(|entry| step::is_open(&entry.state)) {
            let Some(index) = self.run.searches.iter().position(|search| search.found.is_none()) else { return Ok(()) };
            let search = self.run.searches[index].clone();
            let Some((ladder, wire)) = self.ladder_of(&search) else { return Ok(()) };
            let service_process = self.plan.wire.service_process;
            let course = Course { service: &search.service, ladder, search: wire, service_process };
            match course.next(&self.finished(&course, running)?)? {
                Step::Measure(entry) => self.run.trials.push(*entry),
                Step::SearchResult(found) => {
                    self.run.searches[index].found = Some(*found);
                    self.watcher.found(&self.run.searches[index]);
                }
            }
            self.save_run()?;
        }
        Ok(())
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
                TrialSummary::of(&result, &ladder.objectives, &self.plan.validity)
            }
            _ if purpose.service_ended => TrialSummary::service_ended(&ladder.objectives),
            _ => TrialSummary::not_measured(),
        })
    }
}
