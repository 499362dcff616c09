//! The course of a comparison: which trial is next after those that have ended, and what they show. Pure.
//!
//! A comparison is decided again from its trials alone, so a resumed run goes on where it stopped, and `ladder verify`
//! compares the outcome with `run.json`.

use std::collections::BTreeMap;

use bench_format::{
    Name,
    comparison::{
        ComparedFigure, Comparison, ComparisonEnd, ComparisonProgress, ComparisonVerdict, DroppedPair, FigureLook,
        Look, RatioInterval,
    },
    plan::Load,
    trial::TrialId,
};

use super::{
    figures::{self, ProcessFigures},
    rule::{self, ALPHA, Decision, FIRST_LOOK},
};

/// Number of pairs dropped in a row after which a comparison gives up: the cause won't go away.
pub const DROPPED_IN_A_ROW: usize = 5;

/// Largest number of pairs that a comparison begins, valid or not.
pub fn attempts_at_most(pairs_at_most: u32) -> u32 {
    pairs_at_most.saturating_mul(2)
}

/// A trial that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedTrial {
    /// Id of the trial.
    pub trial: TrialId,
    /// Its figures, or why it doesn't count.
    pub outcome: Result<ProcessFigures, String>,
}

/// The trials are not those that this comparison would have measured: another program or other settings made them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("trial {number} of the comparison is {recorded}, but the comparison would {planned}; start a new run")]
pub struct Diverged {
    /// Number of the first trial that differs, from 1.
    pub number: usize,
    /// Id of that trial.
    pub recorded: String,
    /// What the comparison would do at that point.
    pub planned: String,
}

/// The state of a comparison after its finished trials.
#[derive(Debug)]
pub struct Course<'a> {
    comparison: &'a Comparison,
    load: &'a Load,
    progress: ComparisonProgress,
    /// Figures of the valid pairs, A's and B's.
    pairs: Vec<(ProcessFigures, ProcessFigures)>,
    /// Number of the pair that is measured.
    attempt: u32,
    /// The first trial of that pair, once it is valid.
    first: Option<ProcessFigures>,
    /// Number of pairs that were dropped since the last valid one.
    dropped_in_a_row: usize,
}

impl<'a> Course<'a> {
    /// The state after these trials, in the order in which they were measured.
    ///
    /// # Errors
    /// [`Diverged`] when the comparison would have measured other trials.
    pub fn after(comparison: &'a Comparison, load: &'a Load, finished: &[FinishedTrial]) -> Result<Self, Diverged> {
        let (progress, pairs) = (ComparisonProgress::default(), Vec::new());
        let mut course = Self { comparison, load, progress, pairs, attempt: 1, first: None, dropped_in_a_row: 0 };
        for (index, one) in finished.iter().enumerate() {
            let next = course.next();
            if next.as_ref() != Some(&one.trial) {
                let planned = next.map_or("have ended before it".into(), |trial| format!("measure {trial}"));
                return Err(Diverged { number: index + 1, recorded: one.trial.to_string(), planned });
            }
            course.take(one);
        }
        Ok(course)
    }

    /// The trial to measure next; `None` when the comparison has ended.
    pub fn next(&self) -> Option<TrialId> {
        if self.progress.end.is_some() {
            return None;
        }
        let Comparison { workload, variant, tier, .. } = self.comparison;
        Some(TrialId {
            service: self.turn().clone(),
            workload: workload.clone(),
            variant: variant.clone(),
            tier: *tier,
            process: self.attempt,
            repeat: 1,
        })
    }

    /// What the trials show.
    pub fn into_progress(self) -> ComparisonProgress {
        self.progress
    }

    /// Whether A is measured before B. The order turns with each valid pair (A B, B A), so that a steady drift of the
    /// machine cancels out. A dropped pair is measured again in its own order.
    fn begins_with_a(&self) -> bool {
        self.pairs.len().is_multiple_of(2)
    }

