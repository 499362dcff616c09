//! Reads what a comparison needs to know of a trial from a bundle, for the climb and for `ladder verify`.

use std::path::Path;

use bench_format::{
    result::Validity,
    run::{TrialEntry, TrialState},
};

use super::{course::FinishedTrial, figures};
use crate::store;

/// What a comparison decides by, of a trial that has ended.
///
/// # Errors
/// When the trial's result can't be read.
pub fn finished(bundle: &Path, entry: &TrialEntry) -> Result<FinishedTrial, store::Error> {
    let outcome = match &entry.state {
        TrialState::Finished { .. } => {
            let result = store::read_result(bundle, &entry.trial)?;
            match &result.validity {
                Validity::Valid => Ok(figures::of_result(&result)),
                Validity::Invalid { reasons } => {
                    let details: Vec<&str> = reasons.iter().map(|reason| reason.detail.as_str()).collect();
                    Err(details.join("; "))
                }
            }
        }
        TrialState::Crashed { cause, reason } => Err(format!("{}: {reason}", cause.as_str())),
        TrialState::Failed { reason } => Err(format!("not measured: {reason}")),
        TrialState::Pending | TrialState::Started { .. } => Err("not measured".into()),
    };
    Ok(FinishedTrial { trial: entry.trial.clone(), outcome })
}
