//! Which objective failed first in a trial, and whether errors or latencies came first. Pure.
//!
//! The moment of an objective is the start of the first interval of the window that misses it by itself. How far an
//! objective was missed says nothing about what came first: one error in a budget of 1e-5 is missed by more than any
//! latency, also where it came a minute after the messages were late.

use std::{cmp::Ordering, collections::BTreeMap};

use bench_format::{
    histogram::Recorder,
    plan::{Figure, Objective},
    result::{Interval, WorkerResult},
    run::Edge,
};
use judge::merge::aligned_start_ns;

/// An objective that a trial missed.
#[derive(Clone, Debug, PartialEq)]
pub struct Missed {
    /// One of the ladder's objectives.
    pub objective: Objective,
    /// Start of the first interval that misses it, in nanoseconds since the start of the window; absent where the
    /// intervals don't show it.
    pub first_ns: Option<u64>,
    /// Whether a figure was observed at all: a percentile without values is not.
    pub observed: bool,
}

impl Missed {
    /// An objective that was missed at an unknown moment.
    pub fn at_unknown_time(objective: &Objective, observed: bool) -> Self {
        Self { objective: objective.clone(), first_ns: None, observed }
    }

    fn is_error(&self) -> bool {
        matches!(self.objective.figure, Figure::FailedShare | Figure::ErrorShare) || !self.observed
    }
}

/// Sets the moments of missed objectives from the workers' intervals.
pub fn set_moments(missed: &mut [Missed], workers: &[WorkerResult]) {
    let mut by_start: BTreeMap<u64, Vec<&Interval>> = BTreeMap::new();
    for interval in workers.iter().flat_map(|worker| &worker.intervals) {
        by_start.entry(aligned_start_ns(interval)).or_default().push(interval);
    }
    for one in missed {
        let first = by_start.iter().find(|(_, intervals)| interval_misses(&one.objective, intervals));
        one.first_ns = first.map(|(start_ns, _)| *start_ns);
    }
}

/// Whether one interval, of all workers, misses an objective by itself.
fn interval_misses(objective: &Objective, intervals: &[&Interval]) -> bool {
    let merged = |name: &str| {
        let mut merged = Recorder::new();
        let parts = intervals.iter().filter_map(|interval| interval.histograms.get(name));
        parts.filter_map(|part| Recorder::decode(part).ok()).for_each(|part| merged.add(&part));
        merged
    };
    match (&objective.figure, objective.at_most) {
        (Figure::PercentileMs { histogram, percentile }, Some(most_ms)) => {
            late_share(&merged(&format!("{histogram}_ns")), most_ms).is_some_and(|late| late > 1.0 - percentile / 100.0)
        }
        (Figure::FailedShare | Figure::ErrorShare, Some(share)) => {
            let failed: u64 = intervals.iter().map(|interval| interval.failed).sum();
            let names = intervals.iter().flat_map(|interval| interval.histograms.keys());
            let replies = names.map(|name| merged(name).count()).max().unwrap_or(0);
            failed as f64 > share * (replies + failed) as f64
        }
        _ => false,
    }
}

/// The share of samples above `most_ms`; `None` where there are no samples.
pub(super) fn late_share(recorder: &Recorder, most_ms: f64) -> Option<f64> {
    let (all, in_time) = (recorder.total(), recorder.count_up_to((most_ms * 1e6) as u64));
    (all > 0).then(|| 1.0 - in_time as f64 / all as f64)
}

/// Whether errors or latencies came first in a failed trial; `None` where both were missed and the order is not known.
pub fn edge(missed: &[Missed]) -> Option<Edge> {
    let errors: Vec<&Missed> = missed.iter().filter(|one| one.is_error()).collect();
    let others: Vec<&Missed> = missed.iter().filter(|one| !one.is_error()).collect();
    let first = |all: &[&Missed]| all.iter().filter_map(|one| one.first_ns).min();
    match (errors.is_empty(), others.is_empty()) {
        (true, true) => None,
        (false, true) => Some(Edge::Errors),
        (true, false) => Some(Edge::Latency),
        (false, false) => {
            let (error_ns, other_ns) = first(&errors).zip(first(&others))?;
            Some(if error_ns < other_ns { Edge::Errors } else { Edge::Latency })
        }
    }
}

/// The kind of failure of most of the failed trials; `None` where neither has the most.
pub fn edge_of_all(trials: &[&[Missed]]) -> Option<Edge> {
    let count = |edge_kind| trials.iter().filter(|missed| edge(missed) == Some(edge_kind)).count();
    match count(Edge::Errors).cmp(&count(Edge::Latency)) {
        Ordering::Greater => Some(Edge::Errors),
        Ordering::Less => Some(Edge::Latency),
        Ordering::Equal => None,
    }
}

