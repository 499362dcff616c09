//! Classifies a load from its trials, for one target (`docs/METHODOLOGY.md`, "Capacity search").
//!
//! A trial is full if it is at least as long as the target's trials, otherwise short. Short trials can delay a
//! classification but not establish it: the part of the duration sum that was not measured counts against a lower
//! bound.

use super::target::Target;

/// One valid trial, in the form that the goals need.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    /// Duration of the trial, in seconds.
    pub(super) seconds: f64,
    /// The loss ratio for each goal.
    pub(super) losses: Vec<f64>,
}

/// The classification of a load, for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The load meets the target, regardless of the outcome of further trials.
    Lower,
    /// The load misses the target, regardless of the outcome of further trials.
    Upper,
    /// The load needs more trials.
    Undecided,
}

/// Seconds of the trials at one load, by length (full or short) and outcome (low or high loss).
#[derive(Default)]
struct Tally {
    full_low: f64,
    full_high: f64,
    short_low: f64,
    short_high: f64,
}

impl Tally {
    fn of(trials: &[Measured], target: &Target) -> Self {
        let mut tally = Self::default();
        for trial in trials {
            let low = trial.losses[target.goal] <= target.loss_ratio;
            let sum = match (trial.seconds >= target.trial_seconds, low) {
                (true, true) => &mut tally.full_low,
                (true, false) => &mut tally.full_high,
                (false, true) => &mut tally.short_low,
                (false, false) => &mut tally.short_high,
            };
            *sum += trial.seconds;
        }
        tally
    }
}

/// Classifies a load from all its trials.
pub(super) fn classify(trials: &[Measured], target: &Target) -> Class {
    let tally = Tally::of(trials, target);
    let balancing = tally.short_low * target.exceed_ratio / (1.0 - target.exceed_ratio);
    let excess = (tally.short_high - balancing).max(0.0);
    let high = tally.full_high + excess;
    let total = (tally.full_low + high).max(target.sum_seconds);
    let quantile = total * target.exceed_ratio;
    if total - tally.full_low <= quantile {
        Class::Lower
    } else if high > quantile {
        Class::Upper
    } else {
        Class::Undecided
    }
}

/// The loss ratio at the (1 - exceed ratio) quantile of the full trials' duration. The part of the duration sum that
/// was not measured counts as fully lost.
pub(super) fn quantile_loss(trials: &[Measured], target: &Target) -> f64 {
    let mut full: Vec<(f64, f64)> = trials
        .iter()
        .filter(|trial| trial.seconds >= target.trial_seconds)
        .map(|trial| (trial.losses[target.goal], trial.seconds))
        .collect();
    full.sort_by(|a, b| a.0.total_cmp(&b.0));
    let measured: f64 = full.iter().map(|(_, seconds)| seconds).sum();
    let mut below = measured.max(target.sum_seconds) * (1.0 - target.exceed_ratio);
    for (loss, seconds) in full {
        below -= seconds;
        if below <= 0.0 {
            return loss;
        }
    }
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loss ratio 0.01, exceed ratio 0.5, full trials of 1 s, duration sum of 4 s.
    fn target() -> Target {
        Target {
            goal: 0,
            loss_ratio: 0.01,
            exceed_ratio: 0.5,
            width: 1,
            trial_seconds: 1.0,
            sum_seconds: 4.0,
            expansion: 2,
        }
    }

    fn trials(all: &[(f64, f64)]) -> Vec<Measured> {
        all.iter().map(|&(seconds, loss)| Measured { seconds, losses: vec![loss] }).collect()
    }

    #[test]
    fn half_of_the_sum_decides_before_the_other_half_is_measured() {
        let class = |all: &[(f64, f64)]| classify(&trials(all), &target());
        assert_eq!(class(&[]), Class::Undecided);
        assert_eq!(class(&[(1.0, 0.0)]), Class::Undecided);
        assert_eq!(class(&[(1.0, 0.0), (1.0, 0.01)]), Class::Lower, "a loss at the ratio is not an excess");
        assert_eq!(class(&[(1.0, 0.1), (1.0, 0.1)]), Class::Undecided, "the rest may still balance it");
        assert_eq!(class(&[(1.0, 0.1), (1.0, 0.1), (1.0, 0.1)]), Class::Upper);
        assert_eq!(class(&[(1.0, 0.1), (1.0, 0.1), (1.0, 0.0), (1.0, 0.0)]), Class::Lower);
    }

    #[test]
    fn short_trials_hold_back_but_do_not_establish() {
        let class = |all: &[(f64, f64)]| classify(&trials(all), &target());
        assert_eq!(class(&[(0.5, 0.0); 20]), Class::Undecided);
        assert_eq!(class(&[(0.5, 0.1); 5]), Class::Upper);
        assert_eq!(class(&[(0.5, 0.1), (0.5, 0.1), (0.5, 0.1), (0.5, 0.1), (0.5, 0.1), (0.5, 0.0)]), Class::Undecided);
    }

    #[test]
    fn without_a_share_to_exceed_one_bad_trial_is_enough() {
        let strict = Target { exceed_ratio: 0.0, ..target() };
        assert_eq!(classify(&trials(&[(1.0, 0.1)]), &strict), Class::Upper);
        assert_eq!(classify(&trials(&[(1.0, 0.0); 3]), &strict), Class::Undecided);
        assert_eq!(classify(&trials(&[(1.0, 0.0); 4]), &strict), Class::Lower);
    }

    #[test]
    fn the_quantile_counts_what_was_not_measured_as_lost() {
        let loss = |all: &[(f64, f64)]| quantile_loss(&trials(all), &target());
        assert_eq!(loss(&[(1.0, 0.003), (1.0, 0.0)]), 0.003, "two of four seconds are missing");
        assert_eq!(loss(&[(1.0, 0.003), (1.0, 0.0), (1.0, 0.2), (1.0, 0.001)]), 0.001);
        assert_eq!(loss(&[(1.0, 0.0)]), 1.0);
        assert_eq!(loss(&[(0.5, 0.0), (1.0, 0.002), (1.0, 0.004)]), 0.004, "short trials are not counted");
    }
}
