//! Capacity search: finished trials in order → the next trial, or the bounds that were found. Pure.
//!
//! An implementation of the controller of MLRsearch (draft-ietf-bmwg-mlrsearch-15): several goals share trials, short
//! trials come before long ones, and a load is classified from all its trials. [`next`] replays the whole search over
//! the trials that there are, so that a search that is taken up again decides the same. In the order of the flow:
//!
//! [`losses`] (objectives as goals, results as losses) → [`grid`] (loads as places) → [`target`] (a goal as a chain of
//! targets) → [`tally`] (trials at a load → what it is) → [`record`] (→ relevant bounds) → [`pursuit`] with [`limits`]
//! (→ what one goal would measure) → [`replay`] (→ what is measured). What is found is then confirmed with trials as
//! long as the objectives need them: [`confirm`]. A run's search is both, one after the other: [`course`].
//!
//! `analysis/tests/test_search.py` compares every decision with those of MLRsearch on PyPI.

use self::{grid::Grid, replay::Replay};

pub mod confirm;
pub mod course;
pub mod grid;
mod limits;
pub mod losses;
mod pursuit;
mod record;
mod replay;
mod tally;
mod target;

/// What a search looks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The smallest load.
    pub from: u32,
    /// The largest load.
    pub to: u32,
    /// At least one.
    pub goals: Vec<Goal>,
    /// Where it begins.
    pub start: Start,
}

impl Settings {
    /// The loads that may be measured: as far apart as the narrowest goal asks.
    pub fn grid(&self) -> Grid {
        Grid::new(self.from, self.to, self.unit())
    }

    fn unit(&self) -> f64 {
        self.goals.iter().map(|goal| goal.width).fold(1.0, f64::min)
    }
}

/// Where a search begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the smallest load, in growing strides: a service never sees a load far above its capacity.
    #[default]
    Low,
    /// At the largest load and what came through of it, as RFC 2544 and MLRsearch do: fewer trials where overload does
    /// no harm.
    High,
}

/// A loss ratio, and how sure of it the search has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// A trial that loses more is bad.
    pub loss_ratio: f64,
    /// Share of the duration at a load that may be bad: 0.5 asks for the median.
    pub exceed_ratio: f64,
    /// How narrow the interval between the bounds has to be, as a share of the upper one.
    pub width: f64,
    /// Duration of the shortest trials, in seconds.
    pub initial_trial_seconds: f64,
    /// Duration of a full trial, in seconds.
    pub final_trial_seconds: f64,
    /// Duration over all trials at a load that decides what it is, in seconds.
    pub duration_sum_seconds: f64,
    /// How many targets with shorter sums and wider intervals come before.
    pub preceding_targets: u32,
    /// By how much an interval grows while it holds no bound.
    pub expansion: usize,
}

impl Goal {
    /// A goal with the durations that MLRsearch recommends: 21 trials of a second.
    pub fn of_loss(loss_ratio: f64, width: f64) -> Self {
        Self {
            loss_ratio,
            exceed_ratio: 0.5,
            width,
            initial_trial_seconds: 1.0,
            final_trial_seconds: 1.0,
            duration_sum_seconds: 21.0,
            preceding_targets: 2,
            expansion: 2,
        }
    }
}

/// One trial of a search, in the order in which they were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Its load.
    pub load: u32,
    /// Its duration.
    pub seconds: f64,
    /// What it showed.
    pub outcome: Outcome,
}

/// What a trial showed.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The loss ratio for each goal.
    Measured(Vec<f64>),
    /// No measurement.
    Invalid(Fault),
}

/// Who is to blame for an invalid trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The generator could not offer the load.
    Generator,
    /// Something else.
    Other,
}

/// A trial that is invalid so often, one after another, is not tried again.
pub const ATTEMPTS: usize = 3;

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// A trial.
    Measure {
        /// At this load.
        load: u32,
        /// For so long.
        seconds: f64,
    },
    /// Nothing: this was found.
    Found(Found),
}

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// For each goal.
    pub goals: Vec<GoalFound>,
    /// The load at which the generator was the limit: whatever is above was not searched.
    pub generator_limit: Option<u32>,
    /// The load at which trials stayed invalid for another reason: the bounds are what was known by then.
    pub given_up_at: Option<u32>,
}

/// The relevant bounds of one goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalFound {
    /// The largest load that meets it, below the upper bound; absent when the smallest load doesn't.
    pub lower: Option<u32>,
    /// The smallest load that doesn't; absent when the largest that was searched does.
    pub upper: Option<u32>,
    /// What came through at the lower bound: load × (1 - loss ratio at the quantile).
    pub conditional_throughput: Option<f64>,
}

/// The trials aren't those that this search would have measured: another program or other settings made them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("trial {number} of the search is {seen}, but the search asks for {wanted}; start a new run")]
pub struct Diverged {
    /// Which trial, from 1.
    pub number: usize,
    /// What it is.
    pub seen: String,
    /// What it should be.
    pub wanted: String,
}

impl Diverged {
    fn new(number: usize, seen: &Trial, wanted: Option<(u32, f64)>) -> Self {
        let words = |(load, seconds): (u32, f64)| format!("{load} for {seconds} s");
        Self { number, seen: words((seen.load, seen.seconds)), wanted: wanted.map_or("none".into(), words) }
    }
}

/// Decides what comes after `trials`.
///
/// # Errors
/// When they aren't trials of this search.
pub fn next(settings: &Settings, trials: &[Trial]) -> Result<Next, Diverged> {
    Replay::new(settings, trials).run()
}

#[cfg(test)]
mod tests;
