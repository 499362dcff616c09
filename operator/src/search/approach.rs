//! The first trials of the rounds, as long as all of them passed or all of them failed. Pure.
//!
//! Short trials on a process that is warm may find a start that a fresh process under its full load carries half of. The
//! posterior walks there by 2 to 7 % for each trial, so that the rounds would end before they arrive. They don't count
//! until the capacity is in sight, and go further. A longer stride would leave the loads that the posterior thinks
//! possible: it would take the outcome there for a lapse.

use super::loads::place;

/// First trials of the same outcome after which the capacity counts as far away.
const NEAR: u32 = 3;
/// Stride beyond the loads before, in places of the grid: 8 %.
const STRIDE: i32 = 8;

/// The trials until one has another outcome.
#[derive(Clone, Debug, Default)]
pub(super) struct Approach {
    /// Whether they passed, and the place of the outermost: the largest load that passed, or the smallest that failed.
    outermost: Option<(bool, i32)>,
    /// Number of trials of that outcome.
    trials: u32,
    /// Whether a trial had another outcome: the capacity lies between two loads.
    in_sight: bool,
}

impl Approach {
    /// Takes a valid trial of the rounds.
    pub(super) fn add(&mut self, load: u32, passed: bool) {
        let at = place(load.into());
        match self.outermost {
            _ if self.in_sight => {}
            Some((before, _)) if before != passed => self.in_sight = true,
            Some((_, before)) => {
                self.outermost = Some((passed, if passed { at.max(before) } else { at.min(before) }));
                self.trials += 1;
            }
            None => (self.outermost, self.trials) = (Some((passed, at)), 1),
        }
    }

    /// Number of trials that say little about the capacity, because they were far from it.
    pub(super) fn far(&self) -> u32 {
        self.trials.saturating_sub(NEAR)
    }

    /// The place of the next trial: this one, or a stride away as long as the capacity is far.
    pub(super) fn beyond(&self, next: i32) -> i32 {
        let Some((passed, outermost)) = self.outermost.filter(|_| !self.in_sight && self.trials >= NEAR) else {
            return next;
        };
        if passed { next.max(outermost + STRIDE) } else { next.min(outermost - STRIDE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(trials: &[(u32, bool)]) -> Approach {
        let mut approach = Approach::default();
        trials.iter().for_each(|(load, passed)| approach.add(*load, *passed));
        approach
    }

    #[test]
    fn three_trials_of_the_same_outcome_lengthen_the_next_stride() {
        let at = place(1000.0);
        let next = |trials: &[(u32, bool)], near: i32| after(trials).beyond(near);
        assert_eq!(next(&[(1000, false), (1010, false)], at - 3), at - 3, "it may still be near");
        let failed = [(1000, false), (1010, false), (990, false)];
        assert_eq!(next(&failed, at - 3), at - 9, "8 % below the smallest, which is 1 % below the first");
        assert_eq!(next(&failed, at - 20), at - 20, "the posterior goes further by itself");
        assert_eq!(next(&[(1000, true), (990, true), (1010, true)], at + 2), at + 9);
    }

    #[test]
    fn only_three_trials_before_the_capacity_is_in_sight_count() {
        let failed: Vec<(u32, bool)> = (0..7).map(|stride| (1000 - 50 * stride, false)).collect();
        assert_eq!(after(&failed).far(), 4);
        let found = [&failed[..], &[(500, true), (600, false)]].concat();
        assert_eq!(after(&found).far(), 4);
        assert_eq!(after(&found).beyond(7), 7, "the posterior decides");
        assert_eq!(after(&[(1000, false), (900, true)]).far(), 0, "a start near the capacity");
    }
}
