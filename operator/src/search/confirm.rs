//! Confirms the bounds of a search with trials of the length that the objectives need: `confirmed ↔ borderline ↔ first
//! solid fail`. Pure.
//!
//! A load is measured several times. It is confirmed if all trials pass, a solid fail if all fail, and borderline
//! otherwise. The confirmation goes down from the lower bound until a load is confirmed, then up from the upper bound
//! until a load fails solidly, in strides that double. Then it closes the gap between the two.

use std::collections::BTreeMap;

use super::{ATTEMPTS, Fault, grid::Grid};

/// The result of the bounds search, from which the confirmation starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The largest load that meets all goals.
    pub lower: Option<u32>,
    /// The smallest load that doesn't meet all goals.
    pub upper: Option<u32>,
    /// The smallest load that the generator could not offer.
    pub generator_limit: Option<u32>,
}

/// One confirming trial. Trials are listed in the order in which they were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The load of the trial.
    pub load: u32,
    /// The outcome of the trial.
    pub confirmation: ConfirmationOutcome,
}

/// The outcome of a confirming trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmationOutcome {
    /// The trial met every objective.
    Passed,
    /// The trial missed an objective.
    Failed,
    /// The trial is invalid.
    Invalid(Fault),
}

/// The next step of a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Measure a trial at this load.
    Measure(u32),
    /// The confirmation is finished.
    Done(Bracket),
}

/// The result of a confirmation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bracket {
    /// The largest load that passed every trial, below the first solid fail.
    pub confirmed: Option<u32>,
    /// Loads above the confirmed one, below the first solid fail, with both passed and failed trials.
    pub borderline: Vec<u32>,
    /// The smallest load that failed every trial.
    pub first_solid_fail: Option<u32>,
    /// The smallest load that the generator could not offer.
    pub generator_limit: Option<u32>,
    /// The load at which trials stayed invalid for another cause.
    pub given_up_at: Option<u32>,
}

/// The number of trials at a load, by outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    passed: u32,
    failed: u32,
    /// Invalid trials in a row, since the last valid one.
    invalid: usize,
    by_generator: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadClass {
    Open,
    Confirmed,
    Borderline,
    SolidFail,
}

impl Tally {
    fn add(&mut self, confirmation: ConfirmationOutcome) {
        match confirmation {
            ConfirmationOutcome::Passed => {
                *self = Self { passed: self.passed + 1, failed: self.failed, ..Self::default() }
            }
            ConfirmationOutcome::Failed => {
                *self = Self { failed: self.failed + 1, passed: self.passed, ..Self::default() }
            }
            ConfirmationOutcome::Invalid(fault) => {
                self.invalid += 1;
                self.by_generator += usize::from(fault == Fault::Generator);
            }
        }
    }

    fn class(&self, repeats: u32) -> LoadClass {
        match (self.passed, self.failed) {
            (passed, failed) if passed + failed < repeats => LoadClass::Open,
            (_, 0) => LoadClass::Confirmed,
            (0, _) => LoadClass::SolidFail,
            _ => LoadClass::Borderline,
        }
    }
}

/// Decides the step after `trials`; each load gets `repeats` of them.
pub fn next(grid: &Grid, start: Start, repeats: u32, trials: &[Trial]) -> Next {
    Confirming::new(grid, start, repeats, trials).next()
}

struct Confirming<'a> {
    grid: &'a Grid,
    start: Start,
    classes: BTreeMap<usize, LoadClass>,
    /// The last place that may be measured; absent when none may.
    last: Option<usize>,
    generator_limit: Option<u32>,
    given_up_at: Option<u32>,
}

