//! The posterior of a service's capacity from trials that passed or failed. Pure.
//!
//! The model is P(pass at load x) = 0.01 + 0.98 · Φ((ln C − ln x) / s): C is the load at which a trial on a fresh
//! process passes with probability 0.5, s the spread between processes, and the rest allows for trials that pass or
//! fail for another reason (lapses; Wichmann & Hill 2001). Both unknowns lie on a grid, as in QUEST+ (Watson 2017).
//!
//! `analysis/ws_ladder_analysis/capacity.py` computes the same a second time from a bundle.

use bench_format::run::CapacityEstimate;

/// Step of ln C.
const STEP: f64 = 0.0025;
/// Steps from the centre of the grid to each end: 25 %.
const REACH: usize = 100;
/// Number of places of ln C.
const PLACES: usize = 2 * REACH + 1;
/// Steps from the centre up to which the prior is flat: 12 %.
const FLAT: usize = 48;
/// Logarithm of the prior beyond that, relative to the flat part.
const OUTSIDE: f64 = -20.0;
/// Number of spreads, from the smallest to the largest in equal ratios.
const SPREADS: usize = 12;
const SMALLEST_SPREAD: f64 = 0.003;
const LARGEST_SPREAD: f64 = 0.1;
/// Share of trials whose outcome does not depend on the load.
const LAPSE: f64 = 0.02;
/// Steps from an end within which the grid is about to be left: 2 %.
const MARGIN: usize = 8;
/// Mass within the margin of an end of the grid that moves the grid there.
const MASS_AT_END: f64 = 0.01;
/// Mass beyond the same margin of an end of the flat part that moves the grid there. The prior would otherwise hold an
/// estimate at the flat part's end where the start is 12 % or more from the capacity.
const MASS_AT_FLAT_END: f64 = 0.5;
/// Limit of moves after one trial; outcomes in an order that no service has could otherwise move the grid for ever.
const MOVES: usize = 20;
/// Probability of a place and spread that changes no prediction; all of them together are 2e-9.
const NEGLIGIBLE: f64 = 1e-12;
/// Deviations beyond which Φ is 0 or 1 to more digits than the lapse leaves.
const FAR: f64 = 7.0;

/// The posterior after a number of trials.
#[derive(Clone, Debug)]
pub struct Posterior {
    /// ln C in the middle of the grid.
    centre: f64,
    /// Probability of each place and spread: `SPREADS` numbers for each place.
    weights: Vec<f64>,
    /// ln of the load, and whether the trial passed.
    trials: Vec<(f64, bool)>,
}

impl Posterior {
    /// The prior around a load.
    pub fn new(start: f64) -> Self {
        let mut posterior = Self { centre: start.ln(), weights: vec![], trials: vec![] };
        posterior.replay();
        posterior
    }

    /// Adds a valid trial. When 1 % of the mass lies within 2 % of an end of the grid, or half of it at an end of the
    /// prior's flat part, the grid moves there.
    pub fn add(&mut self, load: u32, passed: bool) {
        let trial = (f64::from(load).ln(), passed);
        self.trials.push(trial);
        self.multiply(trial);
        for _ in 0..MOVES {
            let Some(steps) = self.shift() else { return };
            self.centre += steps * STEP;
            self.replay();
        }
    }

    /// The steps by which the grid has to move; `None` when it may stay.
    fn shift(&self) -> Option<f64> {
        [(REACH, MASS_AT_END), (FLAT, MASS_AT_FLAT_END)].into_iter().find_map(|(end, limit)| {
            let low = self.mass(0..=REACH - end + MARGIN);
            let high = self.mass(REACH + end - MARGIN..=PLACES - 1);
            let steps = end as f64;
            (low.max(high) >= limit).then_some(if high > low { steps } else { -steps })
        })
    }

    /// The mean of C, its 95 % interval and the mean of the spread.
    pub fn estimate(&self) -> CapacityEstimate {
        CapacityEstimate {
            load: self.mean_ln().exp(),
            low: self.quantile(0.025).exp(),
            high: self.quantile(0.975).exp(),
            spread: self.mean_spread(),
            trials: self.trials.len() as u32,
        }
    }

    /// The posterior mean of ln C.
    pub fn mean_ln(&self) -> f64 {
        self.sum(|place, _| self.ln_of(place))
    }

    /// The posterior mean of s, as a share of the load.
    pub fn mean_spread(&self) -> f64 {
        self.sum(|_, spread| spread)
    }

    /// The predicted probability that a trial at a load passes.
    pub fn predict(&self, load: u32) -> f64 {
        let x = f64::from(load).ln();
        let spreads = spreads();
        let matters = |(_, weight): &(usize, &f64)| **weight > NEGLIGIBLE;
        let of = |(index, weight): (usize, &f64)| {
            weight * pass((self.ln_of(index / SPREADS) - x) / spreads[index % SPREADS])
        };
        self.weights.iter().enumerate().filter(matters).map(of).sum()
    }

    fn ln_of(&self, place: usize) -> f64 {
        self.centre + (place as f64 - REACH as f64) * STEP
    }

    /// The first place at which the cumulative probability of ln C reaches `share`.
    fn quantile(&self, share: f64) -> f64 {
        let mut below = 0.0;
        let reached = self.weights.chunks(SPREADS).position(|place| {
            below += place.iter().sum::<f64>();
            below >= share
        });
        self.ln_of(reached.unwrap_or(PLACES - 1))
    }

    fn mass(&self, places: std::ops::RangeInclusive<usize>) -> f64 {
        self.weights[places.start() * SPREADS..(places.end() + 1) * SPREADS].iter().sum()
    }

