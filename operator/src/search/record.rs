//! Keeps all valid trials by load, and derives the bounds for a target from them.

use std::collections::BTreeMap;

use super::{
    tally::{Class, Measured, classify, quantile_loss},
    target::Target,
};

/// The relevant bounds of a target, as places on the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The largest lower bound below the upper one. A load that passes above one that fails is not trusted.
    pub(super) lower: Option<usize>,
    /// The smallest place whose load is an upper bound.
    pub(super) upper: Option<usize>,
}

impl Bounds {
    /// Whether a trial at `place` could move a bound of an interval that has to be no wider than `width`.
    pub(super) fn is_worth_measuring(&self, place: usize, width: usize) -> bool {
        let inside = self.lower.is_none_or(|lower| lower < place) && self.upper.is_none_or(|upper| place < upper);
        inside && !self.is_narrow(width)
    }

    /// Whether both bounds are known and no further apart than `width`.
    pub(super) fn is_narrow(&self, width: usize) -> bool {
        self.lower.zip(self.upper).is_some_and(|(lower, upper)| upper - lower <= width)
    }
}

/// All valid trials, by place.
#[derive(Clone, Debug, Default)]
pub(super) struct Record(BTreeMap<usize, Vec<Measured>>);

impl Record {
    /// Adds a valid trial at a place.
    pub(super) fn add(&mut self, place: usize, trial: Measured) {
        self.0.entry(place).or_default().push(trial);
    }

    /// Removes the trials above a place.
    pub(super) fn remove_above(&mut self, place: usize) {
        self.0.retain(|known, _| *known <= place);
    }

    /// The highest place that has a trial.
    pub(super) fn highest(&self) -> Option<usize> {
        self.0.keys().next_back().copied()
    }

    /// The relevant bounds for a target.
    pub(super) fn bounds(&self, target: &Target) -> Bounds {
        let mut bounds = Bounds::default();
        for (place, trials) in &self.0 {
            match classify(trials, target) {
                Class::Lower => bounds.lower = Some(*place),
                Class::Undecided => {}
                Class::Upper => {
                    bounds.upper = Some(*place);
                    break;
                }
            }
        }
        bounds
    }

    /// The loss ratio at the quantile for a place and a target; 1 for a place without trials.
    pub(super) fn loss(&self, place: usize, target: &Target) -> f64 {
        self.0.get(&place).map_or(1.0, |trials| quantile_loss(trials, target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_above_a_fail_is_not_a_relevant_bound() {
        let target = Target {
            goal: 0,
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            width: 1,
            trial_seconds: 1.0,
            sum_seconds: 1.0,
            expansion: 2,
        };
        let mut record = Record::default();
        for (place, loss) in [(3, 0.0), (7, 0.5), (9, 0.0), (12, 0.5)] {
            record.add(place, Measured { seconds: 1.0, losses: vec![loss] });
        }
        assert_eq!(record.bounds(&target), Bounds { lower: Some(3), upper: Some(7) });
    }

    #[test]
    fn only_places_inside_a_wide_interval_are_worth_a_trial() {
        let bounds = Bounds { lower: Some(3), upper: Some(7) };
        assert_eq!([3, 4, 6, 7].map(|place| bounds.is_worth_measuring(place, 1)), [false, true, true, false]);
        assert!(!bounds.is_worth_measuring(5, 4));
        assert!(Bounds::default().is_worth_measuring(0, 1));
    }
}
