//! Capacity search: decides the next trial from the finished ones, or returns the bounds that were found. Pure.
//!
//! An implementation of the controller of MLRsearch (draft-ietf-bmwg-mlrsearch-15): several goals share trials, short
//! trials come before long ones, and a load is classified from all its trials. [`next`] replays the whole search over
//! the finished trials, so that a resumed search decides the same. In the order of the flow:
//!
//! [`losses`] (objectives as goals, results as losses) → [`grid`] (loads as places) → [`target`] (a goal as a chain of
//! targets) → [`tally`] (classifies a load from its trials) → [`record`] (relevant bounds) → [`pursuit`] with
//! [`limits`] (the trial that one goal nominates) → [`replay`] (the trial that is measured).
//!
//! The bounds are where a second part begins: [`rounds`] of trials on fresh processes, of the length that the objectives
//! need, whose outcomes the [`posterior`] of the capacity is from, and tests of the loads that pass and fail. [`approach`]
//! goes there from a start that is far away. [`course`] runs both parts for one service, [`turns`] decides whose trial is
//! next, [`attempts`] counts invalid ones, [`gates`] says what failed first, and [`so_far`] what is known before the end.
//!
//! `analysis/tests/test_search.py` compares every decision with those of MLRsearch on PyPI.

use self::{grid::Grid, replay::Replay};

mod approach;
mod attempts;
pub mod course;
pub mod gates;
pub mod grid;
mod limits;
mod loads;
pub mod losses;
pub mod posterior;
mod pursuit;
mod record;
mod replay;
pub mod rounds;
pub mod so_far;
mod tally;
mod target;
pub mod turns;

/// The loads and goals of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The smallest load that may be measured.
    pub from: u32,
    /// The largest load that may be measured.
    pub to: u32,
    /// The goals; at least one.
    pub goals: Vec<Goal>,
    /// Where the search begins.
    pub start: Start,
    /// Whether the search spares the service: it measures nothing above the upper bound of any goal, since no load there
    /// meets all of them, and no load that is more than twice the largest one before. Otherwise it decides as MLRsearch,
    /// which finds the bounds of each goal. To spare it, the goals need the same durations and widths.
    pub sparing: bool,
}

impl Settings {
    /// The loads that may be measured. Adjacent loads differ by the width of the narrowest goal.
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
    /// At the smallest load, in growing strides, so that a service never gets a load far above its capacity.
    #[default]
    Low,
    /// At the largest load and the throughput that it achieved, as RFC 2544 and MLRsearch do. Needs fewer trials where
    /// overload does no harm.
    High,
}

/// A loss ratio, and the precision and certainty that the search needs for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// A trial with a higher loss ratio is bad.
    pub loss_ratio: f64,
    /// Share of the duration at a load that may be bad; 0.5 selects the median.
    pub exceed_ratio: f64,
    /// Largest width of the interval between the bounds, as a share of the upper one.
    pub width: f64,
    /// Duration of the shortest trials, in seconds.
    pub initial_trial_seconds: f64,
    /// Duration of a full trial, in seconds.
    pub final_trial_seconds: f64,
    /// Sum of the trial durations at a load that is enough to classify it, in seconds.
    pub duration_sum_seconds: f64,
    /// Number of preceding targets, which have shorter duration sums and wider intervals.
    pub preceding_targets: u32,
    /// Factor by which an interval grows while one bound is missing.
    pub expansion: usize,
}

impl Goal {
    /// A goal with the durations that MLRsearch recommends: 21 trials of one second.
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

/// One trial of a search. Trials are listed in the order in which they were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The load of the trial.
    pub load: u32,
    /// Duration of the trial, in seconds.
    pub seconds: f64,
    /// The trial's losses, or why it is invalid.
    pub outcome: Outcome,
}

/// The outcome of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The loss ratio for each goal, in the order of the goals.
    Measured(Vec<f64>),
    /// The trial is invalid and has no losses.
    Invalid(Fault),
}

/// The cause of an invalid trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The generator could not offer the load.
    Generator,
    /// Other programs or the hypervisor used the machine.
    Machine,
    /// Any other cause, such as an interruption.
    Other,
}

/// The next step of a search.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Measure a trial at this load and of this duration.
    Measure {
        /// The load of the trial.
        load: u32,
        /// Duration of the trial, in seconds.
        seconds: f64,
    },
    /// The search is finished.
    SearchResult(SearchResult),
}

/// The bounds of each goal, and how the search ended.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchResult {
    /// The bounds of each goal, in the order of the goals.
    pub goals: Vec<GoalResult>,
    /// The smallest load that the generator could not offer; loads above it were not searched.
    pub generator_limit: Option<u32>,
    /// The load at which trials stayed invalid for another cause. The bounds are those known by then.
    pub given_up_at: Option<u32>,
}

/// The relevant bounds of one goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalResult {
    /// The largest load that meets the goal, below the upper bound; absent when the smallest load doesn't meet it.
    pub lower: Option<u32>,
    /// The smallest load that doesn't meet the goal; absent when the largest searched load meets it.
    pub upper: Option<u32>,
    /// Throughput at the lower bound: load × (1 - loss ratio at the quantile).
    pub conditional_throughput: Option<f64>,
}

/// The trials are not those that this search would have measured: another program or other settings made them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("trial {number} of the search is {recorded}, but the search would measure {planned}; start a new run")]
pub struct Diverged {
    /// Number of the first trial that differs, from 1.
    pub number: usize,
    /// Load and duration of that trial.
    pub recorded: String,
    /// Load and duration that the search asks for at that point.
    pub planned: String,
}

impl Diverged {
    fn new(number: usize, recorded: &Trial, planned: Option<(u32, f64)>) -> Self {
        Self::at(number, (recorded.load, recorded.seconds), planned)
    }

    fn at(number: usize, recorded: (u32, f64), planned: Option<(u32, f64)>) -> Self {
        let description = |(load, seconds): (u32, f64)| format!("{load} for {seconds} s");
        Self { number, recorded: description(recorded), planned: planned.map_or("none".into(), description) }
    }
}

/// Decides the step after `trials`.
///
/// # Errors
/// When the trials are not those that this search would have measured.
pub fn next(settings: &Settings, trials: &[Trial]) -> Result<Next, Diverged> {
    Replay::new(settings, trials).run()
}

#[cfg(test)]
mod tests;
