//! When enough pairs are measured: the always-valid interval of a mean log ratio, and what it decides. Pure.
//!
//! The interval may be looked at after every pair, and it holds the truth at all looks together with the stated level
//! (Wang & Ramdas 2023, the t-test of an unknown deviation under a flat prior). Student's interval at every look would be
//! wrong in a fifth to a quarter of all comparisons of equal services.
//!
//! `analysis/ws_ladder_analysis/sequential.py` is the same rule and simulates how often it errs;
//! `operator/testdata/sequential.json` holds both to the same numbers.

use bench_format::comparison::ComparisonVerdict;

use crate::search::posterior::normal;

/// Number of pairs before the first decision.
pub const FIRST_LOOK: usize = 5;
/// Number of pairs at which a comparison ends by default.
pub const PAIRS_AT_MOST: u32 = 60;
/// Probability of a wrong "differs" over all looks together; several figures divide it.
pub const ALPHA: f64 = 0.05;
/// The smaller of two figures divided by the larger one, down to which two sides count as the same.
const SAME_FROM: f64 = 0.95;
/// Probability with which a fixed number of pairs shows a difference of 5 %.
const POWER: f64 = 0.9;
/// The quantile of the normal distribution at [`POWER`], and at 1 - [`ALPHA`] / 2.
const NORMAL_AT_POWER: f64 = 1.281_551_565_544_6;
const NORMAL_AT_LEVEL: f64 = 1.959_963_984_540_05;
/// Largest number of pairs that is named. Beyond it the noise must be reduced first.
const MOST_NAMED: f64 = 100_000.0;

/// What the log ratios of the pairs so far say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// What the interval says.
    pub verdict: ComparisonVerdict,
    /// Geometric mean of the pairs' ratios.
    pub ratio: f64,
    /// The ratio's always-valid interval; `None` while it is unbounded.
    pub interval: Option<(f64, f64)>,
    /// Pairs that a fixed number would need; `None` unless no difference was shown.
    pub pairs_needed: Option<u32>,
}

/// Half of the always-valid interval of the mean of log ratios, at level 1 - `alpha` over all looks together. Infinite as
/// long as there are too few pairs for any bound.
pub fn half_width(logs: &[f64], alpha: f64) -> f64 {
    let n = logs.len() as f64;
    let k = ((1.0 + n).sqrt() / alpha).powf(2.0 / n);
    if logs.len() < 2 || k >= 1.0 + n {
        return f64::INFINITY;
    }
    deviation(logs) / n.sqrt() * ((n - 1.0) * (k - 1.0) / (1.0 - k / (1.0 + n))).sqrt()
}

/// Decides on the log ratios of the pairs so far. `alpha` is the probability of a wrong "differs" that is accepted.
pub fn decide(logs: &[f64], pairs_at_most: u32, alpha: f64) -> Decision {
    let (mean, half) = (mean(logs), half_width(logs, alpha));
    let interval = half.is_finite().then(|| ((mean - half).exp(), (mean + half).exp()));
    let shown = interval.filter(|_| logs.len() >= FIRST_LOOK).and_then(verdict_of);
    let verdict = match shown {
        Some(verdict) => verdict,
        None if logs.len() < pairs_at_most as usize => ComparisonVerdict::Undecided,
        None => ComparisonVerdict::NotShown,
    };
    let needed = verdict == ComparisonVerdict::NotShown && logs.len() > 1;
    Decision {
        verdict,
        ratio: mean.exp(),
        interval,
        pairs_needed: if needed { pairs_needed(deviation(logs)) } else { None },
    }
}

/// What an interval of a ratio says; `None` where it is too wide for either statement.
fn verdict_of((low, high): (f64, f64)) -> Option<ComparisonVerdict> {
    if low > 1.0 || high < 1.0 {
        Some(ComparisonVerdict::Differs)
    } else if low > SAME_FROM && high < 1.0 / SAME_FROM {
        Some(ComparisonVerdict::Same)
    } else {
        None
    }
}

/// The fixed number of pairs with which Student's test shows a difference of 5 % with a probability of 0.9, for pairs
/// whose log ratios have this standard deviation. `None` where it takes more than 100 000.
pub fn pairs_needed(deviation: f64) -> Option<u32> {
    let shift = -SAME_FROM.ln() / deviation;
    let normal_pairs = ((NORMAL_AT_LEVEL + NORMAL_AT_POWER) / shift).powi(2);
    if normal_pairs > MOST_NAMED {
        return None;
    }
    // Student's test needs a few pairs more than the normal approximation.
    let (mut enough, mut too_few) = (normal_pairs.ceil() as u32 + 10, 1);
    while enough - too_few > 1 {
        let pairs = too_few + (enough - too_few) / 2;
        if power(pairs, shift) >= POWER { enough = pairs } else { too_few = pairs }
    }
    Some(enough)
}

/// Probability that Student's two-sided test on `pairs` log ratios shows a mean of `shift` standard deviations.
fn power(pairs: u32, shift: f64) -> f64 {
    let freedom = f64::from(pairs - 1);
    let spread = SpreadOf::new(freedom);
    // 700 is above the quantile at one degree of freedom (12.7), the largest one.
    let (mut low, mut high) = (0.0, 700.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if spread.beyond(middle, 0.0) > ALPHA / 2.0 { low = middle } else { high = middle }
    }
    // Without the other tail: a difference in the wrong direction is shown with a probability far below 1e-6.
    spread.beyond(high, shift * f64::from(pairs).sqrt())
}

/// The distribution of an estimated standard deviation divided by the true one, as weights on a grid.
struct SpreadOf(Vec<(f64, f64)>);

impl SpreadOf {
    /// Steps of the grid. With so many, probabilities are exact to nine digits.
    const STEPS: u32 = 2_000;

