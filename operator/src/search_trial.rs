//! Reads what a search needs to know of a trial from a bundle, for the climb and for `ladder verify`.

use std::path::Path;

use bench_format::{
    plan::Thresholds,
    run::{SearchStep, SearchTrial, TrialEntry, TrialState},
};

use crate::{
    plan::Ladder,
    rejudge,
    search::{gates, losses::TrialSummary},
    store,
};

/// Why a trial of a search can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its result can't be read.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The workers' results can't be read.
    #[error(transparent)]
    Workers(#[from] rejudge::Error),
}

/// What a search decides by, of a trial that has ended.
///
/// # Errors
/// When the trial's files can't be read.
pub fn summary(
    bundle: &Path,
    entry: &TrialEntry,
    purpose: &SearchTrial,
    ladder: &Ladder,
    thresholds: &Thresholds,
) -> Result<TrialSummary, Error> {
    let summary = match entry.state {
        TrialState::Finished { .. } => {
            let result = store::read_result(bundle, &entry.trial)?;
            let mut summary = TrialSummary::of(&result, &ladder.objectives, thresholds);
            if purpose.step != SearchStep::Bounds && !summary.missed.is_empty() {
                let workers = rejudge::uploads(&bundle.join("trials").join(entry.trial.to_string()))?;
                gates::set_moments(&mut summary.missed, &workers);
            }
            summary
        }
        _ if purpose.service_ended => TrialSummary::service_ended(&ladder.objectives),
        _ => TrialSummary::not_measured(),
    };
    let crash = match entry.state {
        TrialState::Crashed { cause, .. } => Some(cause),
        _ => None,
    };
    Ok(TrialSummary { crash, ..summary })
}
