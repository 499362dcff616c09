//! Replays the search over the finished trials and returns the first trial that is missing.

use super::{
    Diverged, Fault, GoalResult, Next, Outcome, SearchResult, Settings, Start, Trial,
    attempts::Attempts,
    grid::Grid,
    limits::Limits,
    pursuit::{Nomination, Pursuit},
    record::{Bounds, Record},
    tally::Measured,
    target::{Target, chain},
};

/// Why the replay stops before the search is finished.
enum Halt {
    /// The finished trials are used up; this trial is next.
    MissingTrial { place: usize, seconds: f64 },
    /// The generator can't offer this load.
    Limit { place: usize },
    /// Trials at this load stay invalid for another cause.
    GivenUp { place: usize },
    /// The finished trials are those of another search.
    Diverged(Diverged),
}

/// A search that takes the outcomes of its trials from a list.
pub(super) struct Replay<'a> {
    settings: &'a Settings,
    grid: Grid,
    /// The chain of targets of each goal.
    chains: Vec<Vec<Target>>,
    trials: &'a [Trial],
    used: usize,
    record: Record,
    limits: Limits,
}

impl<'a> Replay<'a> {
    pub(super) fn new(settings: &'a Settings, trials: &'a [Trial]) -> Self {
        let grid = settings.grid();
        let limits = Limits { first: 0, last: grid.last() };
        let chain = |(index, goal)| chain(index, goal, settings.unit(), limits.last);
        let chains = settings.goals.iter().enumerate().map(chain).collect();
        Self { settings, grid, chains, trials, used: 0, record: Record::default(), limits }
    }

    /// Runs until a trial is missing or all goals are met. When the generator is the limit, the search restarts below
    /// that load with the trials that it has, and approaches the limit while everything below passes.
    pub(super) fn run(mut self) -> Result<Next, Diverged> {
        let (mut limit, mut given_up_at) = (None, None);
        let mut start = self.settings.start;
        loop {
            match self.search(start) {
                Ok(()) => match limit {
                    Some(limit) if self.limits.last + 1 < limit && self.all_pass() => {
                        self.limits.last = (self.limits.last + limit) / 2;
                    }
                    _ => break,
                },
                Err(Halt::MissingTrial { place, seconds }) => {
                    return Ok(Next::Measure { load: self.grid.load(place), seconds });
                }
                Err(Halt::Diverged(diverged)) => return Err(diverged),
                Err(Halt::GivenUp { place }) => {
                    given_up_at = Some(self.grid.load(place));
                    break;
                }
                Err(Halt::Limit { place }) => {
                    limit = Some(place);
                    if place <= self.limits.first {
                        self.record = Record::default();
                        break;
                    }
                    self.record.remove_above(place - 1);
                    let known = self.record.highest().unwrap_or(self.limits.first);
                    self.limits.last = (known + place) / 2;
                    start = Start::Low;
                }
            }
        }
        if let Some(trial) = self.trials.get(self.used) {
            return Err(Diverged::new(self.used + 1, trial, None));
        }
        let goals = self.chains.iter().map(|chain| self.found(&chain[0])).collect();
        Ok(Next::SearchResult(SearchResult {
            goals,
            generator_limit: limit.map(|place| self.grid.load(place)),
            given_up_at,
        }))
    }

    /// Whether no load is an upper bound for any goal.
    fn all_pass(&self) -> bool {
        self.chains.iter().all(|chain| self.record.bounds(&chain[0]).upper.is_none())
    }

    fn found(&self, target: &Target) -> GoalResult {
        let Bounds { lower, upper } = self.record.bounds(target);
        let load = |place| self.grid.load(place);
        let throughput = |place| f64::from(self.grid.load(place)) * (1.0 - self.record.loss(place, target));
        GoalResult { lower: lower.map(load), upper: upper.map(load), conditional_throughput: lower.map(throughput) }
    }

