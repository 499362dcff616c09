//! Runs one search of a run: decides the next trial from the finished ones, or returns the result. The bounds come
//! first, then their confirmation. Pure.

use bench_format::{
    Name,
    plan::{Objective, SearchOver, SearchStart, ServiceProcess, WireSearch},
    result::BoundBy,
    run::{Edge, GoalBounds, SearchFound, SearchStep, SearchTrial, TrialEntry, TrialState},
    trial::TrialId,
};

use super::{
    Diverged, Next, SearchResult, Settings, Start, Trial, confirm,
    losses::{TrialSummary, goals},
};
use crate::plan::Ladder;

/// A search of a service in a ladder.
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    /// Name of the service.
    pub service: &'a Name,
    /// The ladder, with the objectives that the search uses.
    pub ladder: &'a Ladder,
    /// The search's settings in the plan.
    pub search: &'a WireSearch,
    /// Whether a confirming trial gets a fresh process.
    pub service_process: ServiceProcess,
}

/// A finished trial of the search.
#[derive(Clone, Debug)]
pub struct FinishedTrial {
    /// The load of the trial.
    pub load: u32,
    /// The step of the search that the trial belongs to, with its window.
    pub purpose: SearchTrial,
    /// The outcome of the trial.
    pub summary: TrialSummary,
}

/// The next step of the search.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Measure this trial; the search needs its result.
    Measure(Box<TrialEntry>),
    /// The search is finished.
    SearchResult(Box<SearchFound>),
}

impl Course<'_> {
    /// Whether a trial belongs to this search.
    pub fn has(&self, entry: &TrialEntry) -> bool {
        let TrialId { service, workload, variant, .. } = &entry.trial;
        let ladder = (&self.ladder.workload, &self.ladder.variant);
        entry.search.is_some() && service == self.service && (workload, variant) == ladder
    }

    /// Decides the step after the finished trials, which are in the order in which they were measured.
    ///
    /// # Errors
    /// When the trials are not those that this search would have measured.
    pub fn next(&self, finished: &[FinishedTrial]) -> Result<Step, Diverged> {
        let of = |step| finished.iter().filter(move |trial| trial.purpose.step == step);
        let trials: Vec<Trial> = of(SearchStep::Bounds)
            .map(|trial| Trial {
                load: trial.load,
                seconds: trial.purpose.window_seconds,
                outcome: trial.summary.outcome.clone(),
            })
            .collect();
        let settings = self.settings();
        let found = match super::next(&settings, &trials)? {
            Next::Measure { load, seconds } => return Ok(self.measure(finished, load, SearchStep::Bounds, seconds)),
            Next::SearchResult(found) => found,
        };
        let start = confirm::Start {
            lower: lower(&found),
            upper: found.goals.iter().filter_map(|goal| goal.upper).min(),
            generator_limit: found.generator_limit,
        };
        let confirm = &self.search.confirm;
        let trials: Vec<confirm::Trial> = of(SearchStep::Confirm)
            .map(|trial| confirm::Trial { load: trial.load, confirmation: trial.summary.confirmation })
            .collect();
        // A search that was given up has no bounds to confirm.
        let bracket = match found.given_up_at {
            Some(_) => confirm::Bracket { generator_limit: found.generator_limit, ..Default::default() },
            None => match confirm::next(&settings.grid(), start, confirm.repeats, &trials) {
                confirm::Next::Measure(load) => {
                    return Ok(self.measure(finished, load, SearchStep::Confirm, confirm.window_seconds));
                }
                confirm::Next::Done(bracket) => bracket,
            },
        };
        let confirming: Vec<&FinishedTrial> = of(SearchStep::Confirm).collect();
        Ok(Step::SearchResult(Box::new(self.found(&found, bracket, &confirming))))
    }

    fn settings(&self) -> Settings {
        Settings {
            from: self.search.from,
            to: self.search.to,
            goals: goals(self.search, &self.ladder.objectives),
            start: match self.search.start {
                SearchStart::Low => Start::Low,
                SearchStart::High => Start::High,
            },
        }
    }

    /// The next trial. The trials of the bounds search share process 1. Confirming trials use other processes. Repeats
    /// are counted for each load.
    fn measure(&self, finished: &[FinishedTrial], load: u32, step: SearchStep, window_seconds: f64) -> Step {
        let before = finished.iter().filter(|trial| trial.load == load && trial.purpose.step == step).count() as u32;
        let (process, repeat) = match (step, self.service_process) {
            (SearchStep::Bounds, _) => (1, before + 1),
            (SearchStep::Confirm, ServiceProcess::Tier) => (2, before + 1),
            (SearchStep::Confirm, ServiceProcess::Repeat) => (2 + before, 1),
        };
        let trial = TrialId {
            service: self.service.clone(),
            workload: self.ladder.workload.clone(),
            variant: self.ladder.variant.clone(),
            tier: load,
            process,
            repeat,
        };
        let purpose = SearchTrial { step, window_seconds, service_ended: false };
        Step::Measure(Box::new(TrialEntry { trial, state: TrialState::Pending, search: Some(purpose) }))
    }

    fn found(&self, found: &SearchResult, bracket: confirm::Bracket, confirming: &[&FinishedTrial]) -> SearchFound {
        let bounds = |(objective, goal): (&Objective, &super::GoalResult)| GoalBounds {
            objective: objective.clone(),
            lower: goal.lower,
            upper: goal.upper,
            conditional_throughput: goal.conditional_throughput,
        };
        let fails_at = bracket.first_solid_fail.or(bracket.borderline.first().copied());
        let edge_load = fails_at.or(bracket.confirmed);
        let edge: Vec<&TrialSummary> =
            confirming.iter().filter(|trial| Some(trial.load) == edge_load).map(|trial| &trial.summary).collect();
        let failed: Vec<&TrialSummary> = edge
            .iter()
            .filter(|summary| summary.confirmation == confirm::ConfirmationOutcome::Failed)
            .copied()
            .collect();
        let errors = failed.iter().any(|summary| summary.errors);
        let least = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.min(b));
        let throughput = found.goals.iter().map(|goal| goal.conditional_throughput).reduce(least);
        let by_generator = bracket.generator_limit.is_some() && fails_at.is_none();
        SearchFound {
            goals: self.ladder.objectives.iter().zip(&found.goals).map(bounds).collect(),
            conditional_throughput: throughput.flatten(),
            at_least: bracket.confirmed.is_some() && bracket.first_solid_fail.is_none(),
            confirmed: bracket.confirmed,
            borderline: bracket.borderline,
            first_solid_fail: bracket.first_solid_fail,
            gates: gates(&failed),
            edge: (!failed.is_empty()).then_some(if errors { Edge::Errors } else { Edge::Latency }),
            bound_by: match by_generator {
                true => Some(BoundBy::Generator),
                false => edge.iter().find_map(|summary| summary.bound_by),
            },
            generator_limit: bracket.generator_limit,
            given_up_at: found.given_up_at.or(bracket.given_up_at),
        }
    }
}

