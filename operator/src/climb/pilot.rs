//! Adds longer pilot trials where the last ones show no steady state.

use std::{fmt, path::Path};

use bench_format::trial::TrialId;

use super::{Climb, Error};
use crate::{backend::Backend, pilot, step};

/// Returns the pilot trials of a bundle that show no steady state.
type NotSteady<'a> = dyn Fn(&Path) -> anyhow::Result<Vec<TrialId>> + 'a;

/// Decides which pilot trials show a steady state.
pub struct PilotJudge<'a>(pub Box<NotSteady<'a>>);

impl fmt::Debug for PilotJudge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PilotJudge")
    }
}

impl<B: Backend> Climb<'_, B> {
    /// Adds a longer trial for each pilot without a steady state. Returns whether it added any. To be called when no
    /// program runs, because the decision takes time.
    pub(super) fn add_pilots(&mut self) -> Result<bool, Error> {
        let Some(PilotJudge(not_steady)) = &self.pilots else { return Ok(false) };
        if self.run.trials.iter().any(|entry| step::is_open(&entry.state)) {
            return Ok(false);
        }
        let unsteady = not_steady(self.store.folder()).map_err(|error| Error::Pilots(format!("{error:#}")))?;
        let added = pilot::doubled(&self.run.trials, &unsteady);
        let any = !added.is_empty();
        self.run.trials.extend(added);
        if any {
            self.save_run()?;
        }
        Ok(any)
    }
}