    fn search(&mut self, start: Start) -> Result<(), Halt> {
        let (low, high) = match start {
            Start::Low => (self.limits.first, self.limits.first),
            Start::High => self.initial_trials()?,
        };
        let mut pursuits: Vec<Pursuit> =
            self.chains.iter().map(|chain| Pursuit::new(chain.clone(), (low, high), self.limits)).collect();
        let mut shared = high - low;
        loop {
            let mut winner: Option<(Nomination, usize)> = None;
            let (top, reach) = (self.top(), self.reach());
            for (index, pursuit) in pursuits.iter_mut().enumerate() {
                let nomination = pursuit.nominate(&self.record, shared).filter(|new| new.place <= top);
                let nomination = nomination.map(|new| Nomination { place: new.place.min(reach), ..new });
                let wins = |new: &Nomination| winner.as_ref().is_none_or(|(known, _)| !known.precedes(new));
                if let Some(nomination) = nomination.filter(wins) {
                    winner = Some((nomination, index));
                }
            }
            let Some((nomination, index)) = winner else { return Ok(()) };
            self.measure(nomination.place, nomination.seconds)?;
            shared = nomination.width;
            if let Some(wider) = pursuits[index].measured(nomination.place, &self.record) {
                shared = wider;
            }
        }
    }

    /// The largest place that is worth measuring.
    fn top(&self) -> usize {
        let upper = |chain: &Vec<Target>| self.record.bounds(&chain[0]).upper;
        let lowest = self.chains.iter().filter_map(upper).min().filter(|_| self.settings.sparing);
        lowest.unwrap_or(self.limits.last)
    }

    /// The largest place that may be measured next: far above its capacity, a service isn't the same as before.
    fn reach(&self) -> usize {
        let twice = |place| self.grid.place(2.0 * f64::from(self.grid.load(place)));
        let reach = self.record.highest().filter(|_| self.settings.sparing).map(twice);
        reach.unwrap_or(self.limits.last)
    }

    /// Two places between which the bounds may be: from the throughput at the largest load, and the throughput at that
    /// load.
    fn initial_trials(&mut self) -> Result<(usize, usize), Halt> {
        let coarsest = || self.chains.iter().filter_map(|chain| chain.last());
        let seconds = coarsest().map(|target| target.trial_seconds).fold(0.0, f64::max);
        let width = coarsest().map(|target| target.width).max().unwrap_or(1);
        let Limits { last: top, .. } = self.limits;
        let losses = self.measure(top, seconds)?;
        let throughput = self.throughput(top, &losses);
        if throughput >= top {
            return Ok((top, top));
        }
        let below = |upper| Bounds { lower: None, upper: Some(upper) };
        let Some(second) = self.limits.adjusted(throughput, width, below(top)) else { return Ok((top, top)) };
        let losses = self.measure(second, seconds)?;
        let third = if self.exceeds(&losses) {
            self.limits.adjusted(self.throughput(second, &losses), width, below(second))
        } else {
            let between = Bounds { lower: Some(second), upper: Some(top) };
            self.limits.adjusted((second + width).min(top), width, between)
        };
        let Some(third) = third else { return Ok((second, second)) };
        self.measure(third, seconds)?;
        Ok((second.min(third), second.max(third)))
    }

    fn exceeds(&self, losses: &[f64]) -> bool {
        losses.iter().zip(&self.settings.goals).any(|(loss, goal)| *loss > goal.loss_ratio)
    }

    /// The place of the load that equals the throughput at `place`, adjusted for the loss that each goal allows; the
    /// smallest over all goals.
    fn throughput(&self, place: usize, losses: &[f64]) -> usize {
        let load = f64::from(self.grid.load(place));
        let throughput = losses
            .iter()
            .zip(&self.settings.goals)
            .map(|(loss, goal)| load * (1.0 - loss) * (1.0 / (1.0 - goal.loss_ratio)))
            .fold(f64::INFINITY, f64::min);
        self.grid.place(throughput).min(self.limits.last)
    }

    /// Takes the next valid trial of the list and skips invalid ones.
    fn measure(&mut self, place: usize, seconds: f64) -> Result<Vec<f64>, Halt> {
        let planned_load = self.grid.load(place);
        let mut attempts = Attempts::default();
        loop {
            let Some(trial) = self.trials.get(self.used) else { return Err(Halt::MissingTrial { place, seconds }) };
            self.used += 1;
            if trial.load != planned_load || trial.seconds != seconds {
                return Err(Halt::Diverged(Diverged::new(self.used, trial, Some((planned_load, seconds)))));
            }
            match &trial.outcome {
                Outcome::Measured(losses) => {
                    self.record.add(place, Measured { seconds, losses: losses.clone() });
                    return Ok(losses.clone());
                }
                Outcome::Invalid(fault) => match attempts.add(*fault) {
                    None => {}
                    Some(Fault::Generator) => return Err(Halt::Limit { place }),
                    Some(Fault::Machine | Fault::Other) => return Err(Halt::GivenUp { place }),
                },
            }
        }
    }
}
