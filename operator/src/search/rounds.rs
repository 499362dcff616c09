//! The rounds of a search and the tests after them: decides each trial on a fresh process from the ones before. Pure.
//!
//! In a round every service makes one trial at the load that its [posterior](super::posterior) asks for, until the
//! interval of its capacity is narrow. Then new trials test the largest load that the posterior predicts to pass with
//! 0.95, and the smallest that it predicts to pass with 0.05. Trials that were chosen for their outcome can't confirm
//! it, so those of the rounds count in neither test; those of a test that does not succeed enter the posterior.

use bench_format::{
    plan::{SearchTest, WireRounds},
    run::{CapacityEstimate, LoadTest, SearchStep},
};

use super::{
    Fault,
    approach::Approach,
    attempts::Attempts,
    loads::{on_grid, place},
    posterior::Posterior,
};

/// Predicted probability of passing at a load that is tested for passing; its complement, for failing.
const SOLID: f64 = 0.95;
/// Trials that agree with each other and end a test with success.
const AGREEING: u32 = 5;
/// The same where one trial does not agree.
const AGREEING_BUT_ONE: u32 = 8;
/// Tests of one kind: after a second one that does not succeed, there is no further one.
const TESTS: u32 = 2;

/// The outcome of a trial on a fresh process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// The trial met every objective.
    Passed,
    /// The trial missed an objective.
    Failed,
    /// The trial is invalid.
    Invalid(Fault),
}

/// What the short trials found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The largest load that meets all goals; absent when the smallest load doesn't.
    pub lower: Option<u32>,
    /// The smallest load that doesn't meet all goals; absent when the largest load does.
    pub upper: Option<u32>,
}

/// The loads that may be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The smallest load that the plan allows.
    pub from: u32,
    /// The largest load that the plan and the generator allow; below `from` when none may be measured.
    pub to: u32,
}

/// The rounds of one service.
#[derive(Clone, Debug)]
pub struct Rounds<'a> {
    settings: &'a WireRounds,
    limits: Limits,
    posterior: Posterior,
    phase: Phase,
    /// Valid trials of the rounds.
    made: u32,
    /// The first trials of the rounds, which may be far from the capacity.
    approach: Approach,
    /// Trials and tests that were decided: the turns that the service has had.
    turns: u32,
    /// The largest load of a valid trial: the generator can offer it.
    offered: u32,
    /// Invalid attempts at the next trial.
    attempts: Attempts,
    /// Places of the grid between the next load that the generator can't offer and the largest that is measured then.
    stride: i32,
    /// The result up to now.
    pub result: RoundsResult,
}

/// What the rounds and tests found up to now.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundsResult {
    /// The load at which the rounds began.
    pub start: f64,
    /// The last test that a load passes.
    pub confirm: Option<LoadTest>,
    /// The last test that a load fails.
    pub fail: Option<LoadTest>,
    /// The smallest load that the generator could not offer.
    pub generator_limit: Option<u32>,
    /// The load at which trials stayed invalid for another cause.
    pub given_up_at: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Rounds,
    Testing { kind: Kind, test: LoadTest, number: u32 },
    Done,
}

/// What a test is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Passes,
    Fails,
}

impl<'a> Rounds<'a> {
    /// The rounds before their first trial. Where the short trials found no bound on one side, the outermost load is
    /// tested first: if that succeeds, there is no edge to look for.
    pub fn new(settings: &'a WireRounds, limits: Limits, bounds: Bounds) -> Self {
        let clamp = |load: f64| load.max(limits.from.into()).min(limits.to.max(limits.from).into());
        let (start, phase) = match (bounds.lower, bounds.upper) {
            (Some(lower), Some(upper)) => (clamp((f64::from(lower) * f64::from(upper)).sqrt()), Phase::Rounds),
            (_, None) => (clamp(limits.to.into()), Phase::testing(Kind::Passes, limits.to, 1)),
            (None, _) => (clamp(limits.from.into()), Phase::testing(Kind::Fails, limits.from, 1)),
        };
        let phase = if limits.to < limits.from { Phase::Done } else { phase };
        let posterior = Posterior::new(start);
        let result = RoundsResult { start, confirm: None, fail: None, generator_limit: None, given_up_at: None };
        Self {
            settings,
            limits,
            posterior,
            phase,
            made: 0,
            approach: Approach::default(),
            turns: 0,
            offered: 0,
            attempts: Attempts::default(),
            stride: 1,
            result,
        }
    }

