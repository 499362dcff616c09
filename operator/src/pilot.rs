//! Which pilot trials a run makes: one for each service and ladder, and longer ones where no steady state was found.
//! Pure. Whether a trial shows a steady state is decided by the analysis.

use std::time::Duration;

use bench_format::{
    Name,
    run::{PilotTrial, Run, TrialEntry},
    trial::TrialId,
};

use crate::plan::Plan;

/// Length of the first pilot trial.
pub const WINDOW: Duration = Duration::from_secs(60);
/// How often a pilot is made again, twice as long.
pub const DOUBLINGS: u32 = 2;
/// Longest window of a pilot trial that is read from a file, in seconds: a day.
const LONGEST_SECONDS: f64 = 86_400.0;

/// The first entries of a run with these trials: pilots whose first window has this length, or all trials without one.
pub fn entries(selected: Vec<TrialId>, window: Option<Duration>) -> Vec<TrialEntry> {
    match window {
        Some(window) => first(&selected, window),
        None => selected.into_iter().map(TrialEntry::pending).collect(),
    }
}

/// The first pilot trials: of each service and ladder the largest of the `selected` tiers.
fn first(selected: &[TrialId], window: Duration) -> Vec<TrialEntry> {
    let largest = |ladder: (&Name, &Name)| {
        let tiers = selected.iter().filter(|other| (&other.workload, &other.variant) == ladder);
        tiers.map(|other| other.tier).max()
    };
    let is_first = |trial: &&TrialId| {
        trial.process == 1 && trial.repeat == 1 && largest((&trial.workload, &trial.variant)) == Some(trial.tier)
    };
    selected.iter().filter(is_first).map(|trial| pilot(trial.clone(), window.as_secs_f64())).collect()
}

/// The trials that follow the finished ones in `trials`: twice as long, of those in `not_steady`, up to the last
/// doubling.
pub fn doubled(trials: &[TrialEntry], not_steady: &[TrialId]) -> Vec<TrialEntry> {
    let next = |entry: &TrialEntry| {
        let window_seconds = entry.pilot.filter(|_| not_steady.contains(&entry.trial))?.window_seconds * 2.0;
        let trial = TrialId { process: entry.trial.process + 1, ..entry.trial.clone() };
        let is_new = trial.process <= 1 + DOUBLINGS && !trials.iter().any(|other| other.trial == trial);
        is_new.then(|| pilot(trial, window_seconds))
    };
    trials.iter().filter_map(next).collect()
}

/// Whether a run makes pilots instead of the trials of its tiers.
pub fn has_pilots(run: &Run) -> bool {
    run.trials.iter().any(|entry| entry.pilot.is_some())
}

/// Whether an entry is one that pilots of this plan may have.
pub fn is_of(plan: &Plan, trial: &TrialId, pilot: &PilotTrial) -> bool {
    let first = TrialId { process: 1, ..trial.clone() };
    (1..=1 + DOUBLINGS).contains(&trial.process) && has_length(pilot) && plan.trials().contains(&first)
}

/// Whether the window is a length of time that a trial can have.
pub fn has_length(pilot: &PilotTrial) -> bool {
    pilot.window_seconds > 0.0 && pilot.window_seconds <= LONGEST_SECONDS
}

fn pilot(trial: TrialId, window_seconds: f64) -> TrialEntry {
    TrialEntry { pilot: Some(PilotTrial { window_seconds }), ..TrialEntry::pending(trial) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(service: &'static str, tier: u32, process: u32) -> TrialId {
        let [service, workload, variant] = [service, "throughput", "standard"].map(Name::from_static);
        TrialId { service, workload, variant, tier, process, repeat: 1 }
    }

    /// Service, tier, process and window of each entry.
    fn shape(entries: &[TrialEntry]) -> Vec<(&str, u32, u32, f64)> {
        let of = |entry: &'_ TrialEntry| (entry.trial.tier, entry.trial.process, entry.pilot.unwrap().window_seconds);
        let shape = entries.iter().map(|entry| (entry.trial.service.as_str(), of(entry)));
        shape.map(|(service, (tier, process, seconds))| (service, tier, process, seconds)).collect()
    }

    #[test]
    fn each_service_makes_one_trial_at_the_largest_selected_tier() {
        let repeat = TrialId { repeat: 2, ..trial("a", 100, 1) };
        let selected = [trial("a", 10, 1), trial("a", 100, 1), repeat, trial("a", 100, 2), trial("b", 100, 1)];
        assert_eq!(shape(&first(&selected, WINDOW)), [("a", 100, 1, 60.0), ("b", 100, 1, 60.0)]);
    }

    #[test]
    fn what_is_not_steady_is_measured_twice_as_long_and_twice_at_most() {
        let (a, b) = (trial("a", 100, 1), trial("b", 100, 1));
        let mut trials = first(&[a.clone(), b], WINDOW);
        let mut unsteady = a;
        for (process, seconds) in [(2, 120.0), (3, 240.0)] {
            let next = doubled(&trials, &[unsteady.clone()]);
            assert_eq!(shape(&next), [("a", 100, process, seconds)]);
            assert_eq!(doubled(&[trials.clone(), next.clone()].concat(), &[unsteady]), [], "it is made once");
            unsteady = next[0].trial.clone();
            trials.extend(next);
        }
        assert_eq!(doubled(&trials, &[unsteady]), []);
    }
}
