//! Error budgets over the repeats of a tier, for the terminal: windows of repeats add up.

use std::{collections::BTreeMap, path::Path};

use bench_format::{
    Name,
    plan::Objective,
    result::{ErrorBudget, Shown, TrialResult, Validity},
    run::{Run, TrialState},
};
use judge::{error_budget::ErrorCounts, verdict::error_budget};

use crate::store;

/// A line for each error budget of each tier whose trials don't show that it is met.
pub fn lines(bundle: &Path, run: &Run) -> Vec<String> {
    let finished = run.trials.iter().filter(|entry| matches!(entry.state, TrialState::Finished { .. }));
    let results = finished.filter_map(|entry| store::read_result(bundle, &entry.trial).ok());
    let lines = sums(results).into_iter().filter_map(|((service, ladder, tier), (objective, counts))| {
        let budget = error_budget(&objective, &counts)?;
        Some(format!("{service}/{ladder}/{tier}: {}", line(&objective, &budget)?))
    });
    lines.collect()
}

/// What errors show about a budget, as text; `None` if it is met.
pub fn line(objective: &Objective, budget: &ErrorBudget) -> Option<String> {
    let most = objective.at_most?;
    let seen = format!("{} of {} replies: at most {:.1e}", budget.failures, budget.messages, budget.upper_bound);
    let of_sessions = budget.failing_connections.filter(|connections| *connections > 0);
    let of_sessions = of_sessions.map(|connections| format!(", in {connections} sessions")).unwrap_or_default();
    match budget.shown {
        Shown::Met => None,
        Shown::Missed => Some(format!("error_share <= {most} is missed ({seen}{of_sessions})")),
        Shown::NotShown => {
            let needed = budget.messages_needed?;
            let singly = if budget.failures == 0 { ", if errors come singly" } else { "" };
            Some(format!(
                "error_share <= {most} is not shown ({seen}{of_sessions}{singly}; {needed} replies with as many errors would show it)"
            ))
        }
    }
}

type Tier = (Name, String, u32);

/// The errors of each tier's valid trials, with the objective that bounds them.
fn sums(results: impl Iterator<Item = TrialResult>) -> BTreeMap<Tier, (Objective, ErrorCounts)> {
    let mut sums: BTreeMap<Tier, (Objective, ErrorCounts)> = BTreeMap::new();
    for result in results.filter(|result| result.validity == Validity::Valid) {
        for judged in result.verdict.iter().flat_map(|verdict| &verdict.objectives) {
            let Some(budget) = &judged.budget else { continue };
            let trial = &result.trial;
            let tier = (trial.service.clone(), format!("{}/{}", trial.workload, trial.variant), trial.tier);
            let counts = ErrorCounts::from(budget);
            sums.entry(tier)
                .and_modify(|(_, sum)| sum.add(&counts))
                .or_insert_with(|| (judged.objective.clone(), counts));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use bench_format::{plan::Figure, result::Verdict};
    use judge::fixture::sessions;

    use super::*;

    fn objective() -> Objective {
        Objective { figure: Figure::ErrorShare, at_most: Some(1e-4), at_least: None }
    }

    /// A valid trial with as many failures of one session among `replies`.
    fn trial(failures: u64, replies: u64) -> TrialResult {
        let mut files = sessions();
        files.trial.objectives = vec![objective()];
        let upload = &mut files.uploads[0];
        upload.window.replies = replies;
        (upload.window.failing_connections, upload.window.most_failures) = (Some(failures.min(1)), Some(failures));
        upload.failures.window = [("session/closed".to_owned(), failures)].into();
        files.judge().unwrap().result
    }

    fn line_of(trials: impl IntoIterator<Item = TrialResult>) -> Option<String> {
        let sums = sums(trials.into_iter());
        let (objective, counts) = sums.values().next().unwrap();
        line(objective, &error_budget(objective, counts).unwrap())
    }

    #[test]
    fn windows_of_repeats_add_up() {
        let one = line_of([trial(0, 10_000)]).unwrap();
        assert!(one.starts_with("error_share <= 0.0001 is not shown (0 of 10000 replies: at most 3.0e-4"), "{one}");
        assert!(one.ends_with("if errors come singly; 29956 replies with as many errors would show it)"), "{one}");
        assert_eq!(line_of([trial(0, 10_000), trial(0, 10_000), trial(0, 10_000)]), None);
    }

    #[test]
    fn errors_name_the_sessions_that_had_them() {
        let missed = line_of([trial(9, 1000)]).unwrap();
        assert_eq!(missed, "error_share <= 0.0001 is missed (9 of 1000 replies: at most 4.3e-2, in 1 sessions)");
    }

    #[test]
    fn an_invalid_trial_adds_nothing() {
        let mut invalid = trial(0, 10_000);
        invalid.validity = Validity::Invalid { reasons: vec![] };
        assert!(sums([invalid].into_iter()).is_empty());
        let without: Option<Verdict> = None;
        assert!(sums([TrialResult { verdict: without, ..trial(0, 10) }].into_iter()).is_empty());
    }
}
