//! Objectives against figures, and what limited a closed loop. Pure.

use bench_format::{
    histogram::{Recorder, percentile_ns},
    plan::{Figure, Load, Objective},
    result::{BoundBy, Figures, Judged, Verdict},
};
use std::collections::BTreeMap;

/// Judges each objective; without objectives there is no verdict.
pub fn verdict(
    objectives: &[Objective],
    figures: &Figures,
    histograms: &BTreeMap<String, Recorder>,
) -> Option<Verdict> {
    let judge = |objective: &Objective| {
        let seen = seen(&objective.figure, figures, histograms);
        // A figure that could not be computed is no pass.
        let passed = seen.is_some_and(|seen| holds(objective, seen));
        Judged { objective: objective.clone(), seen, passed }
    };
    let judged: Vec<Judged> = objectives.iter().map(judge).collect();
    (!judged.is_empty()).then(|| Verdict { passed: judged.iter().all(|judged| judged.passed), objectives: judged })
}

/// Whether an objective on a figure other than a percentile holds; one that could not be computed doesn't.
pub fn met(objective: &Objective, figures: &Figures) -> bool {
    seen(&objective.figure, figures, &BTreeMap::new()).is_some_and(|seen| holds(objective, seen))
}

fn holds(objective: &Objective, seen: f64) -> bool {
    objective.at_most.is_none_or(|bound| seen <= bound) && objective.at_least.is_none_or(|bound| seen >= bound)
}

fn seen(figure: &Figure, figures: &Figures, histograms: &BTreeMap<String, Recorder>) -> Option<f64> {
    match figure {
        Figure::PercentileMs { histogram, percentile } => {
            let recorder = histograms.get(&format!("{histogram}_ns"))?;
            percentile_ns(recorder, *percentile).map(|ns| ns as f64 / 1e6)
        }
        Figure::DeliveredPerSecond => figures.delivered_per_second,
        Figure::FailedShare => figures.failed_share,
        Figure::ErrorShare => figures.error_share,
        Figure::ServiceCpuSecondsPerMillion => figures.service_cpu_seconds_per_million,
        Figure::ServiceBytesPerConnection => figures.service_bytes_per_connection,
    }
}

/// What limited a closed loop, or sessions; an open loop is limited by its schedule, and so are sessions that a service
/// carries: only a failure asks for an explanation where nobody's CPU was used up.
pub fn bound_by(load: &Load, figures: &Figures, verdict: Option<&Verdict>, bound_share: f64) -> Option<BoundBy> {
    let used_up = |share: Option<f64>| share.map(|share| share >= bound_share);
    if matches!(load, Load::Open { .. }) {
        return None;
    }
    if used_up(figures.inference_cpu_share) == Some(true) {
        return Some(BoundBy::Inference);
    }
    let bound = match (used_up(figures.service_cpu_share)?, used_up(figures.worker_cpu_share)?) {
        (true, true) => BoundBy::Both,
        (true, false) => BoundBy::Service,
        (false, true) => BoundBy::Generator,
        (false, false) => BoundBy::Neither,
    };
    let failed = verdict.is_some_and(|verdict| !verdict.passed);
    let carried = matches!(load, Load::Sessions { .. }) && bound == BoundBy::Neither && !failed;
    (!carried).then_some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(at_most: Option<f64>, at_least: Option<f64>) -> Objective {
        Objective { figure: Figure::DeliveredPerSecond, at_most, at_least }
    }

    fn passed(objective: Objective, delivered_per_second: Option<f64>) -> bool {
        let figures = Figures { delivered_per_second, ..Figures::default() };
        verdict(&[objective], &figures, &BTreeMap::new()).unwrap().passed
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
    fn without_objectives_there_is_no_verdict() {
        assert_eq!(verdict(&[], &Figures::default(), &BTreeMap::new()), None);
    }

    #[test]
    fn one_objective_that_fails_fails_the_trial() {
        let figures = Figures { delivered_per_second: Some(7.0), ..Figures::default() };
        let objectives = [delivered(None, Some(1.0)), delivered(None, Some(8.0))];
        let verdict = verdict(&objectives, &figures, &BTreeMap::new()).unwrap();
        assert_eq!(
            (verdict.passed, verdict.objectives[0].passed, verdict.objectives[1].seen),
            (false, true, Some(7.0))
        );
    }

    #[test]
    fn a_percentile_is_judged_in_milliseconds() {
        let mut recorder = Recorder::new();
        (0..500).for_each(|_| recorder.record(2_000_000));
        let histograms = [("response_ns".to_owned(), recorder)].into();
        let figure = Figure::PercentileMs { histogram: "response".into(), percentile: 99.0 };
        let at_most = |bound| Objective { figure: figure.clone(), at_most: Some(bound), at_least: None };
        let passes = |bound| verdict(&[at_most(bound)], &Figures::default(), &histograms).unwrap().passed;
        assert!(passes(2.01) && !passes(1.99));
    }

    #[test]
    fn a_closed_loop_is_bound_by_whoever_used_up_its_cpu() {
        let closed = Load::Closed { messages_per_connection: None, in_flight: 1 };
        let bound = |service, worker| {
            let figures = Figures { service_cpu_share: service, worker_cpu_share: worker, ..Figures::default() };
            bound_by(&closed, &figures, None, 0.9)
        };
        assert_eq!(bound(Some(0.9), Some(0.89)), Some(BoundBy::Service));
        assert_eq!(bound(Some(0.1), Some(0.95)), Some(BoundBy::Generator));
        assert_eq!(bound(Some(1.0), Some(1.0)), Some(BoundBy::Both));
        assert_eq!(bound(Some(0.5), Some(0.5)), Some(BoundBy::Neither));
        assert_eq!(bound(None, Some(0.5)), None);
    }

    #[test]
    fn an_open_loop_is_bound_by_its_schedule() {
        let open = Load::Open { rate_per_second: 1.0, arrivals: Default::default() };
        let figures = Figures { service_cpu_share: Some(1.0), worker_cpu_share: Some(1.0), ..Figures::default() };
        assert_eq!(bound_by(&open, &figures, None, 0.9), None);
    }

    #[test]
    fn sessions_that_fail_say_what_bound_them_and_those_that_pass_only_a_cpu_that_is_used_up() {
        let sessions = Load::Sessions { ramp_seconds: 0.0, spread_ms: 0.0, in_flight: 1 };
        let bound = |service, inference, passed| {
            let figures = Figures {
                service_cpu_share: Some(service),
                worker_cpu_share: Some(0.1),
                inference_cpu_share: Some(inference),
                ..Figures::default()
            };
            let verdict = Verdict { passed, objectives: vec![] };
            bound_by(&sessions, &figures, Some(&verdict), 0.9)
        };
        assert_eq!(bound(0.5, 0.1, true), None);
        assert_eq!(bound(0.5, 0.1, false), Some(BoundBy::Neither));
        assert_eq!(bound(0.95, 0.1, true), Some(BoundBy::Service));
        assert_eq!(bound(0.95, 0.95, false), Some(BoundBy::Inference));
    }
}