    /// The next trial: its step and load; `None` when the search is finished.
    pub fn next(&self) -> Option<(SearchStep, u32)> {
        match self.phase {
            Phase::Rounds => Some((SearchStep::Round, self.load_of_round())),
            Phase::Testing { kind: Kind::Passes, test, .. } => Some((SearchStep::Confirm, test.load)),
            Phase::Testing { kind: Kind::Fails, test, .. } => Some((SearchStep::Fail, test.load)),
            Phase::Done => None,
        }
    }

    /// Number of turns that the service has had. An invalid trial is made again in the same turn.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// The estimate of the capacity; `None` before the first round.
    pub fn estimate(&self) -> Option<CapacityEstimate> {
        (self.made > 0).then(|| self.posterior.estimate())
    }

    /// Whether the confirmed load is the largest that may be measured.
    pub fn at_least(&self) -> bool {
        self.result.confirm.is_some_and(|test| test.succeeded && test.load == self.limits.to)
    }

    /// Takes the outcome of the trial that [`next`](Self::next) asked for.
    pub fn record(&mut self, outcome: TrialOutcome) {
        let Some((_, load)) = self.next() else { return };
        match outcome {
            TrialOutcome::Invalid(fault) => return self.record_invalid(load, fault),
            TrialOutcome::Passed => self.record_valid(load, true),
            TrialOutcome::Failed => self.record_valid(load, false),
        }
        (self.attempts, self.turns) = (Attempts::default(), self.turns + 1);
    }

    fn record_valid(&mut self, load: u32, passed: bool) {
        self.offered = self.offered.max(load);
        match &mut self.phase {
            Phase::Rounds => {
                self.made += 1;
                self.approach.add(load, passed);
                self.posterior.add(load, passed);
                if self.is_enough() {
                    self.begin_test(Kind::Passes, 1);
                }
            }
            Phase::Testing { test, .. } => {
                *if passed { &mut test.passed } else { &mut test.failed } += 1;
                self.continue_test();
            }
            Phase::Done => {}
        }
    }

    /// Whether the rounds end: the interval is narrow enough, no load inside it is left to measure, or the capacity is
    /// not among the loads that may be measured.
    fn is_enough(&self) -> bool {
        let CapacityEstimate { low, high, .. } = self.posterior.estimate();
        let narrow = (high / low).ln() <= 2.0 * self.settings.precision.ln_1p();
        let empty = low.floor() + 1.0 >= high;
        let beyond = low >= self.limits.to.into() || high <= self.limits.from.into();
        let made = self.made - self.approach.far();
        let at_end = self.made >= self.settings.at_least && beyond || self.made >= 2 * self.settings.at_most;
        at_end || made >= self.settings.at_most || made >= self.settings.at_least && (narrow || empty)
    }

    /// The posterior mean of ln C, and in turn one mean spread above and below it, on a grid of 1 %; further away while
    /// the capacity is not in sight.
    fn load_of_round(&self) -> u32 {
        let offset = [0.0, 1.0, -1.0][self.made as usize % 3];
        let load = self.posterior.mean_ln() + offset * self.posterior.mean_spread();
        on_grid(self.approach.beyond(place(load.exp()))).clamp(self.limits.from, self.limits.to)
    }

    fn continue_test(&mut self) {
        let Phase::Testing { kind, mut test, number } = self.phase else { return };
        let (agreeing, other) = match kind {
            Kind::Passes => (test.passed, test.failed),
            Kind::Fails => (test.failed, test.passed),
        };
        test.succeeded = (agreeing, other) == (AGREEING, 0) || (agreeing, other) == (AGREEING_BUT_ONE, 1);
        *self.test_mut(kind) = Some(test);
        if test.succeeded {
            return self.after_test(kind);
        }
        if other >= 2 {
            self.end_without_success(kind, test, number);
        }
    }

    /// The trials of a test that did not succeed enter the posterior, and the next load is tested.
    fn end_without_success(&mut self, kind: Kind, test: LoadTest, number: u32) {
        self.enter(test);
        if self.made == 0 {
            // It was the test of the outermost load, before any round.
            self.phase = Phase::Rounds;
        } else if number < TESTS {
            self.begin_test(kind, number + 1);
        } else {
            self.after_test(kind);
        }
    }