/// The largest load that meets every goal.
fn lower(found: &SearchResult) -> Option<u32> {
    let lowest = found.goals.iter().map(|goal| goal.lower).reduce(|a, b| a.zip(b).map(|(a, b)| a.min(b)));
    lowest.flatten()
}

/// The objectives that failed trials missed, each once, sorted by the largest factor by which they were missed.
fn gates(failed: &[&TrialSummary]) -> Vec<Objective> {
    let mut missed: Vec<(Objective, f64)> = Vec::new();
    for (objective, factor) in failed.iter().flat_map(|summary| &summary.missed) {
        match missed.iter_mut().find(|(known, _)| known == objective) {
            Some((_, known)) => *known = known.max(*factor),
            None => missed.push((objective.clone(), *factor)),
        }
    }
    missed.sort_by(|a, b| b.1.total_cmp(&a.1));
    missed.into_iter().map(|(objective, _)| objective).collect()
}

/// The unit of a search's loads, for messages.
pub fn unit(over: SearchOver) -> &'static str {
    match over {
        SearchOver::Connections => "connections",
        SearchOver::RatePerSecond => "messages/s",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bench_format::plan::{Figure, Load};

    use super::*;
    use crate::{
        plan::{Plan, check::fixture},
        search::{Fault, Outcome, confirm::ConfirmationOutcome},
    };

    fn latency(percentile: f64) -> Objective {
        let figure = Figure::PercentileMs { histogram: "response".into(), percentile };
        Objective { figure, at_most: Some(100.0), at_least: None }
    }

    fn plan() -> Plan {
        let mut wire = fixture::minimal();
        let text = r#"{"from": 10, "to": 1000, "final_trial_seconds": 1, "duration_sum_seconds": 2, "width": 0.1,
                       "confirm": {"window_seconds": 9}}"#;
        wire.ladders[0].search = Some(serde_json::from_str(text).unwrap());
        wire.ladders[0].load = Load::Open { rate_per_second: 10.0, arrivals: Default::default() };
        wire.ladders[0].objectives = vec![latency(50.0), latency(95.0)];
        Plan::check(wire, Path::new("p.yaml"), &fixture::registry(), &fixture::machine_limits()).unwrap()
    }

    fn missing(objective: Objective, factor: f64, errors: bool) -> TrialSummary {
        let outcome = Outcome::Measured(vec![0.0, 1.0]);
        TrialSummary {
            outcome,
            confirmation: ConfirmationOutcome::Failed,
            missed: vec![(objective, factor)],
            errors,
            bound_by: Some(BoundBy::Service),
        }
    }

    fn passing() -> TrialSummary {
        let outcome = Outcome::Measured(vec![0.0, 0.0]);
        TrialSummary {
            outcome,
            confirmation: ConfirmationOutcome::Passed,
            missed: vec![],
            errors: false,
            bound_by: None,
        }
    }

    /// Runs the search against a service; returns the trials and the result.
    fn run(service_process: ServiceProcess, service: impl Fn(u32) -> TrialSummary) -> (Vec<TrialEntry>, SearchFound) {
        let plan = plan();
        let ladder = &plan.ladders[0];
        let search = ladder.search.as_ref().unwrap();
        let course = Course { service: &Name::from_static("ours"), ladder, search, service_process };
        let (mut finished, mut entries) = (Vec::new(), Vec::new());
        loop {
            match course.next(&finished).unwrap() {
                Step::SearchResult(found) => return (entries, *found),
                Step::Measure(entry) => {
                    assert!(course.has(&entry));
                    let load = entry.trial.tier;
                    finished.push(FinishedTrial { load, purpose: entry.search.unwrap(), summary: service(load) });
                    entries.push(*entry);
                }
            }
        }
    }

    #[test]
    fn the_bounds_are_found_and_then_confirmed_on_fresh_processes() {
        let capacity = |load| if load > 200 { missing(latency(95.0), 2.0, false) } else { passing() };
        let (entries, found) = run(ServiceProcess::Tier, capacity);
        let (confirmed, fail) = (found.confirmed.unwrap(), found.first_solid_fail.unwrap());
        assert!(confirmed <= 200 && fail > 200 && f64::from(fail - confirmed) / f64::from(fail) <= 0.1, "{found:?}");
        assert_eq!((found.gates, found.edge, found.at_least), (vec![latency(95.0)], Some(Edge::Latency), false));
        assert_eq!((found.bound_by, found.goals[0].upper), (Some(BoundBy::Service), None));
        let last: Vec<String> = entries.iter().rev().take(4).rev().map(|entry| entry.trial.to_string()).collect();
        let expected = [(confirmed, 1), (confirmed, 2), (fail, 1), (fail, 2)];
        assert_eq!(last, expected.map(|(load, repeat)| format!("ours/throughput/standard/{load}-p2-r{repeat}")));
        let step = entries[0].search.unwrap();
        assert_eq!(
            (entries[0].trial.to_string().as_str(), step.step),
            ("ours/throughput/standard/10-p1-r1", SearchStep::Bounds)
        );
    }

    #[test]
    fn no_two_trials_share_a_folder() {
        for service_process in [ServiceProcess::Tier, ServiceProcess::Repeat] {
            let (entries, _) =
                run(service_process, |load| if load > 77 { missing(latency(50.0), 2.0, true) } else { passing() });
            let mut folders: Vec<String> = entries.iter().map(|entry| entry.trial.to_string()).collect();
            folders.sort();
            folders.dedup();
            assert_eq!(folders.len(), entries.len());
        }
    }

    #[test]
    fn the_most_exceeded_gate_is_first_and_errors_make_a_cliff() {
        let both = |load| match load {
            load if load > 200 => TrialSummary {
                missed: vec![(latency(50.0), 1.1), (latency(95.0), 40.0)],
                ..missing(latency(50.0), 1.0, true)
            },
            _ => passing(),
        };
        let (_, found) = run(ServiceProcess::Repeat, both);
        assert_eq!((found.gates, found.edge), (vec![latency(95.0), latency(50.0)], Some(Edge::Errors)));
    }

    #[test]
    fn a_load_that_the_generator_could_not_offer_gives_a_lower_bound() {
        let invalid = TrialSummary {
            outcome: Outcome::Invalid(Fault::Generator),
            confirmation: ConfirmationOutcome::Invalid(Fault::Generator),
            ..passing()
        };
        let (_, found) = run(ServiceProcess::Tier, |load| if load > 300 { invalid.clone() } else { passing() });
        assert!(found.at_least && found.confirmed.unwrap() <= 300 && found.generator_limit.unwrap() > 300, "{found:?}");
        assert_eq!((found.bound_by, found.edge, found.gates), (Some(BoundBy::Generator), None, vec![]));
    }

    #[test]
    fn a_service_that_exits_under_a_load_fails_it() {
        let plan = plan();
        let dying = TrialSummary::service_ended(&plan.ladders[0].objectives);
        let (_, found) = run(ServiceProcess::Tier, |load| if load > 200 { dying.clone() } else { passing() });
        assert_eq!((found.edge, found.gates.len()), (Some(Edge::Errors), 2));
    }

    #[test]
    fn an_abandoned_search_confirms_nothing() {
        let (entries, found) = run(ServiceProcess::Tier, |_| TrialSummary::not_measured());
        assert_eq!((found.given_up_at, found.confirmed, entries.len()), (Some(10), None, 3));
    }
}
