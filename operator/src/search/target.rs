//! Turns a goal into a chain of targets. Short trials and wide intervals come first, so that the long trials of the
//! goal itself are spent only near its bounds.

use super::{Goal, grid};

/// What the search currently tries to establish for one goal.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    /// Index of the goal whose losses count.
    pub(super) goal: usize,
    /// A trial with a higher loss ratio is bad.
    pub(super) loss_ratio: f64,
    /// Share of the duration that may be bad.
    pub(super) exceed_ratio: f64,
    /// Number of places of an interval that is narrow enough.
    pub(super) width: usize,
    /// Duration of a full trial, in seconds.
    pub(super) trial_seconds: f64,
    /// Sum of the trial durations at a load that is enough to classify it, in seconds.
    pub(super) sum_seconds: f64,
    /// Factor by which an interval grows while one bound is missing.
    pub(super) expansion: usize,
}

/// The targets of a goal, the goal's own first. Each preceding target has twice the width and a shorter duration sum
/// than the one after it; the first one needs a single initial trial.
pub(super) fn chain(index: usize, goal: &Goal, unit: f64, last: usize) -> Vec<Target> {
    let count = goal.preceding_targets;
    let own = Target {
        goal: index,
        loss_ratio: goal.loss_ratio,
        exceed_ratio: goal.exceed_ratio,
        width: grid::places(goal, unit).min(last),
        trial_seconds: goal.final_trial_seconds,
        sum_seconds: goal.duration_sum_seconds,
        expansion: goal.expansion,
    };
    let shrink = (goal.initial_trial_seconds / goal.duration_sum_seconds).powf(1.0 / f64::from(count));
    let preceding = |back: u32| {
        let sum_seconds = match back {
            back if back == count => goal.initial_trial_seconds,
            back => goal.duration_sum_seconds * shrink.powf(f64::from(back)),
        };
        let trial_seconds = goal.final_trial_seconds.min(sum_seconds);
        Target { width: (own.width << back).min(last), trial_seconds, sum_seconds, ..own.clone() }
    };
    std::iter::once(own.clone()).chain((1..=count).map(preceding)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_preceding_target_is_shorter_and_wider() {
        let goal = Goal {
            duration_sum_seconds: 16.0,
            initial_trial_seconds: 1.0,
            final_trial_seconds: 2.0,
            ..Goal::of_loss(0.0, 0.01)
        };
        let chain = chain(0, &goal, 0.01, 1000);
        let expected: Vec<_> = chain.iter().map(|t| (t.width, t.trial_seconds, t.sum_seconds)).collect();
        assert_eq!(expected, [(1, 2.0, 16.0), (2, 2.0, 4.0), (4, 1.0, 1.0)]);
    }
}