    fn turn(&self) -> &Name {
        let a = self.begins_with_a() == self.first.is_none();
        if a { &self.comparison.a.service } else { &self.comparison.b.service }
    }

    fn take(&mut self, finished: &FinishedTrial) {
        match (&finished.outcome, self.first.take()) {
            (Err(reason), _) => self.drop_pair(&finished.trial.service, reason.clone()),
            (Ok(figures), None) => self.first = Some(figures.clone()),
            (Ok(second), Some(first)) => {
                let (a, b) = if self.begins_with_a() { (first, second.clone()) } else { (second.clone(), first) };
                self.add(a, b);
            }
        }
    }

    fn add(&mut self, a: ProcessFigures, b: ProcessFigures) {
        if self.progress.figures.is_empty() {
            let asked = &self.comparison.asked;
            self.progress.figures = if asked.is_empty() { figures::deciding(self.load, &a, &b) } else { asked.clone() };
        }
        if let Some((service, reason)) = self.missing(&a, &b) {
            return self.drop_pair(&service, reason);
        }
        self.pairs.push((a, b));
        self.look();
        (self.attempt, self.dropped_in_a_row) = (self.attempt + 1, 0);
        self.end_if_enough();
    }

    /// The side that lacks a deciding figure, with the reason for which the pair is dropped.
    fn missing(&self, a: &ProcessFigures, b: &ProcessFigures) -> Option<(Name, String)> {
        let Comparison { a: side_a, b: side_b, .. } = self.comparison;
        if self.progress.figures.is_empty() {
            return Some((side_b.service.clone(), "no figure of this load is in the results of both sides".into()));
        }
        let sides = [(&side_a.service, a), (&side_b.service, b)];
        sides.into_iter().find_map(|(service, figures)| {
            let absent = self.progress.figures.iter().find(|figure| !figures.values.contains_key(figure))?;
            let has: Vec<&str> = figures.values.keys().map(|figure| figure.name()).collect();
            let reason = format!("no {} in its result, which has {}", absent.name(), has.join(", "));
            Some((service.clone(), reason))
        })
    }

    fn drop_pair(&mut self, service: &Name, reason: String) {
        self.progress.dropped.push(DroppedPair {
            pair: self.attempt,
            service: service.clone(),
            reason: reason.clone(),
        });
        (self.attempt, self.dropped_in_a_row) = (self.attempt + 1, self.dropped_in_a_row + 1);
        let attempts = attempts_at_most(self.comparison.pairs_at_most);
        let why = if self.dropped_in_a_row >= DROPPED_IN_A_ROW {
            format!("{DROPPED_IN_A_ROW} pairs in a row don't count")
        } else if self.attempt > attempts {
            format!("only {} of {attempts} pairs count", self.pairs.len())
        } else {
            return;
        };
        let reason = format!("{why}; the last, of {service}: {reason}");
        self.progress.end = Some(ComparisonEnd::NotComparable { reason });
    }

    fn look(&mut self) {
        let last = self.progress.looks.last();
        let look = |(place, figure): (usize, &ComparedFigure)| match last.map(|look| &look.figures[place]) {
            // Later pairs can't take back what the always-valid interval has shown.
            Some(decided) if is_decided(decided.verdict) => decided.clone(),
            _ => self.figure(*figure),
        };
        let figures = self.progress.figures.iter().enumerate().map(look).collect();
        self.progress.looks.push(Look { pair: self.attempt, figures });
    }