impl<'a> Confirming<'a> {
    fn new(grid: &'a Grid, start: Start, repeats: u32, trials: &[Trial]) -> Self {
        let mut tallies: BTreeMap<usize, Tally> = BTreeMap::new();
        for trial in trials {
            tallies.entry(grid.place(trial.load.into())).or_default().add(trial.confirmation);
        }
        let disturbed = |tally: &Tally| tally.invalid >= ATTEMPTS;
        let by_generator = |tally: &Tally| 2 * tally.by_generator > tally.invalid;
        let limit = tallies
            .iter()
            .find(|(_, tally)| disturbed(tally) && by_generator(tally))
            .map(|(place, _)| grid.load(*place));
        let given_up = tallies.iter().find(|(_, tally)| disturbed(tally) && !by_generator(tally));
        let generator_limit = [start.generator_limit, limit].into_iter().flatten().min();
        let last = match generator_limit {
            Some(limit) => grid.place(limit.into()).checked_sub(1),
            None => Some(grid.last()),
        };
        let allowed = |place: &usize| last.is_some_and(|last| *place <= last);
        Self {
            grid,
            start,
            last,
            generator_limit,
            given_up_at: given_up.map(|(place, _)| grid.load(*place)),
            classes: tallies.iter().filter(|(p, _)| allowed(p)).map(|(p, tally)| (*p, tally.class(repeats))).collect(),
        }
    }

    fn next(&self) -> Next {
        match self.requested() {
            Some(place) if self.given_up_at.is_none() => Next::Measure(self.grid.load(place)),
            _ => Next::Done(self.bracket()),
        }
    }

    fn requested(&self) -> Option<usize> {
        let last = self.last?;
        if let Some(place) = self.places(LoadClass::Open).next() {
            return Some(place);
        }
        let Some(lowest) = self.classes.keys().next().copied() else {
            let lower = self.start.lower.map_or(0, |load| self.grid.place(load.into()));
            return Some(lower.min(last));
        };
        let (confirmed, fail) = (self.confirmed(), self.fail());
        match (confirmed, fail) {
            (None, _) => (lowest > 0).then(|| lowest.saturating_sub(self.stride())),
            (Some(_), None) => self.higher(last),
            (Some(low), Some(high)) => {
                let between: Vec<usize> = (low + 1..high).filter(|place| !self.classes.contains_key(place)).collect();
                between.get(between.len() / 2).copied()
            }
        }
    }

    /// The next place while no load has failed solidly: the search's upper bound, then higher loads.
    fn higher(&self, last: usize) -> Option<usize> {
        let highest = self.classes.keys().next_back().copied()?;
        let upper = self.start.upper.map(|load| self.grid.place(load.into())).filter(|upper| *upper > highest);
        (highest < last).then(|| upper.unwrap_or(highest + self.stride()).min(last))
    }

    /// The stride in places; it doubles with every load that was measured.
    fn stride(&self) -> usize {
        1 << (self.classes.len() - 1).min(16)
    }

    fn places(&self, requested: LoadClass) -> impl DoubleEndedIterator<Item = usize> {
        self.classes.iter().filter(move |(_, class)| **class == requested).map(|(place, _)| *place)
    }

    fn fail(&self) -> Option<usize> {
        self.places(LoadClass::SolidFail).next()
    }

    /// The largest confirmed load below the first solid fail. A load that passes above a solid fail is not trusted.
    fn confirmed(&self) -> Option<usize> {
        let fail = self.fail().unwrap_or(usize::MAX);
        self.places(LoadClass::Confirmed).rfind(|place| *place < fail)
    }

