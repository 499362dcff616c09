//! The latency of each request: a pure function of the seed and the request's number, so that a run can be repeated.
//!
//! It counts from when the request has been received completely and holds its permit until the response. The real
//! computation happens within that time. Neither the computation nor the load makes it longer, as long as the machine
//! keeps up.

use std::time::Duration;

use crate::{
    config::Config,
    random::{Stream, uniform},
};

/// The latency model with its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    seed: u64,
    median_ms: f64,
    sigma: f64,
    longtail_share: f64,
    longtail_factor: f64,
    batch_wait_max_ms: f64,
}

impl Model {
    /// Creates the model from the settings.
    pub fn new(config: &Config) -> Self {
        Self {
            seed: config.model_seed,
            median_ms: config.model_delay_ms,
            sigma: config.model_jitter_sigma,
            longtail_share: config.model_longtail_prob,
            longtail_factor: config.model_longtail_mult,
            batch_wait_max_ms: config.model_batch_wait_max_ms,
        }
    }

    /// The latency of request `number`.
    pub fn latency(&self, number: u64) -> Duration {
        let draw = |stream| uniform(self.seed, number, stream);
        let batch_wait_ms = draw(Stream::BatchWait) * self.batch_wait_max_ms;
        let normal = normal(draw(Stream::NormalRadius), draw(Stream::NormalAngle));
        let mut compute_ms = self.median_ms * (self.sigma * normal).exp();
        if draw(Stream::Longtail) < self.longtail_share {
            compute_ms *= self.longtail_factor;
        }
        // A very large sigma overflows; the longest latency is then as good as none.
        Duration::try_from_secs_f64((batch_wait_ms + compute_ms) / 1e3).unwrap_or(LONGEST).min(LONGEST)
    }
}

const LONGEST: Duration = Duration::from_secs(86_400);

/// A standard normal number from two uniform numbers in [0, 1), by the Box-Muller transform.
fn normal(radius: f64, angle: f64) -> f64 {
    // 1 - radius lies in (0, 1], so the logarithm is finite.
    (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn model(flags: &[&str]) -> Model {
        Model::new(&Config::parse_from(["inference-sim"].iter().chain(flags)))
    }

    fn sorted_ms(model: Model) -> Vec<f64> {
        let mut all: Vec<f64> = (0..100_000).map(|number| model.latency(number).as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn the_same_seed_gives_the_same_latencies_and_another_gives_others() {
        let latencies =
            |seed| (0..100).map(|number| model(&["--model-seed", seed]).latency(number)).collect::<Vec<_>>();
        assert_eq!(latencies("7"), latencies("7"));
        assert_ne!(latencies("7"), latencies("8"));
    }

    #[test]
    fn the_defaults_have_a_median_of_85_ms_and_a_mean_of_87_ms() {
        let all = sorted_ms(model(&[]));
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((all[all.len() / 2] - 85.4).abs() < 0.6, "median {}", all[all.len() / 2]);
        assert!((mean - 87.4).abs() < 0.4, "mean {mean}");
    }

    #[test]
    fn the_computing_time_is_log_normal() {
        let all = sorted_ms(model(&["--model-longtail-prob", "0", "--model-batch-wait-max-ms", "0"]));
        for (share, deviations) in [(0.022_75, -2.0), (0.158_655, -1.0), (0.5, 0.0), (0.841_345, 1.0), (0.977_25, 2.0)]
        {
            let (measured, expected) = (all[(share * all.len() as f64) as usize], 75.0 * (0.15_f64 * deviations).exp());
            assert!((measured / expected - 1.0).abs() < 0.01, "at {share}: {measured} instead of {expected}");
        }
    }

    #[test]
    fn without_spread_every_latency_is_the_delay() {
        let model = model(&[
            "--model-jitter-sigma=0",
            "--model-longtail-prob=0",
            "--model-batch-wait-max-ms=0",
            "--model-delay-ms=12",
        ]);
        assert!((0..1000).all(|number| model.latency(number) == Duration::from_millis(12)));
    }

    #[test]
    fn a_long_tail_multiplies_the_computing_time_but_not_the_wait() {
        let with =
            |share| model(&["--model-jitter-sigma=0", "--model-batch-wait-max-ms=20", "--model-longtail-prob", share]);
        for number in 0..1000 {
            let (short, long) = (with("0").latency(number), with("1").latency(number));
            assert_eq!((long - short).as_micros().div_ceil(10), 15_000);
        }
    }

    #[test]
    fn an_extreme_spread_does_not_crash_the_program() {
        let model = model(&["--model-jitter-sigma=1000000"]);
        assert!((0..1000).all(|number| model.latency(number) <= LONGEST));
    }
}