    fn figure(&self, figure: ComparedFigure) -> FigureLook {
        let logs = |side: fn(&(ProcessFigures, ProcessFigures)) -> &ProcessFigures| -> Vec<f64> {
            self.pairs.iter().map(|pair| side(pair).values[&figure].ln()).collect()
        };
        let (a, b) = (logs(|pair| &pair.0), logs(|pair| &pair.1));
        let ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a - b).collect();
        let alpha = ALPHA / self.progress.figures.len() as f64;
        let decision = rule::decide(&ratios, self.comparison.pairs_at_most, alpha);
        let verdict = self.verdict(figure, &decision);
        FigureLook {
            figure,
            pairs: ratios.len() as u32,
            a: geometric_mean(&a),
            b: geometric_mean(&b),
            ratio: decision.ratio,
            interval: decision.interval.map(|(low, high)| RatioInterval { low, high }),
            verdict,
            pairs_needed: decision.pairs_needed.filter(|_| verdict == ComparisonVerdict::NotShown),
        }
    }

    /// The verdict of a figure. A rate that the generator limited is a lower bound, from which less follows.
    fn verdict(&self, figure: ComparedFigure, decision: &Decision) -> ComparisonVerdict {
        let bound = |side: fn(&(ProcessFigures, ProcessFigures)) -> &ProcessFigures| {
            figure.is_rate() && self.pairs.iter().any(|pair| side(pair).generator_bound)
        };
        let (a, b) = (bound(|pair| &pair.0), bound(|pair| &pair.1));
        let smaller_is_bound = if decision.ratio > 1.0 { b } else { a };
        match decision.verdict {
            _ if a && b && self.pairs.len() >= FIRST_LOOK => ComparisonVerdict::GeneratorBound,
            ComparisonVerdict::Differs if smaller_is_bound => ComparisonVerdict::GeneratorBound,
            ComparisonVerdict::Same if a || b => ComparisonVerdict::GeneratorBound,
            verdict => verdict,
        }
    }

    fn end_if_enough(&mut self) {
        let decided = |look: &Look| look.figures.iter().all(|figure| is_decided(figure.verdict));
        let full = self.pairs.len() >= self.comparison.pairs_at_most as usize;
        self.progress.end = match self.progress.looks.last() {
            Some(look) if decided(look) => Some(ComparisonEnd::Decided),
            _ if full => Some(ComparisonEnd::PairsAtMost),
            _ if self.attempt > attempts_at_most(self.comparison.pairs_at_most) => {
                let reason = format!("only {} of {} pairs count", self.pairs.len(), self.attempt - 1);
                Some(ComparisonEnd::NotComparable { reason })
            }
            _ => None,
        };
    }
}

/// Whether more pairs add nothing to a verdict.
fn is_decided(verdict: ComparisonVerdict) -> bool {
    matches!(verdict, ComparisonVerdict::Differs | ComparisonVerdict::Same | ComparisonVerdict::GeneratorBound)
}

fn geometric_mean(logs: &[f64]) -> f64 {
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// Whether a deciding figure shows that B is worse than A.
pub fn b_is_worse(look: &FigureLook) -> bool {
    look.verdict == ComparisonVerdict::Differs && (look.ratio > 1.0) == look.figure.more_is_better()
}

/// Geometric means of both sides, and the number of pairs, of the figures that don't decide, over the pairs that have them.
pub fn beside(comparison: &Comparison, finished: &[FinishedTrial]) -> Vec<(ComparedFigure, f64, f64, usize)> {
    let counted: Vec<u32> = comparison.progress.looks.iter().map(|look| look.pair).collect();
    let of = |service: &Name| -> BTreeMap<u32, &ProcessFigures> {
        let own = finished.iter().filter(|one| one.trial.service == *service && counted.contains(&one.trial.process));
        own.filter_map(|one| Some((one.trial.process, one.outcome.as_ref().ok()?))).collect()
    };
    let (a, b) = (of(&comparison.a.service), of(&comparison.b.service));
    let others = ComparedFigure::ALL.into_iter().filter(|figure| !comparison.progress.figures.contains(figure));
    let means = |figure: ComparedFigure| {
        let both = |pair: &u32| Some((a.get(pair)?.values.get(&figure)?.ln(), b.get(pair)?.values.get(&figure)?.ln()));
        let (a, b): (Vec<f64>, Vec<f64>) = counted.iter().filter_map(both).unzip();
        (!a.is_empty()).then(|| (figure, geometric_mean(&a), geometric_mean(&b), a.len()))
    };
    others.filter_map(means).collect()
}

#[cfg(test)]
mod tests;