    fn new(freedom: f64) -> Self {
        // Up to 8 standard deviations around the mode; the density of s is proportional to s^(f-1) · exp(-f·s²/2).
        let (centre, reach) = (((freedom - 1.0) / freedom).sqrt(), 8.0 / (2.0 * freedom).sqrt());
        let (low, high) = ((centre - reach).max(0.0), centre + reach);
        let step = (high - low) / f64::from(Self::STEPS);
        let log = |s: f64| if freedom > 1.0 { (freedom - 1.0) * s.ln() } else { 0.0 } - freedom * s * s / 2.0;
        let most = log(centre.max(step));
        let at = |place: u32| low + (f64::from(place) + 0.5) * step;
        let weights: Vec<(f64, f64)> =
            (0..Self::STEPS).map(|place| (at(place), (log(at(place)) - most).exp())).collect();
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        Self(weights.into_iter().map(|(s, weight)| (s, weight / sum)).collect())
    }

    /// Probability that the t statistic of a mean that lies `shift` standard errors from 0 exceeds `critical`.
    fn beyond(&self, critical: f64, shift: f64) -> f64 {
        self.0.iter().map(|(s, weight)| weight * normal(shift - critical * s)).sum()
    }
}

fn mean(logs: &[f64]) -> f64 {
    logs.iter().sum::<f64>() / logs.len() as f64
}

/// The standard deviation of a sample; NaN below two values.
fn deviation(logs: &[f64]) -> f64 {
    let mean = mean(logs);
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    (squares / (logs.len() as f64 - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// A case of `testdata/sequential.json`, which `test_sequential.py` reads, too.
    #[derive(Deserialize)]
    struct Case {
        logs: Vec<f64>,
        alpha: f64,
        pairs_at_most: u32,
        verdict: ComparisonVerdict,
        ratio: f64,
        interval: Option<(f64, f64)>,
        pairs_needed: Option<u32>,
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-9 * other.abs().max(1e-300)
    }

    #[test]
    fn the_decisions_are_those_of_the_analysis() {
        let cases: Vec<Case> = serde_json::from_str(include_str!("../../testdata/sequential.json")).unwrap();
        assert!(cases.len() > 20);
        for (number, case) in cases.iter().enumerate() {
            let found = decide(&case.logs, case.pairs_at_most, case.alpha);
            assert_eq!((found.verdict, found.pairs_needed), (case.verdict, case.pairs_needed), "case {number}");
            assert!(near(found.ratio, case.ratio), "case {number}: {found:?}");
            match (found.interval, case.interval) {
                (Some(found), Some(case)) => assert!(near(found.0, case.0) && near(found.1, case.1), "case {number}"),
                (found, case) => assert_eq!(found, case, "case {number}"),
            }
        }
    }

    #[test]
    fn recorded_pairs_of_a_service_against_itself_never_differ_at_any_look() {
        // Floods of `self-test-none` by `plans/self-test/pairs.yaml`, on a machine that was busy with other work.
        #[derive(Deserialize)]
        struct Recorded {
            logs: Vec<f64>,
        }
        let recorded: Vec<Recorded> =
            serde_json::from_str(include_str!("../../testdata/self_comparison.json")).unwrap();
        assert_eq!(recorded.iter().map(|one| one.logs.len()).collect::<Vec<_>>(), [12, 12, 40, 40]);
        for (one, alpha) in recorded.iter().flat_map(|one| [(one, ALPHA), (one, ALPHA / 2.0)]) {
            let verdict = |pairs: usize| decide(&one.logs[..pairs], 60, alpha).verdict;
            assert!((1..=one.logs.len()).all(|pairs| verdict(pairs) != ComparisonVerdict::Differs), "{:?}", one.logs);
        }
        // The same pairs with a difference of 20 % in the cost are found.
        let slower: Vec<f64> = recorded[3].logs.iter().map(|log| log + 1.2f64.ln()).collect();
        assert_eq!(decide(&slower, 60, ALPHA / 2.0).verdict, ComparisonVerdict::Differs);
    }

    #[test]
    fn nothing_is_decided_before_the_fifth_pair() {
        let clear = [0.5, 0.501, 0.502, 0.503, 0.504];
        assert_eq!(decide(&clear[..4], 60, ALPHA).verdict, ComparisonVerdict::Undecided);
        assert_eq!(decide(&clear, 60, ALPHA).verdict, ComparisonVerdict::Differs);
    }

    #[test]
    fn two_pairs_bound_nothing_and_equal_pairs_bound_everything() {
        assert_eq!(decide(&[0.1, 0.2], 60, ALPHA).interval, None);
        assert_eq!(half_width(&[0.1], ALPHA), f64::INFINITY);
        assert_eq!(half_width(&[0.1; 5], ALPHA), 0.0);
    }

    #[test]
    fn a_difference_that_is_shown_stays_one_below_five_percent() {
        assert_eq!(verdict_of((1.01, 1.02)), Some(ComparisonVerdict::Differs));
        assert_eq!(verdict_of((0.96, 1.04)), Some(ComparisonVerdict::Same));
        assert_eq!(verdict_of((0.94, 1.02)), None);
    }

    #[test]
    fn the_pairs_that_it_takes_are_bounded() {
        assert_eq!((pairs_needed(0.0), pairs_needed(1e-6), pairs_needed(50.0)), (Some(2), Some(2), None));
        // The table of docs/METHODOLOGY.md: two sides with these spreads each.
        let needed = [0.01, 0.02, 0.03, 0.05, 0.08, 0.1].map(|cv: f64| pairs_needed(cv * 2f64.sqrt()));
        assert_eq!(needed, [4, 6, 10, 22, 54, 82].map(Some));
    }
}
