//! Runs one search of a run: decides the next trial from the finished ones, or returns the result. Short trials come
//! first, then rounds of trials on fresh processes and their tests. Pure.

use bench_format::{
    Name,
    plan::{Objective, SearchStart, WireSearch},
    result::BoundBy,
    run::{Capacity, Crash, GoalBounds, LoadTest, SearchFound, SearchStep, SearchTrial, TrialEntry, TrialState},
    trial::TrialId,
};

use super::{
    Diverged, GoalResult, Next, SearchResult, Settings, Start, Trial,
    gates::{Missed, edge_of_all, gates},
    losses::{TrialSummary, goals},
    rounds::{Bounds, Limits, Rounds, TrialOutcome},
    so_far::SoFar,
    turns::Progress,
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
    /// Measure this trial when it is the search's turn.
    Measure(Progress, Box<TrialEntry>),
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

    /// Decides the step after the finished trials, which are in the order in which they were measured. `in_turn` is the
    /// number of searches that have taken turns.
    ///
    /// # Errors
    /// When the trials are not those that this search would have measured.
    pub fn next(&self, finished: &[FinishedTrial], in_turn: u32) -> Result<Step, Diverged> {
        let (short, full): (Vec<&FinishedTrial>, Vec<&FinishedTrial>) =
            finished.iter().partition(|trial| trial.purpose.step == SearchStep::Bounds);
        let trials: Vec<Trial> = short
            .iter()
            .map(|trial| Trial {
                load: trial.load,
                seconds: trial.purpose.window_seconds,
                outcome: trial.summary.outcome.clone(),
            })
            .collect();
        let found = match super::next(&self.settings(), &trials)? {
            Next::Measure { load, seconds } => {
                let entry = self.entry(finished, load, SearchStep::Bounds, seconds);
                return Ok(Step::Measure(Progress::Bounds, Box::new(entry)));
            }
            Next::SearchResult(found) => found,
        };
        if found.given_up_at.is_some() {
            return Ok(Step::SearchResult(Box::new(self.without_rounds(&found, finished))));
        }
        let rounds = self.rounds(&found, &full)?;
        Ok(match rounds.next() {
            Some((step, load)) => {
                let entry = self.entry(finished, load, step, self.search.rounds.window_seconds);
                Step::Measure(Progress::Turns(rounds.turns()), Box::new(entry))
            }
            None => {
                let without_rounds = self.without_rounds(&found, finished);
                Step::SearchResult(Box::new(self.found(without_rounds, &found, &rounds, &full, in_turn)))
            }
        })
    }

    /// What the finished trials show before the search has its result; `step` is that of the next trial.
    pub fn so_far(&self, finished: &[FinishedTrial], step: SearchStep) -> SoFar {
        let ended = finished.iter().map(|trial| (trial.load, trial.purpose.step, &trial.summary));
        SoFar::of(ended, self.search, &self.ladder.objectives, step)
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
            sparing: true,
        }
    }

    /// Replays the rounds over the trials on fresh processes.
    fn rounds(&self, found: &SearchResult, full: &[&FinishedTrial]) -> Result<Rounds<'_>, Diverged> {
        let grid = self.settings().grid();
        let below = |limit: u32| grid.place(limit.into()).checked_sub(1).map_or(0, |place| grid.load(place));
        let limits = Limits { from: self.search.from, to: found.generator_limit.map_or(self.search.to, below) };
        let upper = found.goals.iter().filter_map(|goal| goal.upper).min();
        let mut rounds = Rounds::new(&self.search.rounds, limits, Bounds { lower: lower(found), upper });
        for (index, trial) in full.iter().enumerate() {
            let window_seconds = self.search.rounds.window_seconds;
            let planned = rounds.next().map(|(step, load)| (step, load, window_seconds));
            if planned != Some((trial.purpose.step, trial.load, trial.purpose.window_seconds)) {
                let recorded = (trial.load, trial.purpose.window_seconds);
                return Err(Diverged::at(index + 1, recorded, planned.map(|(_, load, seconds)| (load, seconds))));
            }
            rounds.record(trial.summary.full);
        }
        Ok(rounds)
    }

    /// The next trial. Short trials share process 1 and their repeats are counted for each load. Every other trial has a
    /// process of its own.
    fn entry(&self, finished: &[FinishedTrial], load: u32, step: SearchStep, window_seconds: f64) -> TrialEntry {
        let is_short = |step: SearchStep| step == SearchStep::Bounds;
        let same = |trial: &&FinishedTrial| trial.load == load && is_short(trial.purpose.step) == is_short(step);
        let before = finished.iter().filter(same).count() as u32;
        let (process, repeat) = if is_short(step) { (1, before + 1) } else { (before + 2, 1) };
        let trial = TrialId {
            service: self.service.clone(),
            workload: self.ladder.workload.clone(),
            variant: self.ladder.variant.clone(),
            tier: load,
            process,
            repeat,
        };
        let purpose = SearchTrial { step, window_seconds, service_ended: false };
        TrialEntry { trial, state: TrialState::Pending, search: Some(purpose), pilot: None }
    }

    /// Completes the result of the short trials with that of the rounds.
    fn found(
        &self,
        without_rounds: SearchFound,
        found: &SearchResult,
        rounds: &Rounds<'_>,
        full: &[&FinishedTrial],
        in_turn: u32,
    ) -> SearchFound {
        let result = &rounds.result;
        let failed: Vec<&TrialSummary> =
            full.iter().map(|trial| &trial.summary).filter(|summary| summary.full == TrialOutcome::Failed).collect();
        let missed: Vec<&[Missed]> = failed.iter().map(|summary| summary.missed.as_slice()).collect();
        let succeeded = |test: Option<LoadTest>| test.filter(|test| test.succeeded);
        let generator_limit = [found.generator_limit, result.generator_limit].into_iter().flatten().min();
        let by_generator = generator_limit.is_some() && rounds.at_least();
        SearchFound {
            capacity: Some(Capacity {
                start: result.start,
                estimate: rounds.estimate(),
                confirm: result.confirm,
                fail: result.fail,
                in_turn,
            }),
            confirmed: succeeded(result.confirm).map(|test| test.load),
            first_solid_fail: succeeded(result.fail).map(|test| test.load),
            at_least: rounds.at_least(),
            gates: gates(&self.ladder.objectives, &missed),
            edge: edge_of_all(&missed),
            bound_by: match by_generator {
                true => Some(BoundBy::Generator),
                false => failed.iter().find_map(|summary| summary.bound_by),
            },
            generator_limit,
            given_up_at: result.given_up_at,
            ..without_rounds
        }
    }

    /// The result of a search whose short trials gave no bounds.
    fn without_rounds(&self, found: &SearchResult, finished: &[FinishedTrial]) -> SearchFound {
        let bounds = |(objective, goal): (&Objective, &GoalResult)| GoalBounds {
            objective: objective.clone(),
            lower: goal.lower,
            upper: goal.upper,
            conditional_throughput: goal.conditional_throughput,
        };
        let least = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.min(b));
        let throughput = found.goals.iter().map(|goal| goal.conditional_throughput).reduce(least);
        SearchFound {
            goals: self.ladder.objectives.iter().zip(&found.goals).map(bounds).collect(),
            conditional_throughput: throughput.flatten(),
            crash: crash(finished),
            capacity: None,
            confirmed: None,
            borderline: vec![],
            first_solid_fail: None,
            at_least: false,
            gates: vec![],
            edge: None,
            bound_by: None,
            generator_limit: found.generator_limit,
            given_up_at: found.given_up_at,
        }
    }
}

