//! Measures failed trials again under the same run id.

use bench_format::run::{Run, RunState, TrialState};

/// Marks the trials that could not be measured as not begun, and the run as under way. All others keep their results.
/// Returns their number; if it is 0, the run is unchanged.
///
/// Trials of a search, a comparison and pilots stay as they are: what was measured after them depends on them.
pub fn failed_trials(run: &mut Run) -> usize {
    if run.comparison.is_some() {
        return 0;
    }
    let is_failed = |state: &TrialState| matches!(state, TrialState::Failed { .. });
    let mut count = 0;
    for entry in run.trials.iter_mut().filter(|entry| entry.search.is_none() && entry.pilot.is_none()) {
        if is_failed(&entry.state) {
            entry.state = TrialState::Pending;
            count += 1;
        }
    }
    if count > 0 {
        (run.state, run.finished_at) = (RunState::Running, None);
    }
    count
}

#[cfg(test)]
mod tests {
    use bench_format::{
        result::Validity,
        run::{CrashCause, SearchStep, SearchTrial, TrialEntry},
    };

    use super::*;
    use crate::plan::check::fixture;

    /// An ended run of one trial in this state.
    fn run(state: TrialState, search: Option<SearchTrial>) -> Run {
        let trial = "ours/throughput/standard/4-p1-r1".parse().unwrap();
        let trials = vec![TrialEntry { state, search, ..TrialEntry::pending(trial) }];
        Run { state: RunState::Finished, trials, ..fixture::run("r", fixture::minimal()) }
    }

    fn failed() -> TrialState {
        TrialState::Failed { reason: "no room".into() }
    }

    #[test]
    fn only_what_could_not_be_measured_is_measured_again() {
        let mut again = run(failed(), None);
        assert_eq!((failed_trials(&mut again), again.state), (1, RunState::Running));
        assert_eq!(again.trials[0].state, TrialState::Pending);
        assert_eq!(failed_trials(&mut again), 0);
        let crashed = TrialState::Crashed { cause: CrashCause::ServiceOom, reason: String::new() };
        for result in [crashed, TrialState::Finished { validity: Validity::Valid, passed: Some(false) }] {
            let mut ended = run(result.clone(), None);
            assert_eq!((failed_trials(&mut ended), ended.state), (0, RunState::Finished));
            assert_eq!(ended.trials[0].state, result);
        }
        let purpose = SearchTrial { step: SearchStep::Round, window_seconds: 1.0, service_ended: false };
        assert_eq!(failed_trials(&mut run(failed(), Some(purpose))), 0);
    }
}