    /// A test that succeeded before any round shows that there is no edge among the loads that may be measured.
    fn after_test(&mut self, kind: Kind) {
        match kind {
            Kind::Passes if self.made > 0 && self.settings.test == SearchTest::Both => self.begin_test(Kind::Fails, 1),
            _ => self.phase = Phase::Done,
        }
    }

    fn begin_test(&mut self, kind: Kind, number: u32) {
        let before = if number > 1 { self.test_mut(kind).map(|test| test.load) } else { None };
        if number == 1 {
            *self.test_mut(kind) = None;
        }
        match self.load_to_test(kind, before) {
            Some(load) => self.phase = Phase::testing(kind, load, number),
            None => self.after_test(kind),
        }
    }

    /// The load nearest to the capacity that is predicted to pass (or fail) with [`SOLID`], beyond one that was tested.
    fn load_to_test(&self, kind: Kind, before: Option<u32>) -> Option<u32> {
        let Limits { from, to } = self.limits;
        let capacity = self.posterior.mean_ln().exp();
        match kind {
            Kind::Passes => {
                let top = before.map_or(to, |load| load - 1).min(to);
                let below = (0..=place(capacity.min(top.into()))).rev().map(on_grid);
                let mut loads = std::iter::once(top).chain(below).filter(|load| (from..=top).contains(load));
                loads.find(|load| self.posterior.predict(*load) >= SOLID)
            }
            Kind::Fails => {
                let bottom = before.map_or(from, |load| load + 1);
                let above = (place(capacity.max(bottom.into()))..=place(to.into())).map(on_grid);
                let mut loads = std::iter::once(bottom).chain(above).chain([to]);
                loads.find(|load| (bottom..=to).contains(load) && self.posterior.predict(*load) <= 1.0 - SOLID)
            }
        }
    }

    fn test_mut(&mut self, kind: Kind) -> &mut Option<LoadTest> {
        match kind {
            Kind::Passes => &mut self.result.confirm,
            Kind::Fails => &mut self.result.fail,
        }
    }

    /// An invalid trial teaches nothing and is made again. After too many the cause decides: below a load that the
    /// generator could not offer the search goes on; otherwise it ends.
    fn record_invalid(&mut self, load: u32, fault: Fault) {
        // A load that was offered before is not a limit: the machine disturbed the generator.
        let disturbed = fault == Fault::Generator && load <= self.offered;
        let Some(cause) = self.attempts.add(if disturbed { Fault::Machine } else { fault }) else { return };
        (self.attempts, self.turns) = (Attempts::default(), self.turns + 1);
        if cause != Fault::Generator {
            (self.result.given_up_at, self.phase) = (Some(load), Phase::Done);
            return;
        }
        self.result.generator_limit = Some(load);
        // Each limit costs several trials, so the strides grow.
        self.limits.to = on_grid(place(load.into()) - self.stride).max(self.offered).min(load - 1);
        self.stride *= 2;
        if self.limits.to < self.limits.from {
            self.phase = Phase::Done;
        } else if let Phase::Testing { kind, test, .. } = self.phase {
            self.end_at_limit(kind, test);
        }
    }
}

impl Rounds<'_> {
    /// A test at a load that can't be offered is cut off: the largest load that can is tested in its place.
    fn end_at_limit(&mut self, kind: Kind, test: LoadTest) {
        *self.test_mut(kind) = None;
        self.enter(test);
        match kind {
            Kind::Passes if self.made == 0 => self.phase = Phase::testing(kind, self.limits.to, 1),
            Kind::Passes => self.begin_test(kind, TESTS),
            Kind::Fails => self.phase = Phase::Done,
        }
    }

    fn enter(&mut self, test: LoadTest) {
        (0..test.passed).for_each(|_| self.posterior.add(test.load, true));
        (0..test.failed).for_each(|_| self.posterior.add(test.load, false));
    }
}

impl Phase {
    fn testing(kind: Kind, load: u32, number: u32) -> Self {
        let test = LoadTest { load, passed: 0, failed: 0, succeeded: false };
        Self::Testing { kind, test, number }
    }
}

#[cfg(test)]
mod tests;