    fn sum(&self, value: impl Fn(usize, f64) -> f64) -> f64 {
        let spreads = spreads();
        let of = |(index, weight): (usize, &f64)| weight * value(index / SPREADS, spreads[index % SPREADS]);
        self.weights.iter().enumerate().map(of).sum()
    }

    /// Recomputes the weights from the prior and all trials.
    fn replay(&mut self) {
        let prior = |index: usize| match (index / SPREADS).abs_diff(REACH) {
            steps if steps <= FLAT => 1.0,
            _ => OUTSIDE.exp(),
        };
        self.weights = (0..PLACES * SPREADS).map(prior).collect();
        self.normalize();
        for trial in self.trials.clone() {
            self.multiply(trial);
        }
    }

    fn multiply(&mut self, (x, passed): (f64, bool)) {
        let spreads = spreads();
        for place in 0..PLACES {
            let distance = self.ln_of(place) - x;
            for (spread, weight) in spreads.iter().zip(&mut self.weights[place * SPREADS..]) {
                let likelihood = pass(distance / spread);
                *weight *= if passed { likelihood } else { 1.0 - likelihood };
            }
        }
        self.normalize();
    }

    fn normalize(&mut self) {
        let sum: f64 = self.weights.iter().sum();
        self.weights.iter_mut().for_each(|weight| *weight /= sum);
    }
}

/// The spreads of the grid.
fn spreads() -> [f64; SPREADS] {
    let ratio: f64 = LARGEST_SPREAD / SMALLEST_SPREAD;
    std::array::from_fn(|index| SMALLEST_SPREAD * ratio.powf(index as f64 / (SPREADS - 1) as f64))
}

/// The probability that a trial passes whose load is `deviations` spreads below the capacity.
fn pass(deviations: f64) -> f64 {
    LAPSE / 2.0 + (1.0 - LAPSE) * normal(deviations)
}

/// The cumulative normal distribution, to 15 digits within [`FAR`] deviations (Hart 1968, in the form of West 2005).
pub(crate) fn normal(deviations: f64) -> f64 {
    const ABOVE: [f64; 7] = [
        3.526_249_659_989_11e-2,
        0.700_383_064_443_688,
        6.373_962_203_531_65,
        33.912_866_078_383,
        112.079_291_497_871,
        221.213_596_169_931,
        220.206_867_912_376,
    ];
    const BELOW: [f64; 8] = [
        8.838_834_764_831_84e-2,
        1.755_667_163_182_64,
        16.064_177_579_207,
        86.780_732_202_946_1,
        296.564_248_779_674,
        637.333_633_378_831,
        793.826_512_519_948,
        440.413_735_824_752,
    ];
    let z = deviations.abs();
    if z >= FAR {
        return if deviations > 0.0 { 1.0 } else { 0.0 };
    }
    let polynomial = |factors: &[f64]| factors.iter().fold(0.0, |sum, factor| sum * z + factor);
    let tail = (-z * z / 2.0).exp() * polynomial(&ABOVE) / polynomial(&BELOW);
    if deviations > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution_has_its_known_values() {
        let known =
            [(0.0, 0.5), (1.0, 0.841_344_746_068_543), (-1.96, 0.024_997_895_148_220), (3.0, 0.998_650_101_968_37)];
        for (deviations, expected) in known {
            assert!((normal(deviations) - expected).abs() < 1e-13, "{deviations}: {}", normal(deviations));
        }
        assert_eq!((normal(40.0), normal(-40.0)), (1.0, 0.0));
    }

    #[test]
    fn before_any_trial_the_capacity_is_within_twelve_percent_of_the_start() {
        let estimate = Posterior::new(1000.0).estimate();
        assert!((estimate.load - 1000.0).abs() < 1e-6, "{estimate:?}");
        assert!((estimate.low / 1000.0).ln() < -0.11 && (estimate.high / 1000.0).ln() > 0.11, "{estimate:?}");
    }

    #[test]
    fn passes_below_and_fails_above_narrow_the_interval_around_the_capacity() {
        let mut posterior = Posterior::new(1000.0);
        for load in [1000, 1030, 970, 1010, 1040, 990, 1020, 1050, 980, 1015, 1025, 1020] {
            posterior.add(load, load <= 1020);
        }
        let CapacityEstimate { load, low, high, spread, trials } = posterior.estimate();
        assert!((1015.0..1030.0).contains(&load) && low > 1005.0 && high < 1055.0, "{:?}", posterior.estimate());
        assert!(spread < 0.02 && trials == 12, "{spread}");
        assert!(posterior.predict(950) > 0.95 && posterior.predict(1100) < 0.05);
    }

    #[test]
    fn one_lapse_moves_the_capacity_little() {
        let mut posterior = Posterior::new(1000.0);
        for load in [1000, 1030, 970, 1010, 1040, 990, 1020, 1050, 980] {
            posterior.add(load, load <= 1015);
        }
        let before = posterior.estimate().load;
        posterior.add(900, false);
        assert!((posterior.estimate().load / before).ln().abs() < 0.005);
    }

    #[test]
    fn the_grid_follows_a_capacity_far_from_the_start() {
        for capacity in [600_u32, 2000] {
            let mut posterior = Posterior::new(1000.0);
            for _ in 0..40 {
                let load = posterior.mean_ln().exp().round() as u32;
                posterior.add(load, load <= capacity);
            }
            let found = posterior.estimate().load;
            assert!((found / f64::from(capacity)).ln().abs() < 0.02, "{found} of {capacity}");
        }
    }
}
