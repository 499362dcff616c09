//! `timeline.jsonl`: the steps of the operator with their times, one per line, and the time spent between trials.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::trial::TrialId;

/// One step of a climb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimelineEntry {
    /// What the operator did.
    pub step: TimelineStep,
    /// The trial that the step belongs to; absent if no trial remained.
    pub trial: Option<TrialId>,
    /// Start of the step, in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// End of the step, in nanoseconds since the Unix epoch.
    pub end_unix_ns: u64,
}

/// What the operator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimelineStep {
    /// From the operator's start (or the command to climb) to the first step.
    Prepare,
    /// From the start of a service until it is ready.
    StartService,
    /// From the start of the workers until all have registered.
    StartWorkers,
    /// A trial, from the reading before it to the reading after its drain.
    Trial,
    /// A trial that ended without a result.
    Interrupted,
    /// The end of the workers, ordered by the operator.
    StopWorkers,
    /// The end of a service, ordered by the operator.
    StopService,
}

/// The longest gaps between trials, by what happens in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// From the start of the climb to the start of the first trial.
    pub before_first: Option<Duration>,
    /// Between two trials on the same service process and workers.
    pub within_process: Option<Duration>,
    /// Between two trials of a tier with different service processes.
    pub within_tier: Option<Duration>,
    /// Between the last trial of a tier and the first trial of the next tier.
    pub between_tiers: Option<Duration>,
}

impl Overhead {
    /// Computes the gaps of a timeline. A gap in which the climb was resumed isn't counted.
    pub fn of(timeline: &[TimelineEntry]) -> Self {
        let mut overhead = Self::default();
        let mut climb_started_ns = None;
        let mut last: Option<&TimelineEntry> = None;
        for entry in timeline {
            match entry.step {
                TimelineStep::Prepare => (climb_started_ns, last) = (Some(entry.start_unix_ns), None),
                TimelineStep::Interrupted | TimelineStep::Trial => {
                    if let Some(at) = climb_started_ns.take() {
                        keep_longest(&mut overhead.before_first, at, entry.start_unix_ns);
                    } else if let Some(earlier) = last {
                        let gap = overhead.gap_between(earlier, entry);
                        keep_longest(gap, earlier.end_unix_ns, entry.start_unix_ns);
                    }
                    last = Some(entry).filter(|entry| entry.step == TimelineStep::Trial);
                }
                _ => {}
            }
        }
        overhead
    }

    fn gap_between(&mut self, earlier: &TimelineEntry, later: &TimelineEntry) -> &mut Option<Duration> {
        let key = |entry: &TimelineEntry| {
            entry.trial.clone().map(|trial| (trial.workload, trial.variant, trial.tier, trial.service, trial.process))
        };
        let tier = |entry: &TimelineEntry| key(entry).map(|(workload, variant, tier, ..)| (workload, variant, tier));
        if key(earlier) == key(later) {
            &mut self.within_process
        } else if tier(earlier) == tier(later) {
            &mut self.within_tier
        } else {
            &mut self.between_tiers
        }
    }
}

fn keep_longest(longest: &mut Option<Duration>, from_ns: u64, to_ns: u64) {
    let gap = Duration::from_nanos(to_ns.saturating_sub(from_ns));
    *longest = Some(longest.map_or(gap, |longest| longest.max(gap)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;

    const SECOND: u64 = 1_000_000_000;

    fn entry(step: TimelineStep, tier: u32, process: u32, repeat: u32, seconds: (u64, u64)) -> TimelineEntry {
        let trial = TrialId {
            service: Name::from_static("ours"),
            workload: Name::from_static("throughput"),
            variant: Name::from_static("standard"),
            tier,
            process,
            repeat,
        };
        let (start, end) = seconds;
        TimelineEntry { step, trial: Some(trial), start_unix_ns: start * SECOND, end_unix_ns: end * SECOND }
    }

    #[test]
    fn the_longest_gap_of_each_kind_is_found() {
        use TimelineStep::{Prepare, StartService, Trial};
        let timeline = [
            entry(Prepare, 1, 1, 1, (0, 1)),
            entry(StartService, 1, 1, 1, (1, 4)),
            entry(Trial, 1, 1, 1, (5, 10)),
            entry(Trial, 1, 1, 2, (11, 20)),
            entry(Trial, 1, 2, 1, (23, 30)),
            entry(Trial, 2, 1, 1, (37, 40)),
            entry(Trial, 2, 1, 2, (42, 50)),
        ];
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let expected = Overhead {
            before_first: seconds(5),
            within_process: seconds(2),
            within_tier: seconds(3),
            between_tiers: seconds(7),
        };
        assert_eq!(Overhead::of(&timeline), expected);
    }

    #[test]
    fn the_time_of_an_interruption_is_not_overhead() {
        use TimelineStep::{Interrupted, Prepare, Trial};
        let timeline = [
            entry(Trial, 1, 1, 1, (5, 10)),
            entry(Interrupted, 1, 1, 2, (11, 20)),
            entry(Trial, 1, 1, 2, (70, 80)),
            entry(Prepare, 1, 1, 3, (500, 501)),
            entry(Interrupted, 1, 1, 3, (503, 510)),
            entry(Trial, 1, 1, 3, (530, 540)),
        ];
        let expected = Overhead {
            before_first: Some(Duration::from_secs(3)),
            within_process: Some(Duration::from_secs(1)),
            ..Overhead::default()
        };
        assert_eq!(Overhead::of(&timeline), expected);
    }
}