/// The objectives that failed trials missed, each once: first those that were first in most trials, then by moment.
pub fn gates(objectives: &[Objective], trials: &[&[Missed]]) -> Vec<Objective> {
    let rank = |objective: &Objective| {
        let first = trials.iter().filter(|missed| first(missed).is_some_and(|one| one.objective == *objective)).count();
        let of = trials.iter().flat_map(|missed| missed.iter()).filter(|one| one.objective == *objective);
        (std::cmp::Reverse(first), of.filter_map(|one| one.first_ns).min().unwrap_or(u64::MAX))
    };
    let is_missed =
        |objective: &&Objective| trials.iter().any(|missed| missed.iter().any(|m| m.objective == **objective));
    let mut gates: Vec<Objective> = objectives.iter().filter(is_missed).cloned().collect();
    gates.sort_by_key(rank);
    gates
}

/// The objective that was missed first; of several at one moment, the first of the plan.
fn first(missed: &[Missed]) -> Option<&Missed> {
    missed.iter().min_by_key(|one| one.first_ns.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use bench_format::Name;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn latency(percentile: f64) -> Objective {
        let figure = Figure::PercentileMs { histogram: "newest".into(), percentile };
        Objective { figure, at_most: Some(100.0), at_least: None }
    }

    fn errors() -> Objective {
        Objective { figure: Figure::ErrorShare, at_most: Some(1e-5), at_least: None }
    }

    fn missed(objective: Objective, second: Option<u64>) -> Missed {
        Missed { objective, first_ns: second.map(|second| second * SECOND), observed: true }
    }

    /// A worker with intervals of one second, each with the share of late replies out of 100 and the failures.
    fn worker(seconds: &[(u64, u64)]) -> WorkerResult {
        let interval = |(second, (late, failed)): (usize, &(u64, u64))| {
            let mut newest = Recorder::new();
            newest.record_n(50_000_000, 100 - late);
            newest.record_n(300_000_000, *late);
            let histograms = [(Name::from_static("newest_ns"), newest.encode())].into();
            Interval { start_ns: second as u64 * SECOND, duration_ns: SECOND, failed: *failed, sent: 0, histograms }
        };
        let intervals = seconds.iter().enumerate().map(interval).collect();
        WorkerResult { intervals, ..judge::fixture::open().uploads[0].clone() }
    }

    fn moments(workers: &[WorkerResult]) -> Vec<Option<u64>> {
        let mut all = [latency(50.0), latency(95.0), errors()].map(|objective| missed(objective, None));
        set_moments(&mut all, workers);
        all.iter().map(|one| one.first_ns.map(|ns| ns / SECOND)).collect()
    }

    #[test]
    fn the_moment_of_an_objective_is_the_first_second_that_misses_it() {
        assert_eq!(moments(&[worker(&[(0, 0), (4, 0), (6, 0), (60, 1)])]), [Some(3), Some(2), Some(3)]);
        assert_eq!(moments(&[worker(&[(0, 0)]), worker(&[(12, 1)])]), [None, Some(0), Some(0)], "workers are merged");
        assert_eq!(moments(&[]), [None; 3]);
    }

    #[test]
    fn errors_are_a_cliff_only_when_they_come_first() {
        let both = |error, late| edge(&[missed(latency(95.0), late), missed(errors(), error)]);
        assert_eq!(both(Some(1), Some(2)), Some(Edge::Errors));
        assert_eq!(both(Some(2), Some(1)), Some(Edge::Latency), "however many errors follow");
        assert_eq!(both(Some(1), Some(1)), Some(Edge::Latency));
        assert_eq!(both(None, Some(1)), None, "the order is not known");
        assert_eq!(edge(&[missed(errors(), None)]), Some(Edge::Errors));
        assert_eq!(edge(&[Missed::at_unknown_time(&latency(50.0), false)]), Some(Edge::Errors), "no reply came");
    }

    #[test]
    fn the_gate_is_what_most_trials_missed_first() {
        let [p50, p95, error] = [latency(50.0), latency(95.0), errors()];
        let trials = [
            vec![missed(p50.clone(), Some(8)), missed(p95.clone(), Some(2)), missed(error.clone(), Some(9))],
            vec![missed(p95.clone(), Some(3))],
            vec![missed(error.clone(), Some(1))],
        ];
        let trials: Vec<&[Missed]> = trials.iter().map(Vec::as_slice).collect();
        let objectives = [p50.clone(), p95.clone(), error.clone()];
        assert_eq!(gates(&objectives, &trials), [p95, error, p50]);
        assert_eq!(edge_of_all(&trials), Some(Edge::Latency));
    }
}