    fn bracket(&self) -> Bracket {
        let (confirmed, fail) = (self.confirmed(), self.fail());
        let between = |place: &usize| confirmed.is_none_or(|low| low < *place) && fail.is_none_or(|high| *place < high);
        let load = |place| self.grid.load(place);
        Bracket {
            confirmed: confirmed.map(load),
            borderline: self.places(LoadClass::Borderline).filter(between).map(load).collect(),
            first_solid_fail: fail.map(load),
            generator_limit: self.generator_limit,
            given_up_at: self.given_up_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loads 100, 111, 123, 136, 151, 167, 185, 205, 227, 252, 259.
    fn grid() -> Grid {
        Grid::new(100, 259, 0.1)
    }

    fn start(lower: u32, upper: u32) -> Start {
        let known = |load| (load > 0).then_some(load);
        Start { lower: known(lower), upper: known(upper), generator_limit: None }
    }

    /// Runs a confirmation against a function from (load, number of the trial at that load) to the outcome.
    fn confirm(start: Start, service: impl Fn(u32, usize) -> ConfirmationOutcome) -> (Bracket, Vec<u32>) {
        let mut trials: Vec<Trial> = Vec::new();
        loop {
            match next(&grid(), start, 2, &trials) {
                Next::Done(bracket) => return (bracket, trials.iter().map(|trial| trial.load).collect()),
                Next::Measure(load) => {
                    let number = trials.iter().filter(|trial| trial.load == load).count();
                    trials.push(Trial { load, confirmation: service(load, number) });
                    assert!(trials.len() < 100, "it does not end");
                }
            }
        }
    }

    fn below(capacity: u32) -> impl Fn(u32, usize) -> ConfirmationOutcome {
        move |load, _| if load <= capacity { ConfirmationOutcome::Passed } else { ConfirmationOutcome::Failed }
    }

    fn bracket(confirmed: u32, borderline: &[u32], fail: u32) -> Bracket {
        let known = |load| (load > 0).then_some(load);
        Bracket {
            confirmed: known(confirmed),
            borderline: borderline.to_vec(),
            first_solid_fail: known(fail),
            ..Bracket::default()
        }
    }

    #[test]
    fn both_sides_of_the_bracket_are_measured_twice() {
        let (found, loads) = confirm(start(151, 167), below(155));
        assert_eq!((found, loads), (bracket(151, &[], 167), vec![151, 151, 167, 167]));
    }

    #[test]
    fn one_pass_and_one_fail_is_borderline_and_the_search_goes_on_downwards() {
        let shaky = |load, number| match (load, number) {
            (151, 0) => ConfirmationOutcome::Passed,
            (151, _) => ConfirmationOutcome::Failed,
            _ => below(151)(load, number),
        };
        let (found, loads) = confirm(start(151, 167), shaky);
        assert_eq!((found, loads), (bracket(136, &[151], 167), vec![151, 151, 136, 136, 167, 167]));
    }

    #[test]
    fn a_bound_that_long_windows_refute_is_replaced_by_a_lower_one() {
        let (found, loads) = confirm(start(227, 252), below(125));
        assert_eq!(found, bracket(123, &[], 136));
        assert!(loads.len() <= 12, "{loads:?}");
    }

    #[test]
    fn an_upper_bound_that_passes_moves_the_bracket_up() {
        assert_eq!(confirm(start(123, 136), below(155)).0, bracket(151, &[], 167));
    }

    #[test]
    fn without_a_failing_load_the_bracket_has_no_upper_bound() {
        assert_eq!(confirm(start(259, 0), below(1000)).0, bracket(259, &[], 0));
        assert_eq!(confirm(start(0, 100), below(0)), (bracket(0, &[], 100), vec![100, 100]));
    }

    #[test]
    fn a_load_that_the_generator_cannot_offer_ends_the_upward_search() {
        let weak = |load, number| match load {
            load if load >= 167 => ConfirmationOutcome::Invalid(Fault::Generator),
            _ => below(1000)(load, number),
        };
        let (found, loads) = confirm(start(151, 167), weak);
        assert_eq!(found, Bracket { generator_limit: Some(167), ..bracket(151, &[], 0) });
        assert_eq!(loads, [151, 151, 167, 167, 167]);
        let (found, loads) = confirm(Start { generator_limit: Some(167), ..start(151, 0) }, weak);
        assert_eq!((found.generator_limit, found.confirmed, loads), (Some(167), Some(151), vec![151, 151]));
    }

    #[test]
    fn an_invalid_trial_is_repeated_and_three_in_a_row_end_the_confirmation() {
        let disturbed = |load, number| {
            if number == 0 { ConfirmationOutcome::Invalid(Fault::Other) } else { below(155)(load, number) }
        };
        assert_eq!(confirm(start(151, 167), disturbed).0, bracket(151, &[], 167));
        let (found, loads) = confirm(start(151, 167), |_, _| ConfirmationOutcome::Invalid(Fault::Other));
        assert_eq!((found.given_up_at, found.confirmed, loads.len()), (Some(151), None, ATTEMPTS));
    }

    #[test]
    fn a_pass_above_a_solid_fail_is_not_trusted() {
        let twice = |load, confirmation| [Trial { load, confirmation }; 2];
        let trials = [
            twice(185, ConfirmationOutcome::Passed),
            twice(136, ConfirmationOutcome::Failed),
            twice(123, ConfirmationOutcome::Passed),
        ]
        .concat();
        assert_eq!(next(&grid(), start(185, 205), 2, &trials), Next::Done(bracket(123, &[], 136)));
    }
}
