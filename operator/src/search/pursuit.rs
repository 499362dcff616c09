//! The search of one goal for its bounds: nominates the next trial for it.
//!
//! A pursuit has a current target of its [`chain`](super::target::chain) and tries four steps in this order: halve the
//! interval of the last target, if half of it is narrow enough; check the last target's bounds under this target;
//! extend the interval where a bound is missing; split the interval. When none of them nominates a trial, the pursuit
//! moves on to the next target.

use super::{
    grid::split,
    limits::Limits,
    record::{Bounds, Record},
    target::Target,
};

/// A trial that a pursuit asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Nomination {
    /// Place of the load on the grid.
    pub(super) place: usize,
    /// Duration of the trial, in seconds.
    pub(super) seconds: f64,
    /// The least width of the next extension of every pursuit, once this trial is measured.
    pub(super) width: usize,
}

impl Nomination {
    /// Whether this nomination takes precedence over `other`: the smaller load, then the longer trial, then the larger
    /// width, then the earlier goal.
    pub(super) fn precedes(&self, other: &Self) -> bool {
        (self.place, -self.seconds) < (other.place, -other.seconds)
            || (self.place == other.place && self.seconds == other.seconds && self.width >= other.width)
    }
}

/// The bound that the measured load has to become for the next extension to be wider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Lower,
    Upper,
}

/// The state of one goal's search.
#[derive(Debug)]
pub(super) struct Pursuit {
    /// The targets that follow, in reverse order: the goal's own first.
    following_targets: Vec<Target>,
    target: Target,
    /// The bounds of the last target.
    inherited: Bounds,
    /// The width of the next extension.
    extension_width: usize,
    extended_side: Option<Side>,
    limits: Limits,
}

impl Pursuit {
    /// Begins with the last target of a chain, and two places between which the bounds may be.
    pub(super) fn new(mut chain: Vec<Target>, start: (usize, usize), limits: Limits) -> Self {
        let target = chain.pop().expect("a chain has at least the goal's own target");
        let inherited = Bounds { lower: Some(start.0), upper: Some(start.1) };
        let mut pursuit =
            Self { following_targets: chain, target, inherited, extension_width: 0, extended_side: None, limits };
        pursuit.start_extension();
        pursuit
    }

    /// The next trial; `None` when the goal's own target is met. `shared` is the least width by which every pursuit
    /// extends.
    pub(super) fn nominate(&mut self, record: &Record, shared: usize) -> Option<Nomination> {
        loop {
            let bounds = record.bounds(&self.target);
            self.extended_side = None;
            let found = self.halve(bounds).or_else(|| self.refine(bounds)).or_else(|| self.extend(bounds, shared));
            if let Some((place, width)) = found.or_else(|| self.narrow_down(bounds, shared)) {
                return Some(Nomination { place, seconds: self.target.trial_seconds, width });
            }
            self.target = self.following_targets.pop()?;
            self.inherited = bounds;
            self.start_extension();
        }
    }

    /// Updates the pursuit after its nomination was measured. If an extension only moved the bound, the next one is
    /// wider. Returns the new shared width if it changes.
    pub(super) fn measured(&mut self, place: usize, record: &Record) -> Option<usize> {
        let bounds = record.bounds(&self.target);
        let moved = match self.extended_side? {
            Side::Lower => bounds.lower == Some(place),
            Side::Upper => bounds.upper == Some(place),
        };
        moved.then(|| {
            self.extension_width = self.longer(self.extension_width);
            self.extension_width
        })
    }

    fn longer(&self, width: usize) -> usize {
        width.saturating_mul(self.target.expansion).min(self.limits.last - self.limits.first)
    }

    /// Sets the width of the first extension of a new target from the interval that it inherits.
    fn start_extension(&mut self) {
        let interval = self.inherited.lower.zip(self.inherited.upper).map_or(0, |(lower, upper)| upper - lower);
        self.extension_width = self.longer(interval.max(self.target.width));
    }

    /// Resets the width of the next extension after an interval was halved, checked or split.
    fn restart_extension(&mut self, width: usize) {
        self.extension_width = self.longer(width.max(self.target.width));
    }

    /// An inherited interval of at most two widths needs one trial in its middle, and often none at its ends.
    fn halve(&mut self, bounds: Bounds) -> Option<(usize, usize)> {
        let (lower, upper) = self.inherited.lower.zip(self.inherited.upper)?;
        let width = self.target.width;
        let halvable = upper - lower > width && upper - lower <= 2 * width;
        let middle =
            halvable.then(|| split(lower, upper, width)).filter(|middle| bounds.is_worth_measuring(*middle, width))?;
        self.restart_extension(width);
        Some((middle, width))
    }

    /// Checks the inherited bounds under this target.
    fn refine(&mut self, bounds: Bounds) -> Option<(usize, usize)> {
        let width = self.target.width;
        let known_bounds = [self.inherited.lower, self.inherited.upper];
        let bound = known_bounds.into_iter().flatten().find(|bound| bounds.is_worth_measuring(*bound, width))?;
        self.restart_extension(width);
        Some((bound, width))
    }

    /// Where one bound is missing, moves away from the other.
    fn extend(&mut self, bounds: Bounds, shared: usize) -> Option<(usize, usize)> {
        let width = self.extension_width.max(shared);
        let (requested, side) = match (bounds.lower, bounds.upper) {
            (Some(lower), None) if lower < self.limits.last => (lower + width, Side::Lower),
            (None, Some(upper)) if upper > self.limits.first => (upper.saturating_sub(width), Side::Upper),
            _ => return None,
        };
        let place = self.limits.adjusted(requested, self.target.width, bounds)?;
        self.extended_side = Some(side);
        Some((place, width))
    }

    /// Splits the interval between two known bounds that are too far apart. If a bound has moved out of the inherited
    /// interval, the trial is one stride from that bound, because the other one is likely near.
    fn narrow_down(&mut self, bounds: Bounds, shared: usize) -> Option<(usize, usize)> {
        let (lower, upper) = bounds.lower.zip(bounds.upper)?;
        if bounds.is_narrow(self.target.width) {
            return None;
        }
        let middle = split(lower, upper, self.target.width);
        let width = self.extension_width.max(shared);
        let adjusted = |requested| self.limits.adjusted(requested, self.target.width, bounds);
        let down = self
            .inherited
            .upper
            .filter(|old| middle < *old)
            .and_then(|old| adjusted(upper.saturating_sub(width)).filter(|place| middle < *place && *place < old));
        let up = self
            .inherited
            .lower
            .filter(|old| *old < middle)
            .and_then(|old| adjusted(lower + width).filter(|place| old < *place && *place < middle));
        if let Some(place) = down.or(up) {
            self.extended_side = Some(if down.is_some() { Side::Upper } else { Side::Lower });
            return Some((place, width));
        }
        let width = (middle - lower).min(upper - middle);
        self.restart_extension(width);
        Some((middle, width))
    }
}