/// The smallest load under which the service ended; of several trials at that load, the first.
fn crash(finished: &[FinishedTrial]) -> Option<Crash> {
    let crashes = finished.iter().filter_map(|trial| Some(Crash { load: trial.load, cause: trial.summary.crash? }));
    crashes.min_by_key(|crash| crash.load)
}

/// The largest load that meets every goal.
fn lower(found: &SearchResult) -> Option<u32> {
    let lowest = found.goals.iter().map(|goal| goal.lower).reduce(|a, b| a.zip(b).map(|(a, b)| a.min(b)));
    lowest.flatten()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bench_format::plan::{Figure, Load};

    use super::*;
    use crate::{
        plan::{Plan, check::fixture},
        search::{Fault, Outcome},
    };
    use bench_format::run::{CrashCause, Edge};

    fn latency(percentile: f64) -> Objective {
        let figure = Figure::PercentileMs { histogram: "response".into(), percentile };
        Objective { figure, at_most: Some(100.0), at_least: None }
    }

    fn plan() -> Plan {
        let mut wire = fixture::minimal();
        let text = r#"{"from": 10, "to": 1000, "final_trial_seconds": 1, "duration_sum_seconds": 2, "width": 0.1,
                       "rounds": {"window_seconds": 20}}"#;
        wire.ladders[0].search = Some(serde_json::from_str(text).unwrap());
        wire.ladders[0].load = Load::Open { rate_per_second: 10.0, arrivals: Default::default() };
        wire.ladders[0].objectives = vec![latency(50.0), latency(95.0)];
        Plan::check(wire, Path::new("p.yaml"), &fixture::registry(), &fixture::machine_limits()).unwrap()
    }

    fn missing(objective: Objective) -> TrialSummary {
        TrialSummary {
            outcome: Outcome::Measured(vec![0.0, 1.0]),
            full: TrialOutcome::Failed,
            missed: vec![Missed { objective, first_ns: Some(0), observed: true }],
            bound_by: Some(BoundBy::Service),
            crash: None,
        }
    }

    fn passing() -> TrialSummary {
        let outcome = Outcome::Measured(vec![0.0, 0.0]);
        TrialSummary { outcome, full: TrialOutcome::Passed, missed: vec![], bound_by: None, crash: None }
    }

    fn capacity_of(load: u32, capacity: u32) -> TrialSummary {
        if load > capacity { missing(latency(95.0)) } else { passing() }
    }

    /// Runs the search against a service; returns the trials and the result.
    fn run(service: impl Fn(u32) -> TrialSummary) -> (Vec<TrialEntry>, SearchFound) {
        let plan = plan();
        let ladder = &plan.ladders[0];
        let search = ladder.search.as_ref().unwrap();
        let course = Course { service: &Name::from_static("ours"), ladder, search };
        let (mut finished, mut entries) = (Vec::new(), Vec::new());
        loop {
            match course.next(&finished, 6).unwrap() {
                Step::SearchResult(found) => return (entries, *found),
                Step::Measure(_, entry) => {
                    assert!(course.has(&entry));
                    let load = entry.trial.tier;
                    finished.push(FinishedTrial { load, purpose: entry.search.unwrap(), summary: service(load) });
                    entries.push(*entry);
                }
            }
        }
    }

    fn count(entries: &[TrialEntry], step: SearchStep) -> usize {
        entries.iter().filter(|entry| entry.search.unwrap().step == step).count()
    }

    #[test]
    fn short_trials_give_the_start_and_fresh_processes_the_capacity() {
        let (entries, found) = run(|load| capacity_of(load, 200));
        let capacity = found.capacity.clone().unwrap();
        let estimate = capacity.estimate.unwrap();
        assert!(estimate.low < 201.0 && estimate.high > 200.0 && estimate.high / estimate.low < 1.05, "{found:?}");
        let (confirmed, fail) = (found.confirmed.unwrap(), found.first_solid_fail.unwrap());
        assert!((190..=200).contains(&confirmed) && (201..=210).contains(&fail), "{found:?}");
        assert_eq!((found.gates, found.edge, found.at_least), (vec![latency(95.0)], Some(Edge::Latency), false));
        assert_eq!((found.bound_by, capacity.in_turn), (Some(BoundBy::Service), 6));
        assert_eq!(count(&entries, SearchStep::Round), 12);
        assert_eq!((count(&entries, SearchStep::Confirm), count(&entries, SearchStep::Fail)), (5, 5));
        assert_eq!(entries[0].trial.to_string(), "ours/throughput/standard/10-p1-r1");
    }

    #[test]
    fn the_smallest_load_under_which_the_service_ended_is_part_of_the_result() {
        let plan = plan();
        let objectives = plan.ladders[0].objectives.clone();
        let ended = TrialSummary { crash: Some(CrashCause::ServiceOom), ..TrialSummary::service_ended(&objectives) };
        let (entries, found) = run(|load| if load > 200 { ended.clone() } else { passing() });
        let smallest = entries.iter().map(|entry| entry.trial.tier).filter(|load| *load > 200).min().unwrap();
        assert_eq!(found.crash, Some(Crash { load: smallest, cause: CrashCause::ServiceOom }));
        assert_eq!((found.edge, found.given_up_at), (Some(Edge::Errors), None));
        assert!(found.confirmed.is_some_and(|load| (190..=200).contains(&load)), "{found:?}");
        assert_eq!(run(|load| capacity_of(load, 200)).1.crash, None);
    }

    #[test]
    fn every_trial_after_the_short_ones_has_a_process_and_a_folder_of_its_own() {
        let (entries, _) = run(|load| capacity_of(load, 77));
        let mut folders: Vec<String> = entries.iter().map(|entry| entry.trial.to_string()).collect();
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), entries.len());
        let full = entries.iter().filter(|entry| entry.search.unwrap().step != SearchStep::Bounds);
        assert!(full.into_iter().all(|entry| entry.trial.process > 1 && entry.trial.repeat == 1));
    }

    #[test]
    fn loads_that_the_generator_cannot_offer_are_not_searched() {
        let invalid = TrialSummary {
            outcome: Outcome::Invalid(Fault::Generator),
            full: TrialOutcome::Invalid(Fault::Generator),
            ..passing()
        };
        let (entries, found) = run(|load| if load > 300 { invalid.clone() } else { passing() });
        assert!(found.at_least && found.confirmed.unwrap() <= 300 && found.generator_limit.unwrap() > 300, "{found:?}");
        assert_eq!((found.bound_by, found.edge, found.gates), (Some(BoundBy::Generator), None, vec![]));
        assert_eq!(count(&entries, SearchStep::Round), 0, "no edge is in reach");
    }

    #[test]
    fn a_service_that_exits_under_a_load_fails_it() {
        let plan = plan();
        let dying = TrialSummary::service_ended(&plan.ladders[0].objectives);
        let (_, found) = run(|load| if load > 200 { dying.clone() } else { passing() });
        assert_eq!((found.edge, found.gates.len()), (Some(Edge::Errors), 2));
    }

    #[test]
    fn an_abandoned_search_confirms_nothing() {
        let (entries, found) = run(|_| TrialSummary::not_measured());
        assert_eq!((found.given_up_at, found.confirmed, entries.len()), (Some(10), None, 3));
        assert_eq!(found.capacity, None);
    }

    #[test]
    fn trials_of_another_search_are_refused() {
        let plan = plan();
        let ladder = &plan.ladders[0];
        let search = ladder.search.as_ref().unwrap();
        let course = Course { service: &Name::from_static("ours"), ladder, search };
        let mut finished = Vec::new();
        let step = loop {
            match course.next(&finished, 1).unwrap() {
                Step::Measure(Progress::Turns(_), entry) => break *entry,
                Step::Measure(_, entry) => {
                    let load = entry.trial.tier;
                    finished.push(FinishedTrial {
                        load,
                        purpose: entry.search.unwrap(),
                        summary: capacity_of(load, 200),
                    });
                }
                Step::SearchResult(found) => panic!("{found:?}"),
            }
        };
        let (load, purpose) = (step.trial.tier + 1, step.search.unwrap());
        finished.push(FinishedTrial { load, purpose, summary: passing() });
        let error = course.next(&finished, 1).unwrap_err().to_string();
        assert!(error.contains(&format!("{load} for 20 s, but the search would measure {}", load - 1)), "{error}");
    }
}
