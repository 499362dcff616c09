//! How long the same work took on each CPU of a trial, before and after it.
//!
//! It takes longer where a sibling hardware thread is busy or the host's clock is slower, which no counter of CPU time
//! shows. What other virtual machines of the host take of its caches and memory shows in neither.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Deviation from the run's median from which the fixed work is remarked.
pub const FIXED_WORK_REMARK: f64 = 0.02;

/// The CPU time of fixed work on each CPU of the trial's roles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedWork {
    /// Number of rounds of the work. It is chosen once for a run, so that they take about 50 ms; a resumed run has
    /// another number.
    pub rounds: u64,
    /// The times, by CPU in rising order.
    pub cpus: Vec<FixedWorkTime>,
}

/// The CPU time of fixed work on one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixedWorkTime {
    /// Number of the CPU, as the kernel counts it.
    pub cpu: u32,
    /// CPU time before the trial's connections open, in nanoseconds.
    pub before_ns: u64,
    /// CPU time after the trial's last reading, in nanoseconds.
    pub after_ns: u64,
    /// Median for as many rounds on this CPU over the run's earlier trials; absent for the first trials of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_ns: Option<u64>,
}

impl FixedWork {
    /// The work of a trial; CPUs that were timed only once are left out.
    pub fn new(rounds: u64, before_ns: &BTreeMap<u32, u64>, after_ns: &BTreeMap<u32, u64>) -> Self {
        let both = before_ns.iter().filter_map(|(cpu, before)| Some((*cpu, *before, *after_ns.get(cpu)?)));
        let time = |(cpu, before_ns, after_ns)| FixedWorkTime { cpu, before_ns, after_ns, median_ns: None };
        Self { rounds, cpus: both.map(time).collect() }
    }

    /// The largest deviation from the median of a CPU, as a share of it (negative where the work took less time), with
    /// the CPU; `None` without medians.
    pub fn deviation(&self) -> Option<(f64, u32)> {
        let of = |time: &FixedWorkTime| {
            let median = time.median_ns.filter(|median| *median > 0)? as f64;
            let shares = [time.before_ns, time.after_ns].map(|ns| ns as f64 / median - 1.0);
            Some(shares.map(|share| (share, time.cpu)))
        };
        self.cpus.iter().filter_map(of).flatten().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))
    }

    /// The deviation as part of a sentence, if it is larger than `limit`: `fixed work took 6.1 % longer than usual on
    /// CPU 1`.
    pub fn unusual(&self, limit: f64) -> Option<String> {
        let (share, cpu) = self.deviation().filter(|(share, _)| share.abs() > limit)?;
        let direction = if share > 0.0 { "longer" } else { "shorter" };
        Some(format!("fixed work took {:.1} % {direction} than usual on CPU {cpu}", share.abs() * 100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(times: &[(u32, u64, u64, Option<u64>)]) -> FixedWork {
        let time = |&(cpu, before_ns, after_ns, median_ns)| FixedWorkTime { cpu, before_ns, after_ns, median_ns };
        FixedWork { rounds: 9, cpus: times.iter().map(time).collect() }
    }

    #[test]
    fn the_largest_deviation_of_any_cpu_counts_in_either_direction() {
        let longer = work(&[(0, 1000, 1010, Some(1000)), (3, 1000, 1061, Some(1000)), (4, 9, 9, None)]);
        assert_eq!(longer.unusual(0.05).as_deref(), Some("fixed work took 6.1 % longer than usual on CPU 3"));
        assert_eq!(longer.unusual(0.0611), None);
        let shorter = work(&[(0, 970, 1010, Some(1000))]);
        assert_eq!(shorter.unusual(0.02).as_deref(), Some("fixed work took 3.0 % shorter than usual on CPU 0"));
    }

    #[test]
    fn the_first_trials_have_no_median_and_are_not_unusual() {
        assert_eq!(work(&[(0, 1000, 5000, None)]).unusual(0.0), None);
        assert_eq!(work(&[(0, 1000, 5000, Some(0))]).unusual(0.0), None);
    }

    #[test]
    fn a_cpu_that_was_timed_once_is_left_out() {
        let made = FixedWork::new(9, &[(0, 10), (1, 11)].into(), &[(1, 12), (2, 13)].into());
        assert_eq!(made, work(&[(1, 11, 12, None)]));
    }
}
