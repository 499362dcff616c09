//! The times of the fixed work in earlier trials of a run, and the median that a new trial is compared with. Pure but for
//! the first reading of a resumed run.

use std::{collections::BTreeMap, path::Path};

use bench_format::{
    result::FixedWork,
    run::{Run, TrialState},
};

use crate::store;

/// Fewest earlier times of a CPU that have a median: those of three trials.
const FEWEST_TIMES: usize = 6;

/// Earlier times by CPU, in nanoseconds per round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EarlierWork(BTreeMap<u32, Vec<f64>>);

impl EarlierWork {
    /// The times of a run's finished trials. A trial whose result can't be read has none.
    pub fn of(bundle: &Path, run: &Run) -> Self {
        let mut earlier = Self::default();
        let finished = run.trials.iter().filter(|entry| matches!(entry.state, TrialState::Finished { .. }));
        for result in finished.filter_map(|entry| store::read_result(bundle, &entry.trial).ok()) {
            if let Some(work) = result.machine.and_then(|machine| machine.fixed_work) {
                earlier.add(&work);
            }
        }
        earlier
    }

    /// Adds the times of a trial.
    pub fn add(&mut self, work: &FixedWork) {
        for time in &work.cpus {
            let times = [time.before_ns, time.after_ns].map(|ns| ns as f64 / work.rounds.max(1) as f64);
            self.0.entry(time.cpu).or_default().extend(times);
        }
    }

    /// Sets the medians of a trial's CPUs, as far as there are enough earlier times.
    pub fn set_medians(&self, work: &mut FixedWork) {
        for time in &mut work.cpus {
            let times = self.0.get(&time.cpu).filter(|times| times.len() >= FEWEST_TIMES);
            time.median_ns = times.map(|times| (median(times) * work.rounds as f64).round() as u64);
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use bench_format::result::FixedWorkTime;

    use super::*;

    fn work(rounds: u64, times: &[(u32, u64, u64)]) -> FixedWork {
        let time = |&(cpu, before_ns, after_ns)| FixedWorkTime { cpu, before_ns, after_ns, median_ns: None };
        FixedWork { rounds, cpus: times.iter().map(time).collect() }
    }

    fn medians(earlier: &EarlierWork, rounds: u64) -> Vec<Option<u64>> {
        let mut next = work(rounds, &[(0, 1, 1), (1, 1, 1)]);
        earlier.set_medians(&mut next);
        next.cpus.iter().map(|time| time.median_ns).collect()
    }

    #[test]
    fn a_cpu_has_a_median_after_three_trials() {
        let mut earlier = EarlierWork::default();
        for _ in 0..2 {
            earlier.add(&work(10, &[(0, 100, 300), (1, 500, 500)]));
        }
        assert_eq!(medians(&earlier, 10), [None, None]);
        earlier.add(&work(10, &[(0, 100, 9000)]));
        assert_eq!(medians(&earlier, 10), [Some(200), None]);
    }

    #[test]
    fn a_resumed_run_with_another_number_of_rounds_keeps_its_median_per_round() {
        let mut earlier = EarlierWork::default();
        for _ in 0..3 {
            earlier.add(&work(10, &[(0, 100, 100), (1, 200, 200)]));
        }
        assert_eq!(medians(&earlier, 30), [Some(300), Some(600)]);
    }
}
