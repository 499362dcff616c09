//! Compares objectives with figures. Pure.

use std::collections::BTreeMap;

use bench_format::{
    Name,
    histogram::{Recorder, percentile_ns},
    plan::{Figure, Objective},
    result::{ErrorBudget, Figures, Judged, Shown, Verdict},
};

use crate::{error_budget::ErrorCounts, turnover};

/// Compares each objective with its figure; `None` without objectives.
///
/// A bound on the error share is judged by what `errors` show: it fails only if they show that it is missed. Without
/// `errors` the share that was seen is compared.
pub fn verdict(
    objectives: &[Objective],
    figures: &Figures,
    histograms: &BTreeMap<Name, Recorder>,
    errors: Option<&ErrorCounts>,
) -> Option<Verdict> {
    let judge = |objective: &Objective| {
        let observed = observed_value(&objective.figure, figures, histograms);
        let budget = errors.and_then(|errors| error_budget(objective, errors)).filter(|_| observed.is_some());
        // A figure that could not be computed doesn't pass.
        let passed = match &budget {
            Some(budget) => budget.shown != Shown::Missed,
            None => observed.is_some_and(|observed| is_within_bounds(objective, observed)),
        };
        Judged { objective: objective.clone(), seen: observed, passed, budget }
    };
    let judged: Vec<Judged> = objectives.iter().map(judge).collect();
    (!judged.is_empty()).then(|| Verdict { passed: judged.iter().all(|judged| judged.passed), objectives: judged })
}

/// What errors show about an objective; `None` if it is not a budget of errors. A budget of 0 is none: no number of
/// messages shows it, so it is compared with what was seen.
pub fn error_budget(objective: &Objective, errors: &ErrorCounts) -> Option<ErrorBudget> {
    let budget = objective.at_most.filter(|most| objective.figure == Figure::ErrorShare && (0.0..1.0).contains(most));
    errors.shows(budget.filter(|budget| *budget > 0.0)?)
}

/// Whether an objective on a figure other than a percentile is met; `None` for a figure that could not be computed.
pub fn met(objective: &Objective, figures: &Figures) -> Option<bool> {
    observed_value(&objective.figure, figures, &BTreeMap::new()).map(|observed| is_within_bounds(objective, observed))
}

fn is_within_bounds(objective: &Objective, observed: f64) -> bool {
    objective.at_most.is_none_or(|bound| observed <= bound) && objective.at_least.is_none_or(|bound| observed >= bound)
}

fn observed_value(figure: &Figure, figures: &Figures, histograms: &BTreeMap<Name, Recorder>) -> Option<f64> {
    match figure {
        Figure::PercentileMs { histogram, percentile } => {
            let recorder = histograms.get(&*format!("{histogram}_ns"))?;
            percentile_ns(recorder, *percentile).map(|ns| ns as f64 / 1e6)
        }
        Figure::ReconnectedMs { percent } => turnover::reconnected_ms(histograms, *percent),
        Figure::DeliveredPerSecond => figures.delivered_per_second,
        Figure::FailedShare => figures.failed_share,
        Figure::ErrorShare => figures.error_share,
        Figure::LateShare => figures.late_share,
        Figure::AnswersPerSessionSecond => figures.answers_per_session_second,
        Figure::ServiceCpuSecondsPerMillion => figures.service_cpu_seconds_per_million,
        Figure::ServiceBytesPerConnection => figures.service_bytes_per_connection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(at_most: Option<f64>, at_least: Option<f64>) -> Objective {
        Objective { figure: Figure::DeliveredPerSecond, at_most, at_least }
    }

    fn passed(objective: Objective, delivered_per_second: Option<f64>) -> bool {
        let figures = Figures { delivered_per_second, ..Figures::default() };
        verdict(&[objective], &figures, &BTreeMap::new(), None).unwrap().passed
    }

    #[test]
    fn a_bound_includes_itself() {
        assert!(passed(delivered(None, Some(10.0)), Some(10.0)) && !passed(delivered(None, Some(10.0)), Some(9.9)));
        assert!(passed(delivered(Some(10.0), None), Some(10.0)) && !passed(delivered(Some(10.0), None), Some(10.1)));
        assert!(!passed(delivered(Some(10.0), Some(5.0)), Some(4.0)));
    }

    #[test]
    fn a_figure_that_could_not_be_computed_fails() {
        assert!(!passed(delivered(None, Some(0.0)), None));
    }

    #[test]
    fn an_error_budget_fails_only_if_it_is_shown_to_be_missed() {
        let judged = |failures, messages, at_most| {
            let errors = ErrorCounts { failures, messages, ..ErrorCounts::default() };
            let figures = Figures { error_share: Some(failures as f64 / messages as f64), ..Figures::default() };
            let objective = Objective { figure: Figure::ErrorShare, at_most: Some(at_most), at_least: None };
            let verdict = verdict(&[objective], &figures, &BTreeMap::new(), Some(&errors)).unwrap();
            (verdict.passed, verdict.objectives[0].budget.as_ref().map(|budget| budget.shown))
        };
        assert_eq!(judged(0, 45_000, 1e-5), (true, Some(Shown::NotShown)));
        assert_eq!(judged(1, 45_000, 1e-5), (true, Some(Shown::NotShown)));
        assert_eq!(judged(0, 400_000, 1e-5), (true, Some(Shown::Met)));
        assert_eq!(judged(40, 400_000, 1e-5), (false, Some(Shown::Missed)));
        assert_eq!(judged(0, 10, 0.0), (true, None), "no number of messages shows a share of 0");
        assert_eq!(judged(1, 10, 0.0), (false, None));
    }

    #[test]
    fn without_objectives_there_is_no_verdict() {
        assert_eq!(verdict(&[], &Figures::default(), &BTreeMap::new(), None), None);
    }

    #[test]
    fn one_objective_that_fails_fails_the_trial() {
        let figures = Figures { delivered_per_second: Some(7.0), ..Figures::default() };
        let objectives = [delivered(None, Some(1.0)), delivered(None, Some(8.0))];
        let verdict = verdict(&objectives, &figures, &BTreeMap::new(), None).unwrap();
        assert_eq!(
            (verdict.passed, verdict.objectives[0].passed, verdict.objectives[1].seen),
            (false, true, Some(7.0))
        );
    }

    #[test]
    fn a_percentile_is_judged_in_milliseconds() {
        let mut recorder = Recorder::new();
        (0..500).for_each(|_| recorder.record(2_000_000));
        let histograms = [(Name::from_static("response_ns"), recorder)].into();
        let figure = Figure::PercentileMs { histogram: "response".into(), percentile: 99.0 };
        let at_most = |bound| Objective { figure: figure.clone(), at_most: Some(bound), at_least: None };
        let passes = |bound| verdict(&[at_most(bound)], &Figures::default(), &histograms, None).unwrap().passed;
        assert!(passes(2.01) && !passes(1.99));
    }
}
