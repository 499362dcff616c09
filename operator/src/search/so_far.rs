//! What a search knows so far, for those who watch it; no decision depends on it. Pure.

use bench_format::{
    plan::{Objective, WireSearch},
    run::SearchStep,
};

use super::{
    Outcome,
    losses::{TrialSummary, goals},
    rounds::TrialOutcome,
};

/// The trials of a search that have ended, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoFar {
    /// The step that the next trial belongs to.
    pub step: SearchStep,
    /// Number of trials that have ended.
    pub trials: usize,
    /// The largest load at which a trial met every objective; absent before the first.
    pub passed: Option<u32>,
    /// The smallest load at which a trial missed an objective, or the service ended; absent before the first. Near the
    /// capacity trials do both, so it may be below `passed`.
    pub failed: Option<u32>,
}

/// A trial that has ended: its load, its step, and what was measured.
pub(super) type Ended<'a> = (u32, SearchStep, &'a TrialSummary);

impl SoFar {
    /// Sums up the trials that have ended; `step` is that of the next one.
    pub(super) fn of<'a>(
        ended: impl ExactSizeIterator<Item = Ended<'a>>,
        search: &WireSearch,
        objectives: &[Objective],
        step: SearchStep,
    ) -> Self {
        let trials = ended.len();
        let allowed: Vec<f64> = goals(search, objectives).iter().map(|goal| goal.loss_ratio).collect();
        let judged = ended.filter_map(|trial| Some((trial.0, has_passed(trial, &allowed)?)));
        let (passed, failed): (Vec<_>, Vec<_>) = judged.partition(|(_, passed)| *passed);
        let loads = |judged: Vec<(u32, bool)>| judged.into_iter().map(|(load, _)| load);
        Self { step, trials, passed: loads(passed).max(), failed: loads(failed).min() }
    }
}

/// Whether a trial passed; `None` for an invalid one. A short trial is judged by its losses, because it has no verdict.
fn has_passed((_, step, summary): Ended<'_>, allowed: &[f64]) -> Option<bool> {
    match (step, &summary.outcome, summary.full) {
        (SearchStep::Bounds, Outcome::Measured(losses), _) => {
            Some(losses.iter().zip(allowed).all(|(loss, allowed)| loss <= allowed))
        }
        (SearchStep::Bounds, Outcome::Invalid(_), _) | (_, _, TrialOutcome::Invalid(_)) => None,
        (_, _, full) => Some(full == TrialOutcome::Passed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Fault;

    /// What an ended trial shows; as a short one and as a full one alike.
    fn summary(passed: Option<bool>) -> TrialSummary {
        let (outcome, full) = match passed {
            None => (Outcome::Invalid(Fault::Other), TrialOutcome::Invalid(Fault::Other)),
            Some(true) => (Outcome::Measured(vec![0.01]), TrialOutcome::Passed),
            Some(false) => (Outcome::Measured(vec![0.5]), TrialOutcome::Failed),
        };
        TrialSummary { outcome, full, ..TrialSummary::not_measured() }
    }

    /// The loads that passed and failed, after trials of these steps, loads and outcomes.
    fn bracket(trials: &[(SearchStep, u32, Option<bool>)]) -> (Option<u32>, Option<u32>) {
        let search = r#"{"from": 1, "to": 99, "final_trial_seconds": 1, "duration_sum_seconds": 1}"#;
        let objective = r#"{"figure": "failed_share", "at_most": 0.05}"#;
        let summaries: Vec<_> = trials.iter().map(|(step, load, passed)| (*load, *step, summary(*passed))).collect();
        let ended = summaries.iter().map(|(load, step, summary)| (*load, *step, summary));
        let (search, objective) = (serde_json::from_str(search).unwrap(), serde_json::from_str(objective).unwrap());
        let so_far = SoFar::of(ended, &search, &[objective], SearchStep::Round);
        assert_eq!((so_far.step, so_far.trials), (SearchStep::Round, trials.len()));
        (so_far.passed, so_far.failed)
    }

    #[test]
    fn the_largest_load_that_passed_and_the_smallest_that_failed_are_known_from_trials_of_every_step() {
        let trials = [
            (SearchStep::Bounds, 10, Some(true)),
            (SearchStep::Bounds, 50, Some(false)),
            (SearchStep::Round, 30, Some(true)),
            (SearchStep::Fail, 40, Some(false)),
        ];
        assert_eq!(bracket(&trials), (Some(30), Some(40)));
    }

    #[test]
    fn an_invalid_trial_shows_nothing() {
        assert_eq!(bracket(&[(SearchStep::Bounds, 10, None), (SearchStep::Confirm, 20, None)]), (None, None));
    }
}
